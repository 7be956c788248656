"""From blocks in real coordinates to the comparisons that a report shows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.comparison import Comparison
from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.evidence import Jump, Met, Part
from gradlab.labels import few_of
from gradlab.late import is_made
from gradlab.pipeline.blocks import label_of
from gradlab.subject.numpy_values import as_complex
from gradlab.subject.subject import block_slices, is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from gradlab.diagnosis.evidence import Crowd, Evidence
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Outcome
    from gradlab.pipeline.plan import Plan
    from gradlab.subject.subject import Subject

__all__ = [
    "Seen",
    "as_parts",
    "comparisons_of",
    "left_out",
    "met_on_the_way",
    "unseen_by_optimisers",
]

_NAMED = 4  # inputs that a remark lists by name
# Relative: round-off that hides the factor of an entry; in roundings of what computes
# it, for half precision has no digits of its own to lose.
_ROUGH, _DIGITS = 1e-3, 16.0


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What was compared, whichever way, and the evidence for diagnosis."""

    comparisons: tuple[Comparison, ...]
    evidence: Evidence
    remarks: tuple[str, ...]
    partial: bool = False


def comparisons_of(
    subject: Subject,
    blocks: list[Block],
    *,
    method: Callable[[str], str],
    coverage: str,
) -> tuple[Comparison, ...]:
    """Cut every block at the outputs, and join the two halves of complex entries.

    Parameters
    ----------
    method
        From the name of an input to that of its method.
    """
    return tuple(
        _comparison(
            subject,
            block,
            output,
            rows,
            method=method(block.name),
            coverage=coverage,
        )
        for output, rows in enumerate(block_slices(subject.outputs))
        for block in blocks
    )


