"""Central quotients along one direction, what noise and which kinks they show.

What is left of f(h) + f(-h) - 2 f(0) without its curvature is noise: nothing has to be
evaluated to hear it.

Behind tens of millions of rectifiers even a billionth of a step crosses kinks. A finer
one crosses fewer, as far as round-off allows. A kink on one side of the point leaves
the slope of the other side what it was: where one side of two steps says what the
analytic side says, the function is straight there, and that is its slope.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.differentiation.lines.walk import Walk
from gradlab.differentiation.noise.noise import ULPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.lines.directions import Direction
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin

__all__ = ["FINEST", "STORY", "Line", "noise_bar", "noise_of", "scale_of"]

FINEST = 28  # exponent in float64; finer steps vanish in the round-off of x
# Where even that crosses kinks these are tried before any coarser step: round-off is
# the lesser evil then.
_FINER = (28, 30, 32, 34)
# Finer still, where f is not finite a step away: at the edge of its domain. There the
# round-off of x counts.
_EDGE = (32, 35, 38)
_BENDS = 8.0  # times what is left without curvature: then it was that
STORY = 2  # steps that have to say the same
_NOISE = 0.5  # of four standard deviations of f: three of a quotient over one step
_DOUBT = 4.0  # a few samples of the noise may all be small


def scale_of(epsilon: float) -> float:
    """Of exponents, which are given for float64."""
    return float(-np.log2(epsilon) / 52)


def noise_of(
    heard: Sequence[NDArray[np.float64]],
    cotangent: NDArray[np.float64],
    hidden: NDArray[np.float64] | None = None,
) -> float:
    """Noise of one value of ``v . f`` by some samples; 0 where there are none.

    `hidden` is the standard deviation of further noise of every output.
    """
    more = 0.0 if hidden is None else float(np.linalg.norm(cotangent * hidden))
    if not len(heard):
        return _DOUBT * more
    live = cotangent != 0
    with np.errstate(all="ignore"):
        size = np.asarray(heard)[:, live] @ cotangent[live]
    size = size[np.isfinite(size)]
    # squares of large outputs are no numbers any more
    known = math.hypot(*size) / math.sqrt(max(size.size, 1))
    return _DOUBT * float(np.hypot(known, more))


def noise_bar(noise: float, step: float) -> float:
    """Error bar of a central quotient that rests on a step, by the noise of f alone."""
    return _NOISE * noise / step


class Line:
    """Central quotients along one direction, and the noise that they show.

    Parameters
    ----------
    origin
        The subject is there again after ``with line.walk``.
    direction
        Where to.
    cotangent, meter
        As for `gradlab.differentiation.lines.probe.probe`.
    heard
        Samples of the noise of f from other directions, each of shape (rows,).
    """

    def __init__(
        self,
        origin: Origin,
        direction: Direction,
        cotangent: NDArray[np.float64],
        meter: Meter,
        heard: Sequence[NDArray[np.float64]],
    ) -> None:
        subject, base = origin.subject, origin.base
        self._base, self._meter, self._epsilon = base, meter, subject.epsilon
        self.scale = scale_of(subject.epsilon)
        self._cotangent, self._live = cotangent, cotangent != 0
        self.walk = Walk(subject, direction)
        self._heard = list(heard)
        self._evens: dict[int, NDArray[np.float64]] = {}  # f(h) + f(-h) - 2 f(0)
        self.slopes: dict[int, float] = {}
        with np.errstate(all="ignore"):
            size = float(np.abs(self._product(np.abs(base), np.abs(cotangent))))
        self._floor = ULPS * subject.epsilon * size
        self._known = max(self._floor, noise_of(self._heard, cotangent))

    def _product(self, row: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
        return float(np.dot(weights[self._live], row[self._live]))

    def step(self, exponent: int) -> None:
        """Evaluate on both sides."""
        step = 2.0**-exponent
        up, down = (self.walk.row(way, self._meter) for way in (step, -step))
        with np.errstate(all="ignore"):
            self._evens[exponent] = (up - self._base) + (down - self._base)
            rise = self._product(up, self._cotangent)
            rise -= self._product(down, self._cotangent)
            self.slopes[exponent] = rise / (2 * step)

    def finer_first(self, ladder: Sequence[int]) -> Iterator[int]:
        """Give exponents not taken yet: finer ones while kinks are in sight."""
        finer = [round(p * self.scale) for p in _FINER]
        for p in ladder:
            while self.slopes and self.kinked and max(self.slopes) < finer[-1]:
                yield next(q for q in finer if q > max(self.slopes))
            if p not in self.slopes:
                yield p

    @property
    def kinked(self) -> bool:
        """Whether one of the two finest steps crosses a kink."""
        return any(map(self._bent, sorted(self.slopes, reverse=True)[:STORY]))

    @property
    def past_kinks(self) -> bool:
        """Whether kinks are left behind: coarser steps would cross more of them."""
        return not self.kinked and any(map(self._bent, self.slopes))

    def _bent(self, p: int) -> bool:
        """Whether the sides of a step differ by more than is known of noise."""
        return abs(self._apart(p)) > SAFETY * noise_bar(self._known, 2.0**-p)

    def _apart(self, p: int) -> float:
        """By how much the slopes of both sides of a step differ from their mean."""
        with np.errstate(all="ignore"):
            return self._product(self._evens[p], self._cotangent) * 2.0**p / 2

    def straight(self, slope: float, slack: float) -> tuple[float, float, int] | None:
        """Read off the side of the point on which a slope is that of several steps.

        Parameters
        ----------
        slack
            What the slope may be off by.

        Returns
        -------
        (slope, bar, exponent) or None
            Of the longest of these steps, as `best`. None if neither side says so.
        """
        found = None
        for way in (1.0, -1.0):
            told = []
            for p in sorted(self.slopes, reverse=True):
                bar = 2 * noise_bar(self._known, 2.0**-p)  # two values, half as far
                own = self.slopes[p] + way * self._apart(p)
                if not abs(own - slope) <= slack + SAFETY * bar:
                    break
                told.append((own, bar, p))
            if len(told) >= STORY and (found is None or told[-1][1] < found[1]):
                found = told[-1]
        return found

    def sample(self) -> NDArray[np.float64]:
        """One sample of the noise of each row: curvature goes with the step squared.

        Of the two finest steps, whose ratio is r: ``e(h) - r**2 e(h / r)`` has the
        variance ``2 + 2 r**4 + 4 (1 - r**2)**2`` in units of that of f. A kink at the
        point itself shows as well, as something that no quotient can tell. Of a single
        step curvature and all are taken for noise; so they are of the finest one where
        the next crosses a kink that it does not.
        """
        fine = max(self._evens)
        if len(self._evens) < 2 or self._crosses_more(fine):
            return np.asarray(self._evens[fine] / np.sqrt(6.0))
        coarse = sorted(self._evens, reverse=True)[1]
        square = self._square(fine, coarse)
        spread = 2 + 2 * square**2 + 4 * (1 - square) ** 2
        return np.asarray(self._uneven(fine, coarse) / np.sqrt(spread))

    def _crosses_more(self, fine: int) -> bool:
        """Whether the step next to the finest bends f, by more than curvature does."""
        coarse = max(p for p in self._evens if p < fine)
        if self._bent(fine) or not self._bent(coarse):
            return False
        own, other = (
            abs(self._product(self._evens[p], self._cotangent)) for p in (fine, coarse)
        )
        return _BENDS * 4.0 ** (fine - coarse) * own < other

    def _square(self, fine: int, coarse: int) -> float:
        """By how much curvature lets a coarser step differ more: 0 if it shows none.

        The finest steps see none, and a coarser one would bring its kinks along; but at
        the edge of a domain f may bend even there.
        """
        square = 4.0 ** (coarse - fine)
        if fine < round(FINEST * self.scale):
            return square
        own, other = (
            self._product(self._evens[p], self._cotangent) for p in (fine, coarse)
        )
        return square if _BENDS * abs(own - square * other) < abs(own) else 0.0

    def _uneven(self, fine: int, coarse: int) -> NDArray[np.float64]:
        """Give what is left of both sides of a step without curvature."""
        with np.errstate(all="ignore"):
            if square := self._square(fine, coarse):
                return np.asarray(self._evens[fine] - square * self._evens[coarse])
        return self._evens[fine]

    @property
    def noise(self) -> float:
        """Noise of one value of ``v . f``, here and along other directions."""
        heard = [*self._heard, self.sample()] if self._evens else self._heard
        return max(self._floor, noise_of(heard, self._cotangent))

    def shows_noise(self, fine: int, *, straight: bool) -> bool:
        """Whether what is left of both sides is noise, and not what bends f."""
        if (straight or len(self._evens) == 1) and self._bent(max(self.slopes)):
            return False  # it may be a kink, of which the slope knows nothing
        return len(self._evens) > 1 or next(iter(self._evens)) >= fine

    @property
    def flat(self) -> bool:
        """Whether no step has changed anything so far."""
        return not any(self.slopes.values())

    @property
    def left_domain(self) -> bool:
        """Whether some step led to where f is not finite."""
        return not np.isfinite(list(self.slopes.values())).all()

    def at_the_edge(self, norm: float) -> tuple[float, float, int]:
        """Take steps that stay in the domain of f; as `best`, with round-off of x.

        Parameters
        ----------
        norm
            Of the terms of the analytic derivative.
        """
        for p in _EDGE:
            self.step(round(p * self.scale))
        best, bar, exponent = self.best()
        lost = self._epsilon * 2.0**exponent * max(norm, abs(best))
        return best, max(bar, lost), exponent

    def supports(self, slope: float, best: float, bar: float) -> bool:
        """Whether some step agrees with a slope, and could see that it is wrong.

        The stairs of a function that rounds inside are flat to the finest steps, and
        no slope to others: whatever a coarser step sees speaks against flatness.
        """
        if best == 0.0:
            return not self.flat
        noise, defect = self.noise, abs(slope - best)
        for p, found in self.slopes.items():
            blur = SAFETY * max(bar, noise_bar(noise, 2.0**-p))
            blur = max(blur, abs(self._apart(p)))  # kinks that it crosses
            if abs(slope - found) <= blur < defect / 2:
                return True
        return False

    def best(self) -> tuple[float, float, int]:
        """Slope, error bar, exponent of the step it rests on."""
        best, bar, exponent = np.nan, np.inf, 0
        noise = self.noise
        with np.errstate(all="ignore"):
            if len(self.slopes) == 1:
                ((p, slope),) = self.slopes.items()
                sides = abs(self._product(self._evens[p], self._cotangent)) * 2.0**p
                # a kink within the step moves a quotient by half of what the slopes
                # of its two sides differ by
                return slope, max(sides / 2, noise_bar(noise, 2.0**-p)), p
            for p, one in self.slopes.items():
                for q, other in self.slopes.items():
                    if q >= p:
                        continue
                    rest = self._product(self._uneven(p, q), self._cotangent)
                    apart = max(abs(one - other), noise_bar(noise, 2.0**-p))
                    apart = max(apart, abs(rest) * 2.0**p / 2)  # kinks, as above
                    if apart < bar:
                        best, bar, exponent = one, apart, p
        return best, bar, exponent
