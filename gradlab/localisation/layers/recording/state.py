"""What a call depends on besides its inputs: random state, attributes, buffers.

For the time of an audit all buffers of the model are replaced by private copies, so
that running statistics move in the copies; parameters are never written to, perturbed
copies stand in for them instead.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import random
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.guarding.random_state import same_state

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from gradlab.subject.guarding.random_state import SavedRandom

__all__ = [
    "Attributes",
    "Entry",
    "RandomState",
    "enter",
    "entry_of",
    "kept_attributes",
    "private_buffers",
    "random_now",
    "without_fast_paths",
]

_CONTAINERS = (list, dict, set, collections.deque, collections.OrderedDict)
_PLAIN = (bool, int, float, str, type(None))  # most attributes of most modules
_MOST_ITEMS = 10_000  # longer ones are data sets and vocabularies, not state
# torch's own tables of a module; none is the user's state, all are guarded elsewhere.
_TABLES = frozenset(
    {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"}
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RandomState:
    """Random generators at one moment: those that every process has, and found ones.

    Those are what a model holds, in attributes or globals, each with its state.
    """

    torch: Any
    cuda: tuple[Any, ...]
    numpy: Any
    python: Any
    found: tuple[tuple[SavedRandom, Any], ...] = ()

    def put_back(self) -> None:
        """Rewind all of them to this moment."""
        import torch

        torch.set_rng_state(self.torch)
        for index, state in enumerate(self.cuda):
            torch.cuda.set_rng_state(state, index)
        np.random.set_state(self.numpy)  # noqa: NPY002 - the user's global
        random.setstate(self.python)
        for source, state in self.found:
            source.put(state)

    def same(self, other: RandomState) -> bool:
        """Whether nothing was drawn in between."""
        import torch

        pairs = zip((self.torch, *self.cuda), (other.torch, *other.cuda), strict=True)
        return (
            all(torch.equal(one, two) for one, two in pairs)
            and self.python == other.python
            and self.numpy["state"]["pos"] == other.numpy["state"]["pos"]
            and np.array_equal(self.numpy["state"]["key"], other.numpy["state"]["key"])
            and self.numpy["has_gauss"] == other.numpy["has_gauss"]
            and all(
                same_state(one, two)
                for (_, one), (_, two) in zip(self.found, other.found, strict=True)
            )
        )


def random_now(
    before: RandomState | None = None, generators: Sequence[SavedRandom] = ()
) -> RandomState:
    """Save the generators; `before` itself if nothing was drawn since.

    Handing the old object on keeps the memory of thousands of calls small.

    Parameters
    ----------
    before
        An earlier moment; the same generators are saved.
    generators
        Of the model's own, where there is no earlier one.
    """
    import torch

    cuda: Any = torch.cuda
    started = cuda.is_initialized()
    now = RandomState(
        torch.get_rng_state(),
        tuple(torch.cuda.get_rng_state_all()) if started else (),
        np.random.get_state(legacy=False),  # noqa: NPY002 - the user's global
        random.getstate(),
        tuple(
            (source, source.now())
            for source in ([s for s, _ in before.found] if before else generators)
        ),
    )
    if before is not None and len(before.cuda) == len(now.cuda) and before.same(now):
        return before
    return now


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """State at the beginning of one call.

    Parameters
    ----------
    random
        Generators, global and found.
    attributes
        Attributes of the module, containers copied one level deep.
    buffers
        Values of its own buffers; not to be written to.
    """

    random: RandomState
    attributes: Mapping[str, Any]
    buffers: Mapping[str, Any]


def entry_of(
    module: Any, state: RandomState, copies: dict[int, tuple[Any, int, Any]]
) -> Entry:
    """Note the state of a module (or of anything else: only `state`) before a call.

    Parameters
    ----------
    module
        What is about to be called.
    state
        Generators now.
    copies
        Copies of buffers made so far, by identity, with the version they show; a
        buffer that did not change since is not copied again.
    """
    if not _is_open(module):
        return Entry(state, {}, {})
    attributes = {
        key: _shallow(value)
        for key, value in vars(module).items()
        if not _is_torchs(key)
    }
    buffers: dict[str, Any] = {}
    for name, buffer in module._buffers.items():  # noqa: SLF001 - torch's table
        if buffer is None:
            buffers[name] = None
            continue
        known = copies.get(id(buffer))
        if known is None or known[1] != buffer._version:  # noqa: SLF001
            known = buffer, buffer._version, buffer.detach().clone()  # noqa: SLF001
            copies[id(buffer)] = known
        buffers[name] = known[2]
    return Entry(state, attributes, buffers)


def _is_torchs(attribute: str) -> bool:
    return attribute in _TABLES or "_hooks" in attribute


def _is_open(module: Any) -> bool:
    """Whether something is a module that Python can look into (not a compiled one)."""
    import torch

    return isinstance(module, torch.nn.Module) and isinstance(
        module._buffers,  # noqa: SLF001 - torch's table
        dict,
    )


def _shallow(value: Any) -> Any:
    """Copy a container one level deep; cut tensors off their graph, which is gone."""
    import torch

    if type(value) in _PLAIN:
        return value
    if isinstance(value, torch.Tensor) and value.grad_fn is not None:
        return value.detach()
    if type(value) in _CONTAINERS and len(value) <= _MOST_ITEMS:
        return _Contents(value, value.copy())
    return value


def _items(container: Any) -> list[Any]:
    own = container.values() if isinstance(container, dict) else ()
    return [*container, *own]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Contents:
    """A container and what was in it."""

    container: Any
    items: Any

    def is_other(self) -> bool:
        """Whether something came, went, or gave way to something else."""
        now, then = (
            [id(item) for item in _items(each)] for each in (self.container, self.items)
        )
        return now != then

    def put_back(self) -> Any:
        self.container.clear()
        if isinstance(self.container, (dict, set)):
            self.container.update(self.items)
        else:
            self.container.extend(self.items)
        return self.container


@contextlib.contextmanager
def enter(
    module: Any, entry: Entry, cast: Callable[[Any], Any], *, rewind: bool
) -> Iterator[None]:
    """Put a module into the state it had on entry, and undo it afterwards.

    Parameters
    ----------
    module
        A module; anything else only gets its random state.
    entry
        From `entry_of`.
    cast
        Applied to buffers and to tensors among the attributes (to raise precision).
    rewind
        Whether random generators matter to the call.
    """
    if rewind:
        entry.random.put_back()
    if not _is_open(module):
        yield
        return
    table, own = vars(module), dict(vars(module))
    buffers = module._buffers  # noqa: SLF001 - torch's table
    kept = dict(buffers)
    try:
        _set_attributes(table, entry, cast)
        for name, value in entry.buffers.items():
            buffers[name] = None if value is None else cast(value.clone())
        yield
    finally:
        _set_attributes(table, entry, lambda tensor: tensor)
        _put_back(table, own)
        buffers.clear()
        buffers.update(kept)


def _put_back(
    table: dict[str, Any], own: dict[str, Any], left: Collection[str] = ()
) -> None:
    """Let a module's attributes be its own again, and no others but those `left`."""
    for key in [key for key in table if key not in own and key not in left]:
        del table[key]
    table.update((key, value) for key, value in own.items() if key not in left)


