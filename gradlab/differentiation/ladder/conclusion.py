"""From a finished ladder to slopes, error bars and the kind of point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.ladder.bent_sides import bent_sides
from gradlab.differentiation.ladder.creeping import creeping
from gradlab.differentiation.ladder.derivatives import AdaptiveSettings, Derivatives
from gradlab.differentiation.ladder.extrapolation import extrapolate_side
from gradlab.differentiation.ladder.planning import STILL
from gradlab.differentiation.ladder.suspicion import (
    LOUD,
    Suspicion,
    jumps,
    rises,
    stairs,
)
from gradlab.differentiation.noise.noise import rounding_of
from gradlab.differentiation.smoothness import Smoothness

if TYPE_CHECKING:
    from gradlab.differentiation.ladder.reading import Reading
    from gradlab.differentiation.ladder.rungs import Ladder
    from gradlab.differentiation.ladder.runs import Estimate

__all__ = ["conclude"]

_TOLD = 1e-2  # relative bar of a slope that is known well
_VAGUE = 0.3  # relative bar of what may be no slope at all
_EXACT = 1e-11  # relative bar of slopes that settle by whole powers of the step


def conclude(
    ladder: Ladder,
    floor: float,
    settings: AdaptiveSettings,
    reading: Reading,
) -> Derivatives:
    """Turn a finished ladder into derivatives.

    Parameters
    ----------
    ladder
        All values.
    floor
        Relative rounding unit of the arithmetic.
    settings
        Width of an extrapolation, safety factor.
    reading
        What the central slopes of this very ladder said.
    """
    with np.errstate(all="ignore"):
        estimate, doubt = reading.estimate, reading.doubt
        value = estimate.value.copy()
        frozen = _frozen_bar(ladder, estimate, floor)
        plain = np.maximum(settings.safety * estimate.error, frozen)
        error = np.maximum(plain, settings.safety * estimate.hidden)
        wide = error.copy()
        kind = np.full(value.shape, Smoothness.SMOOTH, np.int8)
        known = np.maximum(estimate.known, floor * ladder.typical_size())
        kind[estimate.noise > 100 * known] = Smoothness.NOISY
        odd = (estimate.hidden > estimate.error) & (estimate.ledge == 0)
        odd &= kind == Smoothness.SMOOTH
        kind[estimate.hidden > np.abs(value) / 10] = Smoothness.NOISY  # a ledge
        steps = stairs(ladder, floor, error < _TOLD * np.abs(value))
        kind[steps] = Smoothness.STAIRCASE
        error[steps] += np.abs(value[steps])
        value[steps] = 0.0
        top = estimate.top.copy()
        results = value, error, kind, top
        slopes = _one_sided(ladder, floor, settings, reading, results)
        _doubt_creeping(ladder, floor, results[:3])
        _mend_bent(ladder, floor, results)
        error[np.isinf(value) | np.isnan(error)] = np.inf
        kind[(kind == Smoothness.SMOOTH) & ~np.isfinite(error)] = Smoothness.UNRESOLVED
        noise = estimate.noise.copy()
        known = np.maximum(estimate.known, rounding_of(ladder.base, floor))
        _stay_near(ladder, known, settings, (*results, noise, *slopes))
        odd &= (error == wide) & np.isfinite(plain)
    gone = ~np.isfinite(ladder.base) | (doubt.no_right & doubt.no_left)
    value[gone], error[gone] = np.nan, np.inf
    kind[gone] = Smoothness.UNDEFINED
    return Derivatives(
        value=value.T,
        error=error.T,
        step=_largest_step(ladder, top).T,
        left=np.where(gone, np.nan, slopes[1]).T,
        right=np.where(gone, np.nan, slopes[0]).T,
        kind=kind.T,
        noise=noise.T,
        plain=np.where(odd & ~gone, plain, np.nan).T,
    )


def _one_sided(
    ladder: Ladder,
    floor: float,
    settings: AdaptiveSettings,
    reading: Reading,
    results: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> np.ndarray:
    """Look at each side where central differences cannot say; return both slopes.

    Replaces value, error, kind and top in place. Slopes that were not needed come back
    as nan; most functions need none, and pay for none.
    """
    estimate, doubt = reading.estimate, reading.doubt
    slopes = np.full((2, *estimate.value.shape), np.nan)
    some = doubt.kink | doubt.jump | (doubt.no_right ^ doubt.no_left)
    if not some.any():
        return slopes
    place = np.nonzero(some)
    own = tuple(array[place][:, None] for array in results)
    found = _from_sides(
        ladder.entries(*place),
        floor,
        settings,
        estimate.noise[place][:, None],
        doubt.entries(*place),
        own,
    )
    for whole, part in zip((*results, *slopes), (*own, *found), strict=True):
        whole[place] = part[:, 0]
    return slopes


def _doubt_creeping(
    ladder: Ladder, floor: float, results: tuple[np.ndarray, ...]
) -> None:
    """Replace, in place, central slopes that settle too slowly for an extrapolation."""
    value, error, kind = results
    place = _inexact(value, error, kind)
    if not place[0].size:
        return
    own = ladder.entries(*place)
    ends, bars = creeping(own, own.slopes, own.steps, floor)
    told = ~np.isnan(bars)
    place = tuple(index[told] for index in place)
    value[place], error[place] = ends[told], bars[told]
    kind[place] = np.where(
        np.isfinite(bars[told]), Smoothness.SMOOTH, Smoothness.UNRESOLVED
    )


def _inexact(
    value: np.ndarray, error: np.ndarray, kind: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Find entries with a slope whose bar is more than rounding."""
    some = np.isfinite(error) & (error > _EXACT * np.abs(value))
    some &= (kind == Smoothness.SMOOTH) | (kind == Smoothness.NOISY)
    return np.nonzero(some)


