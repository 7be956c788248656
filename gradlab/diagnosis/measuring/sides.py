"""Which inputs are wrong: by their entries, or along random directions alone.

Not every input is there entry by entry: what was probed may have no `Case`, and is not
right for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.measuring.layer_shapes import layer_of
from gradlab.diagnosis.measuring.measures import cases_of, sides_of

if TYPE_CHECKING:
    from gradlab.diagnosis.evidence import Evidence
    from gradlab.diagnosis.measuring.measures import Case

__all__ = ["right_inputs", "side_of", "wrong_inputs", "wrong_weight_of"]

_MOVES = 10.0  # error bars: a gradient that is more than nothing


def wrong_inputs(evidence: Evidence) -> set[int]:
    """Numbers of the inputs that are wrong."""
    if "wrong" not in evidence.kept:
        told = {
            comparison.input.name
            for comparison in evidence.comparisons
            if comparison.verdict >= Verdict.DISAGREES
        }
        wrong = {k for k, v in enumerate(evidence.subject.inputs) if v.name in told}
        wrong |= {case.part.which for case in cases_of(evidence)}
        evidence.kept["wrong"] = wrong
    result: set[int] = evidence.kept["wrong"]
    return result


def right_inputs(evidence: Evidence, near: str) -> list[str]:
    """Names of the inputs that have a right gradient, those near an input first."""
    told: dict[str, bool] = {}
    for each in evidence.comparisons:
        moves = np.abs(each.numeric) > _MOVES * np.asarray(each.numeric_error)
        right = each.verdict == Verdict.AGREES and bool(moves.any())
        told[each.input.name] = right and told.get(each.input.name, True)
    place = {name: k for k, name in enumerate(told)}
    names = sorted(told, key=lambda name: abs(place[name] - place[near]))
    return [name for name in names if told[name]]


def side_of(evidence: Evidence, which: int) -> Case | None:
    """Both sides of an input, None where its entries were not looked at."""
    found = (side for side in sides_of(evidence) if side.part.which == which)
    return next(found, None)


def wrong_weight_of(case: Case) -> Case | None:
    """Both sides of the weight beside a bias, where that is wrong as well; else None.

    Of a layer that is not recurrent: there a bias has the error signal of its weight.
    """
    layer = layer_of(case.evidence, case.part.which)
    if layer is None or layer.bias != case.part.which or layer.recurrent is not None:
        return None
    weight = side_of(case.evidence, layer.weight)
    return weight if weight is not None and weight.is_wrong else None
