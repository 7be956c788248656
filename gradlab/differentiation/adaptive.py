"""Derivatives that know how wrong they are: a ladder of steps that judges itself.

Every coordinate starts with three steps far apart. From then on the smallest error bar
found so far says what to do next: climb while rounding dominates, fill in or descend
while truncation does, descend to the limit where one-sided slopes disagree. The
analytic gradient is never looked at.
"""

from __future__ import annotations

import numpy as np

from gradlab.differentiation.climb import climb
from gradlab.differentiation.conclusion import conclude
from gradlab.differentiation.derivatives import AdaptiveSettings, Derivatives
from gradlab.differentiation.ladder import Ladder, Sampler

__all__ = ["AdaptiveSettings", "Derivatives", "Sampler", "adaptive", "read_ladder"]

_EPS = float(np.finfo(np.float64).eps)


def adaptive(
    sample: Sampler,
    *,
    points: np.ndarray,
    scales: np.ndarray,
    base: np.ndarray,
    floor: float = _EPS,
    settings: AdaptiveSettings | None = None,
    noise: np.ndarray | None = None,
) -> Derivatives:
    """Differentiate along every coordinate, as well as the function allows.

    Parameters
    ----------
    sample
        ``sample(which, displacement) -> (values, taken)``: coordinates to move (P,) and
        by how much (P,), to values (P, m) and displacements really made (P,). nan and
        inf are welcome among the values.
    points
        The coordinates, shape (C,).
    scales
        Typical size of each coordinate, positive, shape (C,): where the ladder starts,
        not where it ends.
    base
        f at the point, shape (m,).
    floor
        Relative rounding unit of the arithmetic f is evaluated in.
    settings
        How far to go; None for the defaults.
    noise
        What is known of the noise of f from elsewhere, shape (m,): no rounding is taken
        to be smaller.

    Returns
    -------
    Derivatives
        Finite error bars wherever a derivative was found, inf where none exists.

    Examples
    --------
    >>> import numpy as np
    >>> def sample(which, displacement):
    ...     return np.sin(1.0 + displacement)[:, None], displacement
    >>> found = adaptive(
    ...     sample, points=np.ones(1), scales=np.ones(1), base=np.sin(np.ones(1))
    ... )
    >>> bool(abs(found.value[0, 0] - np.cos(1.0)) <= found.error[0, 0] < 1e-10)
    True
    """
    settings = settings or AdaptiveSettings()
    if points.size == 0:
        return Derivatives.unknown(base.size, np.zeros(0, int))
    if noise is None:
        noise = np.zeros(base.size)
    per_chunk = max(1, settings.chunk // max(1, base.size))
    parts = []
    for start in range(0, points.size, per_chunk):
        some = slice(start, start + per_chunk)

        def shifted(
            which: np.ndarray, displacement: np.ndarray, start: int = start
        ) -> tuple[np.ndarray, np.ndarray]:
            return sample(which + start, displacement)

        where = points[some], scales[some]
        parts.append(climb(shifted, *where, base, noise, (floor, settings)))
    return Derivatives.join(parts)


def read_ladder(
    steps: np.ndarray,
    right: np.ndarray,
    left: np.ndarray,
    *,
    points: np.ndarray,
    scales: np.ndarray,
    base: np.ndarray,
    floor: float = _EPS,
    settings: AdaptiveSettings | None = None,
) -> Derivatives:
    """Read slopes, bars and kinds off values that exist already, as of a sweep.

    Parameters
    ----------
    steps
        Step sizes, shape (L,) or (L, C), positive, in any order; at least two.
    right, left
        f at ``x + step`` and ``x - step``, shape (L, C, m); nan where unknown.
    points, scales, base, floor, settings
        As for `adaptive`.

    Returns
    -------
    Derivatives
        What the given steps can tell: a kink is one within the smallest step.

    Examples
    --------
    >>> import numpy as np
    >>> from gradlab.differentiation.smoothness import Smoothness
    >>> h = 10.0 ** -np.arange(1, 12)
    >>> right, left = np.abs(h)[:, None, None], np.abs(-h)[:, None, None]
    >>> found = read_ladder(
    ...     h, right, left, points=np.zeros(1), scales=np.ones(1), base=np.zeros(1)
    ... )
    >>> Smoothness(found.kind[0, 0]).name, float(found.left[0, 0])
    ('KINK', -1.0)
    """
    shape = right.shape[:2]
    wide = np.broadcast_to(steps if steps.ndim == 2 else steps[:, None], shape)
    order = np.argsort(wide, axis=0)
    wide = np.take_along_axis(wide, order, axis=0)
    ladder = Ladder(
        base=base,
        points=points,
        rungs=np.log2(scales) - np.log2(wide),
        right=np.take_along_axis(right, order[:, :, None], axis=0),
        left=np.take_along_axis(left, order[:, :, None], axis=0),
        ahead=wide,
        behind=wide,
    )
    spent = np.full(points.size, 2 * shape[0])
    return conclude(ladder, floor, settings or AdaptiveSettings(), spent)
