"""A guilty layer, checked by itself on the inputs and cotangents it really saw.

The audit says which layer is wrong; its own Jacobian says how. One recorded run gives
the inputs, the state and the incoming gradient of the call; then the layer is a subject
like any other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from gradlab.building import Sides
from gradlab.comparison.tolerance import Tolerance
from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.differentiation.metering.budget import Budget
from gradlab.differentiation.metering.meter import INTERRUPTED, Meter
from gradlab.differentiation.method import Auto
from gradlab.errors import GradlabError, InputError
from gradlab.labels import few_of
from gradlab.localisation.layers.audited import LayerState
from gradlab.localisation.layers.replaying.alone import (
    alone,
    any_asked,
    one_sample,
    weighted_by_cotangents,
)
from gradlab.pipeline.examining import examine
from gradlab.pipeline.plan import Call, Plan
from gradlab.report import Live
from gradlab.subject.state_guard import StateGuard
from gradlab.subject.subject import input_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gradlab.localisation.layers.audited import LayerAudit, LayerMistake, LayerRow
    from gradlab.localisation.layers.recording.frames import Frame
    from gradlab.report import Report

__all__ = ["LooksAlone", "explained", "local_report"]

_FEW = 500  # coordinates of a slight mistake that is looked at by itself
_EVALUATIONS = 4_000  # a look at one layer must not cost more than the check itself
_NAMED = 4  # inputs of a layer that is wrong
_WHOLE = 2_000_000  # entries of a local Jacobian that is shown whole


def local_report(
    audit: LayerAudit,
    layer: str,
    *,
    call: int | None = None,
    plan: Plan | None = None,
    most: int | None = None,
    looks: LooksAlone | None = None,
) -> Report:
    """Check one layer of an audited model alone, where the model really called it.

    Parameters
    ----------
    audit
        From `gradlab.blame`, in the process that made it.
    layer
        Name of a row: a submodule ("blocks.7.act"), a custom Function
        ("blocks.7.act:Swish"), "loss", or the class name of the root. A container is
        checked together with what is inside.
    call
        Which call of it; None takes the first that is wrong, else the first.
    plan
        Of the check it belongs to, for tolerance and seed, which wants to know what is
        wrong: one sample of a batch is looked at where that shows it. Default that of
        a plain check, of the whole call.
    most
        Coordinates beyond which it is not looked at.
    looks
        Those of this audit: what is among them is not measured again.

    Returns
    -------
    Report
        Of the whole local Jacobian, outputs by inputs and parameters. Where that has
        more than two million entries, or takes more than 4000 evaluations, of the
        outputs weighted with the gradient that arrived at them, which is one row; a
        remark says so.

    Raises
    ------
    InputError
        If the audit is not live (loaded from a file), has no such layer, or the layer
        was not called, is another one by now, has nothing to differentiate, or more
        coordinates than `most`.
    SubjectError
        If the layer cannot be run by itself.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh()).double()
    >>> audit = gl.blame(model, torch.ones(1, 3, dtype=torch.float64))
    >>> report = local_report(audit, "1")
    >>> report.verdict.name, report["input"].numeric.shape
    ('AGREES', (2, 2))
    """
    live = _live(audit)
    row = _row_of(audit, layer)
    from gradlab.localisation.layers.recording.record import record
    from gradlab.localisation.layers.recording.recorder import Program
    from gradlab.localisation.layers.recording.state import (
        kept_attributes,
        private_buffers,
        without_fast_paths,
    )
    from gradlab.subject.tensors.calling.uncompiled import uncompiled

    roots = (live.inputs, live.kwargs, live.loss, live.module)
    with (
        StateGuard(*roots) as guard,
        uncompiled(),  # as the audit ran it: else the compiler compiles the recorder
        without_fast_paths(),
        kept_attributes(live.module),
        private_buffers(live.module),
    ):
        frames = record(Program.of(live, guard.generators)).all
        frame = _frame(frames, row, row.call if call is None else call)
        with _entered(frame):
            sample = one_sample(frame) if plan is not None else None
            if sample is not None:
                report = _report(sample, layer, plan, most)
                if report.verdict == Verdict.DISAGREES:
                    return report
                frame.entry.random.put_back()
            known = None if looks is None else looks.known(frame, _local_plan(plan))
            return _report(frame, layer, plan, most) if known is None else known


def _live(audit: LayerAudit) -> Any:
    if audit.live is None:
        raise InputError(
            "this audit was loaded from a file, and has no model to look into; run "
            "gradlab.blame again"
        )
    return audit.live


def _row_of(audit: LayerAudit, layer: str) -> LayerRow:
    """First row of a layer that is wrong, else its first."""
    rows = [row for row in audit.rows if row.name == layer]
    if not rows:
        known = ", ".join(dict.fromkeys(row.name for row in audit.rows))
        raise InputError(f"the audit has no layer {layer!r}; it has {known}")
    return next((row for row in rows if row.state is LayerState.WRONG), rows[0])


def _frame(frames: list[Frame], row: LayerRow, call: int) -> Frame:
    for frame in frames:
        if frame.name == row.name and frame.call == call:
            if frame.type != row.type:
                raise InputError(
                    f"{row.name} was a {row.type} when the model was audited, and is a "
                    f"{frame.type} now; run gradlab.blame again"
                )
            return frame
    times = f" {call + 1} times" if call else ""
    raise InputError(
        f"layer {row.name!r} was not called{times} in this run of the model; there is "
        "nothing to look at"
    )


@contextlib.contextmanager
def _entered(frame: Frame) -> Iterator[None]:
    """Put a layer, and all inside it, in the state in which it was called."""
    from gradlab.localisation.layers.recording.frames import walk
    from gradlab.localisation.layers.recording.state import enter

    with contextlib.ExitStack() as stack:
        seen: set[int] = set()
        for part in walk([frame]):
            if part.kind == "module" and id(part.target) not in seen:
                seen.add(id(part.target))
                stack.enter_context(
                    enter(part.target, part.entry, lambda same: same, rewind=False)
                )
        frame.entry.random.put_back()
        yield


def _report(frame: Frame, layer: str, plan: Plan | None, most: int | None) -> Report:
    from gradlab.subject.tensors.subjects import torch_subject

    fn, inputs, names = alone(frame)
    local = _local_plan(plan)
    if frame.kind == "function" and not any_asked(inputs):
        # else all were, also the times of a solver, of which the model asks no gradient
        raise InputError(f"{layer} is asked for no gradient but those of parameters")
    subject = torch_subject(fn, inputs, names=names)
    total = input_columns(subject.inputs)
    if most is not None and total > most:
        raise InputError(f"{layer} has {total:,} coordinates, more than {most:,}")
    rows = sum(slot.value.numel() for slot in frame.outputs)
    loss: Callable[[Any], Any] | None = None
    remarks: tuple[str, ...] = ()
    if frame.reached and (rows * total > _WHOLE or 2 * total > _EVALUATIONS):
        loss = weighted_by_cotangents(frame)
        subject = torch_subject(fn, inputs, names=names, loss=loss)
        remarks = ("outputs weighted with the gradient that arrived at them",)
    with Meter(Budget(evaluations=_EVALUATIONS)).watching() as meter:
        report = examine(subject, Call(local, meter, (*inputs, fn)))
    place = f"{layer} ({frame.type})"
    sides = Sides(loss=loss, names=names)
    return dataclasses.replace(
        report,
        subject=f"{report.subject}, by itself: {place}",
        seconds=meter.seconds,
        remarks=(*remarks, *report.remarks),
        live=Live(fn=fn, inputs=inputs, sides=sides, plan=local, executor=None),
    )


def _local_plan(plan: Plan | None) -> Plan:
    tolerance = Tolerance() if plan is None else Tolerance(plan.tolerance.rtol)
    return Plan(Auto(), tolerance, "auto", 0 if plan is None else plan.seed)


@contextlib.contextmanager
def _in_double(frame: Frame) -> Iterator[Frame]:
    """Put a layer without others inside in the state in which it was called, wider."""
    from gradlab.localisation.layers.recording.owners import Owners, standing_in
    from gradlab.localisation.layers.recording.state import enter
    from gradlab.localisation.layers.variables import double_of

    def wide(tensor: Any) -> Any:
        return tensor.to(double_of(tensor))

    def own(parameter: Any) -> Any:
        return wide(parameter.detach()).requires_grad_(parameter.requires_grad)

    inputs = [
        dataclasses.replace(slot, value=wide(slot.value)) for slot in frame.inputs
    ]
    with contextlib.ExitStack() as stack:
        if frame.kind == "module":
            pairs = [
                (parameter, functools.partial(own, parameter))
                for parameter in frame.target.parameters()
                if parameter.dtype != double_of(parameter)
            ]
            stack.enter_context(standing_in(Owners(frame.target), pairs))
            stack.enter_context(enter(frame.target, frame.entry, wide, rewind=False))
        frame.entry.random.put_back()
        yield dataclasses.replace(frame, inputs=inputs)


@dataclasses.dataclass(slots=True, eq=False)
class LooksAlone:
    """Checks of single calls, made while a model is audited; none is made twice.

    Attributes
    ----------
    reports
        On calls that are in double precision themselves, by name and number.
    """

    reports: dict[tuple[str, int], Report] = dataclasses.field(default_factory=dict)

    def left_open(self, frame: Frame) -> tuple[str, int]:
        """Say why a check of one call leaves it open, if it does; and what that took.

        Of an iteration that ends early, or another function whose differences are not
        what its gradient stands for: what that check notes as a matter of precision.

        Parameters
        ----------
        frame
            A recorded call that is slightly wrong along a random direction.
        """
        if sum(slot.value.numel() for slot in frame.inputs if slot.wanted) > _FEW:
            return "", 0
        try:
            with _in_double(frame) as wide:
                local = _report(wide, frame.name, None, _FEW)
        except GradlabError:  # it cannot be run by itself
            return "", 0
        if any(remark.startswith(INTERRUPTED) for remark in local.remarks):
            raise KeyboardInterrupt
        if _is_double(frame):
            self.reports[frame.name, frame.call] = local
        reasons = [f for f in local.findings if f.kind == BugKind.LOW_PRECISION]
        if local.verdict == Verdict.DISAGREES or not reasons:
            return "", local.evaluations
        first = reasons[0].evidence.rstrip(".")
        return f"{first[0].lower()}{first[1:]}", local.evaluations

    def known(self, frame: Frame, plan: Plan) -> Report | None:
        """Give the report on a call, if it was checked as this plan says.

        Its evaluations and seconds are 0: they were counted when they were made.
        """
        report = self.reports.get((frame.name, frame.call))
        if report is None or report.live is None:
            return None
        made: Plan = report.live.arguments["plan"]
        if (made.tolerance, made.seed) != (plan.tolerance, plan.seed):
            return None
        return dataclasses.replace(report, evaluations=0, seconds=0.0)


def _is_double(frame: Frame) -> bool:
    """Whether a call in double precision is the call itself."""
    from gradlab.localisation.layers.variables import double_of

    tensors = [slot.value for slot in frame.inputs]
    if frame.kind == "module":
        tensors += [*frame.target.parameters(), *frame.target.buffers()]
    return all(tensor.dtype == double_of(tensor) for tensor in tensors)


def explained(finding: Finding, mistake: LayerMistake, local: Report) -> Finding:
    """Give a finding of unknown kind the kind that its layer's own Jacobian shows.

    Parameters
    ----------
    finding
        Of the audit.
    mistake
        What it is made of.
    local
        The report on the layer that it is about.
    """
    cause = next((f for f in local.findings if _tells(f)), None)
    if cause is None:
        return finding
    # headlines count what it spoils, and slopes say less than what follows
    backward = "" if mistake.only_slopes else mistake.backward
    mistake = dataclasses.replace(mistake, backward=backward, spoiled="")
    names = few_of(cause.places, _NAMED)  # what is said of each of them
    told = f"Looked at by itself, with respect to {names}: {cause.evidence}"
    return dataclasses.replace(
        finding,
        kind=cause.kind,
        confidence=max(finding.confidence, cause.confidence),
        evidence=f"{mistake.sentence()} {told}",
        advice=cause.advice,
        doubts=cause.doubts,
    )


def _tells(finding: Finding) -> bool:
    return finding.severity == "error" and finding.kind != BugKind.UNKNOWN
