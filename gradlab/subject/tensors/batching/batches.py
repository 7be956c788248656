"""Many perturbed evaluations in one call, by ``torch.func.vmap``.

Batching is worth it for small inputs and loses for large ones, since every perturbed
copy costs bandwidth; some functions cannot be batched, and some compute slightly other
numbers when they are, which finite differences would magnify. So every input gets a
short trial: same values to a few units of round-off, and less time per evaluation, or
one at a time.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.tensors.batching.devices import out_of_memory
from gradlab.subject.tensors.batching.loops import (
    looped,
    same_values,
    trial_points,
)
from gradlab.subject.tensors.batching.sets import Sets
from gradlab.subject.tensors.batching.stacks import (
    CLEARLY,
    FEWEST,
    SHORT,
    TRIAL,
    Plan,
    chunk,
    copied,
    mapped,
    plans_with_copies,
    vmapped,
)
from gradlab.subject.tensors.incremental.differing import OtherUseError
from gradlab.subject.tensors.incremental.displaced_entries import one_entry, suitable
from gradlab.subject.tensors.values import real_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = ["Batches"]

_LONGER = 8  # times the rows of a trial: so much work is worth another one
_WORTH_A_TRIAL = 24  # rows of one input asked for: fewer are done before a trial is
_ENTRIES = 256  # displacements without copies in one batch, at least
_FILLED = 2**18  # numbers that such a batch may fill at once: 2 MiB, as caches are
_MOST_ENTRIES = 4096  # displacements in one batch; more gain nothing
_LONG_TRIAL = 512  # rows of a trial without copies, where thousands will follow
_SAMPLED = 1024  # of so many displacements one is done a second time, by itself


class Batches:
    """Chooses, for each input of a subject, batches or a loop; and does it."""

    def __init__(self, subject: TorchSubject) -> None:
        self._subject = subject
        self.sets = Sets(subject).values  # many coordinates displaced together
        self._plans: dict[int, Plan] = {}
        self._asked: dict[int, int] = {}  # rows wanted so far, while there is no plan
        self._kept: tuple[tuple[int, int], Any, Any] | None = None

    def worthwhile(self, which: int, count: int) -> bool:
        """Whether so many rows of an input go in batches.

        A machine that was busy during the trial gets another one before a long job.
        """
        if count < 2:
            return False
        if which not in self._plans:
            self._asked[which] = asked = self._asked.get(which, 0) + count
            if asked < _WORTH_A_TRIAL:
                return False
        plan = self._plan(which)
        if count > _LONGER * plan.slower > 0:
            plan = self._trial(which, self._candidates(which), 2 * plan.slower)
            self._plans[which] = plan
        return plan.batched and count * plan.single >= SHORT

    def size(self, which: int) -> int:
        """Return the number of rows that go together; 1 where a loop is better."""
        plan = self._plan(which)
        return plan.entries or chunk(self._subject, which) if plan.batched else 1

    def __getstate__(self) -> dict[str, Any]:
        """Leave the kept copies behind: what was decided travels, they do not."""
        return {**self.__dict__, "_kept": None}

    def may_be(self, which: int, count: int) -> bool:
        """Whether so many rows may go in batches: where it is not known, say yes."""
        known = which in self._plans or count < _WORTH_A_TRIAL
        return self.worthwhile(which, count) if known else True

    def first_rows(
        self,
        which: int,
        positions: NDArray[np.intp],
        displacements: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Evaluate the first rows that are wanted of an input: they are its trial.

        Returns
        -------
        tuple or None
            As `rows`; None where a plan is known, these are too few for a trial, or it
            spoke for a loop.
        """
        if which in self._plans or len(positions) < _WORTH_A_TRIAL:
            return None
        begun: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        self._plans[which] = plan = self._trial(
            which,
            self._candidates(which),
            wanted=(np.asarray(positions, dtype=np.intp), np.asarray(displacements)),
            begun=begun,
        )
        if not plan.batched:
            return None
        done = len(begun[0][0])
        if done < len(positions):
            begun.append(self.rows(which, positions[done:], displacements[done:]))
        values, taken = (np.concatenate(pair) for pair in zip(*begun, strict=True))
        return values, taken

    def rows(
        self,
        which: int,
        positions: NDArray[np.intp],
        displacements: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Evaluate by the plan; see `gradlab.subject.subject.Subject.rows`."""
        positions = np.asarray(positions, dtype=np.intp)
        displacements = np.asarray(displacements, dtype=np.float64)
        plan = self._plan(which)
        if not plan.batched or not len(positions):
            return looped(self._subject, which, positions, displacements)
        parts = []
        size = plan.entries or chunk(self._subject, which)
        for start in range(0, len(positions), size):
            piece = positions[start : start + size], displacements[start : start + size]
            try:
                part = self._batch(which, *piece, plan)
            except Exception as cause:  # noqa: BLE001 - one bad row may fail all
                if out_of_memory(cause) and chunk(self._subject, which) > 1:
                    self._subject.chunk_bytes //= 4
                    return self.rows(which, positions, displacements)
                part = looped(self._subject, which, *piece)
            parts.append(part)
        values, taken = (np.concatenate(pair) for pair in zip(*parts, strict=True))
        if plan.entries and not self._sampled(which, positions, displacements, values):
            self._plans[which] = self._trial(which, self._candidates(which)[1:])
            return self.rows(which, positions, displacements)
        return values, taken

    def _sampled(
        self,
        which: int,
        positions: NDArray[np.intp],
        displacements: NDArray[np.float64],
        values: NDArray[np.float64],
    ) -> bool:
        """Whether single evaluations, here and there, come to the same."""
        rng = np.random.default_rng([which, len(positions), int(positions[0])])
        some = rng.integers(len(positions), size=1 + len(positions) // _SAMPLED)
        expected, _ = looped(self._subject, which, positions[some], displacements[some])
        return same_values(self._subject, expected, values[some])

    def _candidates(self, which: int) -> list[Plan]:
        """Ways to batch an input; none where it cannot be done at all."""
        subject, plans = self._subject, plans_with_copies(self._subject, (which,))
        if plans and suitable(subject.cells[which].values) and not subject.needs_grad:
            plans.insert(0, Plan(batched=True, entries=_ENTRIES))
        return plans

    def _batch(
        self,
        which: int,
        positions: NDArray[np.intp],
        displacements: NDArray[np.float64],
        plan: Plan,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """One call of vmap over copies of one input, each perturbed in one place."""
        import torch

        if plan.entries:
            return self._batch_of_entries(which, positions, displacements, plan)
        count = len(positions)
        with torch.no_grad():
            stack, flat = self._kept_copies(which, count)
            rows = torch.arange(count, device=flat.device)
            columns = torch.tensor(positions, device=flat.device)
            old = flat[rows, columns]
            steps = torch.tensor(displacements, device=flat.device)
            flat[rows, columns] = (old.double() + steps).to(flat.dtype)
            taken = real_numbers(flat[rows, columns]) - real_numbers(old)
        kept, self._kept = self._kept, None  # not to be used again if this fails
        version = stack._version  # noqa: SLF001 - torch's only mark of a change
        values = mapped(self._subject, {which: stack}, plan)
        if stack._version == version:  # noqa: SLF001 - as above
            with torch.no_grad():
                flat[rows, columns] = old
            self._kept = kept
        return values, taken

    def _batch_of_entries(
        self,
        which: int,
        positions: NDArray[np.intp],
        displacements: NDArray[np.float64],
        plan: Plan,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """One call of vmap over displacements of single entries, without copies."""
        import torch

        cell = self._subject.cells[which]
        values, device = cell.tensor(), cell.values.device
        places = np.unravel_index(positions, cell.variable.shape)
        row, column = (torch.from_numpy(place).to(device) for place in places)
        old = cell.point()[positions]
        taken = (old + displacements) - old
        steps = torch.from_numpy(taken).to(device)
        sizes: list[int] = []

        def single(row: Any, column: Any, step: Any) -> tuple[Any, ...]:
            given = [part.tensor() for part in self._subject.cells]

            def call(stand_in: Any) -> tuple[Any, ...]:
                given[which] = stand_in
                return self._subject.observed(given).tensors

            return one_entry(values, row, column, step, call, sizes)

        found = vmapped(self._subject, single, (row, column, steps))
        if not np.isfinite(found).all():  # what is infinite cannot be changed by a bit
            raise OtherUseError
        filled = max(1, *sizes, found.shape[1])
        plan.entries = min(max(_ENTRIES, _FILLED // filled), _MOST_ENTRIES)
        return found, taken

    def _kept_copies(self, which: int, count: int) -> tuple[Any, Any]:
        """Give copies as `copied` does, those of the last batch where they serve.

        Only one number of each copy is changed and put back, so that large weights
        are not written anew for every batch.
        """
        version = self._subject.cells[which].values._version  # noqa: SLF001 - as above
        key = which, version
        kept = self._kept
        if kept is None or kept[0] != key or len(kept[1]) < count:
            self._kept = kept = (key, *copied(self._subject, which, count))
        return kept[1][:count], kept[2][:count]

    def _plan(self, which: int) -> Plan:
        if which not in self._plans:
            self._plans[which] = self._trial(which, self._candidates(which))
        return self._plans[which]

    def _trial(
        self,
        which: int,
        plans: Sequence[Plan],
        rows: int = TRIAL,
        *,
        wanted: tuple[NDArray[np.intp], NDArray[np.float64]] | None = None,
        begun: list[tuple[NDArray[np.float64], NDArray[np.float64]]] | None = None,
    ) -> Plan:
        """Compare some rows with single evaluations, in value and in time.

        Of those that are `wanted`, where there are any; what a batch gave of the first
        of them is put into `begun`.
        """
        subject = self._subject
        cell = subject.cells[which]
        loop = Plan(batched=False)
        total = cell.variable.coordinates if wanted is None else len(wanted[0])
        if cell.variable.coordinates < FEWEST or not plans:
            return loop
        few = count = min(rows, total, chunk(self._subject, which))
        if plans[0].entries:  # thousands in a batch: what one costs shows in hundreds
            most = total // _LONGER if wanted is None else total
            count = max(count, min(_LONG_TRIAL, most))
        positions, steps = wanted or trial_points(subject, which, count)
        checked = np.unique([0, few // 2, few - 1, count - 1])
        found, times = [], []
        for row in checked:
            one = slice(row, row + 1)
            start = time.perf_counter()
            found.append(looped(self._subject, which, positions[one], steps[one])[0])
            times.append(time.perf_counter() - start)
        expected, single = np.concatenate(found), min(times)
        if np.isnan(expected).all():
            return loop
        for plan in plans:
            size = count if plan.entries else few  # or so many copies would be made
            seen = checked < size
            points = positions[:size], steps[:size]
            try:
                for _ in range(3):  # a machine may be busy just then
                    start = time.perf_counter()
                    part = self._batch(which, *points, plan)
                    seconds = time.perf_counter() - start
                    if not same_values(subject, expected[seen], part[0][checked[seen]]):
                        break
                    if seconds < CLEARLY * size * single:
                        if begun is not None:
                            begun.append(part)
                        return dataclasses.replace(plan, single=single)
                else:
                    return Plan(batched=False, slower=rows)
            except Exception:  # noqa: BLE001, S112 - vmap raises many types; loop
                continue
        return loop
