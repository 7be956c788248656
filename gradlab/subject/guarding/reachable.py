"""What a callable can reach: the objects whose state a check must not disturb.

The walk goes breadth first from the objects that the user handed in, through
closures, defaults, bound objects, globals that the code names (its own module's, and
those of modules that it imports, unless these are libraries'), attributes and
containers. It never runs user code (no properties, no ``__getattr__``), never enters
the internals of libraries, and stops at a bound of depth, objects and time.
"""

from __future__ import annotations

import array
import collections
import enum
import functools
import random
import sys
import time
import types
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.guarding.library_code import (
    LEAF_TYPES,
    is_library,
    is_machinery,
    is_opaque,
)
from gradlab.subject.guarding.paths import (
    Found,
    Path,
    is_module,
    is_parameter,
    items_of,
    namespace_of,
    root_names,
    slots_of,
)
from gradlab.subject.guarding.reached import Reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["reach"]

_CACHED = type(functools.cache(len))
# Items looked into per container; the container itself is saved whole. A list that the
# user hands in is data; a longer one found on the way is a data set, not parameters.
_MAX_ITEMS = 4096
_BARE = frozenset({dict, list, tuple, set, frozenset, collections.OrderedDict})
_MAX_ROOT_ITEMS = 100_000
_CLOCK_EVERY = 256  # objects between two looks at the clock


