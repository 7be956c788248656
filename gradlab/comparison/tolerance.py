"""How large a difference is allowed, and how large an error bar is bearable.

The rule of a verdict has two sides. ``allowed = atol + rtol * max(|a|, |n|)`` is what
the tolerance forgives; the error bar of the numeric side, times `SAFETY`, is what
cannot be told apart from zero. Nothing here grows with the number of entries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.errors import InputError
from gradlab.labels import chosen_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "CARE",
    "CLEAR",
    "SAFETY",
    "Tolerance",
    "default_rtol",
    "is_rounding",
    "read_tolerance",
    "roundings",
    "stillness",
    "stillness_in_noise",
    "tells",
]

# Error bars are estimates: the promise is that the true error is within a few of them.
SAFETY = 5.0
# What lies farther apart than so many of them needs no second measurement.
CLEAR = 40.0
# An error of ten percent must show in any single entry; in most, far less does.
CARE = 0.1

# rtol by unit round-off of the analytic side. float64: 1e-6 leaves two digits between
# the central difference (1e-10 on smooth functions) and the smallest slip worth a
# name (1e-5). Lower precisions: about 2000 units of round-off, because a backward
# pass adds up a few thousand products, each rounded.
_RTOL_DOUBLE = 1e-6
_ROUNDOFFS = 2000.0
# atol as a fraction of the row's largest entry: round-off of the analytic side itself,
# 1e-11 in float64 and as many roundings as rtol allows in coarser arithmetic.
_ATOL_DOUBLE = 1e-11
_ATOL_MOST = 1e-2
# Where no input moves f at all: effects below this fraction of f (or of one, if f is
# larger: a constant in front of the loss must not excuse anything) are no movement.
_STILL = 1e-8
_MOST = float(np.finfo(np.float64).max)
_FEW = 16.0  # standard deviations of its noise: an output below has no digit of its own


def default_rtol(epsilon: float) -> float:
    """Return the relative tolerance for arithmetic of round-off `epsilon`.

    Examples
    --------
    >>> default_rtol(2.2e-16)
    1e-06
    >>> round(default_rtol(1.2e-7), 6)
    0.00024
    """
    return max(_RTOL_DOUBLE, min(_ROUNDOFFS * epsilon, 0.1))


def tells(value: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Say which numeric entries are told from zero, to a tenth of their value.

    Examples
    --------
    >>> tells(np.array([1.0, 1.0, 0.0]), np.array([1e-6, 0.5, 0.0])).tolist()
    [True, False, False]
    """
    with np.errstate(all="ignore"):
        return np.asarray((SAFETY * error <= CARE * np.abs(value)) & (value != 0))


def roundings(epsilon: float) -> float:
    """Return by how much of itself a computed number may be off, differences aside.

    Five thousand roundings; in half precision so many would be more than the number.

    Examples
    --------
    >>> roundings(2e-16), roundings(1e-3)
    (1e-12, 0.1)
    """
    return min(5e3 * epsilon, 0.1)


def _brief(value: Any) -> str:
    """Spell a number out; an integer of hundreds of digits by their count."""
    if isinstance(value, int) and value > _MOST:
        return f"an integer beyond {_MOST:.1e}"
    return repr(value)


