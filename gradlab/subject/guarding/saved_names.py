"""What names are bound to: closures, globals, slots, classes; where iterators are.

Records like those of `saved_state`, for objects that are not containers.
"""

from __future__ import annotations

import itertools
import operator
import types
from typing import TYPE_CHECKING, Any

from gradlab.subject.guarding.paths import path_text, slots_of
from gradlab.subject.guarding.saved_state import ABSENT, Change, kept, same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.subject.guarding.paths import Found

__all__ = [
    "SavedCell",
    "SavedClass",
    "SavedIterator",
    "SavedKind",
    "SavedName",
    "SavedSlots",
]


class SavedCell:
    """A variable of a closure: bound to the same object."""

    __slots__ = ("_content", "_found")

    def __init__(self, found: Found) -> None:
        self._found = found
        self._content = self._now()

    def _now(self) -> Any:
        try:
            return self._found.value.cell_contents
        except ValueError:
            return ABSENT

    def changes(self) -> Iterator[Change]:
        """Yield what differs, see `Saved`."""
        if not same(self._now(), self._content):
            yield Change("variable", path_text(self._found.path))

    def restore(self, *, keep_tallies: bool = False) -> None:
        """Put back what differs, see `SavedBinding`."""
        cell: types.CellType = self._found.value
        now = self._now()
        target = kept(now, self._content, keep_tallies)
        if now is target:
            return
        if target is ABSENT:
            del cell.cell_contents
        else:
            cell.cell_contents = target


class SavedName:
    """A global variable that the code names: bound to the same object."""

    __slots__ = ("_found", "_value")

    def __init__(self, found: Found) -> None:
        self._found = found
        space, name = found.value
        self._value = space.get(name, ABSENT)

    def changes(self) -> Iterator[Change]:
        """Yield what differs, see `Saved`."""
        space, name = self._found.value
        if not same(space.get(name, ABSENT), self._value):
            yield Change("variable", path_text(self._found.path))

    def restore(self, *, keep_tallies: bool = False) -> None:
        """Put back what differs, see `SavedBinding`."""
        space, name = self._found.value
        target = kept(space.get(name, ABSENT), self._value, keep_tallies)
        if space.get(name, ABSENT) is not target:
            space[name] = target


class SavedSlots:
    """An instance with ``__slots__``: every slot bound as it was."""

    __slots__ = ("_found", "_values")

    def __init__(self, found: Found) -> None:
        self._found = found
        self._values = [(slot, self._now(slot)) for slot in slots_of(type(found.value))]

    def _now(self, slot: types.MemberDescriptorType) -> Any:
        try:
            return slot.__get__(self._found.value)
        except AttributeError:
            return ABSENT

    def changes(self) -> Iterator[Change]:
        """Yield what differs, see `Saved`."""
        path = self._found.path
        for slot, then in self._values:
            if not same(self._now(slot), then):
                where = path_text((path, "attr", slot.__name__))
                yield Change("attribute", where)

    def restore(self, *, keep_tallies: bool = False) -> None:
        """Put back what differs, see `SavedBinding`."""
        for slot, then in self._values:
            now = self._now(slot)
            target = kept(now, then, keep_tallies)
            if now is target:
                continue
            if target is ABSENT:
                slot.__delete__(self._found.value)
            else:
                slot.__set__(self._found.value, target)


class SavedClass:
    """A user's class: its attributes, such as a counter or a table of weights."""

    __slots__ = ("_found", "_saved")

    def __init__(self, found: Found) -> None:
        self._found = found
        self._saved = dict(found.value.__dict__)

    def _different(self) -> list[str]:
        now, then = self._found.value.__dict__, self._saved
        if len(now) == len(then) and all(
            map(operator.is_, now.values(), then.values())
        ):
            return []
        return [
            name
            for name in {**then, **now}
            if now.get(name, ABSENT) is not then.get(name, ABSENT)
            and not name.startswith("__")  # __doc__, __annotations__ made on demand
        ]

    def changes(self) -> Iterator[Change]:
        """Yield what differs, see `Saved`."""
        now = self._found.value.__dict__
        for name in self._different():
            if not same(now.get(name, ABSENT), self._saved.get(name, ABSENT)):
                where = path_text((self._found.path, "attr", name))
                yield Change("attribute", where)

    def restore(self, *, keep_tallies: bool = False) -> None:
        """Put back what differs, see `SavedBinding`."""
        for name in self._different():
            if name in self._saved:
                now = self._found.value.__dict__.get(name, ABSENT)
                target = kept(now, self._saved[name], keep_tallies)
                type.__setattr__(self._found.value, name, target)
            else:
                type.__delattr__(self._found.value, name)


class SavedKind:
    """The class of a module: lazy and parametrized ones change theirs."""

    __slots__ = ("_found", "_kind")

    def __init__(self, found: Found) -> None:
        self._found = found
        self._kind = type(found.value)

    def changes(self) -> Iterator[Change]:
        """Yield what differs, see `Saved`."""
        if type(self._found.value) is not self._kind:
            where = path_text((self._found.path, "attr", "__class__"))
            yield Change("attribute", where)

    def restore(self) -> None:
        """Put back what differs, see `Saved`."""
        if type(self._found.value) is not self._kind:
            object.__setattr__(self._found.value, "__class__", self._kind)


class SavedIterator:
    """How far an iterator is: it can be watched, and not rewound."""

    __slots__ = ("_found", "_place")

    def __init__(self, found: Found) -> None:
        self._found = found
        self._place = self._now()

    def _now(self) -> tuple[object, ...]:
        value = self._found.value
        if isinstance(value, types.GeneratorType):
            frame = value.gi_frame
            return ("generator", None if frame is None else frame.f_lasti, id(frame))
        text = repr(value) if type(value) is itertools.count else ""
        return ("iterator", operator.length_hint(value, -1), text)

    def changes(self) -> Iterator[Change]:
        """Yield what differs, see `Saved`."""
        if self._now() != self._place:
            path = self._found.path
            yield Change("iterator", path_text(path), restorable=False)

    def restore(self) -> None:
        """Do nothing: Python's iterators only go forward."""