class _Walk:
    """The queue, the bounds, and one method per way of holding other objects."""

    def __init__(self, seconds: float, max_objects: int, max_depth: int) -> None:
        self.found = Reach()
        self._queue: collections.deque[tuple[Any, Path, int]] = collections.deque()
        self._handlers: dict[type, Callable[..., None] | None] = {}
        self._entered: set[tuple[int, int]] = set()  # namespaces, by what code names
        self._deadline = time.perf_counter() + seconds
        self._left = max_objects
        self._max_depth = max_depth

    def _push(self, value: Any, path: Path, depth: int) -> None:
        if type(value) in LEAF_TYPES or id(value) in self.found.seen:
            return
        self.found.seen[id(value)] = value
        self._queue.append((value, path, depth))

    def run(self) -> None:
        """Empty the queue, or stop at a bound and say so in ``unguarded``."""
        queue, handlers = self._queue, self._handlers
        while queue:
            value, path, depth = queue.popleft()
            self._left -= 1
            # breadth first: all that is left is as far away, or farther
            if stop := self._bound_hit(depth):
                self.found.unguarded.append((path, f"{stop}; not looked into further"))
                return
            kind = type(value)
            if kind not in handlers:
                handlers[kind] = self._handler(kind)
            handler = handlers[kind]
            if handler is not None:
                handler(value, path, depth + 1)

    def _bound_hit(self, depth: int) -> str:
        if depth > self._max_depth:
            return f"more than {self._max_depth} steps away"
        if self._left < 0:
            return "too many objects to save"
        if not self._left % _CLOCK_EVERY and time.perf_counter() > self._deadline:
            return "too many objects to save in time"
        return ""

    def _handler(self, kind: type) -> Callable[..., None] | None:
        if issubclass(kind, np.ndarray):
            return self._array
        torch = sys.modules.get("torch")
        if torch is not None and issubclass(kind, getattr(torch, "Tensor", ())):
            return self._tensor
        for base, handler in (
            (dict, self._mapping),
            ((list, collections.deque), self._sequence),
            ((tuple, set, frozenset), self._sequence),
            ((bytearray, array.array), self._plain_buffer),
            (types.FunctionType, self._function),
            ((types.MethodType, types.BuiltinFunctionType), self._bound),
            (functools.partial, self._partial),
            ((staticmethod, classmethod, weakref.ReferenceType), self._wrapper),
            (type, self._class),
            (types.MappingProxyType, self._mapping),
            ((types.GeneratorType, types.CoroutineType), self._iterator),
            (random.Random, self._random),
        ):
            if issubclass(kind, base):
                return handler
        return self._instance_handler(kind)

    def _instance_handler(self, kind: type) -> Callable[..., None] | None:
        if issubclass(kind, (np.random.Generator, np.random.RandomState)) or (
            issubclass(kind, np.random.BitGenerator)
        ):
            return self._random
        torch = sys.modules.get("torch")
        if torch is not None and issubclass(kind, getattr(torch, "Generator", ())):
            return self._random
        jit = sys.modules.get("torch.jit")
        if jit is not None and issubclass(kind, getattr(jit, "ScriptModule", ())):
            return self._script
        if kind in (np.vectorize, _CACHED):
            return self._wrapper
        if issubclass(kind, enum.Enum):
            return None
        if "__next__" in kind.__dict__ and is_opaque(kind):
            return self._iterator
        if is_opaque(kind) and not is_module(kind):
            return None
        return self._instance

    # -- one method per way of holding other objects -------------------------------

    def _array(self, value: Any, path: Path, depth: int) -> None:
        self.found.arrays.append(Found(value, path))
        if value.dtype.hasobject and value.dtype.names is None:
            for index, item in enumerate(value.ravel()[:_MAX_ROOT_ITEMS].tolist()):
                self._push(item, (path, "item", index), depth)
        if type(value) is not np.ndarray:
            self._instance(value, path, depth)

    def _tensor(self, value: Any, path: Path, depth: int) -> None:
        self.found.tensors.append(Found(value, path))
        if value.is_leaf or value.retains_grad:  # else torch warns on .grad
            if is_parameter(value):
                self.found.parameters |= {id(value), id(value.grad)}
            self._push(value.grad, (path, "attr", "grad"), depth)
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            self._push(getattr(value, name, None), (path, "attr", name), depth)
        if vars(value):
            self._instance(value, path, depth)

    def _mapping(self, value: Any, path: Path, depth: int) -> None:
        kind: Any = dict if isinstance(value, dict) else type(value)  # may compute
        if kind is dict:
            self.found.containers.append(Found(value, path))
            if id(value) in self.found.foreign:
                self._mark_foreign(dict.values(value))
        for key, item in self._first(path, tuple(kind.items(value)), depth):
            if type(item) not in LEAF_TYPES:
                self._push(item, (path, "item", key), depth)
        if type(value) not in _BARE:
            self._attributes(value, path, depth)

    def _sequence(self, value: Any, path: Path, depth: int) -> None:
        if not isinstance(value, (tuple, frozenset)):
            self.found.containers.append(Found(value, path))
        items = items_of(value)
        if id(value) in self.found.foreign:
            self._mark_foreign(items)
        fields: tuple[str, ...] = getattr(type(value), "_fields", ())  # named tuple
        for index, item in enumerate(self._first(path, items, depth)):
            if type(item) not in LEAF_TYPES:
                named = index < len(fields)
                step = ("attr", fields[index]) if named else ("item", index)
                self._push(item, (path, *step), depth)
        if type(value) not in _BARE:
            self._attributes(value, path, depth)

    def _first(self, path: Path, items: tuple[Any, ...], depth: int) -> tuple[Any, ...]:
        most = _MAX_ITEMS if depth > 1 else _MAX_ROOT_ITEMS
        if len(items) > most:
            reason = f"only the first {most} of {len(items)} items were looked into"
            self.found.unguarded.append((path, reason))
        return items[:most]

    def _plain_buffer(self, value: Any, path: Path, _depth: int) -> None:
        self.found.containers.append(Found(value, path))

    def _random(self, value: Any, path: Path, _depth: int) -> None:
        self.found.random.append(Found(value, path))

    def _iterator(self, value: Any, path: Path, _depth: int) -> None:
        self.found.iterators.append(Found(value, path))
        self.found.unguarded.append((path, "an iterator cannot be rewound"))

    def _function(self, value: Any, _path: Path, depth: int) -> None:
        code = value.__code__
        for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=False):
            here: Path = (None, "name", name)
            if id(cell) not in self.found.seen:
                self.found.seen[id(cell)] = cell
                self.found.cells.append(Found(cell, here))
            try:
                content = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            if type(content) is types.ModuleType and not is_library(content.__name__):
                self._named(vars(content), code, here, depth)
            self._push(content, here, depth)
        positional = code.co_varnames[: code.co_argcount]
        defaults = value.__defaults__ or ()
        for name, item in zip(positional[::-1], defaults[::-1], strict=False):
            self._push(item, (None, "name", name), depth)
        for name, item in (value.__kwdefaults__ or {}).items():
            self._push(item, (None, "name", name), depth)
        # An example in a docstring is a user's code, whosever module it is in.
        example = code.co_filename.startswith("<doctest ")
        own = example or not is_library(value.__module__)
        if own or value.__dict__:  # empty ones may get attributes, such as a counter
            here = (None, "name", value.__name__)
            self._instance_dict(value.__dict__, here, depth)
        if own:
            self._globals(value.__globals__, code, depth)

    def _globals(self, space: dict[str, Any], code: types.CodeType, depth: int) -> None:
        self._named(space, code, None, depth)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._globals(space, constant, depth)

    def _named(
        self,
        space: dict[str, Any],
        code: types.CodeType,
        path: Path | None,
        depth: int,
    ) -> None:
        """Enter what code names of a namespace, and of the user's modules in there."""
        if (id(space), id(code)) in self._entered:
            return
        self._entered.add((id(space), id(code)))
        for name in code.co_names:  # attribute names too: a namesake does no harm
            if name not in space or name.startswith("__"):
                continue
            item = space[name]
            here: Path = (path, "attr", name) if path else (None, "name", name)
            if type(item) is not types.ModuleType:
                self.found.names.append(Found((space, name), here))
                self._push(item, here, depth)
            elif not is_library(item.__name__):
                self._named(vars(item), code, here, depth)

    def _bound(self, value: Any, path: Path, depth: int) -> None:
        owner = value.__self__
        if owner is not None and not isinstance(owner, types.ModuleType):
            here = path if path[2] == "self" else (path, "attr", "__self__")
            self._push(owner, here, depth)
        self._push(getattr(value, "__func__", None), path, depth)

    def _partial(self, value: Any, path: Path, depth: int) -> None:
        self._push(value.func, path, depth)
        names = getattr(getattr(value.func, "__code__", None), "co_varnames", ())
        for index, item in enumerate(value.args):
            named = index < len(names)
            here = (None, "name", names[index]) if named else (path, "item", index)
            self._push(item, here, depth)
        for name, item in value.keywords.items():
            self._push(item, (None, "name", name), depth)
        self._attributes(value, path, depth)

    def _wrapper(self, value: Any, path: Path, depth: int) -> None:
        if type(value) is _CACHED:
            self.found.unguarded.append((path, "a functools cache cannot be rewound"))
        if isinstance(value, weakref.ReferenceType):
            self._push(value(), path, depth)
        for name in ("__func__", "__wrapped__", "pyfunc"):
            self._push(getattr(value, name, None), path, depth)

    def _class(self, value: type, path: Path, depth: int) -> None:
        if is_library(value.__module__):
            return
        here = (None, "name", value.__name__)
        self.found.classes.append(Found(value, here))
        for name, item in tuple(value.__dict__.items()):
            if isinstance(item, property):
                for part in (item.fget, item.fset):
                    self._push(part, (here, "attr", name), depth)
            elif name not in ("__dict__", "__weakref__", "__doc__", "__module__"):
                self._push(item, (here, "attr", name), depth)
        for base in value.__mro__[1:]:
            self._push(base, path, depth)

    def _script(self, value: Any, path: Path, depth: int) -> None:
        for name, item in (*value.named_parameters(), *value.named_buffers()):
            self._push(item, (path, "attr", name), depth)
        for name, module in value.named_modules():
            here = (path, "attr", name) if name else path
            self.found.scripted.append(Found(module, here))

    def _mark_foreign(self, items: Iterable[Any]) -> None:
        """Note that containers inside a library's object are the library's as well."""
        holders = (dict, list, tuple, set, collections.deque)
        self.found.foreign.update(
            id(item) for item in items if isinstance(item, holders)
        )

    def _instance(self, value: Any, path: Path, depth: int) -> None:
        if module := is_module(type(value)):
            self.found.kinds.append(Found(value, path))
        if is_library(type(value).__module__):
            space = namespace_of(value)
            items = tuple((space or {}).values())
            if not module and any(map(is_machinery, items)):
                return
            self.found.foreign |= {id(value), id(space)}
            self._mark_foreign(items)
        self._attributes(value, path, depth)
        self._push(type(value), path, depth)

    def _attributes(self, value: Any, path: Path, depth: int) -> None:
        space = namespace_of(value)
        if space is not None:
            self._instance_dict(space, path, depth)
        if slots := slots_of(type(value)):
            self.found.slotted.append(Found(value, path))
            for slot in slots:
                try:
                    item = slot.__get__(value)
                except AttributeError:  # not set
                    continue
                self._push(item, (path, "attr", slot.__name__), depth)

    def _instance_dict(self, space: Mapping[str, Any], path: Path, depth: int) -> None:
        self.found.namespaces.append(Found(space, path))
        for name, item in tuple(space.items()):
            if type(item) not in LEAF_TYPES:
                self._push(item, (path, "attr", name), depth)


