"""One directional derivative, analytic against numeric, with an error bar to trust.

The line ``t -> v . f(x + t d)`` is differentiated by `line_slope`; the direction d,
over as many inputs as one likes, is never stored.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.lines.line_slope import Slope, line_slope, start_exponent
from gradlab.differentiation.lines.walk import Walk
from gradlab.differentiation.noise.noise import ULPS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.lines.directions import Direction
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin

__all__ = ["Probe", "ProbeSettings", "probe", "ripple"]

_DOUBTS = 4  # times a defect is checked against finer steps


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """Analytic against numeric derivative along one direction.

    Attributes
    ----------
    analytic, numeric
        Derivatives of ``v . f`` along the direction.
    error
        Error bar of the numeric one.
    norm
        Root sum of squares of the analytic terms, the size of such a derivative under
        random signs.
    step
        Smallest step taken, in the direction's units.
    exponent
        Ladder position to start from along a similar direction.
    evaluations
        Spent on it.
    rough
        Coarser steps told another story: kinks, or noise.
    """

    analytic: float
    numeric: float
    error: float
    norm: float
    step: float
    exponent: int
    evaluations: int
    rough: bool = False

    @property
    def defect(self) -> float:
        """Analytic minus numeric."""
        return self.analytic - self.numeric


@dataclasses.dataclass(frozen=True, slots=True)
class ProbeSettings:
    """How to measure a derivative along a direction.

    Parameters
    ----------
    exponent
        Ladder position to start from; None for `start_exponent`.
    noise
        Absolute noise of one value of ``v . f``, as far as it was measured (`ripple`);
        never taken to be less than four units of round-off.
    resolution
        Error bar that is small enough. A defect ten times larger than the bar ends the
        search as well; 0 asks for no more than the first three steps can give, if they
        balance truncation and round-off.
    wary
        Do not believe a defect before steps 16 times smaller show it too. Where a step
        crosses many small kinks, the quotients look smooth, and are those of another
        function, the one with the kinks rounded off.
    """

    exponent: int | None = None
    noise: float = 0.0
    resolution: float = 0.0
    wary: bool = False


def _doubted(
    analytic: float, slope: Slope, slope_from: Callable[..., Slope]
) -> tuple[Slope, bool]:
    """Check a defect against finer steps until one shows it too, or contradicts.

    Returns
    -------
    slope
        What is to be believed; its `evaluations` are all that were made.
    rough
        Whether finer steps told another story.
    """
    rough, spent = False, slope.evaluations
    exponent = slope.exponent
    for _ in range(_DOUBTS):
        if not abs(analytic - slope.value) > 5 * slope.error:
            break
        finer = slope_from(exponent + 4, lambda _value, _error: True)
        spent += finer.evaluations
        if finer.evaluations == 0:
            break  # the steps would vanish in the round-off of x
        gap = abs(finer.value - slope.value)
        clear = abs(analytic - finer.value) > 5 * finer.error
        same = gap <= 5 * (finer.error + slope.error)
        exponent = finer.exponent
        if same and (clear or finer.truncation <= finer.noise):
            break  # shown again, or nothing finer could show it
        if not same:
            rough, slope = True, finer
        # otherwise finer steps are rougher still: on to where it is decided
    return dataclasses.replace(slope, evaluations=spent), rough


def ripple(origin: Origin, direction: Direction, meter: Meter) -> NDArray[np.float64]:
    """Second differences of f over steps too small to bend it: what is left is noise.

    The size of f says little about its round-off where large terms cancel. Five points
    on a line (four evaluations) give three second differences, each of variance 6 times
    that of f (Hamming's table; More and Wild, SIAM J. Sci. Comput. 33, 2011).

    Returns
    -------
    ndarray
        Second differences over sqrt(6), shape (3, rows), in the units of f; the noise
        of ``v . f`` is the root mean square of their products with v.
    """
    subject, base = origin.subject, origin.base
    step = 2.0 ** -round(-0.58 * np.log2(subject.epsilon))
    with Walk(subject, direction) as walk:
        rows = [base, *(walk.row(k * step, meter) for k in (1, 2, 3, 4))]
    with np.errstate(all="ignore"):
        return np.asarray(np.diff(rows, n=2, axis=0) / np.sqrt(6.0))


def probe(
    origin: Origin,
    direction: Direction,
    gradients: Sequence[NDArray[np.float64]],
    cotangent: NDArray[np.float64],
    meter: Meter,
    settings: ProbeSettings | None = None,
) -> Probe:
    """Compare both derivatives along one direction.

    Parameters
    ----------
    origin
        The subject is there again afterwards, whatever happens.
    direction
        Made by `Direction`; may join parts of several inputs.
    gradients
        What the analytic side made of `cotangent`, one array per input.
    cotangent
        Weights v of the real output rows, shape (rows,).
    meter
        Charged for every evaluation; six if all is smooth and the start was good.
    settings
        How to measure; None for the defaults.

    Examples
    --------
    >>> from gradlab.building import Sides, build_subject
    >>> from gradlab.differentiation.lines.directions import Direction
    >>> from gradlab.differentiation.lines.parts import whole
    >>> from gradlab.differentiation.metering.meter import Meter
    >>> from gradlab.differentiation.origin import Origin
    >>> x = np.linspace(0.1, 1.0, 50)
    >>> subject = build_subject(
    ...     lambda x: np.sin(x).sum(), [x], Sides(grad=lambda x: np.cos(x))
    ... )
    >>> direction = Direction(1, whole(subject), (0.5,))
    >>> origin = Origin(subject, subject.row())
    >>> found = probe(origin, direction, [np.cos(x)], np.ones(1), Meter())
    >>> abs(found.defect) <= 5 * found.error < 1e-9
    True
    """
    subject, base = origin.subject, origin.base
    settings = settings or ProbeSettings()
    analytic, norm = direction.along(gradients)
    live = cotangent != 0
    with np.errstate(all="ignore"):
        size = float(np.abs(cotangent[live] * base[live]).sum())
    start, rough = settings.exponent, False
    if start is None:
        start = start_exponent(subject.epsilon)

    def enough(value: float, error: float) -> bool:
        return error <= settings.resolution or abs(analytic - value) > 10 * error

    with Walk(subject, direction) as walk:

        def evaluate(step: float) -> float:
            row = walk.row(step, meter)
            with np.errstate(all="ignore"):
                return float(np.dot(cotangent[live], row[live]))

        def slope_from(exponent: int, enough: Callable[[float, float], bool]) -> Slope:
            return line_slope(
                evaluate,
                noise=max(ULPS * subject.epsilon * size, settings.noise),
                exponent=exponent,
                deepest=int(-np.log2(subject.epsilon)) - 6,
                enough=enough,
            )

        slope = slope_from(start, enough)
        if settings.wary:
            slope, rough = _doubted(analytic, slope, slope_from)
    return Probe(
        analytic,
        slope.value,
        slope.error,
        norm,
        2.0**-slope.exponent,
        slope.next_exponent,
        slope.evaluations,
        rough or not slope.smooth,
    )
