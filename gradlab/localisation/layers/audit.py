"""The audit of a whole model: record once, check every call, name who is to blame."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import warnings
from typing import TYPE_CHECKING, Any

from gradlab.errors import InputError, SubjectError
from gradlab.localisation.layers.audited import INTERRUPTED, LayerRow, LayerState
from gradlab.localisation.layers.checking.all_of_it import may_be_right
from gradlab.localisation.layers.checking.call_outcome import (
    CallOutcome,
    as_far_as_it_matters,
)
from gradlab.localisation.layers.checking.check import Checker, is_torchs
from gradlab.localisation.layers.checking.moved_runs import MovedRuns
from gradlab.localisation.layers.checking.reach import right_within_reach, wrong_nearby
from gradlab.localisation.layers.checking.rounding import without_short_numbers
from gradlab.localisation.layers.checking.slight import as_far_as_alone
from gradlab.localisation.layers.checking.whole import (
    can_disturb,
    has_own_code,
    wrong_together,
)
from gradlab.localisation.layers.flow import upstream
from gradlab.localisation.layers.of_function import stands_for_function
from gradlab.localisation.layers.recording.frames import owner_name, source_of, walk
from gradlab.localisation.layers.recording.hooks import hooked_inputs
from gradlab.localisation.layers.recording.intercept import installed
from gradlab.localisation.layers.recording.record import record, same_outputs
from gradlab.localisation.layers.recording.state import kept_attributes, private_buffers
from gradlab.localisation.layers.replaying.replay import Piece
from gradlab.localisation.layers.rows import hooked_row, rows_of
from gradlab.subject.tensors.calling.domains import asserting_watched, in_domain
from gradlab.subject.tensors.calling.fixed_places import free_places
from gradlab.subject.tensors.calling.uncompiled import uncompiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gradlab.differentiation.metering.timeouts import Timeouts
    from gradlab.localisation.layers.checking.slight import Alone
    from gradlab.localisation.layers.recording.frames import Frame
    from gradlab.localisation.layers.recording.hooks import HookedInput
    from gradlab.localisation.layers.recording.record import Recording
    from gradlab.localisation.layers.recording.recorder import Program
    from gradlab.localisation.layers.variables import Variable

    Cuts = Callable[[Iterator[Callable[[], Any]]], bool]

__all__ = ["Blamed", "RawAudit", "audit"]

_CALLS = 2  # of a function: itself, and one in it that could be to blame


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Blamed:
    """One call that is wrong itself, for the sentence about it."""

    frame: Frame
    outcome: CallOutcome
    file: str
    line: int
    upstream: int  # parameters that are only contaminated by it


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RawAudit:
    """Everything a `LayerAudit` holds but its findings, and what those are about."""

    rows: tuple[LayerRow, ...]
    unchecked: tuple[LayerRow, ...]  # calls in which there was something to check
    culprits: tuple[str, ...]
    contaminated: tuple[str, ...]
    blamed: tuple[Blamed, ...]
    hooked: tuple[HookedInput, ...]
    evaluations: int
    seconds: float
    steps: float
    in_doubt: bool = False  # whether the model's gradient may be right all the same


def audit(
    program: Program,
    progress: Callable[[int, int], None],
    cuts: Cuts,
    alone: Alone,
    timeouts: Timeouts,
) -> RawAudit:
    """Record one run of a model and check every call in it.

    Parameters
    ----------
    program
        The model at one point.
    progress
        Told how many calls are done, of how many.
    cuts
        Told what to run: the own code of each module, without the calls inside. Says
        whether anything in it hands values on without their gradient: that is what
        makes a model wrong, as often as not, where all its calls are right.
    alone
        Checks a call by itself that is slightly wrong: see `as_far_as_alone`.
    timeouts
        Told how long the model takes.

    Returns
    -------
    RawAudit
        Rows in execution order; what is wrong, nearest to the loss first.
    """
    began, start = time.perf_counter(), time.monotonic()  # two clocks, on Windows
    module = program.module
    with (
        uncompiled(),
        free_places(module),
        installed(),
        kept_attributes(module),
        private_buffers(module),
    ):
        with asserting_watched(module.parameters()) as seen:
            whole = _Audit(program, alone)
        timeouts.usual = max(timeouts.usual, time.monotonic() - start)
        domain = in_domain() if seen else contextlib.nullcontext()
        with warnings.catch_warnings(), domain:
            # What the model has to say it said in the recorded run.
            warnings.simplefilter("ignore")
            return whole.run(progress, cuts, began)


class _Audit:
    def __init__(self, program: Program, alone: Alone) -> None:
        self._program, self._alone = program, alone
        self._owners = program.owners
        self._recording: Recording = record(program)
        raised = self._recording.raised
        if stands_for_function(program.module) and len(self._recording.all) < _CALLS:
            msg = f"{program.title} applies no custom Function, and calls no module"
            raise InputError(msg)
        self._checker = Checker(self._owners, program.seed, raised)
        self._outcomes: dict[int, CallOutcome] = {}
        self._runs = MovedRuns()

    def run(
        self,
        progress: Callable[[int, int], None],
        cuts: Cuts,
        began: float,
    ) -> RawAudit:
        frames = self._recording.all
        try:
            for done, frame in enumerate(_inside_out(self._recording.frames)):
                self._check(frame)
                progress(done + 1, len(frames))
            if self._all_right():
                severed = has_own_code(frames) and cuts(self._own_code())
                if severed or can_disturb(frames):
                    self._check_together(cut=severed)
            if self._recording.raised:
                self._find_what_raised()
        except KeyboardInterrupt:  # what is known so far is worth having
            for frame in frames:
                missing = CallOutcome(LayerState.UNCHECKED, INTERRUPTED)
                self._outcomes.setdefault(frame.number, missing)
        self._runs.clear()
        wrong = self._in_order(frames)
        told = [(frame, self._outcomes[frame.number]) for frame in wrong]
        nodes, cut = upstream(told)
        polluted = self._polluted(frames, nodes, cut)
        through = owner_name(wrong[0]) if wrong else ""
        rows = rows_of(
            self._program, self._recording, self._outcomes, polluted, through
        )
        names = self._contaminated(wrong, nodes, cut)
        seconds = time.perf_counter() - began
        root = self._recording.frames[0]
        hooked = hooked_inputs(self._program, [slot.label for slot in root.inputs])
        # The gradient of an input comes out last, so what its hook does comes last.
        culprits = [owner_name(frame) for frame in wrong] + [h.label for h in hooked]
        return RawAudit(
            rows=(*rows, *map(hooked_row, hooked)),
            unchecked=tuple(
                row
                for frame, row in zip(frames, rows, strict=False)  # calls come first
                if row.state is LayerState.UNCHECKED
                and not self._outcomes[frame.number].empty
            )
            + tuple(row for row in rows[len(frames) :] if not row.idle),
            culprits=tuple(dict.fromkeys(culprits)),
            contaminated=names,
            blamed=self._blamed(wrong),
            hooked=tuple(hooked),
            evaluations=self._checker.evaluations,
            seconds=seconds,
            steps=seconds / (self._checker.product_seconds or float("nan")),
            in_doubt=not hooked and may_be_right(self._program, told, names),
        )

    def _check(self, frame: Frame) -> None:
        inside = [self._outcomes[child.number].state for child in frame.children]
        sound = all(state is LayerState.RIGHT for state in inside)
        outcome = self._checker.check(frame, sound=sound)
        if outcome.doubtful:
            self._insist_on_repeatable(frame)
        wrong = outcome.state is LayerState.WRONG
        if wrong and (self._recording.raised or not frame.reached):
            outcome = as_far_as_it_matters(self._program, frame, outcome)
        elif wrong:
            outcome, count = as_far_as_alone(frame, outcome, self._alone)
            self._checker.evaluations += count
        if wrong and not self._recording.raised:
            outcome = self._as_far_as_it_reaches(frame, outcome)
        self._outcomes[frame.number] = outcome
        for child in frame.children:
            child.input_cotangents = [None] * len(child.inputs)

    def _find_what_raised(self) -> None:
        """Blame the innermost call that raises together with what is inside it.

        Where no call raises by itself: a layer overwrites what another one has kept.
        Where none does together either, the model is left open.
        """
        if any(outcome.raised for outcome in self._outcomes.values()):
            return
        raised = self._recording.raised
        for frame in filter(_has_calls, _inside_out(self._recording.frames)):
            outcome = self._checker.raises_together(frame)
            if outcome is not None:
                break
        else:
            frame = self._recording.frames[0]
            outcome = CallOutcome(
                LayerState.UNCHECKED,
                f"the backward of all together raised {raised}; no call does by itself",
            )
        if self._outcomes[frame.number].state is not LayerState.WRONG:
            self._outcomes[frame.number] = outcome

    def _all_right(self) -> bool:
        return all(
            outcome.state is LayerState.RIGHT or outcome.empty
            for outcome in self._outcomes.values()
        )

    def _own_code(self) -> Iterator[Callable[[], Any]]:
        """Run the code of each module that is not torch's, without its layers."""
        for frame in self._recording.all:
            if frame.kind == "module" and not is_torchs(frame):
                whole = not frame.children  # those of a compiled module are unknown
                yield Piece(frame, self._owners, whole=whole).outputs_once

    def _check_together(self, *, cut: bool) -> None:
        found = wrong_together(self._program, self._recording, self._checker, cut=cut)
        for frame, outcome in found:
            own = self._outcomes[frame.number]
            told = outcome
            if outcome.state is not LayerState.WRONG:  # what it does by itself is right
                reason = f"{own.reason}; not checked together with what is inside: "
                told = dataclasses.replace(own, reason=reason + outcome.reason)
            self._outcomes[frame.number] = told

    def _insist_on_repeatable(self, frame: Frame) -> None:
        """Raise if the model itself, not only the replay, gives another result."""
        again = record(self._program)
        twin = next((f for f in again.all if f.number == frame.number), None)
        if twin is not None and same_outputs(frame, twin):
            return
        file, line = source_of(frame)
        place = f", {file.split('/')[-1]}:{line}" if file else ""
        raise SubjectError(
            f"{frame.title} ({frame.type}{place}) gives another result each time it is "
            "called, with the same inputs, parameters, buffers and random state; its "
            "gradient cannot be measured. Make its forward deterministic (draw from a "
            "generator of torch, NumPy or Python; keep no state between calls) or "
            "audit the parts around it."
        )

    def _as_far_as_it_reaches(self, frame: Frame, outcome: CallOutcome) -> CallOutcome:
        """Call nothing wrong that is right for all that this model can hand to it."""
        about_inputs = outcome.wrong and not any(
            _is_parameter(variable, frame) for variable in outcome.wrong
        )
        if not about_inputs or outcome.measure is None or outcome.hook:
            return outcome
        worst = next(v for v in outcome.wrong if v.label == outcome.measure.label)
        with without_short_numbers() if outcome.wide else contextlib.nullcontext():
            runs = MovedRuns() if outcome.wide else self._runs
            about = self._program, frame, outcome.measure, runs
            if wrong_nearby(*about, worst) or not right_within_reach(*about):
                return outcome
        return dataclasses.replace(
            outcome,
            state=LayerState.RIGHT,
            wrong=[],
            character=None,
            measure=None,
            reason="agrees along all that the model's parameters and inputs do to what "
            "it takes; beside that (a matrix that is not symmetric, say) it would not",
        )

    # ------------------------------------------------------------- who is to blame
    def _in_order(self, frames: list[Frame]) -> list[Frame]:
        """Sort wrong calls by when their backward runs, what is inside first."""
        order = {f.number: k for k, f in enumerate(_inside_out(self._recording.frames))}
        wrong = [
            f for f in frames if self._outcomes[f.number].state is LayerState.WRONG
        ]
        return sorted(wrong, key=lambda f: (-_last(f, wrong), order[f.number]))

    def _polluted(
        self, frames: list[Frame], nodes: set[Any], cut: list[Frame]
    ) -> set[int]:
        found = {f.number for top in cut for f in walk([top])}
        for frame in frames:
            edges = [slot.edge for slot in frame.outputs if slot.edge is not None]
            if any(edge.node in nodes for edge in edges):
                found.add(frame.number)
        return found

    def _contaminated(
        self, wrong: list[Frame], nodes: set[Any], cut: list[Frame]
    ) -> tuple[str, ...]:
        """Names of parameters, then inputs, that are wrong by no fault of their own."""
        own, reached = set(), set()
        for frame in wrong:
            found = (v.parameter for v in self._outcomes[frame.number].wrong)
            keys = {id(parameter) for parameter in found if parameter is not None}
            if frame.kind == "function":  # they are of layers that it calls
                reached |= keys
            else:
                own |= keys
        reached |= {
            id(node.variable)
            for node in nodes
            if getattr(node, "variable", None) is not None
        }
        for frame in (f for top in cut for f in walk([top])):
            reached |= {id(p) for p in self._owners.own(frame.target)}
        names = [
            name
            for key, name in self._owners.names.items()
            if key in reached and key not in own
        ]
        root = self._recording.frames[0]
        blamed_inputs = {
            variable.place
            for frame in wrong
            if frame is root
            for variable in self._outcomes[frame.number].wrong
            if variable.kind == "input"
        }
        names += [
            slot.label
            for k, slot in enumerate(root.inputs)
            if slot.edge is not None
            and slot.edge.node in nodes
            and k not in blamed_inputs
        ]
        return tuple(names)

    def _blamed(self, wrong: list[Frame]) -> tuple[Blamed, ...]:
        found: dict[str, Blamed] = {}
        for frame in wrong:
            if frame.name in found:
                continue
            outcome = self._outcomes[frame.number]
            nodes, cut = upstream([(frame, outcome)])
            count = len(self._contaminated([frame], nodes, cut))
            found[frame.name] = Blamed(frame, outcome, *source_of(frame), count)
        return tuple(found.values())


def _has_calls(frame: Frame) -> bool:
    return frame.kind == "module" and bool(frame.children)


def _is_parameter(variable: Variable, frame: Frame) -> bool:
    """Whether each entry of something moves by itself: a parameter, or one given."""
    given = variable.kind == "input" and frame.inputs[variable.place].parameter
    return variable.kind == "parameter" or given


def _inside_out(frames: list[Frame]) -> list[Frame]:
    """Children before parents, in the order in which calls returned."""
    return [call for top in frames for call in (*_inside_out(top.children), top)]


def _last(frame: Frame, wrong: list[Frame]) -> int:
    """When a call's own backward begins, as far as other wrong calls are concerned.

    A container is as late as the last wrong call inside it, and follows it.
    """
    inside = {f.number for f in walk([frame])}
    return max((f.number for f in wrong if f.number in inside), default=frame.number)
