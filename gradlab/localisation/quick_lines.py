"""A directional derivative in four evaluations, for functions that are dear.

Along a direction through millions of parameters a network bends little within a
millionth of their size, and crosses few of its kinks. Two central quotients with steps
of that size, in ratio four, that tell the same story are the derivative, up to what
they differ by and to the noise of f. Steps are made finer where they differ, and where
the quotients contradict the analytic side: only a contradiction that stays is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.directions import Walk
from gradlab.differentiation.evaluation import row_or_nan
from gradlab.differentiation.probe import Probe

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.directions import Direction
    from gradlab.differentiation.evaluation import Meter
    from gradlab.subject.subject import Subject

__all__ = ["quick_probe"]

_ULPS = 4.0  # round-off of one value of f in units of epsilon * |f|
# Exponents in float64, in the order of trying: for smooth functions; for such with many
# kinks; for noisy ones.
_LADDER = (18, 20, 26, 28, 23, 14)
_FINEST = 28  # exponent in float64; finer steps vanish in the round-off of x
_NOISE = 0.5  # of four standard deviations of f: three of a quotient over one step
_SAFETY = 5.0  # error bars that a defect must exceed


def quick_probe(
    subject: Subject,
    direction: Direction,
    *,
    analytic: tuple[float, float],
    cotangent: NDArray[np.float64],
    base: NDArray[np.float64],
    meter: Meter,
    noise: float,
    resolution: float,
    start: int | None = None,
) -> Probe:
    """Compare both derivatives along one direction, cheaply.

    Parameters
    ----------
    subject
        At its point, and there again afterwards, whatever happens.
    direction
        Where to.
    analytic
        Derivative along the direction by the analytic side, and the norm of its terms.
    cotangent, base
        As for `gradlab.differentiation.probe.probe`.
    meter
        Charged with four evaluations; up to ten where the steps differ.
    noise
        Measured absolute noise of ``v . f``.
    resolution
        Error bar that is small enough.
    start
        Exponent of the finer of two steps to try first, if one is known to serve.

    Examples
    --------
    >>> from gradlab.building import Sides, build_subject
    >>> from gradlab.differentiation.directions import Direction, whole
    >>> from gradlab.differentiation.evaluation import Meter
    >>> x = np.linspace(0.1, 1.0, 50)
    >>> subject = build_subject(
    ...     lambda x: np.sin(x).sum(), [x], Sides(grad=lambda x: np.cos(x))
    ... )
    >>> direction = Direction(1, whole(subject), (0.5,))
    >>> found = quick_probe(
    ...     subject,
    ...     direction,
    ...     analytic=direction.along([np.cos(x)]),
    ...     cotangent=np.ones(1),
    ...     base=subject.row(),
    ...     meter=Meter(),
    ...     noise=0.0,
    ...     resolution=1e-7,
    ... )
    >>> found.evaluations, abs(found.defect) <= 5 * found.error < 1e-6
    (4, True)
    """
    expected, norm = analytic
    live = cotangent != 0
    with np.errstate(all="ignore"):
        size = float(np.abs(cotangent[live] * base[live]).sum())
    noise = max(noise, _ULPS * subject.epsilon * size)
    walk = Walk(subject, direction)

    def value(step: float) -> float:
        meter.spend(1)
        walk.to(step)
        with np.errstate(all="ignore"):
            row = row_or_nan(subject, len(base), meter)
            return float(np.dot(cotangent[live], row[live]))

    scale = -np.log2(subject.epsilon) / 52
    ladder = [round(rung * scale) for rung in _LADDER]
    if start is None:
        start = max(_finest(noise, resolution, round(_FINEST * scale)), ladder[1])
    ladder = [start - 2, start, *ladder]
    seen: dict[int, float] = {}
    best, bar, exponent = np.nan, np.inf, 0
    try:
        for p in ladder:
            if p in seen:
                continue
            step = 2.0**-p
            seen[p] = (value(step) - value(-step)) / (2 * step)
            for q, other in seen.items():
                if q == p:
                    continue
                fine = max(p, q)
                with np.errstate(all="ignore"):
                    apart = max(abs(seen[p] - other), _NOISE * noise * 2.0**fine)
                if apart < bar:
                    best, bar, exponent = seen[fine], apart, fine
            shown = abs(expected - best) > _SAFETY * bar
            if len(seen) > 1 and bar <= resolution and not (shown and len(seen) < 3):
                break
    finally:
        walk.back()
    step = 2.0**-exponent
    return Probe(expected, best, bar, norm, step, exponent, 2 * len(seen))


def _finest(noise: float, resolution: float, most: int) -> int:
    """Exponent of the finest step whose noise leaves half of the resolution.

    Along a direction through millions of parameters nothing but noise speaks against
    fine steps: both curvature and kinks show less the finer they are.
    """
    if not (np.isfinite(resolution) and resolution > 0 and noise > 0):
        return 0
    return min(int(np.log2(resolution / (2 * _NOISE * noise))), most)
