"""What a function holds, exchanged for a while, and put back whatever happens.

Nothing is written through code of the user's: neither a ``__setitem__`` nor a property
nor a ``__setattr__`` runs, so what a frozen dataclass or dict holds is exchanged too.
"""

from __future__ import annotations

import contextlib
import functools
import types
from typing import TYPE_CHECKING, Any, NamedTuple

from gradlab.subject.guarding.interrupts import MOST_RETRIES, DeferredInterrupt
from gradlab.subject.guarding.library_code import is_library
from gradlab.subject.guarding.paths import slots_of
from gradlab.subject.guarding.reachable import reach
from gradlab.subject.guarding.snapshot import Bindings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    from gradlab.subject.guarding.reached import Reach

__all__ = ["Exchanged", "Place", "attribute_of", "item_of", "places_of"]


class Place(NamedTuple):
    """Something that holds a value: how to read it, and how to write to it."""

    get: Callable[[], Any]  # None where nothing is there
    put: Callable[[Any], None]


class Exchanged:
    """Let other values stand in places of the user's for the body of a ``with`` block.

    What cannot be written to is left. Whatever else names, attributes and containers
    are bound to meanwhile goes in the end, counters and logs apart: results that a
    function keeps for later came of the other values. A Ctrl-C while things are written
    is delivered when they are.

    Parameters
    ----------
    roots
        Through which the function is reached.
    other
        Says what is to stand for a value: the very same where nothing is to change.
    also
        Places that `roots` do not reach, and what is to stand in each.

    Examples
    --------
    >>> settings = {"tol": 1e-3, "n": 5}
    >>> with Exchanged([settings], lambda held: 0.5 if held == 1e-3 else held):
    ...     settings["tol"], settings["n"]
    (0.5, 5)
    >>> settings
    {'tol': 0.001, 'n': 5}
    """

    def __init__(
        self,
        roots: Sequence[object],
        other: Callable[[Any], Any],
        also: Sequence[tuple[Place, Any]] = (),
    ) -> None:
        self._roots, self._other, self._also = roots, other, also
        self._written: list[tuple[Place, Any]] = []  # the last one first to go back
        self._bindings: Bindings | None = None
        self._interrupt = DeferredInterrupt(
            self, Exchanged.__enter__, Exchanged.__exit__
        )

    def __enter__(self) -> Self:
        self._interrupt.install()
        try:
            self._write()
            if self._interrupt.pending:
                self._interrupt.deliver()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _write(self) -> None:
        found = reach(self._roots)
        self._bindings = Bindings(found)
        for place in places_of(found):
            held = place.get()
            self._put(place, held, self._other(held))
        for place, other in self._also:
            self._put(place, place.get(), other)

    def _put(self, place: Place, held: Any, other: Any) -> None:
        if other is not held:
            self._written.append((place, held))  # before: it may be interrupted
            with contextlib.suppress(Exception):
                place.put(other)

    def __exit__(self, *_exception: object) -> None:
        stopped: BaseException | None = None
        for _ in range(MOST_RETRIES):
            try:
                self._put_back()
                break
            except BaseException as error:  # noqa: BLE001 - raised in here, by a thread
                stopped = error
        self._interrupt.remove()
        self._interrupt.deliver()
        if stopped is not None:
            raise stopped

    def _put_back(self) -> None:
        """Put back what was written, then what was bound; may be repeated."""
        while self._written:
            place, held = self._written[-1]
            _tried(functools.partial(place.put, held))
            self._written.pop()
        if self._bindings is not None:
            self._bindings.restore_with(_tried, keep_tallies=True)
            self._bindings = None


def _tried(work: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):  # the others are put back all the same
        work()


def places_of(found: Reach) -> Iterator[Place]:
    """Go over all places in what was reached: of the user's, not of libraries'.

    Variables of closures, globals, attributes (in slots as well), items of dicts and
    lists, defaults and code of functions, arguments that ``functools.partial`` keeps.
    """
    for cell in found.cells:
        yield Place(
            functools.partial(_content, cell.value),
            functools.partial(setattr, cell.value, "cell_contents"),
        )
    for (space, name), _ in found.names:
        yield item_of(space, name)
    for each in (*found.namespaces, *found.containers):
        if id(each.value) not in found.foreign:
            yield from _items(each.value)
    for each in found.slotted:
        if id(each.value) not in found.foreign:
            yield from (_slot(slot, each.value) for slot in slots_of(type(each.value)))
    for each in found.classes:
        yield from (_class_attribute(each.value, n) for n in tuple(vars(each.value)))
    for value in tuple(found.seen.values()):
        if type(value) is types.FunctionType and _is_own(value):
            yield attribute_of(value, "__code__")
            yield attribute_of(value, "__defaults__")
            yield from _items(value.__kwdefaults__)
        elif isinstance(value, functools.partial):
            yield from _items(value.keywords)
            yield _arguments(value)


def _is_own(function: types.FunctionType) -> bool:
    # an example in a docstring is a user's code, whosever module it is in
    example = function.__code__.co_filename.startswith("<doctest ")
    return example or not is_library(function.__module__)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _items(space: Any) -> Iterator[Place]:
    if isinstance(space, dict):
        yield from (item_of(space, key) for key in tuple(dict.keys(space)))
    elif isinstance(space, list):
        yield from (_entry(space, index) for index in range(list.__len__(space)))


def item_of(space: dict[Any, Any], key: Any) -> Place:
    """Where a dict holds what it has by a key, as long as it has it."""

    def put(value: Any) -> None:
        if dict.__contains__(space, key):  # an OrderedDict keeps a list of its keys
            dict.__setitem__(space, key, value)

    return Place(functools.partial(dict.get, space, key), put)


def _entry(space: list[Any], index: int) -> Place:
    def get() -> Any:
        there = index < list.__len__(space)
        return list.__getitem__(space, index) if there else None

    return Place(get, functools.partial(list.__setitem__, space, index))


def _slot(slot: types.MemberDescriptorType, owner: Any) -> Place:
    def get() -> Any:
        try:
            return slot.__get__(owner)
        except AttributeError:  # not set
            return None

    return Place(get, functools.partial(slot.__set__, owner))


def _class_attribute(owner: type, name: str) -> Place:
    return Place(
        functools.partial(vars(owner).get, name),
        functools.partial(type.__setattr__, owner, name),
    )


def attribute_of(owner: types.FunctionType, name: str) -> Place:
    """Where a function holds its code, or its defaults."""
    return Place(
        functools.partial(getattr, owner, name),
        functools.partial(setattr, owner, name),
    )


def _arguments(call: functools.partial[Any]) -> Place:
    def put(arguments: Any) -> None:
        state: Any = functools.partial.__reduce__(call)[2]
        function, _, *rest = state
        put_back: Any = functools.partial.__setstate__  # type: ignore[attr-defined]
        put_back(call, (function, arguments, *rest))

    return Place(lambda: call.args, put)
