"""The rule: from two Jacobians and an error bar to a verdict for every entry.

For an analytic value a, a numeric value n and its error bar e:

- DISAGREES when ``|a - n|`` exceeds both ``atol + rtol * max(|a|, |n|)`` and
  ``SAFETY * e``;
- UNDECIDED when e hides what is worth caring about, or they are two coarse e apart;
- AGREES otherwise.

"Worth caring about" is measured in the entry's own units first: ten percent of its
value. An entry that is tiny, or zero, is measured against what matters to the same
output: moving its coordinate by the coordinate's own size must be able to change f by
1e-7 of what moving any other coordinate can. Everything is per row and per input; the
number of entries never enters.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.effects import scales_in
from gradlab.comparison.tiling import bands, cut
from gradlab.comparison.tolerance import CARE, SAFETY, Tolerance, roundings, tells
from gradlab.comparison.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = [
    "NEGLIGIBLE",
    "Judgement",
    "Leniency",
    "Side",
    "Tops",
    "Units",
    "judge",
    "tolerated",
    "tops_of",
    "unresolved",
    "zeros_told",
]

# Entries whose whole effect on f is below this fraction of the largest do not matter.
NEGLIGIBLE = 1e-7
# Bars that a and n are apart, beyond the tolerance, which a right gradient hardly is;
# and parts of an entry, up to which nobody cares what hides in its bar.
_ASTRAY, _FINE = 2.0, 1e-3
# Of what an input itself does to f, and roundings of what matters most: what is off by
# more is no rounding of a slope that is seen.
_SEEN, _SHORT_SUM = 1e-3, 64.0
_LEFT = 1e-6  # of what counts as no movement of f, as much as its digits tell


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Side:
    """The numeric side of one block, all of shape (m, n)."""

    value: NDArray[np.float64]
    error: NDArray[np.float64]

    def of(self, band: slice) -> Side:
        """Return that of some rows."""
        return Side(self.value[band], self.error[band])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Leniency:
    """What is forgiven, and what counts as nothing.

    Attributes
    ----------
    tolerance
        Of the user, or the defaults.
    epsilon
        Round-off of the arithmetic of the analytic side.
    still
        What counts as no movement of f, from `stillness`.
    slack
        Measured round-off of the analytic side itself (lower precision), same units
        as the entries.
    """

    tolerance: Tolerance
    epsilon: float
    still: NDArray[np.float64] | float = 1e-9
    slack: NDArray[np.float64] | float = 0.0

    def of(self, band: slice) -> Leniency:
        """Return that towards some rows."""
        still, slack = cut(self.still, band), cut(self.slack, band)
        return Leniency(self.tolerance, self.epsilon, still, slack)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """What `judge` decides about one block, all of shape (m, n)."""

    verdicts: NDArray[np.int8]
    allowed: NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Units:
    """What moving a coordinate by its size means.

    Attributes
    ----------
    scales
        Size of each coordinate, shape (n,), or of that behind each entry, (m, n).
    sizes
        By which the effects of coordinates count beside each other, of the same shape;
        smaller than the scale where a coordinate is far smaller than its tensor.
    matters
        Largest `typical_effect` on each output of any input, shape (m, 1).
    own
        Largest `sensitivity` of each output, by the sizes of all inputs, (m, 1).
    """

    scales: NDArray[np.float64]
    sizes: NDArray[np.float64]
    matters: NDArray[np.float64]
    own: NDArray[np.float64]

    def of(self, band: slice) -> Units:
        """Keep some rows."""
        scales, sizes = (scales_in(s, band) for s in (self.scales, self.sizes))
        return Units(scales, sizes, self.matters[band], self.own[band])


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tops:
    """Largest entries of each row, (m, 1) each.

    Attributes
    ----------
    size, effect
        Of the entries themselves, and of the entries times the size of the coordinate.
    """

    size: NDArray[np.float64]
    effect: NDArray[np.float64]

    def of(self, band: slice) -> Tops:
        """Keep some rows."""
        return Tops(self.size[band], self.effect[band])

    def in_units_of(self, scales: NDArray[np.float64]) -> NDArray[np.float64]:
        """Largest entry of each row, in the units of every coordinate, shape (m, n).

        Beside coordinates of 1e8 with slopes of 1e-8, one of 1e-8 with a slope of 1e8
        is no larger: what counts is how far f moves when a coordinate moves by its own
        size. Where all sizes are equal one number tells for the row, shape (m, 1).

        Examples
        --------
        >>> scales = np.array([1e-8, 1e8])
        >>> tops_of(np.array([[1e8, 1e-8]]), scales).in_units_of(scales).tolist()
        [[100000000.0, 1e-08]]
        """
        each = scales.ravel()[:1] if _alike(scales) else scales
        with np.errstate(all="ignore"):
            return np.asarray(np.minimum(self.size, self.effect / each))


def _alike(scales: NDArray[np.float64]) -> bool:
    return bool(scales.size and scales.min() == scales.max())


def tops_of(
    values: NDArray[np.float64], sizes: NDArray[np.float64], known: Tops | None = None
) -> Tops:
    """Find the largest finite entries of each row.

    Parameters
    ----------
    values
        Shape (m, n).
    sizes
        Of each coordinate, (n,), or of that behind each entry, (m, n); see `Units`.
    known
        What other columns of the same matrix have shown, where these are not all.
    """
    with np.errstate(all="ignore"):
        each = np.where(np.isfinite(values), np.abs(values), 0.0)
        size = each.max(axis=1, initial=0.0)[:, None]
        if _alike(sizes):
            effect = size * sizes.ravel()[0]
        else:
            each *= sizes
            effect = each.max(axis=1, initial=0.0)[:, None]
    if known is None:
        return Tops(size, effect)
    return Tops(np.maximum(size, known.size), np.maximum(effect, known.effect))


def judge(
    analytic: NDArray[np.float64],
    side: Side,
    units: Units,
    leniency: Leniency,
    *,
    own: NDArray[np.float64] | None = None,
    tops: Tops | None = None,
) -> Judgement:
    """Give every entry of a block its verdict.

    Parameters
    ----------
    analytic
        Shape (m, n).
    side
        Numeric values and error bars.
    units
        What moving a coordinate by its size means.
    leniency
        What is forgiven.
    own
        Scales by which the round-off of the analytic side is measured, where some
        coordinates turned out to live on one of their own. Default those of `units`.
    tops
        Largest entries of the columns that are not here; default these are all.
    """
    own = units.scales if own is None else own
    verdicts = np.empty(analytic.shape, dtype=np.int8)
    allowed = np.empty(analytic.shape)
    for band in bands(analytic.shape):
        verdicts[band], allowed[band] = _judge_band(
            analytic[band],
            side.of(band),
            units.of(band),
            leniency.of(band),
            scales_in(own, band),
            tops and tops.of(band),
        )
    return Judgement(verdicts, allowed)


def tolerated(
    analytic: NDArray[np.float64],
    numeric: NDArray[np.float64],
    sizes: NDArray[np.float64],
    own: NDArray[np.float64],
    tolerance: Tolerance,
    epsilon: float,
    tops: Tops | None = None,
) -> NDArray[np.float64]:
    """Return the difference that the tolerance allows each entry, as `judge` does.

    Parameters
    ----------
    analytic, numeric
        Shape (m, n).
    sizes, own, tops
        As of `Units`, and as for `judge`.
    tolerance, epsilon
        As of `Leniency`.
    """
    allowed = np.empty(analytic.shape)
    for band in bands(analytic.shape):
        sides = analytic[band], numeric[band]
        largest = tops_of(sides[1], scales_in(sizes, band), tops and tops.of(band))
        with np.errstate(all="ignore"):
            size = np.maximum(*map(np.abs, sides))
            rows = largest.in_units_of(scales_in(own, band))
            allowed[band] = tolerance.allowed(rows, size, epsilon)
    return allowed


def _judge_band(
    analytic: NDArray[np.float64],
    side: Side,
    units: Units,
    leniency: Leniency,
    own: NDArray[np.float64],
    tops: Tops | None,
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Verdicts and tolerances of some rows."""
    numeric, error = side.value, side.error
    epsilon, still = leniency.epsilon, leniency.still
    row = tops_of(numeric, units.sizes, tops)
    largest = row.in_units_of(own)
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(analytic), np.abs(numeric))
        allowed = leniency.tolerance.allowed(largest, size, epsilon)
        # no backward pass is more exact than a few thousand roundings of what matters;
        # and what moves a saturated output by its last digits is none of our business
        rounding = np.maximum(roundings(epsilon) * units.own, still / 1e4)
        # ... but where the numeric side sees a slope, no input is all rounding
        few = min(1.0, _SHORT_SUM * epsilon / roundings(epsilon))
        least = np.maximum(few * rounding, _SEEN * row.effect)
        told = tells(numeric, error)
        rounding = np.where(told, np.minimum(rounding, least), rounding)
        forgiven = leniency.slack + rounding / own
        difference = np.abs(analytic - numeric)  # nan, and not wrong, of infinities
        wrong = difference > np.maximum(allowed, SAFETY * error) + forgiven
        astray = difference > np.maximum(allowed, _ASTRAY * error) + forgiven
        astray &= SAFETY * error > _FINE * size
        # what is forgiven anyway needs no narrower bar
        bearable = _bearable(size, units.scales, units.matters, still)
        blind = SAFETY * error > np.maximum(bearable, allowed)
    verdicts = np.zeros(wrong.shape, dtype=np.int8)  # AGREES
    blind |= ~np.isfinite(error)
    blind |= astray
    if blind.any():
        verdicts[blind] = Verdict.UNDECIDED
    if wrong.any():
        verdicts[wrong] = Verdict.DISAGREES
    odd = ~np.isfinite(difference)  # also where two huge numbers differ by more
    if odd.any():
        finite = np.isfinite(analytic) & np.isfinite(numeric)
        verdicts = np.where(finite, verdicts, _not_finite(analytic, numeric))
    return verdicts.astype(np.int8, copy=False), allowed


