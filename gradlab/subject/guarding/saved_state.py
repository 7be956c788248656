"""One object's state, saved: compare it, put it back, as often as needed.

Every record holds the object itself and what it held. ``changes()`` says what differs
in the user's words; ``restore()`` writes only what differs, so a second call after an
interrupted first one finishes the work, and an untouched object is not written to.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import operator
from typing import TYPE_CHECKING, Any, Protocol

from gradlab.subject.guarding.paths import Path, items_of, path_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.subject.guarding.paths import Found

__all__ = [
    "ABSENT",
    "Change",
    "Saved",
    "SavedBinding",
    "SavedBuffer",
    "SavedDict",
    "SavedSequence",
    "kept",
    "same",
    "save_container",
]

ABSENT: Any = type("Absent", (), {"__repr__": lambda _: "absent"})()
_PLAIN = (int, float, complex, bool, str, bytes, type(None), tuple, frozenset)
_MOST_KEYS = 8  # changes reported one by one; above, the container is named once


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """Something that a user's function did to state that outlives the call.

    Attributes
    ----------
    kind
        ``"array"``, ``"tensor"``, ``"parameter"``, ``"buffer"``, ``"grad"`` (values
        written), ``"requires_grad"``, ``"mode"`` (``train``/``eval``), ``"hooks"``,
        ``"layout"`` (shape, flags, storage), ``"attribute"``, ``"container"``,
        ``"variable"`` (a closure's or a global one rebound), ``"random"`` (a generator
        was drawn from), ``"iterator"`` (advanced), ``"setting"`` (a library switch),
        ``"history"`` (a tensor's graph got longer).
    where
        The path that a user would write: ``net.running_mean``, ``self.cache``.
    restorable
        False where it could only be detected, because no copy was kept.

    Examples
    --------
    >>> print(Change("buffer", "net.running_mean"))
    buffer net.running_mean changed
    """

    kind: str
    where: str
    restorable: bool = True

    def __str__(self) -> str:
        """Say it in a short clause, fit for a finding's evidence."""
        verb = {"random": "was drawn from", "requires_grad": "was flipped"}
        return f"{self.kind} {self.where} {verb.get(self.kind, 'changed')}"


class Saved(Protocol):
    """What every record can do."""

    def changes(self) -> Iterator[Change]:
        """Yield what differs now from what was saved."""

    def restore(self) -> None:
        """Put it back; may be called again after being interrupted."""


class SavedBinding(Protocol):
    """A record of what names and containers hold, where a user's tallies live."""

    def changes(self) -> Iterator[Change]:
        """Yield what differs now from what was saved."""

    def restore(self, *, keep_tallies: bool = False) -> None:
        """Put it back, sparing counters and logs if asked to."""


def same(now: Any, then: Any) -> bool:
    """Tell equal plain values or the same object; no user ``__eq__`` runs."""
    if now is then:
        return True
    if type(now) is not type(then) or type(now) not in _PLAIN:
        return False
    if type(now) in (tuple, frozenset):
        return type(now) is tuple and _all_same(now, then)
    return bool(now == then) or repr(now) == repr(then)  # nan


def _all_same(now: Any, then: Any) -> bool:
    return len(now) == len(then) and all(map(same, now, then))


def _is_tally(now: Any, then: Any) -> bool:
    """Whether an integer only grew, as one does that counts calls."""
    return type(now) is int and type(then) is int and now > then


def kept(now: Any, then: Any, keep_tallies: bool) -> Any:  # noqa: FBT001 - passed on
    """Choose what a name is to hold: what it held, or a tally that grew since.

    Examples
    --------
    >>> kept(3, 0, True), kept(3, 0, False), kept("b", "a", True)
    (3, 0, 'a')
    """
    return now if keep_tallies and _is_tally(now, then) else then


def _identical(now: Any, then: Any) -> bool:
    return len(now) == len(then) and all(map(operator.is_, now, then))


def _kind_of_member(path: Path, name: object) -> str:
    """Kind of change of a key: a module's dicts have names of their own."""
    if name == "training":
        return "mode"
    if isinstance(path[2], str):
        if path[2] == "_buffers":
            return "buffer"
        if path[2] == "_parameters":
            return "parameter"
        if "_hooks" in path[2]:
            return "hooks"
    return "container"


class SavedDict:
    """A ``dict`` or an instance's ``__dict__``: same keys, same values, same order."""

    __slots__ = ("_base", "_keys", "_noted", "_path", "_space", "_values")

    def __init__(self, found: Found, style: str = "item") -> None:
        self._space: dict[Any, Any] = found.value
        self._path = found.path if style == "item" else (found.path, "attr", "__dict__")
        # What is in it, and not what its class makes of that, which may take long. An
        # OrderedDict keeps a list of its own, which dict's methods would not update.
        ordered = isinstance(self._space, collections.OrderedDict)
        self._base: Any = collections.OrderedDict if ordered else dict
        self._keys = self._now()
        self._values = tuple(self._base.values(self._space))
        self._noted: dict[Any, Any] = {}

    def _now(self) -> tuple[Any, ...]:
        """Keys as they are now."""
        return tuple(self._base.keys(self._space))

    def _intact(self) -> bool:
        size = dict.__len__(self._space)
        if not self._keys:  # most of a module's hook dictionaries
            return not size
        return (
            size == len(self._keys)
            and _identical(self._now(), self._keys)
            and _identical(tuple(self._base.values(self._space)), self._values)
        )

    def changes(self) -> Iterator[Change]:
        """Yield what differs, see `Saved`."""
        if self._intact():
            return
        then = dict(zip(self._keys, self._values, strict=True))
        now = dict(dict.items(self._space))
        keys = [
            key
            for key in {**then, **now}
            if not same(now.get(key, ABSENT), then.get(key, ABSENT))
        ]
        instance = self._path[1:] == ("attr", "__dict__")
        hooks = not instance and _kind_of_member(self._path, None) == "hooks"
        if hooks or len(keys) > _MOST_KEYS:
            kind = "hooks" if hooks else "container"
            path = self._path[0] if instance else self._path
            yield Change(kind, path_text(path))
            return
        for key in keys:
            if instance:
                kind = "mode" if key == "training" else "attribute"
                yield Change(kind, path_text((self._path[0], "attr", key)))
            else:
                kind = _kind_of_member(self._path, key)
                yield Change(kind, path_text((self._path, "item", key)))

    def note(self) -> None:
        """Note what is held after a call or two: what grows no more counts no calls.

        The length up to which a table was made, say, without which it is wrong.
        """
        now = dict.items(self._space)
        self._noted = self._noted or {k: v for k, v in now if type(v) is int}

    def _is_noted(self, key: Any, now: Any) -> bool:
        return type(now) is int and self._noted.get(key) == now

    def restore(self, *, keep_tallies: bool = False) -> None:
        """Put back what differs, see `SavedBinding`."""
        if self._intact():
            return
        space, base = self._space, self._base
        now = [dict.get(space, key, ABSENT) for key in self._keys]
        target = [
            (key, kept(new, value, keep_tallies and not self._is_noted(key, new)))
            for key, value, new in zip(self._keys, self._values, now, strict=True)
        ]
        if keep_tallies:
            target += self._counted()
        if not _identical(self._now(), [key for key, _ in target]):
            base.clear(space)
        for key, value in target:
            base.__setitem__(space, key, value)

    def _counted(self) -> list[tuple[Any, Any]]:
        """List new keys of a dictionary that counts: all of them hold integers."""
        now, then = tuple(self._base.items(self._space)), len(self._keys)
        counts = (
            self._path[1:] != ("attr", "__dict__")
            and _identical([key for key, _ in now[:then]], self._keys)
            and all(type(value) is int for _, value in now[then:])
        )
        return list(now[then:]) if counts else []


class SavedSequence:
    """A list, set or deque: the same items in the same object."""

    __slots__ = ("_found", "_items")

    def __init__(self, found: Found) -> None:
        self._found = found
        self._items = items_of(found.value)

    def _intact(self) -> bool:
        now = items_of(self._found.value)
        if isinstance(self._found.value, set):
            same_number = len(now) == len(self._items)
            return same_number and set(map(id, now)) == set(map(id, self._items))
        return _identical(now, self._items)

    def changes(self) -> Iterator[Change]:
        """Yield what differs, see `Saved`."""
        value, path = self._found
        if self._intact():
            return
        if isinstance(value, set) or not _all_same(items_of(value), self._items):
            yield Change("container", path_text(path))

    def _is_log(self) -> bool:
        """Whether items were only added at the end, or counted up where they are."""
        there, items = items_of(self._found.value), self._items
        if isinstance(self._found.value, set):
            return set(map(id, items)) <= set(map(id, there))
        return len(there) >= len(items) and all(
            now is then or _is_tally(now, then)
            for now, then in zip(there, items, strict=False)
        )

    def restore(self, *, keep_tallies: bool = False) -> None:
        """Put back what differs, see `SavedBinding`."""
        if self._intact() or (keep_tallies and self._is_log()):
            return
        value: Any = self._found.value
        if isinstance(value, list):
            list.__setitem__(value, slice(None), self._items)
            return
        base: Any = set if isinstance(value, set) else collections.deque
        base.clear(value)
        (base.update if base is set else base.extend)(value, self._items)


class SavedBuffer:
    """A ``bytearray`` or ``array.array``: the same bytes."""

    __slots__ = ("_copy", "_found")

    def __init__(self, found: Found) -> None:
        self._found = found
        self._copy = found.value[:]

    def changes(self) -> Iterator[Change]:
        """Yield what differs, see `Saved`."""
        if bytes(self._found.value) != bytes(self._copy):
            yield Change("container", path_text(self._found.path))

    def restore(self, *, keep_tallies: bool = False) -> None:  # noqa: ARG002 - bytes count nothing
        """Put back what differs, see `SavedBinding`."""
        if bytes(self._found.value) != bytes(self._copy):
            self._found.value[:] = self._copy


def save_container(found: Found) -> SavedBinding:
    """Save a mutable container by the way of its type.

    Parameters
    ----------
    found
        A ``dict``, ``list``, ``set``, ``deque``, ``bytearray`` or ``array.array``.
    """
    if isinstance(found.value, dict):
        return SavedDict(found)
    if isinstance(found.value, (bytearray, array.array)):
        return SavedBuffer(found)
    return SavedSequence(found)
