"""Polynomial extrapolation of difference quotients, over all runs of rungs at once.

Neville's scheme gives the slope at step zero for every run of neighbouring rungs;
Newton's divided differences give the coefficients, which say whether the series
converges and what it foretells at other steps. Runs lie one after the other in one
array, so that a reading takes as many calls of NumPy for ten rungs as for three.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np

__all__ = ["Layout", "Tableau", "layout"]

_CONVERGING = 0.5  # most that the next rung may change a coefficient of the series


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where everything about the runs of a ladder stands.

    Runs are numbered column by column of Neville's scheme: those of one rung, of two,
    and so on, each from the bottom. A pair is a run that is judged and a rung below it;
    pairs are numbered rung by rung, and for one rung by the bottom of the run.

    Attributes
    ----------
    columns
        The runs of each column.
    judged
        Numbers of the runs that are judged, ascending; all of them as a slice.
    bottom, top
        Smallest and largest rung of each judged run, (J,).
    before
        Of judged runs of one rung: the run of the rung below.
    shorter, raised
        Of judged runs of two rungs and more: the run without its top, and without its
        bottom.
    rung, run
        The two members of each pair, (P,); runs as places among those judged.
    terms
        For each column but the first: the pairs to which it adds a term of Newton's
        polynomial, and the runs whose divided difference that takes.
    levels
        The pairs of each rung but the largest.
    tails
        Where the runs above each rung begin when judged runs are sorted by bottom.
    back
        From that order back to the usual one.
    place
        Number of the pair of a rung and a run, (L, J); meaningless where there is none.
    """

    columns: tuple[slice, ...]
    judged: np.ndarray | slice
    bottom: np.ndarray
    top: np.ndarray
    before: np.ndarray
    shorter: np.ndarray
    raised: np.ndarray
    rung: np.ndarray
    run: np.ndarray
    terms: tuple[tuple[np.ndarray, np.ndarray], ...]
    levels: tuple[slice, ...]
    tails: tuple[int, ...]
    back: np.ndarray
    place: np.ndarray


