"""Stacks of displaced copies of inputs, through one call of ``torch.func.vmap``."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from gradlab.subject.tensors.batching.devices import copies
from gradlab.subject.tensors.batching.levels import map_forward, unannounced
from gradlab.subject.tensors.outputs import stack_of_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = [
    "CLEARLY",
    "FEWEST",
    "SHORT",
    "TRIAL",
    "Plan",
    "chunk",
    "copied",
    "mapped",
    "plans_with_copies",
    "vmapped",
]

TRIAL = 64  # rows of a trial: enough to spread vmap's overhead
CLEARLY = 0.8  # of the time of a loop, or batches are not worth their memory
SHORT = 1e-3  # seconds; a loop as short as this is over before a batch is ready
FEWEST = 4  # with fewer coordinates than this a loop is over before a trial is


@dataclasses.dataclass(slots=True)
class Plan:
    """How one input is to be perturbed."""

    batched: bool
    entries: int = 0  # together, without copies of the input: see `displaced_entries`
    with_buffers: bool = False  # a module writes to its buffers: batch them as well
    slower: int = 0  # rows of a trial in which batches were right, but took longer
    single: float = math.inf  # seconds of one evaluation by itself, where known


def plans_with_copies(subject: TorchSubject, inputs: tuple[int, ...]) -> list[Plan]:
    """Ways to batch copies of some inputs; none where it cannot be done at all."""
    if any(part.pattern for part in subject.cells) or chunk(subject, *inputs) < FEWEST:
        return []
    if subject.mutated or not subject.outputs:
        return []
    plans = [Plan(batched=True)]
    if subject.program.buffers:
        plans.append(Plan(batched=True, with_buffers=True))
    return plans


def chunk(subject: TorchSubject, *inputs: int) -> int:
    """Choose how many copies of some inputs go into a batch."""
    bound = subject.chunk_bytes
    values = [subject.cells[which].own() for which in inputs]
    return min(copies(each, bound // len(values), TRIAL) for each in values)


def copied(subject: TorchSubject, which: int, count: int) -> tuple[Any, Any]:
    """Stack of copies of one input, and a view of their real coordinates."""
    import torch

    values = subject.cells[which].own().detach()
    stack = values.expand(count, *values.shape)
    # contiguous: a batch of strided copies would be spread over memory
    stack = stack.clone(memory_format=torch.contiguous_format)
    real = torch.view_as_real(stack) if stack.dtype.is_complex else stack
    return stack, real.view(count, -1)


def mapped(
    subject: TorchSubject, stacks: Mapping[int, Any], plan: Plan
) -> NDArray[np.float64]:
    """One call of vmap over stacks of values of some inputs."""
    inputs = tuple(stacks)
    count = len(stacks[inputs[0]])
    others = [part.tensor() for part in subject.cells]
    buffers: dict[str, Any] = {}
    if plan.with_buffers:
        for name, buffer in subject.program.buffers.items():
            buffers[name] = buffer.expand(count, *buffer.shape).clone()

    def single(*given: Any) -> tuple[Any, ...]:
        values: list[Any] = list(others)
        for which, value in zip(inputs, given, strict=False):
            values[which] = value
        own = dict(zip(buffers, given[len(inputs) :], strict=True)) or None
        return subject.observed(values, own).tensors

    return vmapped(subject, single, (*stacks.values(), *buffers.values()))


def vmapped(
    subject: TorchSubject, single: Callable[..., Any], batches: tuple[Any, ...]
) -> NDArray[np.float64]:
    """Map a function of one evaluation over batches: values, (count, rows)."""
    import torch

    if subject.reset is not None:
        subject.reset()
    versions = [part.values._version for part in subject.cells]  # noqa: SLF001 - torch's only mark of a change
    with unannounced(), torch.set_grad_enabled(bool(subject.needs_grad)):
        # with the random state put back, one draw for all is what a loop does
        randomness = "error" if subject.reset is None else "same"
        outputs = map_forward(single, batches, randomness=randomness)
    if versions != [part.values._version for part in subject.cells]:  # noqa: SLF001 - as above
        subject.undo_writes(versions)
        msg = "a batched evaluation wrote to another input"
        raise RuntimeError(msg)
    return stack_of_rows(outputs, len(batches[0]))
