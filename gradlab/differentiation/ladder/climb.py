"""Climbing the ladders of many coordinates together, and reading no more than needed.

All coordinates take their rungs in the same rounds. Where there are many outputs, the
ladders are built for a few of them; then all are read once, and those that it does not
serve go on by themselves. An output that is settled is not read again.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.ladder.conclusion import conclude
from gradlab.differentiation.ladder.planning import Situation, next_rungs, unsettled
from gradlab.differentiation.ladder.reading import Reading, blocks, read, underrated
from gradlab.differentiation.ladder.rungs import Samples
from gradlab.differentiation.noise.noise import FEW, shared_noise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.differentiation.ladder.derivatives import (
        AdaptiveSettings,
        Derivatives,
        Rounding,
        Sampler,
    )

__all__ = ["climb"]

_LEAST, _MOST, _SHARE = 8, 32, 16  # of more, one in so many, within these limits


@dataclasses.dataclass(slots=True, eq=False)
class _Climb:
    """The state of C coordinates on the way."""

    sample: Sampler
    samples: Samples
    known: Rounding  # from elsewhere
    settings: AdaptiveSettings
    unit: np.ndarray  # step of exponent 0, (C,)
    stride: float
    limit: np.ndarray  # largest useful exponent, (C,)
    record: np.ndarray  # worst bars of the last four rounds, (4, C)
    wish: np.ndarray  # rungs to evaluate next, (2 or 3, C)
    noise: np.ndarray  # what is known, and what many coordinates agree on, (m,)
    served: np.ndarray  # best runs of the outputs watched, (C, K, 2)
    results: Derivatives

    def read(
        self,
        which: np.ndarray,
        outputs: slice | np.ndarray,
        served: np.ndarray | None = None,
    ) -> Reading:
        rounding = dataclasses.replace(self.known, noise=self.noise)
        return read(self.samples, which, outputs, rounding, self.settings, served)

    def round(self) -> np.ndarray:
        """Evaluate what is wished for; return the coordinates that wished."""
        wanted = np.isfinite(self.wish)
        busy = np.flatnonzero(wanted.any(axis=0))
        if busy.size:
            self.samples.extend(self.sample, self.unit, self.wish)
        self.wish = np.full((2, self.unit.size), np.nan)
        return busy


def climb(
    sample: Sampler,
    points: np.ndarray,
    scales: np.ndarray,
    base: np.ndarray,
    rounding: Rounding,
    settings: AdaptiveSettings,
    results: Derivatives,
) -> int:
    """Build the ladders of some coordinates, rung by rung, and read them.

    Parameters are those of `gradlab.differentiation.adaptive.adaptive`; what is found
    is written into `results`, of which nothing is known so far. Returns the number of
    evaluations.
    """
    if not np.isfinite(base).any():
        return 0
    unit = np.exp2(np.clip(np.round(np.log2(scales)), -1000, 1022))  # stay finite
    bits = -np.log2(rounding.floor)
    stride = max(2.0, float(np.round(6 * bits / 52)))
    spacing = np.maximum(4 * rounding.floor * np.abs(points), np.finfo(float).tiny)
    now = _Climb(
        sample=sample,
        samples=Samples(base, points),
        known=rounding,
        settings=settings,
        unit=unit,
        stride=stride,
        limit=np.floor(np.minimum(bits, np.log2(unit) - np.log2(spacing))),
        record=np.full((4, points.size), np.inf),
        wish=np.repeat((stride * np.arange(1.0, 4.0))[:, None], points.size, axis=1),
        noise=rounding.noise.copy(),
        served=np.zeros((points.size, 0, 2), int),
        results=results,
    )
    busy = now.round()
    watched = _watched(now.samples)
    if watched is not None:
        now.served = np.zeros((*watched.shape, 2), int)
    while busy.size:
        _look_together(now, busy, watched)
        busy = now.round()
    if watched is not None:
        alone = _look_at_all(now, watched)
        while alone:
            for some, outputs in _alike(alone):
                _look_alone(now, some, outputs)
            alone = {c: alone[c] for c in now.round().tolist()}
    return int(now.samples.spent.sum())


def _watched(samples: Samples) -> np.ndarray | None:
    """Choose the outputs for which the ladders are built, (C, K); None for all.

    Such as move, spread over all of them without any period.
    """
    base = samples.base
    if base.size <= FEW:
        return None
    count = min(max(_LEAST, base.size // _SHARE), _MOST)
    moved = samples.moved() & np.isfinite(base)
    order = np.argsort(np.mod(np.arange(base.size) * 0.6180339887498949, 1.0))
    first = np.argsort(~moved[:, order], axis=1, kind="stable")[:, :count]
    return np.asarray(order[first])


def _look_together(now: _Climb, which: np.ndarray, watched: np.ndarray | None) -> None:
    """Read what is watched, and plan the next rungs."""
    outputs = slice(None) if watched is None else watched[which]
    reading = now.read(which, outputs)
    if watched is not None and (watched == watched[0]).all():
        heard = _heard(reading)
        same = watched[0]
        now.noise[same] = np.where(
            np.isnan(heard), now.noise[same], np.fmax(heard, now.known.noise[same])
        )
    done = _plan(now, which, reading)
    if watched is None:
        _finish(now, which[done], outputs, reading.part(done))
    else:
        best = reading.estimate.bottom[done], reading.estimate.top[done]
        now.served[which[done]] = np.stack(best, axis=-1)


def _look_at_all(now: _Climb, watched: np.ndarray) -> dict[int, np.ndarray]:
    """Read all outputs once; return those that need more, for each coordinate.

    The runs that served those watched serve most others; what they do not serve is read
    in full, and so is what rests on less noise than other coordinates show.
    """
    # ladders that are alike side by side: they are cut into pieces together
    every = np.lexsort((*now.served.mean(axis=1).T, now.samples.count))
    whole = now.read(every, slice(None), now.served[every])
    now.noise = np.fmax(now.known.noise, np.nan_to_num(_heard(whole)))
    again = unsettled(_situation(now, every, whole), now.settings)
    again |= underrated(whole, now.noise)
    for some, outputs in _alike(_chosen(again)):
        whole.replace(some, outputs, now.read(every[some], outputs))
    _finish(now, every, slice(None), whole)
    left = unsettled(_situation(now, every, whole), now.settings)
    # those watched are as good as they get
    np.put_along_axis(left, watched[every], values=False, axis=1)
    alone = _chosen(left)
    now.record[:] = np.inf
    for some, outputs in _alike(alone):
        _plan(now, every[some], whole.part(some).outputs(outputs))
        # half the patience of the first
        now.record[1:, every[some]] = now.record[-1, every[some]]
    named = {int(every[place]): outputs for place, outputs in alone.items()}
    return {c: named[c] for c in now.round().tolist()}


def _heard(reading: Reading) -> np.ndarray:
    """Return the noise of every output on which most coordinates agree, (m,)."""
    estimate = reading.estimate
    return shared_noise(estimate.value, estimate.error, estimate.noise)


def _chosen(entries: np.ndarray) -> dict[int, np.ndarray]:
    """List the outputs of each coordinate that has any, from a mask (C, m)."""
    return {
        int(c): np.flatnonzero(entries[c]) for c in np.flatnonzero(entries.any(axis=1))
    }


def _alike(
    outputs: dict[int, np.ndarray],
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Group coordinates with about as many outputs to read; repeat some to fit."""
    which = np.array(list(outputs), int)
    sizes = np.array([outputs[int(c)].size for c in which])
    groups = np.ceil(np.log2(np.maximum(sizes, 4)))
    for group in np.unique(groups):
        some = which[groups == group]
        most = int(sizes[groups == group].max())
        yield some, np.stack([np.resize(outputs[int(c)], most) for c in some])


