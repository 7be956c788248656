"""Detector of an input that is used in several places, of which some are left out.

The gradient of such an input is a sum over its uses. Torch is asked which these are:
every function that is given the tensor itself. One use at a time gets another value,
and what f makes of that is the part of that use.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.measures import Case, Clue
from gradlab.diagnosis.measuring.moving import cotangent_of
from gradlab.diagnosis.measuring.torch_modes import calling_instruction
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.labels import few_of
from gradlab.subject.subject import is_torch_subject
from gradlab.subject.tensors.incremental.standing_in import watching

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["left_out"]

_MOST = 12  # uses that are told apart
_DIRECTIONS = 3  # along which sums are compared: what fits these is no accident
_STEP = 1e-5  # of a central difference, relative to the largest entry
_CLOSE = 1e-5  # relative: of sums that are the same
_LARGE = 100_000  # coordinates, beyond which no direction is moved along


@dataclasses.dataclass(frozen=True, slots=True)
class _Use:
    """What takes an input, on which line, and where in the code: the same in a loop."""

    function: str
    line: str
    place: int

    @property
    def words(self) -> str:
        """Say what it is."""
        return f"{self.function.strip('_')} ({self.line})"


@dataclasses.dataclass(slots=True, eq=False)
class _Program:
    """A program in which one use of an input gets another value."""

    inner: Any
    which: int
    shift: Any = None
    use: int = -1
    uses: list[_Use] = dataclasses.field(default_factory=list)

    def call(self, values: Any, *more: Any) -> Any:
        """Call the program, and count the uses."""
        tensor = values[self.which]
        self.uses.clear()

        def answer(func: Any, args: Any, kwargs: Any) -> Any:
            if not any(part is tensor for part in _flat(args)):
                return func(*args, **kwargs)
            moved = args
            if len(self.uses) == self.use:
                moved = _replaced(args, tensor, tensor + self.shift)
            result = func(*moved, **kwargs)
            if hasattr(result, "requires_grad"):
                line, place = calling_instruction()
                self.uses.append(_Use(str(getattr(func, "__name__", "")), line, place))
                return result
            return result if moved is args else func(*args, **kwargs)

        with watching(answer):
            return self.inner.call(values, *more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _flat(args: Any) -> Iterator[Any]:
    for each in args:
        if isinstance(each, (list, tuple)):
            yield from _flat(each)
        else:
            yield each


def _replaced(args: Any, old: Any, new: Any) -> Any:
    """Put another tensor in the first place of one."""
    found, done = [], False
    for each in args:
        part = each
        if not done and isinstance(each, (list, tuple)) and old in _Same(each):
            part, done = type(each)(_replaced(each, old, new)), True
        elif not done and each is old:
            part, done = new, True
        found.append(part)
    return found


class _Same:
    """Members of nested lists, by identity."""

    def __init__(self, members: Any) -> None:
        self._members = members

    def __contains__(self, one: Any) -> bool:
        return any(each is one for each in _flat(self._members))


def left_out(case: Case) -> list[Clue]:
    """Detect a gradient that is the sum over some of the uses of its input alone."""
    evidence, variable = case.evidence, case.variable
    subject: Any = evidence.reference or evidence.subject
    small = variable.coordinates <= _LARGE and case.part.complete
    if not (is_torch_subject(subject) and small) or variable.is_complex:
        return []
    weights = cotangent_of(evidence)
    analytic, numeric = weights @ case.analytic, weights @ case.numeric
    try:
        uses, directions, parts = _parts(case, subject, weights)
    except BudgetExhausted:
        raise
    except Exception:  # noqa: BLE001 - the user's code may not run under a mode of torch
        return []
    if not uses or not _fits(parts.sum(axis=1), directions @ numeric):
        return []
    moves = np.abs(parts).max(axis=0) > _CLOSE * np.abs(parts).max()
    parts, uses = parts[:, moves], [u for u, m in zip(uses, moves, strict=True) if m]
    for kept in _choices(len(uses)) if len(uses) > 1 else ():
        if _fits(parts @ kept, directions @ analytic):
            return [_told(case, uses, kept)]
    return []


def _choices(count: int) -> Iterator[NDArray[np.bool_]]:
    """One use alone, all but one, the first few, the last few."""
    place = np.arange(count)
    for k in range(count):
        yield place == k
    for k in range(count):
        yield place != k
    for k in range(2, count - 1):
        yield place < k
        yield place >= k


def _parts(
    case: Case, subject: Any, weights: NDArray[np.float64]
) -> tuple[list[_Use], NDArray[np.float64], NDArray[np.float64]]:
    """Measure the part of each use along random directions; no uses where it is one."""
    evidence, nothing = case.evidence, np.zeros((0, 0))
    with _counted(subject, case.part.which) as program:
        evidence.meter.spend(1)
        subject.row()
        uses = list(program.uses)
        if not 1 < len(uses) <= _MOST:
            return [], nothing, nothing
        size = case.variable.coordinates
        directions = evidence.rng.normal(size=(_DIRECTIONS, size))
        parts = [
            [_slope(case, program, k, d, weights) for k in range(len(uses))]
            for d in directions
        ]
    return uses, directions, np.array(parts)


@contextlib.contextmanager
def _counted(subject: Any, which: int) -> Iterator[_Program]:
    before = subject.program
    subject.program = program = _Program(before, which)
    try:
        yield program
    finally:
        subject.program = before


def _slope(
    case: Case,
    program: _Program,
    use: int,
    direction: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> float:
    """Slope of f along a direction that one use alone is moved in."""
    torch: Any = sys.modules["torch"]
    subject: Any = case.evidence.reference or case.evidence.subject
    shape = case.variable.shape
    h = _STEP * max(1.0, float(np.abs(case.point).max(initial=0.0)))
    tensor = torch.as_tensor(direction.reshape(shape))
    rows = []
    program.use = use
    for step in (h, -h):
        cell = subject.cells[case.part.which].values
        program.shift = (step * tensor).to(device=cell.device, dtype=cell.dtype)
        case.evidence.meter.spend(1)
        rows.append(subject.row())
    program.use = -1
    return float(weights @ (rows[0] - rows[1])) / (2 * h)


def _fits(one: NDArray[np.float64], two: NDArray[np.float64]) -> bool:
    return bool(np.abs(one - two).max() <= _CLOSE * np.abs(two).max())


def _told(case: Case, uses: list[_Use], kept: NDArray[np.bool_]) -> Clue:
    name, count = case.name, len(uses)
    order = np.flatnonzero(kept)
    if len(order) == 1 and len(set(uses)) < count:  # a loop
        place = {0: "first", count - 1: "last"}.get(int(order[0]), f"{order[0] + 1}th")
        return Clue(
            BugKind.LOST_ACCUMULATION,
            0.97,
            f"The function uses {name} {count} times, in {_words(uses)}; its gradient "
            f"is that of the {place} use alone.",
            f"Add to the gradient of {name} (+=) for each use, where the backward "
            f"assigns to it.",
        )
    gone = [use for use, has in zip(uses, kept, strict=True) if not has]
    which = "one" if len(gone) == 1 else f"{len(gone)}"
    return Clue(
        BugKind.MISSING_TERM,
        0.94,
        f"The function uses {name} {count} times; the part of {which} of these is "
        f"missing from its gradient: {_words(gone)}.",
        f"Add to the gradient of {name} what comes back from there.",
        (BugKind.LOST_ACCUMULATION,) if len(order) == 1 else (),
    )


def _words(uses: list[_Use]) -> str:
    return few_of(list(dict.fromkeys(use.words for use in uses)), 3)
