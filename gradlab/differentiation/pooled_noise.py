"""What many coordinates tell together about the noise of an output.

Rounding inside f is a matter of the output, not of the coordinate that moves. One
ladder of ten rungs may happen to see little of it, most of all where f is nearly zero
because large terms cancel; a hundred ladders do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gradlab.differentiation.ladder.reading import Reading

__all__ = ["FEW", "shared_noise", "underrated"]

FEW = 16  # outputs up to which every coordinate is left to itself

_ENOUGH = 8  # coordinates that agree
_RESOLVED = 1e-6  # relative bar below which strays are noise, not structure
_CLEARLY = 2.0  # times what one coordinate saw, before it is told otherwise


def shared_noise(value: np.ndarray, error: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return the noise of every output on which most coordinates agree.

    Only slopes that are resolved count, and only of coordinates that move the output.

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


def underrated(reading: Reading, noise: np.ndarray) -> np.ndarray:
    """Say which entries rest on less noise than their output has, (C, m)."""
    estimate = reading.estimate
    with np.errstate(all="ignore"):
        seen = np.fmax(estimate.noise, estimate.known)
        return np.asarray((noise > _CLEARLY * seen) & (estimate.value != 0))
