"""When most of a gradient is wrong: notice it early, describe it, name a few."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.localisation.searching.group_testing import Group, measured

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.localisation.searching.bench import Bench

__all__ = ["common_factor", "largest", "sample", "thinned_tests"]

# One coordinate in 64: a group with a few wrong entries hardly ever shows any of them,
# one with more than a hundred hardly ever hides them all.
_THINNING = 6


def common_factor(
    bench: Bench, group: Group, *, least: int = 3
) -> dict[int, float] | None:
    """Find one number that explains the defects of the group, or of one whole input.

    Parameters
    ----------
    least
        Directions that it takes; of two the second alone can contradict.

    Returns
    -------
    dict or None
        Analytic over numeric, by input; None if no single factor does, or a group is
        not `legible` along enough directions.
    """
    if not group.legible or len(group.seeds) < least or group.thinning:
        return None
    whole = [
        p for p in group.parts if p.size == bench.subject.inputs[p.which].coordinates
    ]
    shares = {
        part: np.array(
            [
                bench.gradients.along(bench.direction((part,), seed))[0]
                for seed in group.seeds
            ]
        )
        for part in whole
    }
    if not shares:
        return None
    options = [list(shares)] if len(whole) == len(group.parts) else []
    options += [[part] for part in shares] if len(shares) > 1 else []
    for parts in options:
        total = np.sum([shares[p] for p in parts], axis=0)
        slope = _proportion(group, total)
        if slope is None or slope >= 1 - 1e-12:
            continue
        return {p.which: 1 / (1 - slope) for p in parts if np.any(shares[p] != 0)}
    return None


def _proportion(group: Group, along: NDArray[np.float64]) -> float | None:
    """Slope of the defects over the analytic derivatives, if it fits all of them."""
    least = max(float(group.errors.min()), 1e-300)
    weights = least / np.maximum(group.errors, least)
    with np.errstate(all="ignore"):
        slope = float(
            np.dot(weights * along, weights * group.defects)
            / np.dot(weights * along, weights * along)
        )
        misfit = np.abs(group.defects - slope * along)
    slack = SAFETY * group.errors + 1e-9 * np.abs(group.defects)
    return slope if (misfit <= slack).all() else None


def largest(gradient: NDArray[np.float64], count: int) -> list[int]:
    """Positions of the largest entries, as far as they are numbers."""
    size = np.nan_to_num(np.abs(gradient), nan=-1.0)
    count = min(count, size.size)
    found = []
    for _ in range(count):
        found.append(int(np.argmax(size)))
        size[found[-1]] = -1.0
    return found


def _depth(group: Group) -> int:
    """Thinning that leaves about eight coordinates of a small group."""
    return max(1, min(_THINNING, int(np.log2(group.size)) - 3))


def thinned_tests(bench: Bench, group: Group) -> bool:
    """Whether two random subsets of a group, each a 64th of it, both show a defect."""
    seed = group.seeds[0]
    for _ in range(2):
        thin = measured(
            bench,
            group.parts,
            [seed],
            resolution=_hint(group) / 64,
            thinning=_depth(group) + group.thinning,
            choice=bench.new_seed(),
        )
        if not thin.suspicious:
            return False
    return True


def _hint(group: Group) -> float:
    return float(np.nanmin(np.abs(group.defects), initial=np.inf)) / 50


def sample(bench: Bench, group: Group) -> tuple[Group | None, float]:
    """Thin a group until few of its wrong entries are left.

    Returns
    -------
    group
        Thinned, suspicious, measured along the directions of `group`; None if every
        thinning looked clean.
    share
        Estimated fraction of wrong entries.
    """
    last: Group | None = None
    choice = bench.new_seed()
    for thinning in range(_depth(group), int(np.log2(group.size)) + 1, 2):
        thin = measured(
            bench,
            group.parts,
            group.seeds,
            resolution=_hint(group) / 2**thinning,
            thinning=thinning,
            choice=choice,
        )
        if not thin.suspicious:
            break
        last = dataclasses.replace(thin, sparse=group.size)
    if last is None:
        return None, 0.0
    # one to four of the wrong entries are left: two, say
    return last, min(1.0, 2.0 * 2**last.thinning / group.size)
