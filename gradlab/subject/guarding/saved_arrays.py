"""Memory of arrays, saved once per owner: bytes, flags and shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.guarding.paths import path_text
from gradlab.subject.guarding.saved_state import Change

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.subject.guarding.paths import Found

__all__ = [
    "MOST_TIMES",
    "ROW",
    "SMALL_OWNER",
    "SavedArray",
    "SavedMemory",
    "owner_of",
    "same_bytes",
]

# A view stands for its whole owner, unless that is large and 8 times the view.
SMALL_OWNER = 1 << 20
MOST_TIMES = 8

_SMALL = 4096  # bytes; below, comparing byte strings beats comparing views
_PADDED = (np.longdouble, np.clongdouble)  # some of their bytes are nobody's
_PIECE = 1 << 20  # items compared at once
ROW = 8192  # 64-bit words summed into one number of a fingerprint


def owner_of(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Find the array to save for a view: its outermost owner, or itself.

    Itself if it owns its memory, or if the owner is large and hardly shown by it, as
    a data set is by a batch.

    Examples
    --------
    >>> whole = np.arange(6)
    >>> owner_of(whole.reshape(2, 3)[1]) is whole
    True
    """
    owner = value
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    small = owner.nbytes <= max(SMALL_OWNER, MOST_TIMES * value.nbytes)
    return owner if small else value


def same_bytes(one: np.ndarray[Any, Any], two: np.ndarray[Any, Any]) -> bool:
    """Bitwise equality of two arrays of one shape and dtype; nan equals the same nan.

    Examples
    --------
    >>> same_bytes(np.array([0.0, np.nan]), np.array([-0.0, np.nan]))
    False
    """
    if one.dtype.type in _PADDED:
        return all(map(_same_numbers, (one.real, one.imag), (two.real, two.imag)))
    if one.nbytes <= _SMALL or one.dtype.hasobject:
        return one.tobytes() == two.tobytes()
    if one.flags.forc and one.strides == two.strides:
        flat = one.ravel(order="K"), two.ravel(order="K")
        words = np.uint64 if one.itemsize % 8 == 0 else np.uint8
        return all(
            bool((a == b).all())
            for a, b in zip(*(_pieces(part.view(words)) for part in flat), strict=True)
        )
    rows = max(1, _PIECE * len(one) // one.nbytes)
    return all(
        one[at : at + rows].tobytes() == two[at : at + rows].tobytes()
        for at in range(0, len(one), rows)
    )


def _same_numbers(one: np.ndarray[Any, Any], two: np.ndarray[Any, Any]) -> bool:
    """Equality of what counts, the sign of zero included."""
    alike = np.array_equal(one, two, equal_nan=True)
    return alike and np.array_equal(np.signbit(one), np.signbit(two))


def _pieces(flat: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Cut a flat array: comparing a huge one allocates little and stops early."""
    return (flat[start : start + _PIECE] for start in range(0, flat.size, _PIECE))


def _fingerprint(flat: np.ndarray[Any, Any]) -> bytes:
    """Sum a byte array's 64-bit words, 64 KiB at a time: any one changed word shows.

    Reads the memory once, at its bandwidth, and is exact (integers wrap around), so the
    same bytes always give the same answer. It is no cryptographic hash: words of one
    row that change places are not seen.

    Parameters
    ----------
    flat
        One-dimensional ``uint8`` array, contiguous.

    Examples
    --------
    >>> data = np.zeros(100_000, np.uint8)
    >>> before = _fingerprint(data)
    >>> data[77_777] = 1
    >>> _fingerprint(data) == before
    False
    """
    words = flat[: flat.size // 8 * 8].view(np.uint64)
    cut = words.size // ROW * ROW
    rows = words[:cut].reshape(-1, ROW).sum(axis=1, dtype=np.uint64)
    parts: tuple[bytes, ...] = (
        rows.tobytes(),
        words[cut:].tobytes(),
        flat[words.nbytes :].tobytes(),
    )
    return b"".join(parts)


class SavedMemory:
    """The bytes of one owner array; only fingerprinted where `copy` is off."""

    __slots__ = ("_copy", "_found", "_print")

    def __init__(self, found: Found, *, copy: bool) -> None:
        self._found = found
        value = found.value
        self._copy = value.copy(order="K").view(np.ndarray) if copy else None
        self._print = b"" if copy else self._fingerprint()

    def _fingerprint(self) -> bytes:
        value = self._found.value.view(np.ndarray)
        if not value.flags.forc:
            return b"".join(row.tobytes() for row in value[:: max(1, len(value) // 64)])
        return _fingerprint(value.ravel(order="K").view(np.uint8))

    def _intact(self) -> bool:
        value = self._found.value
        if self._copy is None:
            return self._fingerprint() == self._print
        same_form = value.shape == self._copy.shape and value.dtype == self._copy.dtype
        return same_form and same_bytes(value.view(np.ndarray), self._copy)

    def changes(self) -> Iterator[Change]:
        """Yield what differs, see `Saved`."""
        path = self._found.path
        if not self._intact():
            yield Change("array", path_text(path), restorable=self._copy is not None)

    def restore(self) -> None:
        """Put back what differs, see `Saved`."""
        if self._copy is None or self._intact():
            return
        value = self._found.value
        locked = not value.flags.writeable
        if locked:  # opened by the body, written, closed again: SavedArray saw the flag
            value.setflags(write=True)
        try:
            value.view(np.ndarray)[...] = self._copy
        finally:
            if locked:
                value.setflags(write=False)


class SavedArray:
    """Shape, strides, dtype and writeability of one array object."""

    __slots__ = ("_dtype", "_found", "_shape", "_strides", "_writeable")

    def __init__(self, found: Found) -> None:
        value = found.value
        self._found = found
        self._shape, self._strides = value.shape, value.strides
        self._dtype, self._writeable = value.dtype, value.flags.writeable

    def changes(self) -> Iterator[Change]:
        """Yield what differs, see `Saved`."""
        value, path = self._found
        if (
            value.shape != self._shape
            or value.strides != self._strides
            or value.dtype != self._dtype
            or value.flags.writeable != self._writeable
        ):
            yield Change("layout", path_text(path))

    def restore(self) -> None:
        """Undo ``a.shape = ...``, ``a.resize(...)`` and ``a.setflags(...)``."""
        value: Any = self._found.value
        if value.dtype != self._dtype:
            value.dtype = self._dtype
        if value.size != int(np.prod(self._shape)):
            value.resize(self._shape, refcheck=False)
        if value.shape != self._shape:
            value.shape = self._shape
        if value.flags.writeable != self._writeable:
            value.setflags(write=self._writeable)
