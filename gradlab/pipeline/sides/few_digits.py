"""How exact gradients of few digits are: rounded, or held in half precision.

How exact gradients are that are rounded whatever comes in. A gradient cast to float16
at its end has no more digits where the inputs are float64. It says more than the one
that half precision computed, all the same: what it rounds off is scatter around a
smooth function of the point, and can be measured.

How exact gradients in half precision can be that the user holds as numbers. What
computed them cannot be asked for them in float64. But torch can differentiate the same
loss both in half precision and in float64, and what the two are apart is what this
arithmetic costs: an error of a fifth in one entry is none of it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.differentiation.analytic.gradients_elsewhere import gradients_at
from gradlab.differentiation.noise.analytic_noise import (
    MOST_ROWS,
    SCATTER,
    analytic_noise,
    rounding_noise,
)
from gradlab.differentiation.noise.underflow import underflowed
from gradlab.pipeline.sides.analytic_side import analytic_side
from gradlab.subject.subject import SINGLE, holds_numbers, is_torch_subject, output_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.sides.analytic_side import AnalyticSide
    from gradlab.subject.subject import Subject

__all__ = ["bearable_in_half", "round_off_of", "scatter_of_rounded"]

_INEXACT = 0.05  # of the largest entry: more is no round-off, unless measured to be
_LINES = 2
# Of five points in a row: what is left where all that bends smoothly is taken out.
_FOURTH = {-2: 1.0, -1: -4.0, 0: 6.0, 1: -4.0, 2: 1.0}
_LENGTH = sum(weight**2 for weight in _FOURTH.values()) ** 0.5
_APART = 8.0  # roundings between two points: each rounds anew, on its way as well
# As of gradients that are held: times the scatter of the entry and of a typical one,
# for it was seen in few points, and units of round-off of the entry itself, for a
# constant may be rounded, which scatters nowhere.
_TIMES, _UNITS = 8.0, 8.0  # also of what torch rounds off, which adds up otherwise


def scatter_of_rounded(
    twin: Subject,
    wide: AnalyticSide,
    columns: Sequence[NDArray[np.intp]] | None,
    meter: Meter,
) -> list[NDArray[np.float64]] | None:
    """Say by how much gradients in `wide` may be off for their few digits.

    Parameters
    ----------
    twin
        The subject in float64; back at its point afterwards.
    wide
        Its gradients there.
    columns
        Coordinates that are looked at, one array per input; None for all.
    meter
        Charged for eight gradients.

    Returns
    -------
    list of ndarray or None
        (rows, coordinates) per input; None where gradients have all digits, something
        else is the matter with them, or they cannot be asked for elsewhere.
    """
    rows = output_rows(twin.outputs)
    odd = any(problem.kind != "dtype" for problem in wide.problems)
    if is_torch_subject(twin) or odd or rows > MOST_ROWS or not rows:
        return None
    epsilon = max(_epsilon_of(values) for values in wide.values)
    if epsilon == 0:
        return None
    rng = np.random.default_rng(11)
    found = [np.zeros(values.shape) for values in wide.values]
    for _ in range(_LINES):
        bent = _fourth_difference(twin, wide.values, _APART * epsilon, rng)
        meter.owe(len(_FOURTH) - 1)
        if bent is None:
            return None
        for which, part in enumerate(bent):
            kept = part if columns is None else part[:, columns[which]]
            np.fmax(found[which], np.abs(kept), out=found[which])
    return [
        _TIMES * (scatter + np.sqrt((scatter**2).mean())) + _UNITS * epsilon * np.abs(v)
        for scatter, v in zip(found, wide.values, strict=True)
    ]


def _epsilon_of(values: NDArray[np.float64]) -> float:
    """Round-off of the shortest numbers that hold all of these; 0 if none does."""
    if not np.isfinite(values).all():
        return 0.0
    for short in (np.float16, np.float32):
        with np.errstate(over="ignore"):
            if (values.astype(short) == values).all():
                return float(np.finfo(short).eps)
    return 0.0


def _fourth_difference(
    twin: Subject,
    here: Sequence[NDArray[np.float64]],
    apart: float,
    rng: np.random.Generator,
) -> list[NDArray[np.float64]] | None:
    """Give the scatter of each entry along a line through the point, (rows, n).

    That of points this far apart, in parts of each coordinate; None if it is none.
    """
    points = [twin.point(which) for which in range(len(twin.inputs))]
    moves = []
    for point in points:
        size = np.abs(point).max(initial=0.0) or 1.0
        size = np.where(point != 0, np.abs(point), size)
        moves.append(apart * size * rng.uniform(0.5, 1.0, point.size))
    total = [np.zeros(values.shape) for values in here]
    for step, weight in _FOURTH.items():
        there = {
            k: p + step * m for k, (p, m) in enumerate(zip(points, moves, strict=True))
        }
        pulled = gradients_at(twin, there, np.eye(len(here[0]))) if step else here
        if pulled is None or not all(np.isfinite(part).all() for part in pulled):
            return None
        share = weight / _LENGTH
        total = [a + share * b for a, b in zip(total, pulled, strict=True)]
    return total


def bearable_in_half(
    subject: Subject,
    twin: Subject,
    columns: Sequence[NDArray[np.intp]] | None,
    meter: Meter,
) -> list[NDArray[np.float64]] | None:
    """Say by how much gradients that are given may be off for their short arithmetic.

    Parameters
    ----------
    subject, twin
        As the user has it, and in float64.
    columns
        Coordinates that are looked at, one array per input; None for all.
    meter
        Its budget of seconds holds here too.

    Returns
    -------
    list of ndarray or None
        (rows, coordinates) per input; None where it is not half precision, gradients
        are not given as numbers, or torch does not differentiate this loss.
    """
    given = holds_numbers(subject)
    if not given or subject.epsilon <= SINGLE or not is_torch_subject(subject):
        return None
    own, wide = (_by_torch(one, columns, meter) for one in (subject, twin))
    if own is None or wide is None:
        return None
    found = []
    for short, long in zip(own.values, wide.values, strict=True):
        if not (np.isfinite(short).all() and np.isfinite(long).all() and long.any()):
            return None
        lost = np.abs(short - long)
        typical = np.sqrt((lost**2).mean())
        found.append(
            _TIMES * (lost + typical) + _UNITS * subject.epsilon * np.abs(long)
        )
    return found


def round_off_of(
    sides: tuple[Subject, Subject],
    analytic: AnalyticSide,
    precise: AnalyticSide,
    seed: int,
) -> list[NDArray[np.float64]] | None:
    """Measure how exact gradients in short arithmetic are, where that is in doubt.

    Parameters
    ----------
    sides
        The subject, and the same in float64.
    analytic, precise
        What they make of all their rows.
    seed
        Of the displacements by which it is measured.

    Returns
    -------
    list of ndarray or None
        (rows, coordinates) per input: by how much entries scatter, or have underflowed;
        None where every one is near enough, or rows are too many.
    """
    doubt = False
    with np.errstate(all="ignore"):
        for own, wide in zip(analytic.values, precise.values, strict=True):
            size = np.abs(wide)
            most = _INEXACT * size.max(initial=0.0, where=np.isfinite(size))
            doubt |= bool(
                (np.abs(own - wide) > np.maximum(_INEXACT * size, most)).any()
            )
    rows = len(analytic.values[0])
    if not doubt or rows > MOST_ROWS:
        return None
    inner = rounding_noise(sides[0], np.eye(rows), twin=sides[1], seed=seed)
    outer = analytic_noise(sides[0], np.eye(rows), seed=seed)
    lost = underflowed(sides[0], analytic.values, precise.values, _INEXACT)
    scatter = [SCATTER * np.fmax(*pair) for pair in zip(inner, outer, strict=True)]
    return scatter if lost is None else list(map(np.fmax, scatter, lost))


def _by_torch(
    subject: Subject, columns: Sequence[NDArray[np.intp]] | None, meter: Meter
) -> AnalyticSide | None:
    """Differentiate by torch in reverse mode, whatever was given; None if it cannot."""
    from gradlab.subject.tensors.gradients.analytic import ReverseMode

    kept: Any = copy.copy(subject)  # a TorchSubject
    kept.analytic = ReverseMode(kept)
    try:
        side = analytic_side(kept, columns, meter)
    except RuntimeError:  # of torch: nothing in it requires grad
        return None
    return None if side.problems else side
