"""Many perturbed evaluations in one call, by ``torch.func.vmap``.

Batching is worth it for small inputs and loses for large ones, since every perturbed
copy costs bandwidth; some functions cannot be batched, and some compute slightly other
numbers when they are, which finite differences would magnify. So every input gets a
short trial: same values to a few units of round-off, and less time per evaluation, or
one at a time.
"""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.torch_devices import copies, out_of_memory
from gradlab.subject.torch_entries import OtherUseError, one_entry, suitable
from gradlab.subject.torch_loops import (
    looped,
    looped_sets,
    same_values,
    trial_points,
)
from gradlab.subject.torch_outputs import stack_of_rows
from gradlab.subject.torch_values import real_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.torch_subjects import TorchSubject

__all__ = ["Batches", "Plan"]

_TRIAL = 64  # rows of a trial: enough to spread vmap's overhead
_LONGER = 8  # times the rows of a trial: so much work is worth another one
_WORTH_A_TRIAL = 24  # rows of one input asked for: fewer are done before a trial is
_CLEARLY = 0.8  # of the time of a loop, or batches are not worth their memory
_FEWEST = 4  # with fewer coordinates than this a loop is over before a trial is
_SHORT = 1e-3  # seconds; a loop as short as this is over before a batch is ready
_ENTRIES = 256  # displacements without copies in one batch, at least
_FILLED = 2**18  # numbers that such a batch may fill at once: 2 MiB, as caches are
_MOST_ENTRIES = 4096  # displacements in one batch; more gain nothing
_LONG_TRIAL = 512  # rows of a trial without copies, where thousands will follow
_SAMPLED = 1024  # of so many displacements one is done a second time, by itself


@dataclasses.dataclass(slots=True)
class Plan:
    """How one input is to be perturbed."""

    batched: bool
    entries: int = 0  # together, in products and without copies: see torch_entries
    with_buffers: bool = False  # a module writes to its buffers: batch them as well
    slower: int = 0  # rows of a trial in which batches were right, but took longer
    single: float = math.inf  # seconds of one evaluation by itself, where known


