"""Look at one tensor with care before anything is said against it."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.checking.ladder import Ladder
from gradlab.localisation.layers.checking.probe import (
    Measure,
    direction_seed,
    quick,
    scale_of,
    slopes,
)
from gradlab.localisation.layers.replaying.directions import Direction, typical_size
from gradlab.localisation.layers.variables import ReplayError
from gradlab.subject.subject import DOUBLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gradlab.localisation.layers.checking.probe import Precision
    from gradlab.localisation.layers.replaying.replay import Piece
    from gradlab.localisation.layers.variables import Product, Variable

__all__ = ["judge"]

_MOST_SORTED = 1 << 22  # entries that are sorted in search of equal values
_SUMS = (0.1, 7.7, 59.0)  # at which slopes are added up
_PARTS = ("part", "alone")  # of a tensor: they do not speak for the rest of it
_STRICT = ("ordinary", "alone")  # whose kinks, if any, show between both sides


def judge(
    piece: Piece, product: Product, precision: Precision, seed: int
) -> list[Measure]:
    """Judge each tensor of a piece by itself.

    A tensor is called wrong only if two independent directions disagree, each with an
    error bar from several steps, away from kinks, and if the differences add up, as
    those of a differentiable function do. What agrees at first sight is not looked at
    twice.

    Parameters
    ----------
    piece, product
        What is checked, and its vector-Jacobian product.
    precision
        Of the piece's arithmetic.
    seed
        Of all directions.
    """
    measures = []
    for k in range(len(product.variables)):
        try:
            measure = quick(piece, product, precision, seed + k, only=k)
        except ReplayError:  # a branch was taken: smaller steps may not
            measure = None
        if measure is None or not measure.agrees:
            judged = _Judge(piece, product, precision, k)
            measure = judged.measure(direction_seed(seed, 7 + k))
        measures.append(measure)
    return measures


class _Judge:
    """Judges one tensor."""

    def __init__(
        self, piece: Piece, product: Product, precision: Precision, position: int
    ) -> None:
        self._piece, self._product, self._precision = piece, product, precision
        self._variable: Variable = product.variables[position]
        self._gradient = product.gradients[position]
        self._scale = scale_of(piece, product, precision, position)
        self._apart: Any = None  # see `_ordinary`

    def measure(self, seed: int) -> Measure:
        """Try pairs of directions, each pair more cautious than the last."""
        doubt: Measure | None = None
        tied = False
        attempts = _attempts(
            self._variable, self._ordinary, seed, spread_out=self._spread_out()
        )
        for number, (style, masks) in enumerate(attempts):
            relative = style == "relative"
            pair = [
                self._direction(
                    direction_seed(seed, 2 * number + k), mask, relative=relative
                )
                for k, mask in enumerate(masks)
            ]
            found = [self._along(pair[0])]
            if found[0].certain and found[0].agrees:
                # Fewer entries cross fewer kinks; they are rounded as the whole is.
                if style in _PARTS and self._rounded(doubt):
                    break
                return found[0]
            if style == "alone" and found[0].note == "kink" and found[0].agrees:
                # Each slope between the sides is a sub-gradient of one entry.
                return dataclasses.replace(found[0], certain=True)
            if found[0].certain:
                found.append(self._along(pair[1]))
            if all(m.certain and not m.agrees for m in found):
                # At ties, parts of a tensor may add up where the whole does not.
                apart = not tied or style == "ordinary"
                if apart and self._adds_up(pair, found):
                    tied = style not in _STRICT and self._hangs_on_kinks(seed)
                    if not tied:
                        return found[0]
                tied = True
                found[0] = dataclasses.replace(found[0], certain=False, note="kink")
            doubt = doubt or next((m for m in found if not m.certain), None) or found[1]
        assert doubt is not None  # noqa: S101 - there is always a first attempt
        return doubt

    def _rounded(self, doubt: Measure | None) -> bool:
        """Whether what is doubtful of the whole may be rounding."""
        if doubt is None or doubt.note != "noise":
            return False
        return not doubt.agrees or self._precision.epsilon > DOUBLE

    def _spread_out(self) -> bool:
        """Whether the slope hangs on entries a thousand times smaller than usual.

        A step made for the usual ones jumps over whatever those do.
        """
        base, gradient = self._variable.base, self._gradient
        if gradient is None or not base.numel():
            return False
        small = (base.abs() < 1e-3 * typical_size(base)) & (base != 0)
        share = gradient.abs() * small
        return bool(share.norm() > 0.5 * gradient.norm())

    def _direction(self, seed: int, mask: Any, *, relative: bool = False) -> Direction:
        variable = self._variable
        return Direction(
            variable.base,
            seed,
            dtype=variable.dtype,
            mask=mask,
            relative=relative,
            size=self._scale,
        )

    def _ordinary(self) -> Any:
        """Tell the entries, flat, that are away from what may sit on a kink.

        Those are zeros (relu) and equal values (max).
        """
        if self._apart is None:
            flat = self._variable.base.reshape(-1)
            self._apart = flat != 0
            if not flat.is_complex() and 0 < flat.numel() <= _MOST_SORTED:
                _, inverse, counts = flat.unique(
                    return_inverse=True, return_counts=True
                )
                self._apart &= counts[inverse] == 1
        return self._apart

    def _hangs_on_kinks(self, seed: int) -> bool:
        """Whether what differs are zeros or equal values alone, and these at kinks.

        Of several kinks at once some bend up and some bend down, and both sides of a
        direction may look alike. So the half that differs more is halved again, until
        one entry is left: that cannot hide its kink.
        """
        base, ordinary = self._variable.base, self._ordinary()
        if bool(ordinary.all()):
            return False
        if bool(ordinary.any()):
            rest = self._along(self._direction(seed, _mask(ordinary, base)))
            if rest.certain and not rest.agrees:
                return False
        odd = (~ordinary).nonzero()[:, 0]
        try:
            while odd.numel() > 1:
                halves = odd.tensor_split(2)
                odd = max(halves, key=lambda half: self._off_by(half, seed))
        except ReplayError:  # a branch is taken at them
            return True
        return self._along(self._direction(seed, _only(odd, base))).note == "kink"

    def _off_by(self, places: Any, seed: int) -> float:
        """By how much both slopes differ where a few entries move, at one step."""
        direction = self._direction(seed, _only(places, self._variable.base))
        moved = {id(self._variable): direction}
        step, precision = self._precision.step, self._precision
        found = slopes(self._piece, self._product, moved, step, precision)
        apart = abs(direction.slope(self._gradient)[0] - found.central)
        return apart if math.isfinite(apart) else math.inf

    def _along(self, direction: Direction) -> Measure:
        ladder = Ladder(
            self._piece, self._product, self._precision, self._variable, direction
        )
        return ladder.measure(direction.slope(self._gradient))

    def _adds_up(self, pair: list[Direction], found: list[Measure]) -> bool:
        """Whether slopes along two directions add up to the slope along their sum.

        They do where there is a derivative. At ties (of a sort, of a maximum) they may
        not, although both sides of each direction look alike, and that at every step;
        what rounding inside leaves of a sum is less, the longer the step.
        """
        if not all(math.isfinite(measure.analytic) for measure in found):
            return True

        def change(made: Callable[[], Any]) -> float:
            return self._piece.change(
                self._product, lambda v: made if v is self._variable else None
            )

        def central(make: Callable[[float], Callable[[], Any]], step: float) -> float:
            return (change(make(step)) - change(make(-step))) / (2 * step)

        smallest = min(abs(m.analytic - m.numeric) for m in found)
        allowed = 0.2 * smallest + 5 * sum(m.bar for m in found)
        for factor in _SUMS:
            step = factor * self._precision.step
            try:
                one, two = central(pair[0].move, step), central(pair[1].move, step)
                both = central(lambda moved: pair[0].plus(pair[1], moved), step)
            except ReplayError:
                continue
            if abs(both - one - two) <= allowed:
                return True
        return False


def _mask(chosen: Any, base: Any) -> Any:
    return chosen.reshape(base.shape).to(base.dtype)


def _only(places: Any, base: Any) -> Any:
    """Return a mask of a few entries, by their places in the flat tensor."""
    import torch

    chosen = torch.zeros(base.numel(), dtype=torch.bool, device=base.device)
    chosen[places] = True
    return _mask(chosen, base)


def _attempts(
    variable: Variable, apart: Callable[[], Any], seed: int, *, spread_out: bool
) -> Iterator[tuple[str, list[Any]]]:
    """Yield ever more cautious pairs of directions: how they are made, and masks."""
    import torch

    base = variable.base
    flat = base.reshape(-1)
    if spread_out:
        yield "relative", [None, None]
    else:
        yield "dense", [None, None]
    if not flat.numel():
        return
    ordinary = apart()
    if bool(ordinary.any()) and not bool(ordinary.all()) and not spread_out:
        yield "ordinary", [_mask(ordinary, base)] * 2
    if not spread_out:
        yield "relative", [None, None]
    generator = torch.Generator("cpu").manual_seed(seed)
    for share in (0.5, 0.1, 0.02, 0.0, 0.0):
        masks = []
        for _ in range(2):
            mask = torch.rand(flat.shape, generator=generator, device="cpu") < share
            one = torch.randint(flat.numel(), (1,), generator=generator, device="cpu")
            mask[int(one)] = True
            masks.append(mask.reshape(base.shape).to(base.device, base.dtype))
        yield ("part" if share else "alone"), masks
