"""The analytic side asked again with `detach`, `.data`, `no_grad` or hooks undone.

Torch is used only where the user has loaded it.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import sys
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gradlab.diagnosis.measuring.torch_modes import (
    CHECKPOINT,
    LEAVES,
    NO_GRAPH,
    calling_line,
    in_checkpoint,
    read_as_numbers,
    under,
)
from gradlab.subject.analytic_sides import OVERWRITTEN
from gradlab.subject.subject import is_torch_subject
from gradlab.subject.tensors.incremental.standing_in import watching

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.diagnosis.measuring.measures import Case

__all__ = ["Undo", "Undone", "again", "seen"]

_CUTS = {"detach", "detach_", "data", "no_grad"}
_LARGE = 1_000_000  # entries of a Jacobian beyond which it is not computed again
_KEPT = 8_000_000  # of all Jacobians up to which they are kept for the next input


@dataclasses.dataclass(frozen=True, slots=True)
class Undo:
    """What is to do nothing: cuts, on one line of code or all, or hooks."""

    cuts: bool = False
    hooks: bool = False
    line: str | None = None


@dataclasses.dataclass(slots=True, eq=False)
class Undone:
    """A gradient pulled back without cuts or hooks, None where that did not run."""

    values: NDArray[np.float64] | None
    met: collections.Counter[str]  # how often what was met; of cuts "name@line"
    places: dict[str, str]  # of cuts: their lines of code
    exits: dict[str, str] = dataclasses.field(default_factory=dict)  # the same
    overwrites: bool = False  # whether torch refuses: what it needs is written to


class _Handle:
    """Stands in for the handle of a hook that was not installed."""

    def remove(self) -> None:
        """Do nothing: there is no hook."""


def _not_within_itself(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a hook of a tensor, so that it fails where it would call itself.

    The hook of an implicit layer pulls back through a copy that is detached from the
    tensor it hangs on. Without that cut it would call itself for ever: the engine of
    torch goes on in another thread where the stack of one is full.
    """
    running = False

    @functools.wraps(hook)
    def guarded(gradient: Any) -> Any:
        nonlocal running
        if running:
            raise RecursionError
        running = True
        try:
            return hook(gradient)
        finally:
            running = False

    return guarded


def seen(run: Callable[[], Any]) -> Undone | None:
    """Note what is met while something runs; None where it does not."""
    torch: Any = sys.modules["torch"]
    undone = Undone(None, collections.Counter(), {})
    with contextlib.suppress(Exception):  # a mode of torch may not be for it
        with torch.enable_grad(), _mode(undone, Undo(), copies=False)():
            run()
        return undone
    return None


def again(case: Case, undo: Undo) -> Undone | None:
    """Pull all cotangents back with some of torch's functions made harmless."""
    subject = case.evidence.subject
    side: Any = subject.analytic
    if side is None or not is_torch_subject(subject):
        return None
    if not str(side.description).startswith("autograd"):
        return None
    if case.analytic.size > _LARGE:
        return None
    if not _meets_any(case):
        return None
    kept = case.evidence.kept.setdefault("undone", {})
    if undo not in kept:
        found = _asked_again(case, undo)
        if not _may_keep(found[1]):
            return _of_input(found, case)
        kept[undo] = found  # it speaks of every input: the others need no pass
    return _of_input(kept[undo], case)


def _may_keep(values: Any) -> bool:
    """Whether what was pulled back is of all inputs, and small enough to be kept."""
    if isinstance(values, dict):
        return False
    return bool(sum(block.size for block in values or ()) <= _KEPT)


def _of_input(found: tuple[Undone, Any], case: Case) -> Undone:
    """Give the part that is about the input in question."""
    undone, values = found
    if values is None:
        return undone
    return dataclasses.replace(
        undone, values=values[case.part.which][:, case.part.positions]
    )


def _asked_again(case: Case, undo: Undo) -> tuple[Undone, Any]:
    """Pull back; values by input, of one alone where a large model streams them."""
    subject, rows = case.evidence.subject, len(case.evidence.base)
    side: Any = subject.analytic
    undone = Undone(None, collections.Counter(), {})
    values: Any = None
    for copies in (False, True):
        undone.met.clear()
        mode = _mode(undone, undo, copies=copies)
        case.evidence.meter.spend(1)
        # without its cut the program may not run
        with contextlib.suppress(Exception), under(subject, mode, mode):
            values, refusal = _pulled(side.on(subject), rows, case.part.which)
            undone.overwrites |= OVERWRITTEN in refusal
            if not refusal:
                break
            values = None
    return undone, values