def reach(
    roots: Iterable[object],
    *,
    names: Sequence[str] | None = None,
    seconds: float = 1.0,
    max_objects: int = 200_000,
    max_depth: int = 100,
) -> Reach:
    """Walk everything that calling or holding `roots` could change.

    Parameters
    ----------
    roots
        Callables, arrays, tensors, modules, optimisers, containers. An object that
        several roots reach keeps the name that the first of them gives it.
    names
        One name per root for messages; by default those of `root_names`.
    seconds
        Bound on time; a second is 10 times what a model of 5,000 modules needs.
    max_objects, max_depth
        Bounds on the walk. The path where one was hit is in ``unguarded``.

    Returns
    -------
    Reach
        What was reached, nearest first.

    Examples
    --------
    >>> weights = {"W1": np.zeros(2)}
    >>> from gradlab.subject.guarding.paths import path_text
    >>> found = reach([lambda: weights["W1"].sum()])
    >>> [path_text(array.path) for array in found.arrays]
    ["weights['W1']"]
    """
    roots = tuple(roots)
    walk = _Walk(seconds, max_objects, max_depth)
    for root, name in zip(roots, names or root_names(roots), strict=True):
        walk._push(root, (None, "name", name), 0)  # noqa: SLF001 - its own maker
    walk.run()
    return walk.found
