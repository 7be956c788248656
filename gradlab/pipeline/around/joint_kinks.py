"""Sub-gradients that are none together.

At a tie of ``max`` each entry has a slope of 0 on one side and of 1 on the other, and
any value between is as good as another. But both entries moved together move f once:
two ones are counted double. So where several kinks of one output bend the same way,
and each was accepted by itself, f is followed along all of them at once.

Where f is convex, a sub-gradient g satisfies ``g d <= f'(x; d)`` for every direction d,
and ``d = sign(g)`` is the one that it may fail in, or d = g. Kinks that bend up and
kinks that bend down are followed apart from each other: their sum need not be convex.
Whichever way they bend, f is smooth along directions that all of them leave alone
(`smooth_part.py`), and there the gradient has to be the slope.

References
----------
F. H. Clarke, *Optimization and Nonsmooth Analysis* (1983), section 2.3: where a
function is regular, its generalised gradient is the set of such g.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.differentiation.evaluation import line_of, line_rows
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.differentiation.smoothness import Smoothness
from gradlab.labels import few_of
from gradlab.pipeline.around.between import between_points
from gradlab.pipeline.around.smooth_part import MOST, Coordinates, left_alone
from gradlab.pipeline.blocks import label_of
from gradlab.subject.subject import has_own_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Judged
    from gradlab.subject.subject import Subject

__all__ = ["joint_kinks"]

# of the size of each coordinate; what holds at all is no other kink nearby
_STEPS = (1e-8, 1e-5, 1e-3)
# what is followed where all bend up, or down, or either way
_WAYS = {1: ("signs", "ones", "gradient"), -1: ("signs", "ones", "gradient"), 0: ("",)}
_MOVED = {
    "signs": "by their sizes",
    "ones": "by their sizes",
    "gradient": "along the gradient",
    "": "in a way that all these kinks leave alone, where f is smooth,",
}
_OVER = 0.002  # share of the slopes at the kinks by which f must be missed
_LOUD = 100.0  # times the rounding of f, over the step
_NAMED = 3  # entries named in one sentence


def joint_kinks(judged: Judged) -> list[Finding]:
    """Follow f along several kinks at once, where each was accepted by itself.

    Of operations of torch alone verdicts are changed. 13 evaluations per direction, of
    which there are at most seven, and gradients of a few coordinates beside the point;
    none where no output has two kinks.
    """
    outcome, meter, seed = judged.outcome, judged.meter, judged.seed
    # an f that is made of small steps has no kinks, it only seems to
    rough = set(outcome.rough)
    looked = [b for b in outcome.blocks if not b.settled and b.name not in rough]
    blocks = [b for b in looked if (b.kinds == Smoothness.KINK.value).any()]
    if not blocks or outcome.stopped:
        return []
    at = judged.at
    # a gradient that is the one of a point beside is one of all kinks together
    known = np.zeros(1, dtype=bool) if outcome.limits is None else outcome.limits
    asked, rng = False, np.random.default_rng([seed, 41])
    try:
        for bend in (1, -1, 0):
            tied = [_Tied.of(block, bend) for block in blocks]
            count = np.sum([part.mask.sum(axis=1) for part in tied], axis=0)
            several = (count > 1) & ~known
            if not several.any():
                continue
            for how in _WAYS[bend]:
                way = [part.direction(how) for part in tied]
                if not bend:
                    way = _across(at, tied, several, meter, seed)
                if not any(steps.any() for steps in way):
                    continue
                found = _missed(at, tied, several, meter, way, smooth=not bend)
                if found is not None and not asked:  # of all outputs, so once
                    asked, there = True, (outcome.blocks, outcome.base)
                    rows = _with_several(blocks) & ~known
                    known = known | between_points(at, there, rows, meter, rng)
                    several &= ~known
                    found = _missed(at, tied, several, meter, way, smooth=not bend)
                if found is not None:
                    return list(_told(judged.subject, tied, how, *found))
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        outcome.cut_short(stop, "several kinks were not followed at once")
    return []


def _with_several(blocks: list[Block]) -> NDArray[np.bool_]:
    """Find outputs with several kinks that agree, whichever way they bend, (rows,)."""
    tied = [_Tied.of(block, 0) for block in blocks]
    return np.asarray(np.sum([part.mask.sum(axis=1) for part in tied], axis=0) > 1)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Tied:
    """Kinks of one input that bend the same way and agree; (rows, n)."""

    block: Block
    mask: NDArray[np.bool_]
    analytic: NDArray[np.float64]  # in units of the coordinates, as all slopes here
    numeric: NDArray[np.float64]  # where there is no kink

    @classmethod
    def of(cls, block: Block, way: int) -> _Tied:
        with np.errstate(all="ignore"):
            bend = block.right - block.left
            kink = (block.kinds == Smoothness.KINK.value) & np.isfinite(bend)
            kink &= bend * way > 0 if way else bend != 0
        kink &= block.verdicts == Verdict.AGREES.value
        sizes = block.units
        return cls(block, kink, block.formula * sizes, block.value * sizes)

    def direction(self, how: str) -> NDArray[np.float64]:
        """Step along the gradient, its signs, or ones, where there are kinks."""
        moved = self.mask.any(axis=0)
        along = np.where(self.mask, self.analytic, 0.0).sum(axis=0)
        if how == "gradient":
            return np.asarray(along / max(float(np.abs(along).max()), 1e-300))
        signs = np.sign(along)
        signs = np.where((signs == 0) | (how == "ones"), 1.0, signs)
        return np.asarray(np.where(moved, signs, 0.0))

    def agrees(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Columns that agree in all of some rows, (n,)."""
        return np.asarray(
            (self.block.verdicts[rows] == Verdict.AGREES.value).all(axis=0)
        )

    def foretold(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        """Slope of every output along the direction, by the gradient at its kinks."""
        with np.errstate(invalid="ignore"):  # slopes that are no numbers foretell none
            return np.asarray(np.where(self.mask, self.analytic, self.numeric) @ steps)


def _missed(
    subject: Subject,
    tied: list[_Tied],
    rows: NDArray[np.bool_],
    meter: Meter,
    way: list[NDArray[np.float64]],
    *,
    smooth: bool,
) -> tuple[int, float, float, float] | None:
    """Find the output whose one-sided slopes leave the gradient out most clearly.

    Returns
    -------
    row, foretold, low, high
        Slopes along the direction: by the gradient, and to both sides; in units of
        the coordinates.
    """
    moves = []
    foretold, size = np.zeros(len(rows)), np.zeros(len(rows))
    for part, steps in zip(tied, way, strict=True):
        block = part.block
        moves.append((block.which, block.positions, steps * block.units))
        foretold = foretold + part.foretold(steps)
        size = size + np.abs(np.where(part.mask, part.analytic, 0.0)) @ np.abs(steps)
    reach = [sign * t for t in _STEPS for sign in (0.5, 1.0, -0.5, -1.0)]
    base, *values = line_rows(subject, line_of(subject, moves), [0.0, *reach], meter)
    ends = []
    over = np.where(rows, np.inf, 0.0)
    with np.errstate(all="ignore"):
        for k, step in enumerate(_STEPS):
            sides, curved = _slopes(base, np.array(values[4 * k : 4 * k + 4]), step)
            low, high = sides.min(axis=0), sides.max(axis=0)
            ends.append((low, high))
            miss = np.fmax(foretold - high, low - foretold)
            noise = _LOUD * subject.epsilon * np.abs(base) / step
            bound = _OVER * np.fmax(size, high - low) + curved + noise
            # a gradient of zero foretells nothing: by what f does then
            by = np.fmax(size, np.fmax(np.abs(low), np.abs(high)))
            told = np.where(miss > bound, miss / by, 0.0)
            if smooth:  # or it is no direction that all kinks leave alone
                told = np.where(high - low > miss / 2, 0.0, told)
            # so short a step may see nothing but rounding, and then says nothing
            heard = (k > 0) | (noise < _OVER * by)
            over = np.where(heard, np.fmin(over, told), over)
    row = int(np.argmax(np.where(np.isfinite(over), over, 0.0)))
    if not 0 < over[row] < np.inf:
        return None
    low, high = ends[1]
    return row, float(foretold[row]), float(low[row]), float(high[row])


def _across(
    subject: Subject,
    tied: list[_Tied],
    rows: NDArray[np.bool_],
    meter: Meter,
    seed: int,
) -> list[NDArray[np.float64]]:
    """Find a direction that all kinks leave alone, and along which the gradient is off.

    Of the sum of those outputs, and of some of the coordinates.
    """
    places = [
        np.flatnonzero(part.mask[rows].any(axis=0) & part.agrees(rows)) for part in tied
    ]
    counts = [len(columns) for columns in places]
    part_of = np.repeat(np.arange(len(tied)), counts)
    column = np.concatenate(places)
    rng = np.random.default_rng([seed, 37])
    if len(column) > MOST:  # neighbours, of which a kink may take several
        start = int(rng.integers(len(column)))
        some = np.sort((start + np.arange(MOST)) % len(column))
        part_of, column = part_of[some], column[some]
    way = [np.zeros(part.mask.shape[1]) for part in tied]
    if len(column) < 2:
        return way
    pairs = list(zip(part_of, column, strict=True))
    coordinates = Coordinates(
        np.array([tied[k].block.which for k in part_of]),
        np.array([tied[k].block.positions[c] for k, c in pairs]),
        np.array([tied[k].block.units[c] for k, c in pairs]),
    )
    told = np.array([tied[k].analytic[rows, c].sum() for k, c in pairs])
    off = left_alone(subject, coordinates, told, rows.astype(float), meter, rng)
    if off is None:
        return way
    for (k, c), amount in zip(pairs, off, strict=True):
        way[k][c] = amount
    return way


def _slopes(
    base: NDArray[np.float64], values: NDArray[np.float64], step: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Extrapolate one-sided slopes to a step of zero.

    Returns
    -------
    slopes
        To the right and to the left, (2, rows).
    curved
        By how much the extrapolation changed them, (rows,): more than it is off by,
        also where f bends within the step, as ``sqrt(x**2 + 1e-9)`` does.
    """
    half, whole = (values[0::2] - base) / (step / 2), (values[1::2] - base) / step
    slopes = (2 * half - whole) * np.array([[1.0], [-1.0]])
    return slopes, np.abs(half - whole).max(axis=0)


def _told(
    subject: Subject,
    tied: list[_Tied],
    how: str,
    row: int,
    *slopes_there: float,
) -> Iterator[Finding]:
    """Put it in words, for the input with most of these kinks."""
    foretold, low, high = slopes_there
    part = max(tied, key=lambda one: int(one.mask[row].sum()))
    names = [
        label_of(subject, one.block, int(column))
        for one in tied
        for column in np.flatnonzero(one.mask[row])
    ]
    slopes = f"{high:.6g}" if np.isclose(low, high) else f"{low:.6g} to {high:.6g}"
    formula = has_own_code(subject)
    if not formula:  # conventions of torch's own operations, and nobody's mistake
        for one in tied:
            one.block.leave_open((row, one.mask[row]))
    ties = how in ("signs", "ones")
    kind = BugKind.WRONG_MASK if ties else BugKind.UNKNOWN
    yield Finding(
        kind if formula else BugKind.NONDIFFERENTIABLE,
        "error" if formula else "warning",
        part.block.name,
        0.9,
        f"f has a kink in each of {few_of(names, _NAMED)}, and the gradient is a "
        f"sub-gradient of each; of all together it is none: moved together "
        f"{_MOVED[how]} they change f with a slope of {slopes}, the gradient says "
        f"{foretold:.6g}.",
        "Give a tie of max to one of its entries (argmax), or share it out: divide the "
        "mask x == max by its sum."
        if formula and ties
        else "Kinks hide which entries are wrong: move the point, by a little noise "
        "added to the input, and check again."
        if formula
        else "These are conventions of torch, which do not add up where kinks meet; to "
        "check formulas, move the point: add a little noise to the input.",
    )
