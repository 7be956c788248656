"""Coordinates far smaller than their tensor, which may live on a scale of their own.

log(x) at 1e-8 beside entries of 1e8 knows nothing of steps of 1e3. Such a coordinate is
measured twice, by steps of both sizes, and `adaptive_columns` joins the two.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.smoothness import Smoothness

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.ladder.derivatives import Derivatives

__all__ = ["OWN_SCALE", "counted_sizes", "joined", "merged", "on_their_own"]

_SMALL = 0.1  # an entry below this fraction of its tensor's size is a small one
OWN_SCALE = 1e-3  # below this fraction its own scale is always tried as well


def counted_sizes(
    points: NDArray[np.float64], scales: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Sizes by which the effects of coordinates count when they are compared.

    By their scales a gravitational constant beside a mass, 1e-10 and 1e30, moves f as
    if it were as large as the mass, and nothing else is left to matter. A coordinate
    far smaller than its tensor counts with its own size: a slope per metre and one per
    nanometre then come to the same. Among numbers of one kind few are so small, and a
    zero, which has no size, counts as the middle one of the others does.

    Parameters
    ----------
    points, scales
        The coordinates of an input, and the sizes that their steps were chosen by,
        (n,).

    Examples
    --------
    >>> counted_sizes(np.array([7e-11, 2e30, 0.0]), np.full(3, 1e30)).tolist()
    [7e-11, 1e+30, 5e+29]
    """
    size = np.abs(points)
    small = size < OWN_SCALE * scales
    if not small.any():
        return scales
    some = size > 0
    if not some.any():
        return scales
    counted = np.where(small, size, scales)
    counted[~some] = np.median(counted[some])
    return counted


def on_their_own(
    found: Derivatives, points: NDArray[np.float64], scales: NDArray[np.float64]
) -> NDArray[np.intp]:
    """Return the columns that are to be measured on their own scale as well.

    Parameters
    ----------
    found
        Measured by `scales`.
    points, scales
        The coordinates, and the sizes that their steps were chosen by, (n,).
    """
    size = np.abs(points)
    failed = ~np.isfinite(found.error).all(axis=0) & (size < _SMALL * scales)
    return np.flatnonzero((points != 0) & (failed | (size < OWN_SCALE * scales)))


def merged(
    found: Derivatives, own: Derivatives, columns: NDArray[np.intp]
) -> Derivatives:
    """Join two measurements of some columns, of which `own` began with smaller steps.

    Where they contradict each other the smaller steps are believed, if they can tell,
    and so they are of a kink, which longer ones pass over; else the smaller bar is.
    """
    with np.errstate(all="ignore"):
        apart = np.abs(own.value - found.value[:, columns])
        bars = own.error + found.error[:, columns]
        shorter = own.step < found.step[:, columns]
        closer = (apart > 2 * bars) | (own.kind == Smoothness.KINK)
        better = np.where(closer, shorter, own.error < found.error[:, columns])
        better &= np.isfinite(own.error)
    return joined(found, own, columns, better)


def joined(
    found: Derivatives,
    other: Derivatives,
    columns: NDArray[np.intp],
    better: NDArray[np.bool_],
) -> Derivatives:
    """Take from another measurement of some columns the entries that are better."""
    merged = {}
    for name in ("value", "error", "step", "left", "right", "kind", "noise"):
        matrix = getattr(found, name).copy()
        matrix[:, columns] = np.where(better, getattr(other, name), matrix[:, columns])
        merged[name] = matrix
    total = found.evaluations + other.evaluations
    return dataclasses.replace(found, evaluations=total, **merged)