def _comparison(
    subject: Subject,
    block: Block,
    output: int,
    rows: slice,
    *,
    method: str,
    coverage: str,
) -> Comparison:
    variable = subject.inputs[block.which]
    columns: NDArray[np.intp] | None = block.positions
    looked = int(block.looked.sum())
    if variable.is_complex:
        columns = block.positions[0::2] // 2
        looked = (looked + 1) // 2
    if columns is not None and len(columns) == variable.size:
        columns = None

    def value(matrix: NDArray[np.float64]) -> NDArray[Any]:
        part = matrix[rows]
        return as_complex(part) if variable.is_complex else part

    def size(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        part = matrix[rows]
        return np.hypot(part[:, 0::2], part[:, 1::2]) if variable.is_complex else part

    def late(name: str, cut: Callable[[Any], NDArray[Any]]) -> Any:
        if is_made(block, name):
            return cut(getattr(block, name))
        return lambda: cut(getattr(block, name))

    def worst(matrix: NDArray[Any]) -> NDArray[Any]:
        part = matrix[rows]
        joined = (
            np.maximum(part[:, 0::2], part[:, 1::2]) if variable.is_complex else part
        )
        # rows that are all the same may share their memory
        return joined if joined.strides[:1] == (0,) else np.ascontiguousarray(joined)

    found = Comparison(
        output=subject.outputs[output],
        input=variable,
        analytic=late("analytic", value),
        numeric=late("value", value),
        numeric_error=late("error", size),
        allowed=late("allowed", size),
        verdicts=worst(block.verdicts),
        step=worst(block.step),
        method=f"{method}, adaptive" if looked and method == "central" else method,
        coverage="full" if columns is None else coverage,
        columns=columns,
        accepted=worst(block.accepted),
        escalated=looked,
    )
    if block.blur is None or (found.verdicts == Verdict.UNDECIDED.value).any():
        return found
    hidden = float(np.max(block.blur[rows], initial=0.0))
    return dataclasses.replace(found, stated_power=max(found.power, hidden))


def as_parts(subject: Subject, blocks: list[Block]) -> tuple[Part, ...]:
    """Hand the blocks to diagnosis."""
    return tuple(
        Part(
            which=block.which,
            positions=block.positions,
            analytic=_formula(subject, block),
            numeric=_shared(block, "value"),
            error=_shared(block, "error"),
            verdicts=block.verdicts,
            kinds=block.kinds,
            left=block.left,
            right=block.right,
            accepted=block.accepted,
            complete=len(block.positions) == subject.inputs[block.which].coordinates,
            is_wrong=block.accused,
            pattern=block.pattern if block.settled else None,
        )
        for block in blocks
    )


def _formula(subject: Subject, block: Block) -> Any:
    """Give the analytic side that a mistake is looked for in; it is made once.

    A slope that short arithmetic rounds to zero breaks the one factor of all others, so
    it is the one of float64 where round-off leaves few digits of what is wrong, but for
    what is right in float64: there round-off is the mistake.
    """
    if block.precise is None or not block.accused:
        return _shared(block, "analytic")
    precise = block.precise

    def made() -> NDArray[np.float64]:
        own = block.analytic
        with np.errstate(all="ignore"):
            right = block.gap <= np.maximum(block.allowed, SAFETY * block.error)
            least = max(_ROUGH, _DIGITS * subject.epsilon)
            rough = np.abs(own - precise) > least * np.abs(precise)
        rough &= np.isfinite(precise) & ~(block.wrong & right)
        return np.where(rough, precise, own)

    return made


def _shared(block: Block, name: str) -> Any:
    """Give a matrix of a block, or what makes it; it is made once."""
    if is_made(block, name):
        return getattr(block, name)
    return lambda: getattr(block, name)


def left_out(subject: Subject) -> tuple[str, ...]:
    """Say what was not compared: inputs without grad, gradients of no input.

    Returns
    -------
    tuple of str
        One remark, or none.
    """
    if not is_torch_subject(subject):
        names = subject.analytic.unread if subject.analytic is not None else ()
        if not names:
            return ()
        told = "the gradient of {}, which is no input"
        if len(names) > 1:
            told = "the gradients of {}, which are no inputs"
        return (f"not compared: {told.format(few_of(names, _NAMED))}",)
    names = getattr(getattr(subject.program, "arguments", None), "left_out", ())
    if not names:
        return ()
    verb = "do" if len(names) > 1 else "does"
    told = f"{few_of(names, _NAMED)}, which {verb} not require grad"
    return (f"not compared: {told} (wrt= asks for it)",)


def unseen_by_optimisers(subject: Subject, meter: Meter) -> tuple[str, ...]:
    """Say which trainable tensors a module keeps that are no parameters of it.

    Costs one evaluation where it keeps any, to see whether the graph leads there.

    Returns
    -------
    tuple of str
        One remark, or none.
    """
    if not is_torch_subject(subject):
        return ()
    module = getattr(subject.program, "module", None)
    if module is None:
        return ()
    from gradlab.subject.tensors.unregistered import reached, unregistered

    kept = unregistered(module)
    if not kept:
        return ()
    try:
        meter.spend(1)
        values, _ = subject.with_leaves(range(len(subject.cells)))
        names = reached(kept, subject.evaluate(values, grad=True))
    except Exception:  # noqa: BLE001 - the user's code, or no budget left for it
        return ()
    if not names:
        return ()
    them, ones = ("them", "parameters") if len(names) > 1 else ("it", "a parameter")
    told = (
        f"not compared: {few_of(names, _NAMED)}, which the module does not hold as "
        f"{ones}: an optimiser that is given its parameters never moves {them} "
        f"(nn.ModuleList, nn.ParameterList, nn.Parameter)"
    )
    return (told,)


def met_on_the_way(
    subject: Subject,
    plan: Plan,
    meter: Meter,
    outcome: Outcome | None,
    crowd: Crowd | None = None,
) -> Met:
    """List for diagnosis what was met while numbers were compared.

    Parameters
    ----------
    outcome
        None where nothing was compared entry by entry.
    crowd
        Kinks that probes met on their directions.
    """
    met = Met(
        raised=meter.raised,
        first_exception=repr(meter.first_exception),
        nearest=meter.nearest,
        own_steps=tuple(
            variable.name
            for variable in subject.inputs
            if not plan.finds_steps(variable.name)
        ),
        crowd=crowd,
    )
    if outcome is None:
        return met
    return dataclasses.replace(
        met,
        unsteady=0.0 if outcome.unsteady is None else float(outcome.unsteady.max()),
        overruled=tuple(outcome.overruled),
        rough=tuple(outcome.rough),
        rounded=tuple(
            block.name
            for block in outcome.blocks
            if block.grain is not None
            and (block.verdicts == Verdict.UNDECIDED.value).any()
        ),
        early=outcome.early,
        jump=_first_jump(subject, outcome.blocks),
    )


def _first_jump(subject: Subject, blocks: Iterable[Block]) -> Jump | None:
    for block in blocks:
        if block.jump is not None:
            height, away, column = block.jump
            return Jump(label_of(subject, block, column), height, away)
    return None
