"""Nested inputs: dicts, tuples and lists of arrays, taken apart and put together.

Names are paths. A dict contributes its keys (``"W1"``, nested ``"cell.h"``), a tuple
or list the argument's name and positions (``"xs.0"``), a bare array the argument's
name from the signature, or ``x0, x1, ...`` where there is none.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

from gradlab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "Leaf",
    "Tree",
    "argument_names",
    "flatten",
    "is_mapping",
    "leaves_of",
    "rename",
]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """One thing that is not a container, and the path that leads to it."""

    name: str
    value: Any


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """Positional arguments, taken apart."""

    leaves: tuple[Leaf, ...]
    template: tuple[Any, ...]  # the arguments, with a `_Slot` where each leaf was

    def rebuild(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Put the arguments together again around other leaves."""
        return tuple(_fill(part, values) for part in self.template)

    def with_values(self, others: Mapping[int, Any]) -> Tree:
        """Return the same arguments with other values at some positions.

        Examples
        --------
        >>> tree = flatten((1, {"w": 2}), ["x", "p"])
        >>> [(leaf.name, leaf.value) for leaf in tree.with_values({1: 3}).leaves]
        [('x', 1), ('w', 3)]
        """
        leaves = list(self.leaves)
        for position, value in others.items():
            leaves[position] = Leaf(leaves[position].name, value)
        return Tree(tuple(leaves), self.template)


@dataclasses.dataclass(frozen=True, slots=True)
class _Slot:
    position: int


def argument_names(fn: Callable[..., Any], count: int) -> list[str]:
    """Names of the first `count` positional arguments of `fn`.

    Examples
    --------
    >>> argument_names(lambda x, w: None, 2)
    ['x', 'w']
    >>> argument_names(np.sin, 1)
    ['x0']
    """
    names: list[str] = []
    source, skipped = _source_of_names(fn)
    try:
        parameters = inspect.signature(source).parameters
    except (TypeError, ValueError):
        parameters = {}  # type: ignore[assignment] # ufuncs and built-ins have none
    positional = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    # numpy ufuncs answer with "x, /, out=..." since 2.x; their names mean nothing
    if type(fn).__name__ != "ufunc":
        names = [p.name for p in parameters.values() if p.kind in positional]
    names = names[skipped:]
    first = len(names)
    rest = [p.name for p in parameters.values() if p.kind is p.VAR_POSITIONAL]
    # *xs of a Function are what its author calls xs; those of a wrapper are anything
    called = f"{rest[0]}." if rest and source is not fn and skipped else ""
    for i in range(first, count):
        names.append(f"{called}{i - first}" if called else f"x{i}")
    return names[:count]


def _source_of_names(fn: Any) -> tuple[Any, int]:
    """Where to read argument names, and how many of them to skip.

    A module's names are those of its ``forward``; those of ``Function.apply`` stand in
    the ``forward`` of the class, behind ``ctx`` unless ``setup_context`` takes that.
    """
    owner = getattr(fn, "__self__", None)
    is_apply = getattr(fn, "__name__", "") == "apply" and isinstance(owner, type)
    if is_apply and owner is not None and hasattr(owner, "forward"):
        own = [c for c in owner.__mro__ if not c.__module__.startswith("torch.")]
        apart = any("setup_context" in vars(kind) for kind in own)
        return owner.forward, 0 if apart else 1
    forward = getattr(fn, "forward", None)
    if forward is not None and hasattr(fn, "named_parameters"):
        return forward, 0
    return fn, 0


def flatten(arguments: Sequence[Any], names: Sequence[str]) -> Tree:
    """Take positional arguments apart.

    Parameters
    ----------
    arguments
        The positional arguments, nested as the user likes.
    names
        One name for each argument, from `argument_names`.
    """
    leaves: list[Leaf] = []
    template = tuple(
        _empty(argument, "" if is_mapping(argument) else name, leaves)
        for argument, name in zip(arguments, names, strict=True)
    )
    return Tree(tuple(leaves), template)


