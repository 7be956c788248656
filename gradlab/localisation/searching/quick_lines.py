"""A directional derivative in two evaluations, for functions that are dear.

Along a direction through millions of parameters a network bends little within a
billionth of their size, and crosses few of its kinks. Where both sides of one step and
the analytic derivative tell the same story, that is the derivative: what the sides
differ by is curvature, kinks and noise, all there is that could be wrong with it. Where
they do not, more steps are taken, in ratio four and finer or coarser, until two tell
the same story, and a contradiction to the analytic side is told only if it stays.

What is left of f(h) + f(-h) - 2 f(0) without its curvature is noise: nothing has to be
evaluated to hear it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.differentiation.directions import Walk
from gradlab.differentiation.noise import ULPS
from gradlab.differentiation.probe import Probe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.directions import Direction
    from gradlab.differentiation.evaluation import Meter
    from gradlab.differentiation.origin import Origin

__all__ = ["Line", "Quick", "noise_bar", "noise_of", "quick_probe", "quick_slope"]

# Exponents in float64, in the order of trying: for smooth functions; for such with many
# kinks; for noisy ones.
_LADDER = (18, 20, 26, 28, 23, 14)
_FINE = 4  # position in the ladder, two steps put before, from where on f is straight
_COARSE = 5  # exponent; only where finer steps see nothing at all
_FINEST = 28  # exponent in float64; finer steps vanish in the round-off of x
# Finer still, where f is not finite a step away: at the edge of its domain. There the
# round-off of x counts.
_EDGE = (32, 35, 38)
_ALONE = (8, 16)  # exponents for one coordinate alone
_NOISE = 0.5  # of four standard deviations of f: three of a quotient over one step
_DOUBT = 4.0  # a few samples of the noise may all be small


@dataclasses.dataclass(frozen=True, slots=True)
class Quick:
    """What was found, and what was heard of the noise of f on the way.

    Attributes
    ----------
    probe
        Both derivatives.
    heard
        For each row one sample of its noise, shape (rows,); None where it might be
        curvature.
    serves
        Whether such steps do elsewhere, too; where a defect shows, more are taken.
    """

    probe: Probe
    heard: NDArray[np.float64] | None
    serves: bool


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


def quick_probe(
    line: Line,
    *,
    analytic: tuple[float, float],
    resolution: float,
    slack: float = 0.0,
    start: int | None = None,
    proven: bool = False,
) -> Quick:
    """Compare both derivatives along one direction, cheaply.

    Parameters
    ----------
    line
        Fresh; two evaluations are made on it, up to sixteen where the steps differ.
    analytic
        Derivative along the direction by the analytic side, and the norm of its terms.
    resolution
        Error bar that is small enough.
    slack
        Defect that the round-off of the analytic side explains.
    start
        Exponent of a step that served along another direction; None if none is known.
    proven
        Whether a defect was confirmed along a direction of which this one is a part:
        it need not be again.

    Examples
    --------
    >>> from gradlab.building import Sides, build_subject
    >>> from gradlab.differentiation.directions import Direction, whole
    >>> from gradlab.differentiation.evaluation import Meter
    >>> from gradlab.differentiation.origin import Origin
    >>> x = np.linspace(0.1, 1.0, 50)
    >>> subject = build_subject(
    ...     lambda x: np.sin(x).sum(), [x], Sides(grad=lambda x: np.cos(x))
    ... )
    >>> direction = Direction(1, whole(subject), (0.5,))
    >>> origin = Origin(subject, subject.row())
    >>> line = Line(origin, direction, np.ones(1), Meter(), heard=[])
    >>> analytic = direction.along([np.cos(x)])
    >>> found = quick_probe(line, analytic=analytic, resolution=1e-5).probe
    >>> found.evaluations, abs(found.defect) <= 5 * found.error < 1e-4
    (2, True)
    """
    expected, norm = analytic
    scale = line.scale
    ladder = [round(rung * scale) for rung in _LADDER]
    if start is None:
        start = max(_finest(line.noise, resolution, round(_FINEST * scale)), ladder[1])
    ladder = [start, start - 2, *ladder]
    best, bar, exponent, shown = np.nan, np.inf, 0, False
    fine = resolution if np.isfinite(resolution) else 0.0
    with line.walk:
        for p in ladder:
            if p in line.slopes:
                continue
            line.step(p)
            best, bar, exponent = line.best()
            defect = max(0.0, abs(expected - best) - slack)
            if len(line.slopes) == 1:  # the defect is noise like any other, or none
                if proven and bar <= fine and not line.flat:
                    break
                small = defect <= max(2 * bar, fine / 2)
                bar = max(bar, defect / 2)
                if small and bar <= fine:
                    break
                continue
            shown = defect > SAFETY * bar
            if shown and len(line.slopes) > 2 and line.flat:
                line.step(_COARSE)  # not to be seen from closer: stairs, or nothing
            if shown and line.supports(expected, best, bar):
                bar = abs(expected - best)  # other steps tell the other story
            elif bar <= resolution and not (shown and len(line.slopes) < 3):
                break
        if line.left_domain and not bar <= resolution:
            best, bar, exponent = line.at_the_edge(norm)
            shown = abs(expected - best) - slack > SAFETY * bar
            if shown and line.supports(expected, best, bar):
                bar = abs(expected - best)
    found = Probe(
        expected, best, bar, norm, 2.0**-exponent, exponent, 2 * len(line.slopes)
    )
    own = line.sample() if line.shows_noise(ladder[_FINE]) else None
    return Quick(found, own, serves=not shown)


def quick_slope(
    line: Line, *, enough: float, share: float, twice: bool
) -> tuple[float, float, float]:
    """Slope of ``v . f`` along one coordinate, in two or four evaluations.

    Of millions of parameters one alone bends f little, so the step is long.

    Parameters
    ----------
    line
        Fresh.
    enough
        Error bar that is small enough.
    share
        The same, relative to the slope.
    twice
        Whether to take two steps in any case: stairs and noise look smooth to one.

    Returns
    -------
    slope, bar, step
        Derivative, its error bar, and the step it rests on in units of the direction.
    """
    scale = line.scale
    start = max(_finest(line.noise, enough, _ALONE[1]), _ALONE[0])
    with line.walk:
        line.step(round(start * scale))
        slope, bar, _ = line.best()
        if twice or not bar <= max(enough, share * abs(slope)):
            noisy = noise_bar(line.noise, 2.0 ** -round(start * scale)) > enough
            line.step(round((start - 3 if noisy else start + 4) * scale))
    slope, bar, exponent = line.best()
    return slope, bar, 2.0**-exponent


class Line:
    """Central quotients along one direction, and the noise that they show.

    Parameters
    ----------
    origin
        The subject is there again after ``with line.walk``.
    direction
        Where to.
    cotangent, meter
        As for `gradlab.differentiation.probe.probe`.
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
        self.scale = -np.log2(subject.epsilon) / 52  # of exponents in float64
        self._cotangent, self._live = cotangent, cotangent != 0
        self.walk = Walk(subject, direction)
        self._heard = list(heard)
        self._evens: dict[int, NDArray[np.float64]] = {}  # f(h) + f(-h) - 2 f(0)
        self.slopes: dict[int, float] = {}
        with np.errstate(all="ignore"):
            size = float(np.abs(self._product(np.abs(base), np.abs(cotangent))))
        self._floor = ULPS * subject.epsilon * size

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

    def sample(self) -> NDArray[np.float64]:
        """One sample of the noise of each row: curvature goes with the step squared.

        Of the two finest steps, whose ratio is r: ``e(h) - r**2 e(h / r)`` has the
        variance ``2 + 2 r**4 + 4 (1 - r**2)**2`` in units of that of f. A kink at the
        point itself shows as well, as something that no quotient can tell. Of a single
        step curvature and all are taken for noise.
        """
        if len(self._evens) < 2:
            return np.asarray(next(iter(self._evens.values())) / np.sqrt(6.0))
        fine, coarse = sorted(self._evens, reverse=True)[:2]
        square = 4.0 ** (coarse - fine)
        spread = 2 + 2 * square**2 + 4 * (1 - square) ** 2
        return np.asarray(self._uneven(fine, coarse) / np.sqrt(spread))

    def _uneven(self, fine: int, coarse: int) -> NDArray[np.float64]:
        """Give what is left of both sides of a step without curvature."""
        with np.errstate(all="ignore"):
            bent = 4.0 ** (coarse - fine) * self._evens[coarse]
            return np.asarray(self._evens[fine] - bent)

    @property
    def noise(self) -> float:
        """Noise of one value of ``v . f``, here and along other directions."""
        heard = [*self._heard, self.sample()] if self._evens else self._heard
        return max(self._floor, noise_of(heard, self._cotangent))

    def shows_noise(self, fine: int) -> bool:
        """Whether what is left of both sides is noise, and not what bends f."""
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


def _finest(noise: float, resolution: float, most: int) -> int:
    """Exponent of the finest step whose noise leaves half of the resolution.

    Along a direction through millions of parameters nothing but noise speaks against
    fine steps: both curvature and kinks show less the finer they are.
    """
    if not (np.isfinite(resolution) and resolution > 0 and noise > 0):
        return 0
    return min(int(np.log2(resolution / (2 * _NOISE * noise))), most)
