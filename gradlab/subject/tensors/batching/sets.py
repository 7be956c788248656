"""Evaluations of torch subjects with many coordinates displaced together."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from gradlab.subject.subject import side_by_side
from gradlab.subject.tensors.batching.loops import looped_sets, same_values
from gradlab.subject.tensors.batching.stacks import (
    CLEARLY,
    FEWEST,
    SHORT,
    Plan,
    chunk,
    copied,
    mapped,
    plans_with_copies,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = ["Sets"]


class Sets:
    """Chooses, for each combination of inputs, a batch or a loop; and does it."""

    def __init__(self, subject: TorchSubject) -> None:
        self._subject = subject
        self._plans: dict[tuple[int, ...], Plan] = {}
        self._tried: dict[tuple[int, ...], int] = {}  # length that was too short to pay

    def values(
        self, inputs: tuple[int, ...], displacements: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Evaluate with many coordinates displaced together, shape (count, rows).

        In one batch where that is possible and a loop would take longer; rows where
        the function raises are nan.
        """
        plan = self._plans.get(inputs)
        longer = len(displacements) > 2 * self._tried.get(inputs, len(displacements))
        if plan is None or (longer and not plan.batched):
            return self._first(inputs, displacements)
        if not plan.batched or len(displacements) < FEWEST:
            return looped_sets(self._subject, inputs, displacements)
        try:
            return self._batch(inputs, displacements, plan)
        except Exception:  # noqa: BLE001 - one bad row may fail a whole batch
            return looped_sets(self._subject, inputs, displacements)

    def _first(
        self, inputs: tuple[int, ...], displacements: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Decide between batch and loop by the time of one evaluation, and check it."""
        count = len(displacements)
        if count < FEWEST:
            return looped_sets(self._subject, inputs, displacements)
        ends = displacements[[0, count - 1]]
        start = time.perf_counter()
        expected = looped_sets(self._subject, inputs, ends)
        single = (time.perf_counter() - start) / 2
        if single * count < SHORT:
            rest = looped_sets(self._subject, inputs, displacements[1:-1])
            return np.concatenate([expected[:1], rest, expected[1:]])
        loop = Plan(batched=False)
        self._plans[inputs] = loop
        for plan in plans_with_copies(self._subject, inputs):
            try:
                start = time.perf_counter()
                values = self._batch(inputs, displacements, plan)
                seconds = time.perf_counter() - start
            except Exception:  # noqa: BLE001, S112 - vmap raises many types; loop
                continue
            if same_values(self._subject, expected, values[[0, count - 1]]):
                faster = seconds < CLEARLY * single * count
                self._plans[inputs] = plan if faster else loop
                self._tried[inputs] = count
                return values
        return looped_sets(self._subject, inputs, displacements)

    def _batch(
        self, inputs: tuple[int, ...], displacements: NDArray[np.float64], plan: Plan
    ) -> NDArray[np.float64]:
        import torch

        parts = []
        size = chunk(self._subject, *inputs)
        cells = self._subject.cells
        slots = side_by_side(cells[k].variable.coordinates for k in inputs)
        for start in range(0, len(displacements), size):
            piece = torch.from_numpy(displacements[start : start + size])
            stacks = {}
            with torch.no_grad():
                for which, slot in zip(inputs, slots, strict=True):
                    values = cells[which].own().detach()
                    if values.dtype is torch.float64:
                        moved = values.reshape(1, -1) + piece[:, slot].to(values.device)
                        stacks[which] = moved.view(len(piece), *values.shape)
                        continue
                    stacks[which], flat = copied(self._subject, which, len(piece))
                    flat.copy_(flat.double().add_(piece[:, slot].to(flat.device)))
            parts.append(mapped(self._subject, stacks, plan))
        return np.concatenate(parts) if len(parts) > 1 else parts[0]
