"""Detector of graphs that are cut: run torch again with detach and hooks switched off.

If the gradient is right once `detach`, `.data` and `no_grad` do nothing, they were the
cause; nothing can be said more surely. Torch is used only where the user has loaded it.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import sys
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.diagnosis.measuring.measures import Case, Clue, sides_of
from gradlab.diagnosis.measuring.torch_modes import (
    CHECKPOINT,
    NOT_REENTRANT,
    calling_line,
    in_checkpoint,
    under,
)
from gradlab.subject.subject import is_torch_subject
from gradlab.subject.tensors.incremental.standing_in import watching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

__all__ = ["cuts_any", "cuts_met", "hooked", "names_cut", "severed", "written"]

_CUTS = {"detach", "detach_", "data", "no_grad"}
_NO_GRAPH = "grad without create_graph"  # a gradient that forward takes as a constant
_EXITS = {"item", "numpy", "tolist", "__array__", "__float__"}
# how the sentences of this family begin that name what cuts the graph
_NAMING = (
    "The function uses ",
    "The function leaves torch by ",
    "The function makes ",
    "The function overwrites ",
)
_LINES = 6  # lines with cuts that are undone one by one
_LARGE = 1_000_000  # entries of a Jacobian beyond which it is not computed again
_SLIGHT = 1e-2  # of the largest slope: a cut may be there because it leaves out no more


@dataclasses.dataclass(frozen=True, slots=True)
class _Undo:
    """What is to do nothing: cuts, on one line of code or all, or hooks."""

    cuts: bool = False
    hooks: bool = False
    line: str | None = None


@dataclasses.dataclass(slots=True, eq=False)
class _Undone:
    """A gradient pulled back without cuts or hooks, None where that did not run."""

    values: NDArray[np.float64] | None
    met: collections.Counter[str]  # how often what was met; of cuts "name@line"
    places: dict[str, str]  # of cuts: their lines of code


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


def names_cut(finding: Finding) -> bool:
    """Whether a finding says what cuts the graph, and not only that it is cut."""
    return finding.kind == BugKind.DETACHED and finding.evidence.startswith(_NAMING)


def cuts_met(run: Callable[[], Any]) -> dict[str, str]:
    """Call something, and tell what cuts the graph in it.

    Returns
    -------
    dict
        From "name (count, line)" to the line, such as "model.py:41"; empty where it
        does not run under a mode of torch.
    """
    undone = _seen(run)
    if undone is None:
        return {}
    return {_words(key, undone.met, line): line for key, line in undone.places.items()}


def cuts_any(parts: Iterable[Callable[[], Any]], whole: Callable[[], Any]) -> bool:
    """Whether something cuts the graph in any part, or in the whole if one fails."""
    for part in parts:
        undone = _seen(part)
        if undone is None:
            return bool(cuts_met(whole))
        if undone.places:
            return True
    return False


def _seen(run: Callable[[], Any]) -> _Undone | None:
    """Note what is met while something runs; None where it does not."""
    torch: Any = sys.modules["torch"]
    undone = _Undone(None, collections.Counter(), {})
    with contextlib.suppress(Exception):  # a mode of torch may not be for it
        with torch.enable_grad(), _mode(undone, _Undo(), copies=False)():
            run()
        return undone
    return None


def _words(key: str, met: collections.Counter[str], line: str) -> str:
    return f"{key.partition('@')[0]} ({met[key]}x{f', {line}' if line else ''})"


def severed(case: Case) -> list[Clue]:
    """Detect detach, .data and no_grad by undoing them, all of them or one by one.

    Where the function is locally constant they are there on purpose: straight through.
    """
    if np.abs(case.numeric).max(initial=0) <= 1e-6 * np.abs(case.analytic).max():
        return []
    undone = _again(case, _Undo(cuts=True))
    if undone is None:
        return []
    met = undone.met
    exits = [f"{name} ({count}x)" for name, count in met.items() if name in _EXITS]
    guilty = _guilty(case, undone)
    if guilty:
        return [_cut(case, guilty, met)]
    if exits and not case.analytic.any():
        return [
            Clue(
                BugKind.DETACHED,
                0.995,
                f"The function leaves torch by {', '.join(exits)} on the way from "
                f"{case.name}; no gradient comes back from there.",
                "Stay with torch operations between the input and the output.",
            )
        ]
    return []


def _guilty(case: Case, undone: _Undone) -> dict[str, str]:
    """Name the cuts without which the gradient is right, with the lines they are on.

    One alone where one is enough: others may be meant.
    """
    places = undone.places
    lines = list(dict.fromkeys(places.values()))
    every = undone.values is not None and _right(case, undone.values)
    if len(lines) == 1 and every:
        return places
    for line in lines[:_LINES] if len(lines) > 1 else ():
        alone = _again(case, _Undo(cuts=True, line=line))
        values = None if alone is None else alone.values
        if values is not None and _right(case, values):
            return {k: v for k, v in places.items() if v == line}
    return places if every else {}


def _if_meant(case: Case) -> str:
    """Say what to do where a cut is meant: step sizes of an integrator move little.

    The same for every input, for one cut is one finding.
    """
    sides = [side for side in sides_of(case.evidence) if side.wrong.any()]
    gaps = [float(np.abs(side.analytic - side.numeric).max()) for side in sides]
    tops = [float(np.abs(side.numeric).max()) for side in sides]
    off = max(gaps)
    if any(gap > _SLIGHT * top for gap, top in zip(gaps, tops, strict=True)):
        return "leave the input out with wrt= if the cut is meant"
    return f"allow for what it leaves out, {off:.1g} at most, with atol= if it is meant"


def _cut(case: Case, guilty: dict[str, str], met: collections.Counter[str]) -> Clue:
    told = [_words(key, met, line) for key, line in guilty.items()]
    words = f"The function uses {', '.join(told)}; with "
    words += "that undone" if len(told) == 1 else "these undone"
    if _is_straight(case):
        return Clue(
            BugKind.SURROGATE,
            0.985,
            f"{words}, the gradient of {case.name} is right. Other inputs get a "
            f"gradient from where the function stands still: straight through.",
            "If that is meant (a straight-through estimator), leave it out of the "
            "check with wrt=; else take it out.",
        )
    advice = (
        f"Remove the one that stands between the input and the output, or "
        f"{_if_meant(case)}."
    )
    return Clue(
        BugKind.DETACHED,
        0.99,
        f"{words}, the gradient of {case.name} is right.",
        NOT_REENTRANT if CHECKPOINT in words else advice,
    )


def _is_straight(case: Case) -> bool:
    """Whether an input gets a gradient with which the function does not move."""
    sides = sides_of(case.evidence)
    return any(
        np.abs(one.numeric).max(initial=0) <= 1e-6 * np.abs(one.analytic).max(initial=0)
        for one in sides
        if one.wrong.any()
    )


def written(case: Case) -> list[Clue]:
    """Detect an input that is overwritten where autograd does not record."""
    subject = case.evidence.subject
    if not is_torch_subject(subject) or case.variable.name not in subject.mutated:
        return []
    from gradlab.subject.tensors.gradients.hidden_writes import unrecorded

    case.evidence.meter.spend(1)
    found = unrecorded(subject, case.part.which)
    if found is None:
        return []
    columns = case.part.positions[case.wrong.any(axis=0)]
    if not np.isin(columns, found.positions).all():
        return []
    size = case.variable.coordinates
    some = (
        "all" if len(found.positions) == size else f"{len(found.positions)} of {size}"
    )
    return [
        Clue(
            BugKind.DETACHED,
            0.99,
            f"The function overwrites {some} entries of {case.name} (by up to "
            f"{found.most:.3g}) where autograd does not record (no_grad, .data or "
            f"NumPy): its gradient lacks the slope of that write.",
            f"Write it out of place ({case.name} = ...), where autograd sees it.",
        )
    ]


def hooked(case: Case) -> list[Clue]:
    """Detect hooks that change gradients, by not installing them."""
    undone = _again(case, _Undo(hooks=True))
    if undone is None or undone.values is None or "register_hook" not in undone.met:
        return []
    if not _right(case, undone.values):
        return []
    return [
        Clue(
            BugKind.SURROGATE,
            0.965,
            f"The function installs a hook that changes gradients; without it the "
            f"gradient of {case.name} is right.",
            "Check without the hook, or remove it if the change is not meant.",
        )
    ]


def _right(case: Case, values: NDArray[np.float64]) -> bool:
    """Whether recomputed values agree where the original ones did not."""
    gap = np.abs(values - case.numeric)[case.wrong]
    size = np.abs(case.error)[case.wrong]
    return bool((gap <= 10 * case.tolerance[case.wrong] + 1e-4 * size).all())


def _again(case: Case, undo: _Undo) -> _Undone | None:
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
    undone = _Undone(None, collections.Counter(), {})
    rows = len(case.evidence.base)
    for copies in (False, True):
        undone.met.clear()
        mode = _mode(undone, undo, copies=copies)
        case.evidence.meter.spend(1)
        # without its cut the program may not run
        with contextlib.suppress(Exception), under(subject, mode, mode):
            values = _pulled(side.on(subject), rows, case.part.which)
            undone.values = values[:, case.part.positions]
            break
    return undone


def _meets_any(case: Case) -> bool:
    """Whether the function meets any cut or hook at all, found out once for all inputs.

    One cotangent is pulled back and nothing undone. What fails there may have met one.
    """
    evidence, subject = case.evidence, case.evidence.subject
    if "cuts" not in evidence.kept:
        seen = _Undone(None, collections.Counter(), {})
        mode = _mode(seen, _Undo(), copies=False)
        evidence.meter.spend(1)
        evidence.kept["cuts"] = True
        with contextlib.suppress(Exception), under(subject, mode, mode):
            side = cast("Any", subject.analytic).on(subject)
            one = np.eye(1, len(evidence.base))
            side.pull(one)
            evidence.kept["cuts"] = bool(seen.met)
    return bool(evidence.kept["cuts"])


def _pulled(side: Any, rows: int, which: int) -> NDArray[np.float64]:
    """Jacobian by one input; of a large model no other gradient is kept."""
    if rows > 1 or not side.streams:
        return np.asarray(side.pull(np.eye(rows)).values[which])
    found: dict[int, NDArray[np.float64]] = {}
    side.stream(np.ones(1), [which], lambda k, g: found.update({k: g[None].copy()}))
    return found[which]


def _mode(undone: _Undone, undo: _Undo, *, copies: bool) -> Callable[[], Any]:
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
        name = "data" if func == data else str(getattr(func, "__name__", ""))
        if name == "_set_grad_enabled":
            name = "" if args[0] else "no_grad"
        tracked = bool(args) and getattr(args[0], "requires_grad", False)
        if name == "grad" and not kwargs.get("create_graph"):
            name = _NO_GRAPH
        counted = name in {"no_grad", "register_hook"} or tracked
        # what is tracked may be written to the data of what is not
        cut = name in _CUTS and (counted or name == "data")
        cut |= name == _NO_GRAPH
        line = calling_line() if cut else ""
        if cut:
            own = CHECKPOINT if name == "no_grad" and in_checkpoint() else name
            met[f"{own}@{line}"] += 1
            undone.places[f"{own}@{line}"] = line
        elif counted and name in _EXITS | {"register_hook"}:
            met[name] += 1
        if cut and undo.cuts and undo.line in {None, line}:
            if name == "no_grad":
                return None
            if name == _NO_GRAPH:
                return func(*args, **{**kwargs, "create_graph": True})
            recorded = args[0].grad_fn is not None and not copies
            return args[0].clone() if tracked and not recorded else args[0]
        if undo.hooks and name == "register_hook":
            return _Handle()
        if undo.cuts and name == "register_hook" and len(args) > 1:
            args = (args[0], _not_within_itself(args[1]), *args[2:])
        return func(*args, **kwargs)

    return functools.partial(watching, answer)
