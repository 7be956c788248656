"""Compare a piece's vector-Jacobian product with differences of the piece itself.

One direction that moves everything at once is enough where they agree. Where they do
not, tensors are taken apart, steps are varied, and sides are looked at separately,
until it is certain that neither a kink nor rounding made the difference.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gradlab.differentiation.lines.least_scales import NOTICED, SMALL, Way
from gradlab.localisation.layers.products import finite_part, length
from gradlab.localisation.layers.replaying.directions import Direction, typical_size
from gradlab.localisation.layers.variables import ReplayError
from gradlab.subject.subject import DOUBLE
from gradlab.subject.tensors.in_double.narrowing import narrowing_watched
from gradlab.subject.tensors.values import is_differentiable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from gradlab.localisation.layers.replaying.directions import Scratch
    from gradlab.localisation.layers.replaying.replay import Piece
    from gradlab.localisation.layers.variables import Product, Variable

__all__ = [
    "CLEAR",
    "Line",
    "Measure",
    "Precision",
    "Slopes",
    "direction_seed",
    "narrows",
    "number_types",
    "quick",
    "rounding",
    "scale_of",
    "slopes",
]

CLEAR = 0.05  # of a slope: a bar that is wider hides anything
_TELLING = 0.5  # of the larger slope: as much is missing where one is twice the other
_ULPS = 8.0  # units in the last place that an output may be off by
_NEARER = 1 / 30  # of the step: as many times fewer kinks, and as much more rounding


class Line(Protocol):
    """What one tensor is moved along."""

    def move(self, step: float, scratch: Scratch | None = None) -> Callable[[], Any]:
        """Return what makes the tensor, so many steps on."""


@dataclasses.dataclass(frozen=True, slots=True)
class Precision:
    """What can be asked of one number format.

    Parameters
    ----------
    epsilon
        Unit round-off of the piece's arithmetic.
    """

    epsilon: float

    @classmethod
    def of(cls, piece: Piece) -> Precision:
        """Precision in which a piece is run."""
        import torch

        double = float(torch.finfo(torch.float64).eps)
        kinds = number_types(piece)
        if piece.raised or not kinds:
            return cls(double)
        return cls(max(float(torch.finfo(dtype).eps) for dtype in kinds))

    @property
    def step(self) -> float:
        """Relative step: the cube root of epsilon balances central differences."""
        return float(self.epsilon ** (1 / 3))

    @property
    def tolerance(self) -> float:
        """Relative difference that is looked into: 1e-6 in float64, 1 % in float32."""
        return float(min(0.3, max(1e-6, 30 * self.epsilon ** (1 / 2))))


@dataclasses.dataclass(frozen=True, slots=True)
class Measure:
    """Analytic against numeric slope along one direction.

    Parameters
    ----------
    label
        Of the tensor that was moved; "" for all at once.
    analytic, numeric
        Slopes.
    bar
        Error bar of `numeric`.
    scale
        Size that such a slope typically has, never less than the slopes themselves.
    agrees
        Verdict for this direction.
    certain
        False where a kink or noise left the question open.
    note
        What a reader should know ("kink").
    """

    label: str
    analytic: float
    numeric: float
    bar: float
    scale: float
    agrees: bool
    certain: bool = True
    note: str = ""

    @property
    def error(self) -> float:
        """Relative difference, from 0 to 1."""
        both = abs(self.analytic) + abs(self.numeric)
        if not math.isfinite(both):
            return 1.0
        if both == 0:
            return 0.0
        # Where both nearly vanish the ratio means nothing; their usual size does.
        return abs(self.analytic - self.numeric) / max(both, 2e-3 * self.scale)

    @property
    def relative_bar(self) -> float:
        """`bar` in the units of `error`."""
        both = abs(self.analytic) + abs(self.numeric)
        return self.bar / max(both, 2e-3 * self.scale, 1e-300)


@dataclasses.dataclass(frozen=True, slots=True)
class Slopes:
    """One central difference with its two sides."""

    central: float
    forward: float
    backward: float
    noise: float  # rounding error to be expected

    @property
    def gap(self) -> float:
        """How far the two one-sided slopes are apart."""
        return abs(self.forward - self.backward)


def direction_seed(seed: int, number: int) -> int:
    """Seed of a direction; two draws each, far apart, so that no two share any."""
    return (seed * 1_000_003 + number * 7919) % (1 << 62)


def slopes(
    piece: Piece,
    product: Product,
    directions: Mapping[int, Line],
    step: float,
    precision: Precision,
) -> Slopes:
    """Measure the slope of a piece along directions of some of its variables.

    Parameters
    ----------
    piece, product
        What is moved, and where it was.
    directions
        By the identity of the variable; the others stay.
    step
        In units of the directions.
    precision
        Of the piece's arithmetic.
    """
    up, down = (
        piece.change(product, _mover(piece, directions, sign * step))
        for sign in (1.0, -1.0)
    )
    noise = rounding(product) * precision.epsilon / step
    return Slopes((up - down) / (2 * step), up / step, -down / step, noise)


def rounding(product: Product) -> float:
    """Size of the weighted outputs, whose last digits are lost in a difference."""
    if product.size is None:
        pairs = zip(product.cotangents, product.outputs, strict=True)
        sizes = [length(w * finite_part(out)) for w, out in pairs if w is not None]
        product.size = math.hypot(*sizes)
    # Entries are themselves sums of many terms.
    return _ULPS * product.size


def scale_of(
    piece: Piece, product: Product, precision: Precision, position: int
) -> float | None:
    """By how much a tensor is moved whose own size is nothing to the piece.

    None for others; those that are small, and cannot move it by their gradient, are
    asked once. Zero where longer steps cross kinks.
    """
    if position not in product.scales:
        variable, gradient = product.variables[position], product.gradients[position]
        product.scales[position], own = None, typical_size(variable.base)
        height = rounding(product) / _ULPS
        if own < SMALL and (
            gradient is None or length(gradient) * own <= NOTICED * height
        ):
            line = Direction(variable.base, 0, dtype=variable.dtype, size=1.0)

            def beyond(step: float) -> NDArray[np.float64]:
                moved = {id(variable): line}
                change = piece.change(product, _mover(piece, moved, step))
                return np.array([change])

            try:
                found = Way(beyond, height, precision.epsilon).least_scale(own)
            except ReplayError:  # a branch is taken on so long a step
                found = None
            product.scales[position] = found
    return product.scales[position]


def number_types(piece: Piece) -> list[Any]:
    """Dtypes of the numbers that go into a piece, and come out of it."""
    slots = (*piece.frame.inputs, *piece.frame.outputs)
    return list({s.value.dtype for s in slots if is_differentiable(s.value)})


def narrows(piece: Piece, product: Product) -> bool:
    """Whether a piece in float64 casts to fewer digits on the way; one evaluation."""
    with narrowing_watched() as narrowed:
        piece.change(product, lambda _: None)
    return bool(narrowed)


def _mover(
    piece: Piece, directions: Mapping[int, Line], step: float
) -> Callable[[Variable], Callable[[], Any] | None]:
    """Move variables along directions, by their identity; the others stay."""
    piece.scratch.reset()

    def move(variable: Variable) -> Any:
        direction = directions.get(id(variable))
        if direction is None:
            return None
        # Only parameters: what is handed on as an input the piece may keep.
        scratch = piece.scratch if variable.kind == "parameter" else None
        return direction.move(step, scratch)

    return move


def _analytic(
    product: Product, directions: dict[int, Direction]
) -> tuple[float, float]:
    slope = squares = 0.0
    for variable, gradient in zip(product.variables, product.gradients, strict=True):
        direction = directions.get(id(variable))
        if direction is not None:
            part, typical = direction.slope(gradient)
            slope += part
            squares += typical**2
    return slope, math.sqrt(squares)


def quick(
    piece: Piece,
    product: Product,
    precision: Precision,
    seed: int,
    only: int | None = None,
) -> Measure:
    """Move all tensors of a piece at once along one random direction.

    Where both sides differ by more than the slopes do, one kink among many entries may
    lie within the step, and a shorter step is tried.

    Parameters
    ----------
    piece, product
        What is checked, and its vector-Jacobian product.
    precision
        Of the piece's arithmetic.
    seed
        Of the direction.
    only
        Position of the one tensor to move; None moves all.
    """
    directions = {
        id(variable): Direction(
            variable.base,
            direction_seed(seed, k),
            dtype=variable.dtype,
            size=scale_of(piece, product, precision, k),
        )
        for k, variable in enumerate(product.variables)
        if only is None or k == only
    }
    label = "" if only is None else product.variables[only].label
    bent = only is not None and product.scales[only] == 0
    analytic, typical = _analytic(product, directions)

    def measured(step: float) -> tuple[Measure, Slopes]:
        found = slopes(piece, product, directions, step, precision)
        scale = max(abs(analytic), abs(found.central), 0.1 * typical)
        allowed = precision.tolerance * scale + found.noise
        agrees = abs(analytic - found.central) <= allowed  # False for nan, too
        agrees &= not bent or found.noise <= CLEAR * scale
        # short arithmetic may round off all that twice the slope would change
        agrees &= precision.epsilon <= DOUBLE or allowed <= _TELLING * scale
        values = label, analytic, found.central, found.noise, scale
        return Measure(*values, agrees), found

    measure, found = measured(precision.step)
    if measure.agrees or not found.gap >= abs(analytic - found.central):
        return measure
    nearer, _ = measured(_NEARER * precision.step)
    clear = nearer.agrees and nearer.bar <= precision.tolerance * nearer.scale
    return nearer if clear else measure