class Batches:
    """Chooses, for each input of a subject, batches or a loop; and does it."""

    def __init__(self, subject: TorchSubject) -> None:
        self._subject = subject
        self._plans: dict[int, Plan] = {}
        self._plans_of_sets: dict[int, Plan] = {}
        self._tried: dict[int, int] = {}  # length of the set that was too short to pay
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
        return plan.batched and count * plan.single >= _SHORT

    def size(self, which: int) -> int:
        """Return the number of rows that go together; 1 where a loop is better."""
        plan = self._plan(which)
        return plan.entries or self._chunk(which) if plan.batched else 1

    def __getstate__(self) -> dict[str, Any]:
        """Leave the kept copies behind: what was decided travels, they do not."""
        return {**self.__dict__, "_kept": None}

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
        size = plan.entries or self._chunk(which)
        for start in range(0, len(positions), size):
            piece = positions[start : start + size], displacements[start : start + size]
            try:
                part = self._batch(which, *piece, plan)
            except Exception as cause:  # noqa: BLE001 - one bad row may fail all
                if out_of_memory(cause) and self._chunk(which) > 1:
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

    def sets(
        self, which: int, displacements: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Evaluate with many coordinates displaced together, shape (count, rows).

        In one batch where that is possible and a loop would take longer; rows where
        the function raises are nan.
        """
        plan = self._plans_of_sets.get(which)
        longer = len(displacements) > 2 * self._tried.get(which, len(displacements))
        if plan is None or (longer and not plan.batched):
            return self._first_sets(which, displacements)
        if not plan.batched or len(displacements) < _FEWEST:
            return looped_sets(self._subject, which, displacements)
        try:
            return self._batch_of_sets(which, displacements, plan)
        except Exception:  # noqa: BLE001 - one bad row may fail a whole batch
            return looped_sets(self._subject, which, displacements)

    def _first_sets(
        self, which: int, displacements: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Decide between batch and loop by the time of one evaluation, and check it."""
        count = len(displacements)
        ends = displacements[[0, count - 1]]
        start = time.perf_counter()
        expected = looped_sets(self._subject, which, ends)
        single = (time.perf_counter() - start) / 2
        if single * count < _SHORT or count < _FEWEST:
            rest = looped_sets(self._subject, which, displacements[1:-1])
            return np.concatenate([expected[:1], rest, expected[1 : min(count, 2)]])
        loop = Plan(batched=False)
        self._plans_of_sets[which] = loop
        for plan in (p for p in self._candidates(which) if not p.entries):
            try:
                start = time.perf_counter()
                values = self._batch_of_sets(which, displacements, plan)
                seconds = time.perf_counter() - start
            except Exception:  # noqa: BLE001, S112 - vmap raises many types; loop
                continue
            if same_values(self._subject, expected, values[[0, count - 1]]):
                faster = seconds < _CLEARLY * single * count
                self._plans_of_sets[which] = plan if faster else loop
                self._tried[which] = count
                return values
        return looped_sets(self._subject, which, displacements)

    def _batch_of_sets(
        self, which: int, displacements: NDArray[np.float64], plan: Plan
    ) -> NDArray[np.float64]:
        import torch

        parts = []
        size = self._chunk(which)
        for start in range(0, len(displacements), size):
            piece = torch.from_numpy(displacements[start : start + size])
            with torch.no_grad():
                stack, flat = self._copies(which, len(piece))
                flat.copy_(flat.double() + piece.to(flat.device))
            parts.append(self._mapped(which, stack, plan))
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _candidates(self, which: int) -> list[Plan]:
        """Ways to batch an input; none where it cannot be done at all."""
        subject = self._subject
        if any(part.pattern for part in subject.cells) or self._chunk(which) < _FEWEST:
            return []
        if subject.mutated or not subject.outputs:
            return []
        plans = [Plan(batched=True)]
        if suitable(subject.cells[which].values) and not subject.needs_grad:
            plans.insert(0, Plan(batched=True, entries=_ENTRIES))
        if subject.program.buffers:
            plans.append(Plan(batched=True, with_buffers=True))
        return plans

    def _chunk(self, which: int) -> int:
        bound = self._subject.chunk_bytes
        return copies(self._subject.cells[which].values, bound, _TRIAL)

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
        values = self._mapped(which, stack, plan)
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

        found = self._vmapped(single, (row, column, steps))
        if not np.isfinite(found).all():  # what is infinite cannot be changed by a bit
            raise OtherUseError
        filled = max(1, *sizes, found.shape[1])
        plan.entries = min(max(_ENTRIES, _FILLED // filled), _MOST_ENTRIES)
        return found, taken

    def _kept_copies(self, which: int, count: int) -> tuple[Any, Any]:
        """Give copies as `_copies` does, those of the last batch where they serve.

        Only one number of each copy is changed and put back, so that large weights
        are not written anew for every batch.
        """
        version = self._subject.cells[which].values._version  # noqa: SLF001 - as above
        key = which, version
        kept = self._kept
        if kept is None or kept[0] != key or len(kept[1]) < count:
            self._kept = kept = (key, *self._copies(which, count))
        return kept[1][:count], kept[2][:count]

    def _copies(self, which: int, count: int) -> tuple[Any, Any]:
        """Stack of copies of one input, and a view of their real coordinates."""
        import torch

        values = self._subject.cells[which].values.detach()
        stack = values.expand(count, *values.shape)
        # contiguous: a batch of strided copies would be spread over memory
        stack = stack.clone(memory_format=torch.contiguous_format)
        real = torch.view_as_real(stack) if stack.dtype.is_complex else stack
        return stack, real.view(count, -1)

    def _mapped(self, which: int, stack: Any, plan: Plan) -> NDArray[np.float64]:
        """One call of vmap over a stack of values of one input."""
        subject = self._subject
        count = len(stack)
        others = [part.tensor() for part in subject.cells]
        buffers: dict[str, Any] = {}
        if plan.with_buffers:
            for name, buffer in subject.program.buffers.items():
                buffers[name] = buffer.expand(count, *buffer.shape).clone()

        def single(value: Any, held: Mapping[str, Any] | None = None) -> Any:
            values: list[Any] = list(others)
            values[which] = value
            return subject.observed(values, held).tensors

        # an empty dict costs vmap as much time as a small function takes
        return self._vmapped(single, (stack, buffers) if buffers else (stack,))

    def _vmapped(
        self, single: Callable[..., Any], batches: tuple[Any, ...]
    ) -> NDArray[np.float64]:
        """Map a function of one evaluation over batches: values, (count, rows)."""
        import torch

        subject = self._subject
        if subject.reset is not None:
            subject.reset()
        versions = [part.values._version for part in subject.cells]  # noqa: SLF001 - torch's only mark of a change
        with (
            warnings.catch_warnings(),
            torch.set_grad_enabled(bool(subject.needs_grad)),
        ):
            warnings.simplefilter("ignore")  # slow batching rules announce themselves
            # with the random state put back, one draw for all is what a loop does
            randomness = "error" if subject.reset is None else "same"
            mapped = torch.func.vmap(single, randomness=randomness)
            outputs: Sequence[Any] = mapped(*batches)
        if versions != [part.values._version for part in subject.cells]:  # noqa: SLF001 - as above
            subject.undo_writes(versions)
            msg = "a batched evaluation wrote to another input"
            raise RuntimeError(msg)
        return stack_of_rows(outputs, len(batches[0]))

    def _plan(self, which: int) -> Plan:
        if which not in self._plans:
            self._plans[which] = self._trial(which, self._candidates(which))
        return self._plans[which]

    def _trial(self, which: int, plans: Sequence[Plan], rows: int = _TRIAL) -> Plan:
        """Compare some rows with single evaluations, in value and in time."""
        subject = self._subject
        cell = subject.cells[which]
        loop = Plan(batched=False)
        total = cell.variable.coordinates
        if total < _FEWEST or not plans:
            return loop
        count = min(rows, total, self._chunk(which))
        if plans[0].entries:  # thousands in a batch: what one costs shows in hundreds
            count = max(count, min(_LONG_TRIAL, total // _LONGER))
        positions, steps = trial_points(subject, which, count)
        checked = np.unique([0, count // 2, count - 1])
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
            try:
                for _ in range(3):  # a machine may be busy just then
                    start = time.perf_counter()
                    values, _ = self._batch(which, positions, steps, plan)
                    seconds = time.perf_counter() - start
                    if not same_values(subject, expected, values[checked]):
                        break
                    if seconds < _CLEARLY * count * single:
                        return dataclasses.replace(plan, single=single)
                else:
                    return Plan(batched=False, slower=rows)
            except Exception:  # noqa: BLE001, S112 - vmap raises many types; loop
                continue
        return loop
