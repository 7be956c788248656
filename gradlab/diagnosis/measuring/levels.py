"""Both gradients of a layer with all of its units at one pre-activation.

Its weight is at zero then and its bias at t: every sample meets the same slope.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.measuring.moving import analytic_at, slopes_at
from gradlab.subject.subject import unit_vectors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from gradlab.diagnosis.evidence import Evidence
    from gradlab.diagnosis.measuring.layer_shapes import Layer

__all__ = [
    "LEVELS",
    "SAME_SLOPE",
    "Level",
    "known",
    "level_at",
    "points_at",
    "sides_at",
    "spread",
]

LEVELS = (-1.0, -0.4, 0.5, 1.1)  # pre-activations at which both sides are read
SAME_SLOPE = 1e-3  # how near to one another two slopes are the same
_A_LITTLE = 2e-5  # of a weight: it moves its units by less than slopes are told apart
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

    def is_right(self) -> bool:
        """Whether both gradients are the same."""
        return self.parallel and abs(self.ratio - 1) < SAME_SLOPE

    def like(self, other: Level) -> bool:
        """Whether two gradients have one ratio."""
        same = abs(self.ratio - other.ratio) < SAME_SLOPE * abs(other.ratio)
        return self.parallel and other.parallel and same


def _gated(evidence: Evidence, layer: Layer) -> list[int]:
    """Weights of the same units: all that enter them, the recurrent ones too.

    The units stand along one axis in all of them; a weight behind them has them along
    the other, three or four times as long as its outputs are by chance.
    """
    inputs = evidence.subject.inputs
    size, shape = inputs[layer.bias].size, inputs[layer.weight].shape
    axes = [axis for axis, length in enumerate(shape[:2]) if length == size]
    several = [
        k
        for k, v in enumerate(inputs)
        if len(v.shape) == 2 and max(v.shape) == size and size / min(v.shape) in (3, 4)
        if any(v.shape[axis] == size for axis in axes)
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
    points = points_at(evidence, layer, level, units, others)
    sides = sides_at(evidence, points, of)
    if sides is None:
        return None
    ours, numeric, analytic = sides
    a, n = float(np.linalg.norm(ours)), float(np.linalg.norm(numeric))
    cosine = abs(float(ours @ numeric)) / (a * n) if a * n > 0 else 1.0
    a *= np.sign(float(ours @ numeric)) or 1.0
    weight = float(np.linalg.norm(analytic[layer.weight]))
    return Level(level, a, n, cosine > 1 - 1e-8, weight)


def points_at(
    evidence: Evidence,
    layer: Layer,
    level: float,
    units: NDArray[np.intp],
    others: Mapping[Layer, float] = MappingProxyType({}),
) -> dict[int, NDArray[np.float64]]:
    """Give the point where some units of a layer stand at one pre-activation."""
    inputs = evidence.subject.inputs
    points = {j: np.zeros(inputs[j].coordinates) for j in _gated(evidence, layer)}
    for other, elsewhere in others.items():
        # behind the layer a little of the weight is left: without it nothing would move
        left = _A_LITTLE if other.weight > layer.weight else 0.0
        points[other.weight] = left * np.asarray(evidence.subject.point(other.weight))
        points[other.bias] = np.full(inputs[other.bias].coordinates, elsewhere)
    points[layer.bias] = np.array(evidence.subject.point(layer.bias), dtype=np.float64)
    points[layer.bias][units] = level
    return points


def sides_at(
    evidence: Evidence,
    points: Mapping[int, NDArray[np.float64]],
    of: tuple[int, NDArray[np.intp]],
) -> (
    tuple[NDArray[np.float64], NDArray[np.float64], tuple[NDArray[np.float64], ...]]
    | None
):
    """Ask both sides of a few entries of an input elsewhere.

    Returns
    -------
    tuple or None
        The analytic and the numeric slopes of these entries, and all analytic ones of
        every input; None where a side cannot be asked.
    """
    which, entries = of
    analytic = analytic_at(evidence, points)
    if analytic is None:
        return None
    size = evidence.subject.inputs[which].coordinates
    numeric = slopes_at(evidence, points, which, unit_vectors(size, entries))
    ours = analytic[which][entries]
    told = np.isfinite(numeric).all() and np.isfinite(ours).all()
    return (ours, numeric, analytic) if told else None


def known(rows: Iterable[Level | None]) -> list[Level]:
    """Keep the levels at which both sides could be asked."""
    return [row for row in rows if row is not None]