def _meets_any(case: Case) -> bool:
    """Whether the function meets any cut or hook at all, found out once for all inputs.

    One cotangent is pulled back and nothing undone. What fails there may have met one.
    """
    evidence, subject = case.evidence, case.evidence.subject
    if "cuts" not in evidence.kept:
        seen = Undone(None, collections.Counter(), {})
        mode = _mode(seen, Undo(), copies=False)
        evidence.meter.spend(1)
        evidence.kept["cuts"] = True
        with contextlib.suppress(Exception), under(subject, mode, mode):
            side = cast("Any", subject.analytic).on(subject)
            one = np.eye(1, len(evidence.base))
            side.pull(one)
            evidence.kept["cuts"] = bool(seen.met)
    return bool(evidence.kept["cuts"])


def _pulled(side: Any, rows: int, which: int) -> tuple[Any, str]:
    """Jacobians by input, and what was raised; of a large model by one input alone."""
    if rows > 1 or not side.streams:
        answer = side.pull(np.eye(rows))
        raised = [each.detail for each in answer.problems if each.kind == "raised"]
        return answer.values, " ".join(raised)
    found: dict[int, NDArray[np.float64]] = {}
    side.stream(np.ones(1), [which], lambda k, g: found.update({k: g[None].copy()}))
    return {which: found[which]}, ""


def _named(func: Any, args: Any, kwargs: Any, data: Any) -> tuple[str, bool]:
    """Name what is called as it is counted; whether what it is given has a history."""
    name = "data" if func == data else str(getattr(func, "__name__", ""))
    tracked = bool(args) and getattr(args[0], "requires_grad", False)
    if name == "_set_grad_enabled":
        name = "" if args[0] else "no_grad"
    if name == "grad" and not kwargs.get("create_graph"):
        name = NO_GRAPH
    if any(tensor.requires_grad for tensor in read_as_numbers(name, args)):
        return f"torch.{name}", True
    return name, tracked


def _mode(undone: Undone, undo: Undo, *, copies: bool) -> Callable[[], Any]:
    """Make a mode of torch that counts, and replaces what it is told to.

    Parameters
    ----------
    copies
        Whether what is not cut any more is handed on as a copy. Else it is the tensor
        itself, so that what is written to it behind the back of autograd is recorded;
        where autograd does not allow that, a copy will do for all but such writes.
    """
    data = cast("Any", sys.modules["torch"]).Tensor.data.__get__
    met = undone.met

    def answer(func: Any, args: Any, kwargs: Any) -> Any:
        name, tracked = _named(func, args, kwargs, data)
        counted = name in {"no_grad", "register_hook"} or tracked
        # what is tracked may be written to the data of what is not
        cut = name in _CUTS and (counted or name == "data")
        cut |= name == NO_GRAPH
        line = calling_line() if cut else ""
        if cut:
            own = CHECKPOINT if name == "no_grad" and in_checkpoint() else name
            met[f"{own}@{line}"] += 1
            undone.places[f"{own}@{line}"] = line
        elif counted and name in LEAVES | {"register_hook"}:
            met[name] += 1
            if name in LEAVES and not undo.cuts:
                line = calling_line()
                met[f"{name}@{line}"] += 1
                undone.exits[f"{name}@{line}"] = line
        if cut and undo.cuts and undo.line in {None, line}:
            if name == "no_grad":
                return None
            if name == NO_GRAPH:
                return func(*args, **{**kwargs, "create_graph": True})
            recorded = args[0].grad_fn is not None and not copies
            return args[0].clone() if tracked and not recorded else args[0]
        if undo.hooks and name == "register_hook":
            return _Handle()
        if undo.cuts and name == "register_hook" and len(args) > 1:
            args = (args[0], _not_within_itself(args[1]), *args[2:])
        return func(*args, **kwargs)

    return functools.partial(watching, answer)