def _set_attributes(
    table: dict[str, Any], entry: Entry, cast: Callable[[Any], Any]
) -> None:
    import torch

    for key, value in entry.attributes.items():
        if isinstance(value, _Contents):
            table[key] = value.put_back()
        elif isinstance(value, torch.Tensor):
            table[key] = cast(value)
        else:
            table[key] = value


class Attributes:
    """Attributes of all modules of a model at one moment, and items of containers.

    Counters, caches, what a model remembers of its last call.

    Parameters
    ----------
    root
        The model.
    tables
        Whether the items of torch's own tables are among them: parameters, for which
        others may stand in meanwhile.
    """

    def __init__(self, root: Any, *, tables: bool = False) -> None:
        # what a module runs is exchanged meanwhile, if it replays a graph: see `audit`
        self._left = () if tables else ("forward",)
        self._kept: list[tuple[Any, dict[str, Any], list[Any]]] = []
        for module in filter(_is_open, root.modules()):
            own = dict(vars(module))
            contents = [
                _shallow(value)
                for key, value in own.items()
                if tables or not _is_torchs(key)
            ]
            self._kept.append((module, own, contents))

    def only(self, chosen: Callable[[Any], bool]) -> Attributes:
        """Keep those of chosen modules that have others, or other items, by now."""
        found = copy.copy(self)
        vars(found)["_kept"] = [
            (module, own, contents)
            for module, own, contents in self._kept
            if chosen(module) and _are_others(vars(module), own, contents)
        ]
        return found

    def put_back(self) -> None:
        """Let modules have them again, and no others."""
        for module, own, contents in self._kept:
            _put_back(vars(module), own, self._left)
            for value in contents:
                if isinstance(value, _Contents):
                    value.put_back()


def _are_others(
    table: Mapping[str, Any], own: Mapping[str, Any], contents: Sequence[Any]
) -> bool:
    """Whether attributes are others by now, or items of containers."""
    return (
        table.keys() != own.keys()
        or any(table[key] is not value for key, value in own.items())
        or any(isinstance(kept, _Contents) and kept.is_other() for kept in contents)
    )


@contextlib.contextmanager
def kept_attributes(root: Any) -> Iterator[None]:
    """Put attributes of all modules back: counters, caches, items of containers."""
    before = Attributes(root, tables=True)
    try:
        yield
    finally:
        before.put_back()


@contextlib.contextmanager
def private_buffers(root: Any) -> Iterator[None]:
    """Let a model work on copies of its buffers; the originals come back untouched.

    Sharing is kept: one buffer registered twice becomes one copy registered twice.
    """
    tables = [module._buffers for module in root.modules()]  # noqa: SLF001 - torch's
    # Compiled modules hold their buffers elsewhere, and cannot be looked into.
    kept = [(table, dict(table)) for table in tables if isinstance(table, dict)]
    copies: dict[int, Any] = {}
    try:
        for table, own in kept:
            for name, buffer in own.items():
                if buffer is not None:
                    if id(buffer) not in copies:
                        copies[id(buffer)] = buffer.detach().clone()
                    table[name] = copies[id(buffer)]
        yield
    finally:
        for table, own in kept:
            table.clear()
            table.update(own)


@contextlib.contextmanager
def without_fast_paths() -> Iterator[None]:
    """Keep torch from skipping layers: its attention does so where nothing records."""
    import torch

    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