def _mend_bent(ladder: Ladder, floor: float, results: tuple[np.ndarray, ...]) -> None:
    """Replace, in place, central slopes that the curvature of one side keeps off."""
    value, error, kind, top = results
    place = _inexact(value, error, kind)
    if not place[0].size:
        return
    found = bent_sides(ladder.entries(*place), floor, error[place])
    told = ~np.isnan(found[1])
    place = tuple(index[told] for index in place)
    value[place], error[place] = found[0][told], found[1][told]
    kind[place], top[place] = Smoothness.SMOOTH, found[2][told]


def _stay_near(
    ladder: Ladder,
    known: np.ndarray,
    settings: AdaptiveSettings,
    results: tuple[np.ndarray, ...],
) -> None:
    """Leave, in place, steps far beyond the scale where only they show what is odd.

    Within the scale of the coordinate, and a little beyond, f stands still but for its
    rounding; farther off rounding inside f grows with the step, and may look like a
    kink, or like noise. The slope is what the steps before that leave room for.
    """
    value, error, kind, top, noise, ahead, behind = results
    odd = (Smoothness.KINK, Smoothness.NOISY, Smoothness.UNRESOLVED)
    farthest = np.nanmin(ladder.rungs, axis=0) < -STILL
    told = (kind == Smoothness.NOISY) & (error < _VAGUE * np.abs(value))
    place = np.nonzero(np.isin(kind, odd) & ~told & farthest[:, None])
    if not place[0].size:
        return
    own = ladder.entries(*place)
    near = own.rungs >= -STILL
    right, left = (side[:, :, 0] - own.base[:, 0] for side in (own.right, own.left))
    moves = np.where(near, np.fmax(np.abs(right), np.abs(left)), 0.0)
    unit, beyond = known[place], np.exp2(np.fmax(-own.rungs, 0.0))
    edge, columns = near.sum(axis=0) - 1, np.arange(len(unit))
    quiet = (moves <= LOUD * unit * beyond).all(axis=0)
    quiet &= own.rungs[edge, columns] <= 0
    moved = np.fmax(moves.max(axis=0), unit)
    place, edge = tuple(index[quiet] for index in place), edge[quiet]
    moved, columns = moved[quiet], columns[quiet]
    value[place] = own.slopes[edge, columns]
    error[place] = settings.safety * moved / own.steps[edge, columns]
    kind[place], top[place], noise[place] = Smoothness.SMOOTH, edge, moved
    ahead[place] = behind[place] = np.nan


