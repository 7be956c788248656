"""Whether gradients in float64 may speak for those of the user in short arithmetic.

What has no more digits than single precision may be a buffer that was made so, whatever
comes in: it says nothing that the user's own gradient does not. But a few products of
short numbers have few digits as well. Beside the point, where the inputs have all that
float64 holds, a formula has as many, and a buffer has not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.analytic.gradients_elsewhere import gradients_at
from gradlab.differentiation.sizes.magnitudes import is_short
from gradlab.subject.subject import is_torch_subject, output_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.sides.analytic_side import AnalyticSide
    from gradlab.subject.subject import Subject

__all__ = ["trusted"]

_ASIDE = 1e-3  # of each coordinate, at most: far enough for all digits to change
_MOST = 256  # outputs whose gradients are asked for beside the point
_WIDTH = 10_000  # coordinates of all inputs together, for the same


def trusted(
    precise: AnalyticSide,
    analytic: AnalyticSide,
    twin: Subject | None = None,
    meter: Meter | None = None,
) -> AnalyticSide | None:
    """Gradients in float64, unless they fail where those of the user do not.

    A checkpoint that recomputes its forward inside the backward sees the user's own
    tensors again, not the copies.

    Parameters
    ----------
    precise, analytic
        In float64, and as the user has them.
    twin
        The subject in float64; None if it is not to be asked beside the point.
    meter
        Charged for a gradient there of a NumPy function.
    """
    if precise.problems and not analytic.problems:
        return None
    pairs = list(_numbers(precise, analytic))
    for wide, own in pairs:
        if own.shape == wide.shape and (np.isfinite(own) & ~np.isfinite(wide)).any():
            return None
    same = [np.array_equal(own, wide, equal_nan=True) for wide, own in pairs]
    if not all(same) and all(is_short(wide, beside=own) for wide, own in pairs):
        # a backward that is single precision whatever comes in, or short numbers
        return precise if twin is not None and _long_beside(twin, meter) else None
    return precise


def _long_beside(twin: Subject, meter: Meter | None) -> bool:
    """Whether gradients right beside the point have more digits than float32."""
    rows = output_rows(twin.outputs)
    width = sum(variable.coordinates for variable in twin.inputs)
    if rows > _MOST or width > _WIDTH:
        return False
    rng = np.random.default_rng(7)
    points = {}
    for which, variable in enumerate(twin.inputs):
        share = rng.uniform(0.1, 1.0, variable.coordinates) * _ASIDE
        points[which] = twin.point(which) * (1 + share)
    pulled = gradients_at(twin, points, np.eye(rows))
    if meter is not None and not is_torch_subject(twin):
        meter.owe(1)
    if pulled is None:
        return False
    return not all(is_short(np.asarray(part, dtype=np.float64)) for part in pulled)


def _numbers(
    one: AnalyticSide, other: AnalyticSide
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield what both sides hold of every input: matrices, or their entries."""
    for which in range(len(one.sides)):
        few = one.entries(which), other.entries(which)
        if few[0] is not None and few[1] is not None:
            yield few[0].value, few[1].value
        else:
            yield one.value(which), other.value(which)
