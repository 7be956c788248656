"""Every place that holds some object: where another may stand in for it for a while."""

from __future__ import annotations

import contextlib
import functools
import types
from typing import TYPE_CHECKING, Any, NamedTuple

from gradlab.subject.guarding.paths import namespace_of
from gradlab.subject.guarding.reachable import reach

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

__all__ = ["Holder", "exchanged", "exchanged_where_kept", "holders_of"]


class Holder(NamedTuple):
    """A place that can be written to, and what it held when it was found."""

    space: Any  # the dict, list, cell or function
    get: Callable[[], Any]
    put: Callable[[Any], None]
    held: Any  # one of the objects, or a tuple with some of them in it

    def parts(self) -> tuple[Any, ...]:
        """Objects that are held, those not asked for included."""
        return self.held if type(self.held) is tuple else (self.held,)

    def other(self, others: Mapping[int, Any]) -> Any:
        """Say what is to stand here, by the ids of what it stands for."""
        if type(self.held) is tuple:
            return tuple(others.get(id(part), part) for part in self.held)
        return others[id(self.held)]

    def exchange(self, others: Mapping[int, Any]) -> None:
        """Put others here; ``put(held)`` undoes it."""
        self.put(self.other(others))


@contextlib.contextmanager
def exchanged(
    places: Sequence[Holder], originals: Sequence[Any], others: Sequence[Any]
) -> Iterator[None]:
    """Put others where originals stand, and the originals back in the end."""
    pairs = zip(originals, others, strict=True)
    table = {id(original): other for original, other in pairs}
    try:
        for place in places:
            place.exchange(table)
        yield
    finally:
        for place in places:
            place.put(place.held)


@contextlib.contextmanager
def exchanged_where_kept(
    places: Sequence[Holder], others: Mapping[int, Any]
) -> Iterator[None]:
    """Put others, by id, where originals still stand, and back what is left of them.

    A place that the code in between writes to, such as the cache of a layer, holds what
    it wrote, then and in all that follows.
    """
    kept = [(place, place.other(others)) for place in places]
    kept = [(place, other) for place, other in kept if place.get() is place.held]
    try:
        for place, other in kept:
            place.put(other)
        yield
    finally:
        for place, other in kept:
            if place.get() is other:
                place.put(place.held)


def holders_of(ids: Collection[int], roots: Sequence[object]) -> Iterator[Holder]:
    """Find what holds some objects: dicts, lists, attributes, closures, globals.

    Defaults of functions as well.

    Parameters
    ----------
    ids
        Of the objects, which somebody else keeps alive.
    roots
        What the user passed: everything through which they may be read.

    Examples
    --------
    >>> one, spare = object(), object()
    >>> net = {"first": one, "all": [one]}
    >>> for place in holders_of({id(one)}, [net]):
    ...     place.exchange({id(one): spare})
    >>> net["first"] is spare, net["all"][0] is spare
    (True, True)
    """
    found = reach(roots)
    spaces = [f.value for f in (*found.containers, *found.namespaces)]
    spaces += [namespace_of(f.value) for f in found.kinds]
    cells = [f.value for f in found.cells]
    functions = [f for f in found.seen.values() if type(f) is types.FunctionType]
    spaces += [each.__kwdefaults__ for each in functions]
    # globals that the code names, such as W in a notebook
    names = {(id(space), name): space for (space, name), _ in found.names}
    places = [
        *(place for space in _once(spaces) for place in _items(space)),
        *((cell, "cell_contents", setattr) for cell in cells),
        *((each, "__defaults__", setattr) for each in functions),
        *((space, name, dict.__setitem__) for (_, name), space in names.items()),
    ]
    for space, key, setter in places:
        value = _value(space, key)
        parts = value if type(value) is tuple else (value,)
        if any(id(part) in ids for part in parts):
            get = functools.partial(_value, space, key)
            yield Holder(space, get, functools.partial(setter, space, key), value)


def _once(spaces: Iterable[Any]) -> Iterable[Any]:
    return {id(space): space for space in spaces}.values()


def _items(space: Any) -> list[tuple[Any, Any, Any]]:
    """List the places in a dict or a list, and how to write to one."""
    if isinstance(space, dict):
        return [(space, key, dict.__setitem__) for key in space]
    if isinstance(space, list):
        return [(space, index, list.__setitem__) for index in range(len(space))]
    return []


def _value(space: Any, key: Any) -> Any:
    if isinstance(space, dict):
        return dict.get(space, key)
    if isinstance(space, list):
        return list.__getitem__(space, key)
    try:
        return getattr(space, key)
    except ValueError:  # a cell that is not assigned yet
        return None