@dataclasses.dataclass(frozen=True, slots=True)
class Tolerance:
    """Allowed difference; None lets gradlab choose, and the report says what it chose.

    Parameters
    ----------
    rtol
        Relative part, without unit, below 1. Default `default_rtol` of the arithmetic.
    atol
        Absolute part in the units of the derivative. The default is a fraction of
        the largest entry in the same row of the block (1e-11 in float64), or of the
        largest effect of any entry where coordinates differ in size; never a constant:
        a constant would hide small gradients.
    own
        Tolerances of single inputs, by name or pattern ("layers.*"), which replace
        this one; see `of`.
    """

    rtol: float | None = None
    atol: float | None = None
    own: Mapping[str, Tolerance] = dataclasses.field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        given: dict[str, Any] = {"rtol": self.rtol, "atol": self.atol}
        for name, value in given.items():
            if value is None:
                continue
            number = isinstance(value, int | float | np.number | np.ndarray)
            number = number and np.ndim(value) == 0 and np.asarray(value).dtype != bool
            # `not >=` also refuses nan, by name
            if not (number and np.isreal(value) and value >= 0):
                msg = f"{name} must be a number >= 0 or None, got {value!r}"
                raise InputError(msg)
        if self.rtol is not None and self.rtol >= 1:
            msg = (
                f"rtol must be below 1, got {_brief(self.rtol)}: a gradient of twice "
                "the size would agree, and from 2 on any; leave it out, or try "
                "rtol=1e-3"
            )
            raise InputError(msg)
        if self.atol is not None and self.atol > _MOST:
            msg = (
                f"atol must be finite, got {_brief(self.atol)}: any gradient would "
                "agree; leave it out, or give it in the units of the derivative"
            )
            raise InputError(msg)

    def of(self, name: str) -> Tolerance:
        """Return the tolerance of one input.

        Examples
        --------
        >>> tolerance = Tolerance(own={"W1": Tolerance(rtol=1e-4)})
        >>> tolerance.of("W1").rtol, tolerance.of("b1").rtol
        (0.0001, None)
        """
        return chosen_for(name, self.own, self)

    def relative(self, epsilon: float) -> float:
        """Return the relative part in force for arithmetic of round-off `epsilon`."""
        return default_rtol(epsilon) if self.rtol is None else float(self.rtol)

    def rounding(self, epsilon: float) -> float:
        """Return the relative part for two sides neither of which is a difference."""
        return roundings(epsilon) if self.rtol is None else float(self.rtol)

    def absolute(
        self, row_scale: NDArray[np.float64], epsilon: float
    ) -> NDArray[np.float64]:
        """Return the absolute part for each row, or each entry.

        Parameters
        ----------
        row_scale
            Largest finite numeric entry that the row, or the entry, is measured by,
            shape (m, 1) or (m, n); what comes back has the same.
        epsilon
            Round-off of the analytic side.
        """
        if self.atol is not None:
            return np.full_like(row_scale, float(self.atol))
        share = min(max(_ATOL_DOUBLE, _ROUNDOFFS * epsilon), _ATOL_MOST)
        return share * row_scale

    def allowed(
        self,
        row_scale: NDArray[np.float64],
        size: NDArray[np.float64],
        epsilon: float,
    ) -> NDArray[np.float64]:
        """Return both parts together, for entries of the sizes `size`, (m, n)."""
        return self.absolute(row_scale, epsilon) + self.relative(epsilon) * size


def read_tolerance(rtol: Any, atol: Any) -> Tolerance:
    """Read ``rtol=`` and ``atol=``: one number each, or numbers by input.

    Raises
    ------
    InputError
        If one of them is no number >= 0, or `rtol` is not below 1.

    Examples
    --------
    >>> read_tolerance({"W1": 1e-4}, 1e-9).of("W1")
    Tolerance(rtol=0.0001, atol=1e-09, own={})
    """
    single = [None if isinstance(v, Mapping) else v for v in (rtol, atol)]
    relative, absolute = (
        {str(name): number for name, number in v.items()}
        if isinstance(v, Mapping)
        else {}
        for v in (rtol, atol)
    )
    own = {
        name: Tolerance(
            chosen_for(name, relative, single[0]),
            chosen_for(name, absolute, single[1]),
        )
        for name in (*relative, *absolute)
    }
    return Tolerance(single[0], single[1], own)


def stillness(base: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the effect below which an output counts as not moving, shape (m, 1).

    Parameters
    ----------
    base
        f at the point, shape (m,). An output that is 0 or not finite goes by the
        largest of all.
    """
    size = np.where(np.isfinite(base), np.abs(base), 0.0)
    top = float(size.max(initial=0.0))
    own = np.where(size > 0, size, top if top > 0 else 1.0)
    return np.asarray((_STILL * np.minimum(1.0, own))[:, None])


def stillness_in_noise(
    base: NDArray[np.float64],
    noise: NDArray[np.float64],
    epsilon: float,
    slight: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the `stillness` of outputs of which the noise is known.

    One that is nothing but a few roundings, as the sum of what has been normalised,
    goes by the size of what it is the rounding of.

    Parameters
    ----------
    base, noise
        f at the point, and the standard deviation of its noise there, (m,).
    epsilon
        Round-off of the arithmetic.
    slight
        Effects that do not matter beside what others have on the same output, (m, 1).
        Nor do they here: no input can be seen to have less.
    """
    with np.errstate(over="ignore"):
        unit = stillness(np.fmax(np.abs(base), noise / epsilon))
    still = stillness(base)
    own = np.fmax(still, np.fmax(unit, slight))
    return np.where(is_rounding(base, noise)[:, None], own, still)


def is_rounding(
    base: NDArray[np.float64], noise: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Whether outputs are nothing but a few roundings: f at the point, and its noise.

    Examples
    --------
    >>> is_rounding(np.array([2e-16, 1e-6, 0.0]), np.full(3, 1e-16)).tolist()
    [True, False, True]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.abs(base) <= _FEW * noise)
