"""Differences of a piece along one direction, at several steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gradlab.localisation.layers.checking.probe import (
    CLEAR,
    Measure,
    Slopes,
    narrows,
    rounding,
    slopes,
)
from gradlab.localisation.layers.variables import ReplayError
from gradlab.subject.subject import SINGLE

if TYPE_CHECKING:
    from gradlab.localisation.layers.checking.probe import Precision
    from gradlab.localisation.layers.replaying.directions import Direction
    from gradlab.localisation.layers.replaying.replay import Piece
    from gradlab.localisation.layers.variables import Product, Variable

__all__ = ["Ladder"]

_FIRST = (1.0, 0.13, 7.7, 0.017, 59.0)  # no powers of one number: see `Ladder`
_LEAST, _LARGE = 0.0011, (930.0, 9700.0)  # the same, where these accuse, or are noise
# Steps that are no larger, whatever the precision: 25 and 128 stairs of bfloat16. Over
# longer ones the quotient of anything bounded is small, as that of a cut would be.
_LONGEST = (0.1, 0.5)
_PART = 1e-4  # of eight times the outputs, by which a step next to a pole moves them
_RESOLVED = 1e-14  # times the inputs: steps that are shorter are their rounding
_MOVING = 2e-3  # of eight times the outputs: more than half precision rounds off


class Ladder:
    """Differences of one piece along one direction, at several steps.

    The steps are no powers of one number, so that the staircase of a piece that
    rounds inside does not give the same quotient twice by accident.
    """

    def __init__(
        self,
        piece: Piece,
        product: Product,
        precision: Precision,
        variable: Variable,
        direction: Direction,
    ) -> None:
        self._arguments = piece, product, {id(variable): direction}
        self._precision = precision
        self._label = variable.label
        # where longer steps cross kinks, outputs hardly resolve what there is
        self._bent = product.scales[product.variables.index(variable)] == 0
        self._seen: list[tuple[float, Slopes]] = []
        # What the piece resolves: its weighted outputs, as if each moved by itself.
        self._size = rounding(product)

    def _step(self, factor: float) -> Slopes | None:
        step = factor * self._precision.step
        try:
            found = slopes(*self._arguments, step, self._precision)
        except ReplayError:
            return None
        return found if math.isfinite(found.central) else None

    def _climb(self, factor: float) -> None:
        step = factor * self._precision.step
        if any(seen == step for seen, _ in self._seen):
            return
        found = self._step(factor)
        if found is not None:
            self._seen.append((step, found))

    def _best(self) -> tuple[Slopes, float] | None:
        """Slope whose neighbour agrees best, and by how much they differ.

        Truncation falls with the step and rounding grows, so two steps agree where
        neither matters.
        """
        best: tuple[Slopes, float] | None = None
        for k, (_, one) in enumerate(self._seen):
            for _, two in self._seen[:k]:
                doubt = max(abs(one.central - two.central), min(one.noise, two.noise))
                if best is None or doubt < best[1]:
                    best = min((one, two), key=lambda found: found.gap), doubt
        return best

    def _noise_of(self, found: Slopes) -> float:
        """Measure the rounding error of a slope at the smallest step.

        A piece that computes in single precision inside has far more of it than its
        outputs let expect.
        """
        small, at_small = min(self._seen, key=lambda seen: seen[0])
        step = next(step for step, seen in self._seen if seen is found)
        return max(found.noise, abs(at_small.central - found.central) * small / step)

    def measure(self, slope: tuple[float, float]) -> Measure:
        """Compare with an analytic slope; `slope` comes with its typical size."""
        analytic, typical = slope
        chosen: tuple[Slopes, float] | None = None
        for factor in _FIRST:
            self._climb(factor)
            chosen = self._best()
            if chosen is None:
                continue
            found, bar = chosen
            scale = max(abs(analytic), abs(found.central), 0.1 * typical)
            difference = abs(analytic - found.central)
            if difference <= self._precision.tolerance * scale or (
                difference > 30 * bar and len(self._seen) > 2
            ):
                break
        if chosen is None:
            note = "its value cannot be followed along any step"
            return Measure(
                self._label, analytic, math.nan, math.inf, typical, False, False, note
            )
        verdict = self._heard(slope, chosen)
        if verdict.note == "noise" and not self._within_tolerance(verdict):
            for factor in self._large():  # less noise, if more of the series
                self._climb(factor)
            verdict = self._heard(slope, self._best() or chosen)
        return verdict

    def _heard(
        self, slope: tuple[float, float], chosen: tuple[Slopes, float]
    ) -> Measure:
        """Judge by the best slope so far; what it accuses, by a shorter step too."""
        analytic, typical = slope
        found, bar = chosen
        if not abs(analytic - found.central) <= 5 * bar:
            self._climb(_LEAST)
            found, bar = self._best() or chosen
            bar = max(bar, self._noise_of(found))
        return self._verdict(analytic, typical, found, bar)

    def _within_tolerance(self, measure: Measure) -> bool:
        """Whether both sides agree whatever the bar is."""
        difference = abs(measure.analytic - measure.numeric)
        return difference <= self._precision.tolerance * measure.scale

    def _verdict(
        self, analytic: float, typical: float, found: Slopes, bar: float
    ) -> Measure:
        scale = max(abs(analytic), abs(found.central), 0.1 * typical)
        values = self._label, analytic, found.central, bar, scale
        if not math.isfinite(analytic):
            return Measure(*values, agrees=False)
        difference = abs(analytic - found.central)
        allowed = self._precision.tolerance * scale + 5 * bar
        if difference <= allowed:
            # A bar that would hide anything proves nothing, unless the slope is zero
            # within what the outputs resolve; half precision resolves no such thing.
            if self._stands_still(found):
                return Measure(*values, agrees=False, certain=False, note="noise")
            blind = self._bent or self._precision.epsilon > SINGLE
            still = 0.0 if blind else 1e-4 * self._size
            clear = bar <= max(CLEAR * scale, still)
            return Measure(*values, agrees=True, certain=clear, note="noise")
        if min(seen.gap for _, seen in self._seen) > 0.1 * difference:
            sides = sorted((found.forward, found.backward))
            between = sides[0] - allowed <= analytic <= sides[1] + allowed
            return Measure(*values, agrees=between, certain=False, note="kink")
        near = sum(
            abs(seen.central - found.central) <= 0.2 * difference
            for _, seen in self._seen
        )
        settled = bar <= max(0.2 * abs(found.central), 30 * self._noise_of(found))
        if near < 3 or not settled or bar > 0.2 * difference:
            return Measure(*values, agrees=False, certain=False, note="noise")
        if self._is_staircase(analytic, found):
            return Measure(*values, agrees=False, certain=False, note="coarse")
        if self._waves_between(analytic, found):
            return Measure(*values, agrees=False, certain=False, note="noise")
        return Measure(*values, agrees=False)

    def _stands_still(self, found: Slopes) -> bool:
        """Whether longer steps agree on another slope, behind a cast to fewer digits.

        What is cast does not move on steps shorter than its rounding: these see the
        slope of all else, as a gradient does that takes it for a constant.
        """
        at = next(step for step, seen in self._seen if seen is found)
        longer = [seen for step, seen in self._seen if step > at]
        for k, one in enumerate(longer):
            for two in longer[:k]:
                other = 0.2 * abs(one.central - found.central)
                apart = abs(one.central - two.central)
                least = self._precision.tolerance * abs(found.central) + found.noise
                if other > least and max(apart, one.gap, two.gap) <= other:
                    return narrows(*self._arguments[:2])
        return False

    def _large(self) -> list[float]:
        """Factors of long steps, over many of the stairs that rounding inside makes."""
        longest = [most / self._precision.step for most in _LONGEST]
        return [min(pair) for pair in zip(_LARGE, longest, strict=True)]

    def _waves_between(self, analytic: float, found: Slopes) -> bool:
        """Whether the slope of a far shorter step is another, and no rounding.

        Over many waves of ``sin(300 * x)`` differences add up to nothing, at one long
        step as at the next. A short step within one wave sees the analytic slope; or
        it moves the piece by a good part of what it is, which no rounding does.
        """
        difference = abs(analytic - found.central)
        # by the analytic slope: next to a pole every longer step is a long one
        within = max(_PART * self._size / abs(analytic or 1.0), _RESOLVED)
        if within < min(step for step, _ in self._seen):
            self._climb(within / self._precision.step)
        for step, seen in self._seen:
            other = abs(seen.central - found.central)
            like = abs(seen.central - analytic) <= 0.2 * difference
            resolved = 5 * seen.noise <= 0.2 * difference
            moves = other * step >= _MOVING * self._size
            if other >= 0.5 * difference and ((like and resolved) or moves):
                return True
        return False

    def _is_staircase(self, analytic: float, found: Slopes) -> bool:
        """Whether small steps only see the stairs of coarse rounding inside the piece.

        Over large steps the difference quotient is then the analytic slope.
        """
        difference = abs(analytic - found.central)
        for factor in self._large():
            coarse = self._step(factor)
            if coarse is not None and (
                abs(coarse.central - analytic) <= 0.2 * difference
                and abs(coarse.central - found.central) >= 0.5 * difference
            ):
                return True
        return False
