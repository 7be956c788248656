"""A directional derivative in two evaluations, for functions that are dear.

Along a direction through millions of parameters a network bends little within a
billionth of their size, and crosses few of its kinks. Where both sides of one step and
the analytic derivative tell the same story, that is the derivative: what the sides
differ by is curvature, kinks and noise, all there is that could be wrong with it. Where
they do not, more steps are taken, in ratio four and finer or coarser, until two tell
the same story, and a contradiction to the analytic side is told only if it stays.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.differentiation.lines.probe import Probe
from gradlab.localisation.searching.lines import (
    FINEST,
    STORY,
    noise_bar,
    scale_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.localisation.searching.lines import Line

__all__ = ["Quick", "next_start", "quick_probe", "quick_slope"]

# Exponents in float64, in the order of trying: for smooth functions; for such with many
# kinks; for noisy ones.
_LADDER = (18, 20, 26, 28, 23, 14)
_FINE = 4  # position in the ladder, two steps put before, from where on f is straight
_COARSE = 5  # exponent; only where finer steps see nothing at all
_LEAST = 12  # exponent to start from
_ALONE = (8, 16)  # exponents for one coordinate alone


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
    one_sided
        Whether only one side of the point says what the analytic side says: there may
        be kinks on the other, or one at the point.
    """

    probe: Probe
    heard: NDArray[np.float64] | None
    serves: bool
    one_sided: bool = False


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
    >>> from gradlab.differentiation.lines.directions import Direction
    >>> from gradlab.differentiation.lines.parts import whole
    >>> from gradlab.differentiation.metering.meter import Meter
    >>> from gradlab.differentiation.origin import Origin
    >>> from gradlab.localisation.searching.lines import Line
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
        start = max(_finest(line.noise, resolution, round(FINEST * scale)), ladder[1])
    ladder = [start, start - 2, *ladder]
    best, bar, exponent, shown, straight = np.nan, np.inf, 0, False, False
    fine = resolution if np.isfinite(resolution) else 0.0
    with line.walk:
        for p in line.finer_first(ladder):
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
            if found := line.straight(expected, slack):
                (best, bar, exponent), shown, straight = found, False, True
                break
            shown = defect > SAFETY * bar
            if shown and len(line.slopes) > 2 and line.flat:
                line.step(_COARSE)  # not to be seen from closer: stairs, or nothing
            if shown and line.supports(expected, best, bar):
                bar = abs(expected - best)  # other steps tell the other story
            elif (bar <= resolution or line.past_kinks) and (
                not shown or len(line.slopes) > STORY
            ):
                break
        if line.left_domain and not bar <= resolution:
            best, bar, exponent = line.at_the_edge(norm)
            shown = abs(expected - best) - slack > SAFETY * bar
            if shown and line.supports(expected, best, bar):
                bar = abs(expected - best)
    spent, crowded = 2 * len(line.slopes), line.kinked and not straight
    probe = Probe(expected, best, bar, norm, 2.0**-exponent, exponent, spent, crowded)
    own = line.sample() if line.shows_noise(ladder[_FINE], straight=straight) else None
    # a step that kinks made finer than others need leaves more round-off to these
    usual = line.left_domain or exponent <= round(FINEST * scale)
    return Quick(probe, own, serves=usual and not shown, one_sided=straight)


def next_start(
    served: tuple[float, int] | None, reach: float, epsilon: float
) -> int | None:
    """Exponent to start from along a direction, by what served along another.

    Parameters
    ----------
    served
        How far that one reached, as a logarithm to base two, and the exponent there.
    reach
        How far this one reaches.
    epsilon
        Round-off of f.

    Examples
    --------
    >>> next_start((9.0, 26), 10.0, 2.0**-52), next_start((9.0, 26), 16.0, 2.0**-52)
    (27, 28)
    """
    if served is None:
        return None
    length, exponent = served
    finest = round(FINEST * scale_of(epsilon))
    return min(max(_LEAST, round(exponent + reach - length)), max(exponent, finest))


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


def _finest(noise: float, resolution: float, most: int) -> int:
    """Exponent of the finest step whose noise leaves half of the resolution.

    Along a direction through millions of parameters nothing but noise speaks against
    fine steps: both curvature and kinks show less the finer they are.
    """
    if not (np.isfinite(resolution) and resolution > 0 and noise > 0):
        return 0
    return min(int(np.log2(resolution / (2 * noise_bar(noise, 1.0)))), most)
