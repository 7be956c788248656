"""Derivatives that know how wrong they are: a ladder of steps that judges itself.

Every coordinate starts with three steps far apart. From then on the smallest error bar
found so far says what to do next: climb while rounding dominates, fill in or descend
while truncation does, descend to the limit where one-sided slopes disagree. The
analytic gradient is never looked at.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from gradlab.differentiation.ladder.derivatives import (
    AdaptiveSettings,
    Derivatives,
    Rounding,
    Sampler,
)
from gradlab.differentiation.smoothness import Smoothness

__all__ = ["adaptive"]

# Measured on Jacobians of 40 x 40: of solvers whose jumps reach the slopes (gradient
# descent, fixed points, Runge-Kutta, L-BFGS; tolerances from 1e-4 to 1e-9) 3 to 64
# entries in a hundred show them; of recurrent networks 0.5 to 2 in a hundred seem to.
_SELDOM = 0.015  # of the entries that move: so few jumps are accidents
_OFTEN = 0.2  # of one row or column: these are not
_MANY = 1000  # entries that move: of fewer, no share can be told
_SEVERAL = 20  # the same, of one row or column


def adaptive(
    sample: Sampler,
    *,
    points: np.ndarray,
    scales: np.ndarray,
    base: np.ndarray,
    rounding: Rounding | None = None,
    settings: AdaptiveSettings | None = None,
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
    rounding
        What is known of that of f; None if nothing is but that it is float64.
    settings
        How far to go; None for the defaults.

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
    from gradlab.differentiation.ladder.climb import climb  # most checks climb none

    settings = settings or AdaptiveSettings()
    found = Derivatives.unknown(base.size, points.size)
    rounding = rounding or Rounding.over(base.size)
    per_chunk = max(1, settings.chunk // max(1, base.size))
    spent = 0
    for start in range(0, points.size, per_chunk):
        some = slice(start, start + per_chunk)

        def shifted(
            which: np.ndarray, displacement: np.ndarray, start: int = start
        ) -> tuple[np.ndarray, np.ndarray]:
            return sample(which + start, displacement)

        where = points[some], scales[some]
        own = found.columns(some)
        spent += climb(shifted, *where, base, rounding, settings, own)
    return _without_accidents(dataclasses.replace(found, evaluations=spent))


def _without_accidents(found: Derivatives) -> Derivatives:
    """Take single entries out of suspicion of jumps that nothing else shows.

    A solver that stops at a tolerance shows its jumps in one entry in thirty or more.
    Of a smooth function the series of one entry in a hundred goes on oddly where steps
    leave its reach, and a Jacobian of a recurrent network has a hundred thousand.
    """
    odd = np.isfinite(found.plain)
    moved = found.value != 0
    if not odd.any() or moved.sum() < _MANY or odd.sum() > _SELDOM * moved.sum():
        return found
    for axis in (0, 1):
        own = moved.sum(axis=axis, keepdims=True)
        often = odd.sum(axis=axis, keepdims=True) > _OFTEN * own
        odd &= ~(often & (own >= _SEVERAL))
    return dataclasses.replace(
        found,
        error=np.where(odd, found.plain, found.error),
        kind=np.where(odd, np.int8(Smoothness.SMOOTH), found.kind),
    )