def _bearable(
    size: NDArray[np.float64],
    scales: NDArray[np.float64],
    matters: NDArray[np.float64],
    still: NDArray[np.float64] | float,
) -> NDArray[np.float64]:
    """Largest error bar times SAFETY that still tells what must be told."""
    return np.asarray(np.maximum(CARE * size, _least_effect(matters, still) / scales))


def _least_effect(
    matters: NDArray[np.float64], still: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """Give the smallest effect on each output that must be told.

    Where inputs hardly move it, no digits of f are left for the rest.
    """
    told = np.maximum(NEGLIGIBLE * matters, _LEFT * np.asarray(still))
    return np.where(matters > 0, told, still)


def _not_finite(
    analytic: NDArray[np.float64], numeric: NDArray[np.float64]
) -> NDArray[np.int64]:
    """One side only: disagreement. Both sides in the same place: undecided.

    Infinities of opposite sign, or a nan against an infinity, are two different
    statements and count as one side only.
    """
    same = (np.isnan(analytic) & np.isnan(numeric)) | (
        np.isinf(analytic) & (analytic == numeric)
    )
    return np.where(same, int(Verdict.UNDECIDED), int(Verdict.DISAGREES))


def unresolved(
    side: Side,
    analytic: NDArray[np.float64],
    scales: NDArray[np.float64],
    still: NDArray[np.float64] | float,
    own: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Entries of a first, cheap pass that deserve a second look for their bar alone.

    Stricter than `judge`: a tiny entry is measured against its own block only, of
    which `own` is the `sensitivity`, so that a dropped gradient of an input of little
    influence is not missed.
    """
    blind = np.empty(analytic.shape, dtype=bool)
    for band in bands(analytic.shape):
        with np.errstate(all="ignore"):
            size = np.maximum(np.abs(analytic[band]), np.abs(side.value[band]))
            bearable = _bearable(
                size, scales_in(scales, band), own[band], cut(still, band)
            )
            blind[band] = SAFETY * side.error[band] > bearable
            blind[band] |= ~np.isfinite(size)  # np.maximum hands nan on
    return blind


def zeros_told(
    bars: NDArray[np.float64],
    effects: Iterable[NDArray[np.float64]],
    still: NDArray[np.float64],
) -> bool:
    """Whether zeros on both sides need no second look, by `judge` and `unresolved`.

    Parameters
    ----------
    bars
        Error bar of the zeros of each row, times the scale of their coordinate, (m, 1).
    effects
        Largest `typical_effect` on each output: of any input, of this one; (m, 1) each.
    still
        What counts as no movement of f, from `stillness`.
    """
    told = True
    for effect in effects:
        told &= bool((SAFETY * bars <= _least_effect(effect, still)).all())
    return told
