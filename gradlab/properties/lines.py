"""A line through the point: a direction in all inputs, and f along it."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.differentiation.evaluation import line_rows
from gradlab.differentiation.noise.noise import ULPS, difference_noise
from gradlab.differentiation.sizes.small_coordinates import OWN_SCALE
from gradlab.errors import InputError
from gradlab.subject.numpy_values import as_numpy
from gradlab.subject.subject import DOUBLE
from gradlab.subject.tree import is_mapping

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.localisation.searching.bench import Bench
    from gradlab.subject.subject import Subject

__all__ = ["Line", "direction_of", "norm_of"]

_QUIET = 3e-7  # relative spacing that shows single precision, and hardly curvature
_POINTS = 7
_SPANNING = 0.25  # of the coordinates, as small as that, are no chance
_RIPPLE = 3.0  # times the standard deviation of the noise: what one value may be off


def direction_of(bench: Bench, given: Any, seed: int) -> list[NDArray[np.float64]]:
    """Real coordinates of the direction, input by input."""
    inputs = bench.numeric.inputs
    if given is None:
        rng = np.random.default_rng([seed, 13])
        drawn = [
            _sizes(bench.numeric.point(which), unit)
            * rng.choice([-1.0, 1.0], v.coordinates)
            * rng.uniform(1, 2, v.coordinates)
            for which, (v, unit) in enumerate(zip(inputs, bench.units, strict=True))
        ]
        for which, still in bench.immovable.items():
            drawn[which][still] = 0.0
        return drawn
    if is_mapping(given):
        unknown = set(given) - {v.name for v in inputs}
        if unknown:
            known = ", ".join(repr(v.name) for v in inputs)
            msg = f"direction names {min(unknown)!r}; the inputs are {known}"
            raise InputError(msg)
        parts = [given.get(v.name, np.zeros(v.shape)) for v in inputs]
    else:
        several = isinstance(given, tuple | list) and len(inputs) > 1
        parts = list(given) if several else [given]
    if len(parts) != len(inputs):
        msg = f"direction has {len(parts)} parts for {len(inputs)} inputs"
        raise InputError(msg)
    found = [_coordinates(p, v) for p, v in zip(parts, inputs, strict=True)]
    if not all(np.isfinite(part).all() for part in found):
        raise InputError(f"direction must be finite, got {given!r}")
    if not any(part.any() for part in found):
        raise InputError(f"direction is zero everywhere, got {given!r}; leave it out")
    return found


def _sizes(point: NDArray[np.float64], unit: float) -> NDArray[np.float64]:
    """By how much each coordinate of one input moves: by the size of the input.

    Where the input spans many scales, what is small moves by its own size: 1e-12 beside
    1e12 is another quantity. Among numbers of one scale a small one is so by chance.
    """
    size = np.abs(point)
    small = (size > 0) & (size < OWN_SCALE * unit)
    if np.count_nonzero(small) < _SPANNING * np.count_nonzero(size):
        small[:] = False
    return np.where(small, size, unit)


def _coordinates(part: Any, variable: Any) -> NDArray[np.float64]:
    array = as_numpy(part, f"direction for {variable.name}", "pass")
    if array.shape != variable.shape or array.dtype.kind not in "biufc":
        msg = (
            f"direction for {variable.name} must be numbers of shape {variable.shape}, "
            f"got {array.dtype} of shape {array.shape}"
        )
        raise InputError(msg)
    flat = (
        array.ravel() if variable.support is None else array.ravel()[variable.support]
    )
    if variable.is_complex:
        return flat.astype(np.complex128).view(np.float64).copy()
    if array.dtype.kind == "c":
        raise InputError(f"direction for {variable.name} is complex, the input is real")
    return flat.astype(np.float64)


def norm_of(terms: NDArray[np.float64]) -> float:
    """Root sum of squares, also where the squares leave their range."""
    top = float(np.abs(terms).max(initial=0.0))
    if not 0 < top < math.inf:
        return top
    return top * math.sqrt(float(np.sum((terms / top) ** 2)))


@dataclasses.dataclass(slots=True, eq=False)
class Line:
    """The scalar function ``t -> c . f(x + t v)`` and what is known of it."""

    bench: Bench
    parts: list[NDArray[np.float64]]
    known: dict[float, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        live = self.bench.cotangent != 0
        with np.errstate(all="ignore"):
            self.known[0.0] = float(
                np.dot(self.bench.cotangent[live], self.bench.base[live])
            )

    @property
    def size(self) -> float:
        """Size of the numbers that a value is a sum of."""
        with np.errstate(all="ignore"):
            size = np.abs(self.bench.cotangent * self.bench.base)
        return float(size[np.isfinite(size)].sum())

    @property
    def slope(self) -> float:
        """What the gradient says the derivative along the direction is."""
        pairs = zip(self.bench.gradients, self.parts, strict=True)
        with np.errstate(all="ignore"):
            return float(sum(np.dot(g[p != 0], p[p != 0]) for g, p in pairs))

    @property
    def spread(self) -> float:
        """Root sum of squares of the terms of `slope`."""
        pairs = zip(self.bench.gradients, self.parts, strict=True)
        with np.errstate(all="ignore"):
            return math.hypot(*(norm_of(g * p) for g, p in pairs))

    @property
    def analytic_epsilon(self) -> float:
        """Round-off of the gradients along it, the coarsest of inputs that move."""
        moved = [which for which, part in enumerate(self.parts) if part.any()]
        known = map(self.bench.analytic_epsilon, moved)
        return max(known, default=self.bench.subject.epsilon)

    def at(self, step: float) -> float:
        """Evaluate; nan where the function raises or is not finite."""
        if step not in self.known:
            subject: Subject = self.bench.numeric
            row = line_rows(subject, self.parts, [step], self.bench.meter)[0]
            live = self.bench.cotangent != 0
            with np.errstate(all="ignore"):
                self.known[step] = float(np.dot(self.bench.cotangent[live], row[live]))
        return self.known[step]

    @property
    def rounding(self) -> float:
        """Absolute round-off of one value."""
        return ULPS * self.bench.numeric.epsilon * self.size

    def noise(self) -> float:
        """Absolute noise of one value: round-off, or what second differences show."""
        first = _QUIET if self.bench.numeric.epsilon < DOUBLE else 2.0**-14
        level = self.rounding
        for spacing in (first, 7 * first):  # one alone may by chance be silent
            values = np.array([self.at(k * spacing) for k in range(_POINTS)])
            size = float(np.abs(values).max())
            if math.isfinite(size) and size > 0:
                ripple = float(difference_noise(values[:, None] / size)[0]) * size
                level = float(np.fmax(level, _RIPPLE * ripple))  # nan: none heard
        return level
