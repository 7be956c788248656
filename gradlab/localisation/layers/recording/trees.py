"""Tensors inside arguments and results: found in order, taken out, put back."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Hole", "fill", "leaves", "map_leaves", "take_out"]


@dataclasses.dataclass(frozen=True, slots=True)
class Hole:
    """Place of a tensor in a template, by its position in the list of tensors."""

    index: int


def map_leaves(
    tree: Any, kind: type | tuple[type, ...], change: Callable[..., Any]
) -> Any:
    """Rebuild nested lists, tuples, mappings and dataclasses with changed leaves.

    Parameters
    ----------
    tree
        Any object; what is neither a container nor of type `kind` is kept as it is.
    kind
        Type of the leaves.
    change
        Called on every leaf, in order.

    Examples
    --------
    >>> map_leaves({"a": (1, [2.0]), "b": "text"}, float, lambda leaf: leaf + 1)
    {'a': (1, [3.0]), 'b': 'text'}
    """
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, Mapping):
        changed = {key: map_leaves(item, kind, change) for key, item in tree.items()}
        if type(tree) is dict:
            return changed
        if all(changed[key] is tree[key] for key in changed):
            return tree
        twin: Any = copy.copy(tree)
        for key, item in changed.items():
            twin[key] = item
        return twin
    if isinstance(tree, (list, tuple)):
        items = [map_leaves(item, kind, change) for item in tree]
        if all(new is old for new, old in zip(items, tree, strict=True)):
            return tree
        # Named tuples are made past their constructors, which may ask for tensors.
        make: Any = getattr(tree, "_make", type(tree))
        return make(items)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        if isinstance(tree, Hole):
            return tree
        twin = copy.copy(tree)
        for field in dataclasses.fields(tree):
            if hasattr(tree, field.name):
                item = map_leaves(getattr(tree, field.name), kind, change)
                object.__setattr__(twin, field.name, item)
        return twin
    return tree


def leaves(tree: Any, kind: type | tuple[type, ...]) -> list[Any]:
    """List the leaves of type `kind`, in order.

    Examples
    --------
    >>> leaves({"a": (1, [2.0]), "b": 3.0}, float)
    [2.0, 3.0]
    """
    found: list[Any] = []

    def note(leaf: Any) -> Any:
        found.append(leaf)
        return leaf

    map_leaves(tree, kind, note)
    return found


def take_out(tree: Any, kind: type) -> tuple[Any, list[Any]]:
    """Replace leaves by holes; the same object twice is the same hole twice.

    Returns
    -------
    template, leaves
        `fill` puts them together again.

    Examples
    --------
    >>> x = 2.5
    >>> take_out((x, "mode", [x, 3.5]), float)
    ((Hole(index=0), 'mode', [Hole(index=0), Hole(index=1)]), [2.5, 3.5])
    """
    found: list[Any] = []
    place: dict[int, Hole] = {}

    def cut(leaf: Any) -> Hole:
        if id(leaf) not in place:
            place[id(leaf)] = Hole(len(found))
            found.append(leaf)
        return place[id(leaf)]

    return map_leaves(tree, kind, cut), found


def fill(template: Any, values: Sequence[Any]) -> Any:
    """Put values into the holes of a template.

    Examples
    --------
    >>> fill((Hole(0), "mode", [Hole(1)]), [1.0, 2.0])
    (1.0, 'mode', [2.0])
    """
    return map_leaves(template, Hole, lambda hole: values[hole.index])
