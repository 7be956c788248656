"""Gradients below the last digit of what they are computed from.

``sigmoid(x) - 1`` at 40 is zero, and at 35 some few units of 1.1e-16: the backward of a
cross-entropy with logits, exact to the last digit of its terms, of which nothing is
left when they cancel. The forward uses ``log1p`` and loses nothing, and a difference of
it tells a slope of 4e-18. That the gradient is made of such units shows beside the
point, where it is many of them and still has no digits below: no formula that is
computed as a product, and none that is cut, looks like that.

References
----------
D. Goldberg, *What every computer scientist should know about floating-point
arithmetic*, ACM Computing Surveys 23 (1991), section 1.4 on cancellation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.pipeline.blocks import Block
    from gradlab.subject.subject import Subject

__all__ = ["excuse_own_digits"]

_FEW = 4.0  # rounding units that a sum of a few terms may be off by
_MOST = 8  # entries that are looked at beside the point: one gradient for each place
# Of a coordinate, while the others stay.
_BESIDE = (1.2, 0.9, 0.68, 0.5, 0.38, 0.28, 0.21, 0.16, 0.12)
_LEAST = 3  # places at which there has to be something to see the digits of
_ZEROS = 9  # binary digits at the end: so many zeros at so many places are no accident


def excuse_own_digits(subject: Subject, block: Block) -> bool:
    """Allow a gradient the last digit of the terms that cancel in it.

    Nine gradients for each of up to eight entries, which nobody is charged for: what a
    budget counts is evaluations of f, and one that ends must not leave an accusation
    unheard. Asked for after the verdicts, as only they tell whom to hear.

    Parameters
    ----------
    subject
        With the analytic side that is compared, in float64 where that is asked for;
        back at its point afterwards.
    block
        Judged. Its `digits` are set where something is excused.

    Returns
    -------
    bool
        Whether anything was excused.
    """
    if subject.analytic is None or not block.accused:
        return False
    with np.errstate(all="ignore"):
        effects = np.fmax(np.abs(block.analytic), np.abs(block.value)) * block.sizes
        top = np.nanmax(np.where(np.isfinite(effects), effects, 0.0), initial=0.0)
        digit = _FEW * subject.epsilon * top / block.latest_scales
        faint = (block.verdicts == Verdict.DISAGREES) & (block.gap <= digit)
    places = np.argwhere(faint)
    found = np.zeros(block.gap.shape)
    for row, column in places[:_MOST]:
        least = float(digit[column])
        values = _beside(subject, block, int(row), int(column))
        unit, gap = _unit_of(values, least, subject.epsilon), block.gap[row, column]
        if gap <= _FEW * unit <= _FEW * least:
            found[row, column] = _FEW * unit
    if found.any():
        block.digits = found
    return bool(found.any())


def _beside(
    subject: Subject, block: Block, row: int, column: int
) -> NDArray[np.float64]:
    """Gradient of one output by one coordinate, where that is another number."""
    which, position = block.which, int(block.positions[column])
    cotangent = np.zeros((1, len(block.gap)))
    cotangent[0, row] = 1.0
    point, values = subject.point(which), []
    try:
        for factor in _BESIDE:
            moved = point.copy()
            moved[position] *= factor
            subject.place(which, moved)
            if subject.analytic is not None:
                pulled = subject.analytic.pull(cotangent).values[which]
                values.append(float(pulled[0, position]))
    finally:
        subject.place(which, None)
    return np.array(values)


def _unit_of(values: NDArray[np.float64], least: float, epsilon: float) -> float:
    """Place of the last digit that all have; 0 if they have as many as they can.

    Parameters
    ----------
    values
        Of a gradient, here and there.
    least
        What its last digit might be worth.
    epsilon
        Unit round-off, by which numbers have ``-log2(epsilon)`` digits after the first.

    Examples
    --------
    >>> unit, values = 2.0**-53, np.array([-40.0, -35.0, -30.0, -20.0, -15.0])
    >>> _unit_of(1 / (1 + np.exp(values)) - 1, unit, 2.0**-52) == unit
    True
    >>> _unit_of(np.exp(values), unit, 2.0**-52)
    0.0
    """
    digits = -float(np.log2(epsilon))
    most = least * 2.0 ** (digits - _ZEROS - 3)
    size = np.unique(np.abs(values[np.isfinite(values) & (values != 0)]))
    size = size[size <= most]
    if len(size) < _LEAST:
        return 0.0
    last = _last_digits(size)
    return float(last.min()) if (size / last < 2.0 ** (digits - _ZEROS)).all() else 0.0


def _last_digits(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Value of the lowest binary digit that is set, of each number.

    Examples
    --------
    >>> _last_digits(np.array([0.75, -6.0])).tolist()
    [0.25, 2.0]
    """
    mantissa, exponent = np.frexp(np.abs(numbers))
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = (whole & -whole).astype(np.float64)
    return np.asarray(np.ldexp(lowest, exponent - 53))
