"""Sizes of millions of numbers, a block at a time and without copies."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.subject import is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.subject.subject import Subject

__all__ = ["Magnitudes", "is_short", "looked_at", "magnitudes"]

_BLOCK = 1 << 16  # 512 KiB stay in a core's own cache
# Of a gradient in single precision, if it is round-off and nothing else.
_LEFT = 1e-3
_MANTISSA = 53  # binary digits of float64
_FILLED = 21  # of the 24 of float32: one in eight of its numbers has no more


@dataclasses.dataclass(frozen=True, slots=True)
class Magnitudes:
    """Sizes of the finite entries of an array.

    Parameters
    ----------
    largest, second
        The two largest absolute values (equal ones count twice); 0 if there are none.
    rest
        Root of the sum of squares of all entries but one of the largest.
    finite
        Whether all entries are.
    """

    largest: float
    second: float
    rest: float
    finite: bool


def is_short(
    values: NDArray[np.float64], beside: NDArray[np.float64] | None = None
) -> bool:
    """Whether numbers meant to be float64 are all float32, or shorter, underneath.

    Gradients collected in buffers that were made as float32 stay so, whatever type the
    rest of the arithmetic has.

    Parameters
    ----------
    beside
        What shorter arithmetic made of the same. Where `values` are far smaller, they
        are what is left of terms that cancel: few digits, but no buffer in float32 had
        them. Nor had it those that have more digits than these, and do not fill it: a
        multiple of numbers in half precision.

    Examples
    --------
    >>> is_short(np.float32([0.1, 0.7]).astype(float)), is_short(np.array([0.1]))
    (True, False)
    >>> is_short(np.array([2.0**-55]), beside=np.array([1e-8]))
    False
    >>> three_halves = 1.5 * np.array([1 + 2.0**-7])
    >>> is_short(three_halves, beside=np.array([1.5]))
    False
    """
    if beside is not None:
        sizes = [magnitudes(matrix.ravel()).largest for matrix in (values, beside)]
        if sizes[0] < _LEFT * sizes[1]:
            return False
    if values.dtype == np.float32:
        return True
    longest = 0
    flat = values.reshape(-1)
    with np.errstate(all="ignore"):
        for start in range(0, len(flat), _BLOCK):  # most tell at once that they are not
            block = flat[start : start + _BLOCK]
            rounded = block.astype(np.float32).astype(np.float64)
            if not np.array_equal(rounded, block, equal_nan=True):
                return False
            longest = max(longest, _digits(block))
    if beside is None:
        return True
    return not _digits(beside.reshape(-1)) < longest <= _FILLED


def _digits(values: NDArray[np.float64]) -> int:
    """Count the binary digits of the longest of some numbers.

    Examples
    --------
    >>> _digits(np.array([0.0, 4.0, 0.625, np.nan]))
    3
    """
    known = values[np.isfinite(values) & (values != 0)]
    mantissa = np.ldexp(np.frexp(known)[0], _MANTISSA).astype(np.int64)
    least = (mantissa & -mantissa).min(initial=1 << _MANTISSA)
    return _MANTISSA - int(np.log2(least))


def looked_at(subject: Subject, which: int) -> NDArray[Any]:
    """Real coordinates of an input at the point, not to be written to.

    The user's own memory where it is a plain tensor of torch in double or single
    precision, else a copy.
    """
    if is_torch_subject(subject) and subject.cells[which].pattern is None:
        source = subject.cells[which].source.detach()
        plain = str(source.dtype) in ("torch.float64", "torch.float32")
        plain = plain and source.device.type == "cpu"
        if plain and source.is_contiguous() and not source.is_neg():
            view: NDArray[Any] = source.numpy().reshape(-1)
            return view
    return subject.point(which)


def magnitudes(values: NDArray[Any]) -> Magnitudes:
    """Measure an array in one pass, and another where squares leave their range.

    In float64, whatever precision the array has.

    Examples
    --------
    >>> magnitudes(np.array([3.0, -5.0, 4.0, np.inf]))
    Magnitudes(largest=5.0, second=4.0, rest=5.0, finite=False)
    """
    top = second = squares = 0.0
    finite = True
    with np.errstate(all="ignore"):
        for block, good in _blocks(values):
            finite &= good
            squares += float(np.dot(block, block))
            most = float(block.max(initial=0.0))
            if most > second:
                block[int(block.argmax())] = 0.0
                ranked = sorted([top, second, most, float(block.max(initial=0.0))])
                top, second = ranked[-1], ranked[-2]
        if top > 0 and not 1e-280 < squares < np.inf:
            scaled = sum(float(np.dot(b / top, b / top)) for b, _ in _blocks(values))
            rest = top * float(np.sqrt(max(scaled - 1.0, 0.0)))
        else:
            rest = float(np.sqrt(max(squares - top * top, 0.0)))
    # where the largest is all there is to see, the difference above is round-off
    return Magnitudes(top, second, max(rest, second), finite)


def _blocks(
    values: NDArray[Any],
) -> Iterator[tuple[NDArray[np.float64], bool]]:
    for start in range(0, len(values), _BLOCK):
        block = np.abs(values[start : start + _BLOCK], dtype=np.float64)
        good = bool(np.isfinite(block).all())
        if not good:
            block[~np.isfinite(block)] = 0.0
        yield block, good
