"""What a ladder of steps says about one input, as one sentence.

The verdict never comes from the curve: a step at which a wrong gradient happens to
cross the quotient looks like agreement, and a right gradient on a rough function looks
like none. It comes from a check; the curve explains it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.relative_errors import relative_error
from gradlab.comparison.right_curves import level_part, read_right_curve, short
from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.error_curves import NOTHING, CurveReading, plateau
from gradlab.differentiation.smoothness import Smoothness

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.comparison.swept import Curves, Swept

__all__ = ["read_sweep"]

_SAME = 2e-2  # spread of a common factor c, relative to c - 1
_EXACT = 1e-4  # of the gradient: what a factor may leave that is one to four digits


def read_sweep(
    block: Swept,
    steps: NDArray[np.float64],
    curves: Curves,
    curve: CurveReading,
) -> str:
    """Say in one sentence what a sweep shows about one input.

    Parameters
    ----------
    block
        Verdicts and derivatives.
    steps
        The ladder.
    curves
        Errors of the first method.
    curve
        Reading of ``curves.own``.

    Examples
    --------
    >>> sweep = gl.sweep(lambda x: np.exp(x).sum(), np.ones(2), grad=np.exp)
    >>> sweep.reading["x"].startswith("V: correct, best step")
    True
    """
    if block.verdicts.size == 0:
        return "empty: nothing to differentiate"
    culprit = block.culprit
    if culprit is not None:
        return _wrong(block, culprit, steps, curves)
    if block.together:
        return f"wrong, though no entry is by itself: {block.together.rstrip('.')}"
    if curves.cut:
        first = "correct" if block.verdict == Verdict.AGREES else "not decided"
        measured = int(np.isfinite(curves.error).sum())
        return (
            f"{first} by the check that comes first; cut short, {measured} of "
            f"{steps.size} steps of its curve were measured"
        )
    if block.verdict == Verdict.UNDECIDED and block.excuse:
        return f"not compared: {block.excuse}"
    if block.verdict == Verdict.UNDECIDED:
        return _undecided(block, steps, curves)
    if block.excuse:
        return f"correct, though no step shows it: {block.excuse.rstrip('.')}"
    if sentence := _passing_kink(block) or _resting(block):
        return sentence
    return read_right_curve(block, steps, curves, curve)


def _passing_kink(block: Swept) -> str:
    """Say between which slopes a sub-gradient lies; "" if there is none."""
    kink = _first(block.kinds == Smoothness.KINK)
    if kink is not None:
        low, high = _slopes(block, kink)
        return (
            f"kink at the point: the slopes are {low:.4g} and {high:.4g} at "
            f"{block.place(*kink)}, the analytic {block.analytic[kink]:.4g} lies "
            f"between and passes as a sub-gradient"
        )
    return ""


def _resting(block: Swept) -> str:
    """Say of a gradient that is rounding alone that it is zero; "" of any other."""
    if not block.rest:
        return ""
    hidden = SAFETY * float(np.max(block.reference_error, initial=0.0))
    return (
        f"correct: zero on both sides but for rounding, below {hidden:.0e} in the "
        f"numeric and {short(block.rest)} in the analytic one"
    )


def _slopes(block: Swept, place: tuple[int, int]) -> tuple[float, float]:
    """Both one-sided slopes, the smaller first; no negative zero."""
    low, high = sorted((float(block.left[place]), float(block.right[place])))
    return low + 0.0, high + 0.0


def _undecided(block: Swept, steps: NDArray[np.float64], curves: Curves) -> str:
    place = _first(block.verdicts == Verdict.UNDECIDED)
    if place is None:  # every slope hides below its bar: the largest of them
        size = np.abs(block.analytic)
        place = _first(size == np.nanmax(size, initial=0.0)) or (0, 0)
    name = block.place(*place)
    if np.isnan(block.analytic[place]) and np.isnan(block.reference[place]):
        return f"nan on both sides at {name}: nothing can be compared"
    if block.unsteady:
        return (
            f"no derivative: f differs by up to {block.unsteady:.2g} between "
            f"evaluations at the same point"
        )
    # where f does not move at all its quotient is 0, and equal to a gradient of 0
    known = np.isfinite(curves.error)
    told = known & (curves.bar < 1)
    finite = np.flatnonzero(told if told.any() else known)
    lowest = int(finite[np.argmin(curves.error[finite])]) if finite.size else -1
    kind = Smoothness(max(int(block.kinds[place]), 0))
    if kind in (Smoothness.JUMP, Smoothness.STAIRCASE):
        word = "jumps" if kind == Smoothness.JUMP else "climbs stairs"
        return f"no derivative: f {word} at {name}"
    if kind == Smoothness.KINK:
        return f"kink at the point, at {name}: no single slope to compare with"
    if not finite.size or kind == Smoothness.UNDEFINED:
        return f"no resolution: f is not finite around {name}"
    if kind == Smoothness.NOISY:
        level, start, stop = level_part(steps, curves.error, curves.bar)
        if level <= NOTHING:
            return (
                f"not decided: both sides differ by {short(level)} from "
                f"{short(start)} to {short(stop)}, by a wrong gradient or a solver "
                f"that stops early"
            )
        return (
            f"noise: the smallest error of all is {short(curves.error[lowest])}, at "
            f"step {short(steps[lowest])}"
        )
    hidden = SAFETY * float(block.reference_error[place])
    if abs(block.analytic[place]) > hidden:
        return (
            f"no resolution at {name}: f moves by little more than its rounding; its "
            f"slope is {block.reference[place]:.2g}, give or take {hidden:.0e}, and "
            f"the analytic one is {block.analytic[place]:.2g}"
        )
    return (
        f"no resolution at {name}: f moves by less than its rounding; slopes below "
        f"{hidden:.0e} cannot be told from zero, and the analytic one is "
        f"{short(block.analytic[place])}"
    )


def _wrong(
    block: Swept, place: tuple[int, int], steps: NDArray[np.float64], curves: Curves
) -> str:
    if block.missing:
        return f"there is no gradient to compare: {block.missing.rstrip('.')}"
    analytic, numeric = float(block.analytic[place]), float(block.reference[place])
    digits = 4  # or as many as it takes to see two numbers
    while digits < 16 and f"{analytic:.{digits}g}" == f"{numeric:.{digits}g}":
        digits += 1
    values = (
        f"{block.place(*place)}: analytic {analytic:.{digits}g}, "
        f"numeric {numeric:.{digits}g}"
    )
    if not np.isfinite(analytic) or not np.isfinite(numeric):
        return f"one side is not finite, so there is no error to draw: {values}"
    if block.kinds[place] == Smoothness.KINK:
        low, high = _slopes(block, place)
        return (
            f"kink at the point: the analytic {analytic:.4g} at "
            f"{block.place(*place)} lies outside the slopes {low:.4g} and {high:.4g}"
        )
    level, start, stop = plateau(steps, curves.wrong, curves.own)
    if np.isnan(level):
        # the numeric side is worse than the difference at every single step of the
        # ladder, and yet the check could tell: extrapolation, or another precision
        level = float(relative_error(block.analytic, block.reference)[place])
        where = f"error {level:.2g}, which no step shows alone"
    elif start == stop:  # one step, as in float32: that is no plateau
        where = (
            f"error {level:.2g} at step {short(start)}, more than ten times that of "
            f"the numeric side"
        )
    else:
        where = f"plateau at {level:.2g} from {short(start)} to {short(stop)}"
    return f"{where}: the analytic side is wrong {_how(block, values)}"


def _how(block: Swept, values: str) -> str:
    """By a factor, by a missing term, or in some entries only."""
    wrong = block.verdicts == Verdict.DISAGREES
    count, total = int(wrong.sum()), wrong.size
    scope = "" if count == total else f" in {count:,} of {total:,} entries"
    analytic, numeric = block.analytic[wrong], block.reference[wrong]
    if not analytic.any():
        return f"(exactly 0{scope}: a term is missing)"
    with np.errstate(all="ignore"):
        ratio = analytic / numeric
        middle = float(np.median(ratio[np.isfinite(ratio)]))
        blur = SAFETY * block.reference_error[wrong] / np.abs(numeric)
        same = np.abs(ratio - middle) <= _SAME * abs(middle - 1) + blur
    many = count >= 4 or count == total
    if many and same.mean() >= 0.9:
        if scope and _vanishes(block, ~wrong):
            scope = f" wherever it is not zero,{scope}"
        return f"by a factor (analytic = {_common(analytic, numeric, middle)}{scope})"
    return f"({values};{scope or ' in all entries'}, by no common factor)"


def _common(
    analytic: NDArray[np.float64], numeric: NDArray[np.float64], middle: float
) -> str:
    """Write "c x numeric", and how far c is from being the same in all entries.

    Where it is not, it is the one that leaves least, as a check tells it.
    """
    known = np.isfinite(analytic) & np.isfinite(numeric)
    top = float(np.abs(numeric[known]).max(initial=0.0))
    if top > 0:
        a, n = analytic[known] / top, numeric[known] / top  # no square overflows
        c = float(a @ n / (n @ n))
        off = float(np.linalg.norm(a - c * n) / np.linalg.norm(a))
        if off > _EXACT:
            return f"{c:.5g} x numeric, within {100 * off:.2g} %"
    return f"{_factor(middle)} x numeric"


def _vanishes(block: Swept, there: NDArray[np.bool_]) -> bool:
    """Whether both sides are zero at these entries, as far as can be told."""
    numeric = np.abs(block.reference[there]) <= SAFETY * block.reference_error[there]
    return bool(numeric.all()) and not block.analytic[there].any()


def _factor(value: float) -> str:
    """Write a factor so that it is seen not to be 1."""
    if not 0.01 < abs(value) < 1e4:
        return f"{value:.3e}"
    digits = 3
    while digits < 12 and abs(float(f"{value:.{digits}f}") - value) > 0.05 * abs(
        value - 1
    ):
        digits += 1
    return f"{value:.{digits}f}"


def _first(mask: NDArray[np.bool_]) -> tuple[int, int] | None:
    if not mask.any():
        return None
    flat = int(mask.argmax())
    return flat // mask.shape[1], flat % mask.shape[1]
