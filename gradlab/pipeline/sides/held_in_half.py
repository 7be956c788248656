"""How exact gradients in half precision can be that the user holds as numbers.

What computed them cannot be asked for them in float64. But torch can differentiate the
same loss both in half precision and in float64, and what the two are apart is what this
arithmetic costs: an error of a fifth in one entry is none of it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.pipeline.sides.analytic_side import analytic_side
from gradlab.subject.subject import SINGLE, holds_numbers, is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.sides.analytic_side import AnalyticSide
    from gradlab.subject.subject import Subject

__all__ = ["bearable_in_half"]

# times what torch rounds off, of the entry and of a typical one of its input: batches
# that were added up one by one round otherwise than all at once
_TIMES = 8.0
_UNITS = 8.0  # the same in units of round-off of the entry itself


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