def _look_alone(now: _Climb, which: np.ndarray, outputs: np.ndarray) -> None:
    """Read the outputs that are not settled; take down those that are."""
    reading = now.read(which, outputs)
    done = _plan(now, which, reading)
    _finish(now, which[done], outputs[done], reading.part(done))


def _situation(now: _Climb, which: np.ndarray, reading: Reading) -> Situation:
    rungs = now.samples.part(which, slice(0, 0))
    return Situation(
        ladder=dataclasses.replace(rungs, base=reading.base),
        estimate=reading.estimate,
        doubt=reading.doubt,
        limit=now.limit[which],
        stride=now.stride,
        record=now.record[:, which],
        size=float(np.nanmax(np.abs(now.samples.base))),
    )


def _plan(now: _Climb, which: np.ndarray, reading: Reading) -> np.ndarray:
    """Wish for the next rungs; return the places of the coordinates that need none."""
    wish, bar = next_rungs(_situation(now, which, reading), now.settings)
    record = now.record[:, which]
    grew = bar > 2 * record[-1]  # it was too small: start counting again
    older = np.where(grew, np.inf, record[1:])
    now.record[:, which] = np.concatenate([older, bar[None]])
    planned = now.samples.spent[which] + 2 * np.isfinite(wish).sum(axis=0)
    wish[:, planned > now.settings.most] = np.nan
    now.wish[:, which] = wish
    return np.flatnonzero(np.isnan(wish).all(axis=0))


def _finish(
    now: _Climb, which: np.ndarray, outputs: slice | np.ndarray, reading: Reading
) -> None:
    """Take down what some outputs of some coordinates have come to."""
    depth = now.samples.depth(which)
    shape = reading.estimate.value.shape
    for rows, columns in blocks(shape, depth, now.settings.block):
        own = columns if isinstance(outputs, slice) else outputs[rows, columns]
        found = conclude(
            now.samples.part(which[rows], own),
            now.known.floor,
            now.settings,
            reading.part(rows).outputs(columns),
        )
        now.results.take(found, which[rows], own)