def leaves_of(value: Any, name: str) -> list[Leaf]:
    """Leaves of one value, for results and gradients.

    Examples
    --------
    >>> [leaf.name for leaf in leaves_of((1, {"a": 2}), "out")]
    ['out.0', 'out.1.a']
    """
    leaves: list[Leaf] = []
    _empty(value, name, leaves)
    return leaves


def rename(
    found: Sequence[str], names: Sequence[str] | Mapping[str, str] | None
) -> list[str]:
    """Apply the user's ``names=`` and refuse names that collide.

    Parameters
    ----------
    found
        Names from paths and signatures, of the differentiable inputs.
    names
        A sequence with one name for each, or a mapping from found to wanted names.

    Raises
    ------
    InputError
        If the number is wrong, a mapping's key is unknown, or two names are equal.
    """
    if names is None:
        result = list(found)
    elif isinstance(names, str):
        result = [names]
    elif is_mapping(names):
        unknown = [key for key in names if key not in found]
        if unknown:
            msg = f"names= renames {unknown}, but the inputs are {list(found)}"
            raise InputError(msg)
        result = [names.get(name, name) for name in found]  # type: ignore[union-attr] # a mapping
    else:
        result = [str(name) for name in names]
    if "" in result:
        msg = f"names= gives an empty name: {result}; gradients are reported by name"
        raise InputError(msg)
    if len(result) != len(found):
        msg = (
            f"names= gives {len(result)} for the differentiable inputs "
            f"{', '.join(map(repr, found))}"
        )
        raise InputError(msg)
    twice = sorted({name for name in result if result.count(name) > 1})
    if twice:
        msg = (
            f"two inputs are called {twice[0]!r} (all: {result}); "
            f"pass names= with one distinct name for each"
        )
        raise InputError(msg)
    return result


def is_mapping(value: object) -> bool:
    """Whether a value is a container with names, and no array that has some too.

    Examples
    --------
    >>> import pandas
    >>> is_mapping({"w": 1.0}), is_mapping(pandas.DataFrame({"w": [1.0]}))
    (True, False)
    """
    return isinstance(value, dict) or (
        hasattr(value, "keys")
        and hasattr(value, "__getitem__")
        and not hasattr(value, "dtype")
        and not hasattr(value, "__array__")
    )


def _empty(
    value: Any, path: str, leaves: list[Leaf], above: tuple[int, ...] = ()
) -> Any:
    """Append the leaves of `value`; return it with slots in their place.

    `above` are the identities of the containers that it is in.
    """
    mapping, sequence = is_mapping(value), isinstance(value, tuple | list)
    if id(value) in above and (mapping or sequence):
        msg = f"{path} holds itself, and so has no end; pass the arrays in it"
        raise InputError(msg)
    inside = (*above, id(value))

    def emptied(key: object, part: Any) -> Any:
        return _empty(part, f"{path}.{key}" if path else str(key), leaves, inside)

    if mapping:
        return _Mapping(value, {key: emptied(key, value[key]) for key in value})
    if sequence:
        fields = getattr(value, "_fields", range(len(value)))
        return _Sequence(type(value), list(map(emptied, fields, value)))
    leaves.append(Leaf(path, value))
    return _Slot(len(leaves) - 1)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Mapping:
    original: Any
    parts: dict[Any, Any]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Sequence:
    kind: type
    parts: list[Any]


def _fill(part: Any, values: Sequence[Any]) -> Any:
    if isinstance(part, _Slot):
        return values[part.position]
    if isinstance(part, _Mapping):
        filled = {key: _fill(inner, values) for key, inner in part.parts.items()}
        if type(part.original) is dict:
            return filled
        try:
            copy = part.original.copy()
            copy.update(filled)
        except (AttributeError, TypeError):
            return filled  # a mapping that cannot be copied: a plain dict will do
        return copy
    if isinstance(part, _Sequence):
        parts = [_fill(inner, values) for inner in part.parts]
        named = hasattr(part.kind, "_fields")
        return part.kind(*parts) if named else part.kind(parts)
    return part
