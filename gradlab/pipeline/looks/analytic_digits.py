"""Gradients below the last digit of what they are computed from.

``sigmoid(x) - 1`` at 40 is zero, and at 35 some few units of 1.1e-16: the backward of a
cross-entropy with logits, exact to the last digit of its terms, of which nothing is
left when they cancel. The forward uses ``log1p`` and loses nothing, and a difference of
it tells a slope of 4e-18. That the gradient is made of such units shows beside the
point, where it is many of them and still has no digits below: no formula that is
smooth, right or wrong, takes only whole multiples of one number.

References
----------
D. Goldberg, *What every computer scientist should know about floating-point
arithmetic*, ACM Computing Surveys 23 (1991), section 1.4 on cancellation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.analytic.gradients_elsewhere import gradients_at
from gradlab.subject.subject import is_torch_subject, unit_vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.blocks import Block
    from gradlab.subject.subject import Subject

__all__ = ["excuse_own_digits"]

_FEW = 4.0  # rounding units that a sum of a few terms may be off by
_MOST = 8  # entries that are looked at beside the point: one gradient for each place
# Of a coordinate, while the others stay; no power of one is a multiple of another's.
_BESIDE = tuple(1.05 * np.exp(-0.1 * np.arange(15)))
_CLOSER = tuple(1.05 * np.exp(-0.1 * np.arange(15, 45)))  # where all of that is zero
_LEAST = 3  # places at which there has to be something to see the digits of
_COUNT = 2.0**22  # units that are told apart where each value has been rounded again
_REST = 1e-3  # of a number: what is left of its multiples by roundings


def excuse_own_digits(subject: Subject, block: Block, meter: Meter) -> bool:
    """Allow a gradient the last digit of the terms that cancel in it.

    Fifteen gradients (forty-five, if the first are zero) for each of up to eight
    entries, also where no budget is left for them: its end must not leave an accusation
    unheard. Of more entries, eight speak for all. Asked for after the verdicts, as only
    they tell whom to hear.

    Parameters
    ----------
    subject
        With the analytic side that is compared, in float64 where that is asked for;
        back at its point afterwards.
    block
        Judged. Its `digits` are set where something is excused.
    meter
        Charged for gradients of NumPy functions, which evaluate f as well where that
        returns them.

    Returns
    -------
    bool
        Whether anything was excused.
    """
    if subject.analytic is None or not block.accused:
        return False
    with np.errstate(all="ignore"):
        digit = _FEW * subject.epsilon * block.largest_terms
        faint = block.wrong & (block.gap <= digit)
    places = np.argwhere(faint)
    found, least_seen = np.zeros(block.gap.shape), np.inf
    for row, column in _spread(places):
        least = float(digit[column])
        values = _beside(subject, block, int(row), int(column), meter)
        unit, gap = _unit_of(values), block.gap[row, column]
        told = gap <= _FEW * unit <= _FEW * least
        least_seen = min(least_seen, unit if told else 0.0)
        if told:
            found[row, column] = _FEW * unit
    if len(places) > _MOST:  # all that were asked count in units: so do the others
        alike = faint & (found == 0) & (block.gap <= _FEW * least_seen)
        found[alike] = _FEW * least_seen
    if found.any():
        block.digits = found
    return bool(found.any())


def _spread(places: NDArray[np.intp]) -> NDArray[np.intp]:
    """Choose a few places among all, from the first to the last."""
    if len(places) <= _MOST:
        return places
    return places[np.linspace(0, len(places) - 1, _MOST).astype(np.intp)]


def _beside(
    subject: Subject, block: Block, row: int, column: int, meter: Meter
) -> NDArray[np.float64]:
    """Gradient of one output by one coordinate, where that is another number."""
    which, position = block.which, int(block.positions[column])
    cotangent = unit_vectors(len(block.gap), [row])
    point = subject.point(which)
    values: list[float] = []
    for factor in (*_BESIDE, *_CLOSER):
        if len(values) == len(_BESIDE) and any(values):
            break
        moved = point.copy()
        moved[position] *= factor
        pulled = gradients_at(subject, {which: moved}, cotangent)
        if pulled is None:  # gradients that are given as numbers
            break
        if not is_torch_subject(subject):
            meter.owe(1)
        values.append(float(pulled[which][0, position]))
    return np.array(values)


def _unit_of(values: NDArray[np.float64]) -> float:
    """Find the number that the small ones are multiples of; 0 if these are too few.

    Euclid's algorithm. Of numbers that are multiples of none it finds one far too small
    to explain anything.

    Parameters
    ----------
    values
        Of a gradient, here and there.

    Examples
    --------
    >>> unit, values = 2.0**-53, np.array([-40.0, -35.0, -31.0, -28.0, -20.0])
    >>> rounded = (1 / (1 + np.exp(values)) - 1) / 3
    >>> bool(np.isclose(_unit_of(rounded), unit / 3, rtol=1e-3))
    True
    >>> _unit_of(np.exp(values)) < 1e-6 * unit
    True
    """
    size = np.unique(np.abs(values[np.isfinite(values) & (values != 0)]))
    if len(size) < _LEAST:
        return 0.0
    unit, told = float(size[0]), 1
    for other in size[1:]:
        if other > _COUNT * unit:
            break
        told += 1
        large, small = float(other), unit
        while (rest := abs(large - round(large / small) * small)) > _REST * small:
            large, small = small, rest
        unit = float(other) / round(float(other) / small)  # roundings have added up
    return unit if told >= _LEAST else 0.0