def _from_sides(
    ladder: Ladder,
    floor: float,
    settings: AdaptiveSettings,
    noise: np.ndarray,
    doubt: Suspicion,
    results: tuple[np.ndarray, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """Replace, in place, what central differences cannot say; return both slopes.

    At a kink the value is the mean of the two slopes and the bar covers both; at a jump
    no bar is large enough; at an edge the one side that exists is all there is.
    """
    value, error, kind, top = results
    # at a kink or jump the strays of the central slope are no noise
    quiet = np.where(doubt.kink | doubt.jump, 0.0, noise)
    right, left = (
        extrapolate_side(ladder, floor, settings.width, right=side, noise=quiet)
        for side in (True, False)
    )
    cliffs = [jumps(ladder, floor, right=side) for side in (True, False)]
    hops = [cliff & doubt.jump for cliff in cliffs]
    jump = hops[0] | hops[1]
    stairs_or_noise = kind == Smoothness.STAIRCASE
    stairs_or_noise |= doubt.jump & (kind == Smoothness.NOISY)
    bend = doubt.kink & ~jump & ~stairs_or_noise
    steep = rises(ladder, floor, right=True) * rises(ladder, floor, right=False)
    bend |= (steep != 0) & (doubt.jump | doubt.kink)
    ahead, fore = _side_slope(ladder, floor, right, hops[0], right=True)
    behind, aft = _side_slope(ladder, floor, left, hops[1], right=False)
    both, one = bend | jump, doubt.no_right ^ doubt.no_left
    middle = np.where(ahead == behind, ahead, (ahead + behind) / 2)
    value[both] = middle[both]
    error[both] = (np.abs(ahead - behind) / 2 + fore + aft)[both]
    kind[bend] = Smoothness.KINK
    kind[jump] = Smoothness.JUMP
    error[jump] = np.inf
    kind[one] = Smoothness.EDGE
    value[one] = np.where(doubt.no_right, behind, ahead)[one]
    bar = np.where(doubt.no_right, aft, fore)
    error[one] = settings.safety * bar[one]
    top[one] = np.where(doubt.no_right, left.top, right.top)[one]
    # f does not even approach its value from the side that exists
    error[one & (cliffs[0] | cliffs[1])] = np.inf
    kind[both & np.isinf(ahead) & (ahead == behind)] = Smoothness.UNRESOLVED
    needed = both | one
    return np.where(needed, ahead, np.nan), np.where(needed, behind, np.nan)


def _largest_step(ladder: Ladder, top: np.ndarray) -> np.ndarray:
    """Return the step of a rung of each entry, (C, m)."""
    return np.asarray(ladder.steps[top, np.arange(len(top))[:, None]])


def _frozen_bar(ladder: Ladder, estimate: Estimate, floor: float) -> np.ndarray:
    """Return what may hide where f does not move, 0 where it does; shape (C, m).

    Steps far beyond the coordinate's own size prove nothing about the slope here.
    """
    still = (estimate.value == 0) & (ladder.right[0] == ladder.base)
    near = ladder.steps[0] * np.exp2(ladder.rungs[0])  # the step of rung 0, nearly
    reach = np.minimum(_largest_step(ladder, estimate.top), near[:, None])
    return np.where(still, floor * np.abs(ladder.base) / reach, 0.0)


def _side_slope(
    ladder: Ladder, floor: float, side: Estimate, hops: np.ndarray, *, right: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the slope on one side, and its bar: of K entries, (K, 1).

    Beyond a jump; infinite where it grows; by its own law where it settles slowly.
    """
    values = ladder.right if right else ladder.left
    taken = (ladder.ahead if right else -ladder.behind)[:, :, None]
    slopes = ((values - ladder.base) / taken)[:, :, 0]
    ends, bars = creeping(ladder, slopes, np.abs(taken[:, :, 0]), floor)
    told = ~np.isnan(bars)[:, None]
    value = np.where(told, ends[:, None], side.value)
    sign = rises(ladder, floor, right=right)
    slope = np.where(sign != 0, np.inf * sign, value)
    if hops.any():
        index = min(2, values.shape[0] - 1)
        beyond = (values[index] - values[0]) / (taken[index] - taken[0])
        slope = np.where(hops, beyond, slope)
    return slope, np.where(told, bars[:, None], side.error)
