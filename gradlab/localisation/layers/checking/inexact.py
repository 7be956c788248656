"""Mistakes no larger than what the gradients that agree are off by.

A solver ends at its last iterate, and its gradients are as exact as that: those of what
matters agree, and those of what does not, of a bound that the solution keeps away from,
are next to nothing instead of nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradlab.comparison.rule import NEGLIGIBLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradlab.localisation.layers.checking.probe import Measure

__all__ = ["beyond_digits"]

_LIKE = 100.0  # times what those that agree are off by, along one direction each
_SURE = 2.0  # bars; what is off by less may be right to the last digit


def beyond_digits(
    bad: Sequence[Measure], measures: Sequence[Measure]
) -> tuple[list[Measure], str]:
    """Set apart what is wrong, but matters as little as what agrees is off by.

    Parameters
    ----------
    bad
        What is wrong.
    measures
        Of all tensors, each moved by its own size.

    Returns
    -------
    list, str
        The others; where there are none, all of it, and why it is to be left.
    """
    right = [measure for measure in measures if measure.certain and measure.agrees]
    told = [gap for m in right if (gap := _gap(m)) > _SURE * m.bar]
    matters = max((abs(measure.numeric) for measure in right), default=0.0)
    least = min(NEGLIGIBLE * matters, _LIKE * max(told, default=0.0))
    others = [measure for measure in bad if not _gap(measure) <= least]
    if others:
        return others, ""
    return list(bad), (
        f"what is wrong with respect to {bad[0].label} is less than {NEGLIGIBLE:g} of "
        f"what matters, and gradients that agree are off by as much: its backward has "
        f"no more digits"
    )


def _gap(measure: Measure) -> float:
    return abs(measure.analytic - measure.numeric)