@functools.lru_cache(maxsize=1024)
def layout(
    rungs: int, width: int, only: tuple[tuple[int, int], ...] | None = None
) -> Layout:
    """Lay out the runs of up to `width` of so many rungs.

    Parameters
    ----------
    rungs, width
        As many rungs, and as many in one run at most.
    only
        Smallest and largest rung of the runs to judge; None for all.

    Examples
    --------
    >>> layout(3, 2).bottom.tolist(), layout(3, 2).top.tolist()
    ([0, 1, 2, 0, 1], [0, 1, 2, 1, 2])
    >>> layout(3, 2, ((1, 2),)).rung.tolist()  # its slope is compared with one rung
    [0]
    """
    sizes = [rungs - q for q in range(min(width, rungs))]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    columns = tuple(slice(*pair) for pair in itertools.pairwise(starts))
    bottom = np.concatenate([np.arange(size) for size in sizes])
    extra = np.repeat(np.arange(len(sizes)), sizes)  # rungs beyond the first
    judged: np.ndarray | slice = slice(None)
    if only is not None:
        judged = np.array(sorted(starts[top - low] + low for low, top in only), int)
        bottom, extra = bottom[judged], extra[judged]
    single = int((extra == 0).sum())
    shorter = (starts[extra - 1] + bottom)[single:]
    order = np.lexsort((extra, bottom))
    tails = tuple(int((bottom <= j).sum()) for j in range(rungs - 1))
    counts = [bottom.size - tail for tail in tails]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(int)
    rung = np.repeat(np.arange(rungs - 1), counts)
    run = np.concatenate([np.zeros(0, int), *(order[tail:] for tail in tails)])
    place = np.zeros((rungs, bottom.size), int)
    place[rung, run] = np.arange(run.size)
    longer = [np.flatnonzero(extra[run] >= q) for q in range(1, len(sizes))]
    return Layout(
        columns=columns,
        judged=judged,
        bottom=bottom,
        top=bottom + extra,
        before=bottom[:single] - 1,
        shorter=shorter,
        raised=shorter + 1,
        rung=rung,
        run=run,
        terms=tuple(
            (own, starts[q] + bottom[run[own]]) for q, own in enumerate(longer, start=1)
        ),
        levels=tuple(slice(*ends) for ends in itertools.pairwise(offsets)),
        tails=tails,
        back=np.argsort(order),
        place=place,
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Tableau:
    """Extrapolation of one set of quotients, over all runs.

    Attributes
    ----------
    nodes
        h^2 or h in units of the largest rung, (L, C, 1).
    slopes
        Extrapolated slope of each run, (R, C, m).
    fixed, lever
        What a run makes of the rounding at each rung, (R, C, m), and of a noise that
        all rungs share, (R, C, 1).
    divided, spread
        Divided differences over each run, (R, C, m), and what they make of a common
        noise, (R, C, 1).
    """

    layout: Layout
    nodes: np.ndarray
    slopes: np.ndarray
    fixed: np.ndarray
    lever: np.ndarray
    divided: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(
        cls,
        slopes: np.ndarray,
        nodes: np.ndarray,
        fixed: np.ndarray,
        lever: np.ndarray,
        where: Layout,
    ) -> Tableau:
        """Extrapolate over runs, from single quotients."""
        runs = where.columns[-1].stop
        table = cls(
            layout=where,
            nodes=nodes,
            slopes=np.empty((runs, *slopes.shape[1:])),
            fixed=np.empty((runs, *fixed.shape[1:])),
            lever=np.empty((runs, *lever.shape[1:])),
            divided=np.empty((runs, *slopes.shape[1:])),
            spread=np.empty((runs, *lever.shape[1:])),
        )
        first = where.columns[0]
        table.slopes[first], table.divided[first] = slopes, slopes
        table.fixed[first] = fixed
        table.lever[first], table.spread[first] = lever, lever
        for q in range(1, len(where.columns)):
            table._grow(q)
        return table

    def _grow(self, q: int) -> None:
        """Fill the column of runs of q + 1 rungs."""
        last, now = self.layout.columns[q - 1], self.layout.columns[q]
        high, low = self.nodes[q:], self.nodes[: self.nodes.shape[0] - q]
        ratio, span = high / low, high - low
        slopes, divided = self.slopes[last], self.divided[last]
        fresh = np.subtract(slopes[:-1], slopes[1:], out=self.slopes[now])
        fresh /= ratio - 1
        fresh += slopes[:-1]
        for gains in (self.fixed, self.lever):
            gain = gains[last]
            fresh = np.multiply(gain[:-1], ratio, out=gains[now])
            fresh += gain[1:]
            fresh /= ratio - 1
        fresh = np.subtract(divided[1:], divided[:-1], out=self.divided[now])
        fresh /= span
        spread = self.spread[last]
        self.spread[now] = (spread[1:] + spread[:-1]) / span

    def truncation(
        self, noise: np.ndarray, blur: np.ndarray | None = None
    ) -> np.ndarray:
        """Tell the truncation of every judged run, for a given noise of f, (J, C, m).

        `blur` is what a noise that is known from elsewhere does to the slope at each
        rung, (L, C, m): two slopes that it made equal by accident prove nothing.

        The largest rung only counts when the coefficient it reveals agrees with the one
        found without it; beyond the range of convergence it has no weight in the
        extrapolation and its silence proves nothing.
        """
        where = self.layout
        slopes, single = self.slopes[where.judged], where.before.size
        bars = np.empty_like(slopes)
        np.abs(slopes[:single] - self.slopes[where.before], out=bars[:single])
        if blur is not None:
            np.maximum(bars[:single], blur[where.before], out=bars[:single])
        bars[:single][where.before < 0] = np.inf
        if bars.shape[0] == single:
            return bars
        shorter, raised = where.shorter, where.raised
        low = self.divided[shorter]
        gap = self.divided[raised]
        gap -= low
        np.abs(gap, out=gap)
        fuzz = 2 * (self.spread[shorter] + self.spread[raised]) * noise[single:]
        rate = np.divide(gap, np.abs(low, out=low), out=low)
        quiet = gap <= fuzz
        converges = (rate <= _CONVERGING) | quiet
        rate *= 3
        np.clip(rate, 0.01, 1.0, out=rate)
        rate[quiet] = 1.0
        change = slopes[single:] - self.slopes[shorter]
        np.abs(change, out=change)
        bars[single:] = np.multiply(change, rate, out=change)
        bars[single:][~converges] = np.inf
        return bars

    def foretold(self) -> np.ndarray:
        """Say what judged runs foretell of the slope at every rung below, (P, C, m).

        Newton's polynomial through the run, term by term.
        """
        where = self.layout
        bottom = where.bottom[where.run]
        forecast: np.ndarray = self.slopes[bottom]
        basis = np.ones((bottom.size, *self.nodes.shape[1:]))
        for q, (own, runs) in enumerate(where.terms):
            step = self.nodes[where.rung[own]] - self.nodes[bottom[own] + q]
            product = basis[own] = basis[own] * step
            if own.size == bottom.size:
                forecast += product * self.divided[runs]
            else:
                forecast[own] += product * self.divided[runs]
        return forecast
