"""Both gradients of a layer with all of its units at one pre-activation.

Its weight is at zero then and its bias at t: every sample meets the same slope.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.measuring.moving import analytic_at, slopes_at, unit_directions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from gradlab.diagnosis.evidence import Evidence
    from gradlab.diagnosis.measuring.layer_shapes import Layer

__all__ = ["SAME_SLOPE", "Level", "known", "level_at", "spread"]

SAME_SLOPE = 1e-3  # how near to one another two slopes are the same
_COORDINATES = 6  # entries of a bias or a weight that are varied at each


@dataclasses.dataclass(frozen=True, slots=True)
class Level:
    """Both gradients of a few entries, with all units at one pre-activation t.

    Attributes
    ----------
    ours, true
        Their lengths; that of the analytic one is negative where it points the other
        way.
    parallel
        Whether they are.
    weight
        Length of the analytic gradient of the layer's weight.
    """

    t: float
    ours: float
    true: float
    parallel: bool
    weight: float

    @property
    def ratio(self) -> float:
        """Analytic by numeric."""
        return self.ours / self.true

    def like(self, other: Level) -> bool:
        """Whether two gradients have one ratio."""
        same = abs(self.ratio - other.ratio) < SAME_SLOPE * abs(other.ratio)
        return self.parallel and other.parallel and same


def _gated(evidence: Evidence, layer: Layer) -> list[int]:
    """Weights of the same units: all that enter them, the recurrent ones too."""
    inputs = evidence.subject.inputs
    size = inputs[layer.bias].size
    several = [
        k
        for k, v in enumerate(inputs)
        if len(v.shape) == 2 and max(v.shape) == size and size / min(v.shape) in (3, 4)
    ]
    own = [layer.weight, *([] if layer.recurrent is None else [layer.recurrent])]
    return list(dict.fromkeys([*own, *several]))


def spread(size: int) -> NDArray[np.intp]:
    """Choose a few of so many entries, evenly."""
    return np.unique(np.linspace(0, size - 1, _COORDINATES).astype(int))


def level_at(
    evidence: Evidence,
    layer: Layer,
    level: float,
    units: NDArray[np.intp],
    of: tuple[int, NDArray[np.intp]],
    others: Mapping[Layer, float] = MappingProxyType({}),
) -> Level | None:
    """Compare both gradients `of` entries of an input with some units at one level.

    And all those of other layers at levels of theirs.
    """
    which, entries = of
    inputs = evidence.subject.inputs
    points = {j: np.zeros(inputs[j].coordinates) for j in _gated(evidence, layer)}
    for other, elsewhere in others.items():
        points[other.weight] = np.zeros(inputs[other.weight].coordinates)
        points[other.bias] = np.full(inputs[other.bias].coordinates, elsewhere)
    points[layer.bias] = np.array(evidence.subject.point(layer.bias), dtype=np.float64)
    points[layer.bias][units] = level
    analytic = analytic_at(evidence, points)
    if analytic is None:
        return None
    directions = unit_directions(inputs[which].coordinates, entries)
    numeric = slopes_at(evidence, points, which, directions)
    ours = analytic[which][entries]
    if not np.isfinite(numeric).all() or not np.isfinite(ours).all():
        return None
    a, n = float(np.linalg.norm(ours)), float(np.linalg.norm(numeric))
    cosine = abs(float(ours @ numeric)) / (a * n) if a * n > 0 else 1.0
    a *= np.sign(float(ours @ numeric)) or 1.0
    weight = float(np.linalg.norm(analytic[layer.weight]))
    return Level(level, a, n, cosine > 1 - 1e-8, weight)


def known(rows: Iterable[Level | None]) -> list[Level]:
    """Keep the levels at which both sides could be asked."""
    return [row for row in rows if row is not None]
