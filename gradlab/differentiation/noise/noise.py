"""How noisy a function is.

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

__all__ = [
    "FEW",
    "ULPS",
    "difference_noise",
    "rounding_of",
    "shared_noise",
]

# Round-off of f in units of epsilon * |f|: a short sum of products loses a few ulps.
ULPS = 4.0
_EMPTY = 1 << 20  # a number has so many empty digits by chance one time in a million
_OWN = 1 << 5  # what has fewer digits than that may be 14 * 2**-45 as well
_OF_ONE = 2.0**-55, 2.0**-40  # last digits of numbers from a quarter to some thousands
FEW = 16  # outputs up to which every coordinate is left to itself
_ENOUGH = 8  # coordinates that agree
_RESOLVED = 1e-6  # relative bar below which strays are noise, not structure


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


def rounding_of(value: np.ndarray, epsilon: float) -> np.ndarray:
    """Return what rounding to its last digit may do to each value of f.

    That of ``1 - 0.99999999`` is the last digit of 1: what is left of numbers about as
    large as 1 is a multiple of that, and most of its own digits are empty.

    Parameters
    ----------
    value
        Values of f, any shape.
    epsilon
        Unit round-off of the arithmetic.

    Examples
    --------
    >>> (
    ...     float(rounding_of(np.array(1e-12), 1e-16)),
    ...     float(rounding_of(np.array(1 - (1 - 1e-12)), 1e-16)),
    ... )
    (1e-28, 1.1102230246251565e-16)
    """
    fraction, exponent = np.frexp(np.where(np.isfinite(value), value, 0.0))
    digits = np.abs(fraction * 2.0**53).astype(np.int64)
    lowest = digits & -digits
    last = np.ldexp(lowest.astype(float), exponent - 53)
    left_over = (lowest >= _EMPTY) & (digits >= _OWN * lowest)
    left_over &= (last >= _OF_ONE[0]) & (last <= _OF_ONE[1])
    last = np.where(left_over, last, 0.0)
    return np.asarray(np.maximum(epsilon * np.abs(value), last))


def shared_noise(value: np.ndarray, error: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return the noise of every output on which most coordinates agree.

    Rounding inside f is a matter of the output, not of the coordinate that moves. One
    ladder of ten rungs may happen to see little of it, most of all where f is nearly
    zero because large terms cancel; a hundred ladders do not. Only slopes that are
    resolved count, and only of coordinates that move the output.

    Parameters
    ----------
    value, error, noise
        Slopes, their bars, and the noise of f that was seen, (C, m).

    Returns
    -------
    ndarray
        Median over the coordinates, (m,); nan where there are too few, of these or of
        outputs.

    Examples
    --------
    >>> noise = np.full((9, 20), 1e-16)
    >>> noise[0, 0] = 1e-18  # one coordinate was lucky
    >>> float(shared_noise(np.ones((9, 20)), np.full((9, 20), 1e-12), noise)[0])
    1e-16
    """
    with np.errstate(all="ignore"):
        resolved = (error <= _RESOLVED * np.abs(value)) & (value != 0)
    count = resolved.sum(axis=0)
    ranked = np.sort(np.where(resolved, noise, np.inf), axis=0)
    middle = np.maximum(count - 1, 0)[None] // 2
    median = np.take_along_axis(ranked, middle, axis=0)[0]
    enough = (count >= _ENOUGH) & (value.shape[1] > FEW)
    return np.where(enough, median, np.nan)
