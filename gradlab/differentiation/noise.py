"""How noisy a function is, and what that does to a plain central difference.

Noise here is whatever keeps f from being a smooth function of its input at small
distances: rounding, single precision inside, the stopping rule of a solver, randomness.

References
----------
J. J. More and S. M. Wild, *Estimating computational noise*, SIAM J. Sci. Comput. 33
(2011) 1292-1314; *Estimating derivatives of noisy simulations*, ACM TOMS 38 (2012).
"""

from __future__ import annotations

from math import comb

import numpy as np

from gradlab.errors import InputError

__all__ = ["central_error", "difference_noise"]

_EPS = float(np.finfo(np.float64).eps)


def difference_noise(values: np.ndarray) -> np.ndarray:
    """Estimate the standard deviation of the noise in equally spaced values.

    The k-th differences of a smooth function vanish with the spacing, those of white
    noise keep a known variance. The first three consecutive orders that agree within a
    factor 4, and whose differences change sign, give the estimate.

    Parameters
    ----------
    values
        f at equally spaced points, shape (n, ...), n >= 4; 7 is the customary choice.
        The spacing should be small against the scale of f and large against the
        spacing of floating-point numbers.

    Returns
    -------
    ndarray
        Noise level, shape (...); 0 where f does not change at all, nan where the
        differences show no noise (spacing too large) or values are not finite.

    Raises
    ------
    InputError
        If there are fewer than four values.

    Examples
    --------
    >>> import numpy as np
    >>> x = 1 + 1e-5 * np.arange(7)
    >>> bool(1e-9 < difference_noise(np.float32(np.sin(x)).astype(float)) < 1e-6)
    True
    """
    n = values.shape[0]
    if n < 4:
        raise InputError(f"values need at least 4 equally spaced points, got {n}")
    level, signs = [], []
    table = np.asarray(values, float)
    with np.errstate(all="ignore"):
        for order in range(1, n):
            table = np.diff(table, axis=0)
            gamma = 1 / comb(2 * order, order)
            level.append(np.sqrt(gamma * np.mean(table**2, axis=0)))
            signs.append((table.min(axis=0) < 0) & (table.max(axis=0) > 0))
    levels, change = np.stack(level), np.stack(signs)
    found = np.full(levels.shape[1:], np.nan)
    for order in range(n - 4, -1, -1):  # the lowest order that qualifies wins
        run = levels[order : order + 3]
        agree = (run.max(axis=0) <= 4 * run.min(axis=0)) & change[order]
        found = np.where(agree, run[0], found)
    return np.where(levels.max(axis=0) == 0, 0.0, found)


def central_error(
    right: np.ndarray,
    base: np.ndarray,
    left: np.ndarray,
    *,
    step: np.ndarray,
    scales: np.ndarray,
    points: np.ndarray | None = None,
    noise: np.ndarray | None = None,
    floor: float = _EPS,
) -> np.ndarray:
    """Give a plain central difference an error bar, from three values of f.

    Truncation is judged by the disagreement of the two one-sided slopes, ``|f''| h``:
    the central error ``|f'''| h^2 / 6`` is that much smaller again as the step is
    smaller than the length over which the slope changes. Rounding is ``noise / h``.

    Parameters
    ----------
    right, left
        f at ``x + step`` and ``x - step``, shape (m, C).
    base
        f at the point, shape (m,).
    step
        Steps really made, shape (C,).
    scales
        Typical size of each coordinate, shape (C,).
    points
        The coordinates, (C,); given, the rounding of the argument is counted too.
    noise
        Absolute noise of f, broadcast to (m, C); None for rounding only.
    floor
        Relative rounding unit of the arithmetic.

    Returns
    -------
    ndarray
        Estimated absolute error of ``(right - left) / (2 step)``, (m, C); inf where a
        value is not finite. Cheap, hence rough: it cannot see structure finer than the
        step, nor a third derivative where the second vanishes.

    Examples
    --------
    >>> import numpy as np
    >>> h = 6e-6
    >>> right, base, left = np.exp([[1 + h]]), np.exp([1.0]), np.exp([[1 - h]])
    >>> bar = central_error(right, base, left, step=np.array([h]), scales=np.ones(1))
    >>> bool(abs((right - left)[0, 0] / (2 * h) - np.e) < bar[0, 0] < 1e-8)
    True
    """
    with np.errstate(all="ignore"):
        middle = base[:, None]
        slope = np.abs(right - left) / (2 * step)
        gap = np.abs((right - middle) + (left - middle)) / step
        size = np.maximum(np.maximum(np.abs(right), np.abs(left)), np.abs(middle))
        shake = floor * size if noise is None else np.maximum(floor * size, noise)
        if points is not None:
            shake = shake + floor * np.abs(points) * slope
        # of the gap, what rounding alone would make of it says nothing about f''
        bend = np.maximum(gap - 4 * shake / step, 0.0)
        shorter = np.maximum(step / scales, np.where(slope > 0, bend / slope, 1.0))
        bar = bend * np.minimum(shorter, 1.0) / 2 + 2 * shake / step
        finite = np.isfinite(right) & np.isfinite(left) & np.isfinite(middle)
    return np.where(finite & np.isfinite(bar), bar, np.inf)
