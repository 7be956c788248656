"""Detector of graphs that are cut: run torch again with detach and hooks switched off.

If the gradient is right once `detach`, `.data` and `no_grad` do nothing, they were the
cause; nothing can be said more surely. Torch is used only where the user has loaded it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.diagnosis.measuring.leaving import Leaving, leaving
from gradlab.diagnosis.measuring.measures import Case, Clue, sides_of
from gradlab.diagnosis.measuring.torch_modes import CHECKPOINT, LEAVES, NOT_REENTRANT
from gradlab.diagnosis.measuring.undoing import Undo, Undone, again, seen
from gradlab.subject.subject import is_torch_subject

if TYPE_CHECKING:
    import collections
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

__all__ = ["cuts_any", "cuts_met", "hooked", "names_cut", "severed", "written"]

# how the sentences of this family begin that name what cuts the graph
_NAMING = (
    "The function uses ",
    "The function leaves torch by ",
    "The function makes ",
    "The function overwrites ",
)
_LINES = 6  # lines with cuts that are undone one by one
_MOST_STILL = 0.5  # of the entries that are wrong
_SLIGHT = 1e-2  # of the largest slope: a cut may be there because it leaves out no more


def names_cut(finding: Finding) -> bool:
    """Whether a finding says what is done to the graph, and not only what comes of it.

    It is cut, or written to where it does not see it.
    """
    kinds = {BugKind.DETACHED, BugKind.STALE_CACHE}
    return finding.kind in kinds and finding.evidence.startswith(_NAMING)


def cuts_met(run: Callable[[], Any]) -> dict[str, str]:
    """Call something, and tell what cuts the graph in it, or leaves torch.

    Returns
    -------
    dict
        From "name (count, line)" to the line, such as "model.py:41"; empty where it
        does not run under a mode of torch.
    """
    undone = seen(run)
    if undone is None:
        return {}
    both = undone.places | undone.exits
    return {_words(key, undone.met, line): line for key, line in both.items()}


def cuts_any(parts: Iterable[Callable[[], Any]], whole: Callable[[], Any]) -> bool:
    """Whether something cuts the graph in any part, or in the whole if one fails."""
    for part in parts:
        undone = seen(part)
        if undone is None:
            return bool(cuts_met(whole))
        if undone.places:
            return True
    return False


def _words(key: str, met: collections.Counter[str], line: str) -> str:
    return f"{key.partition('@')[0]} ({met[key]}x{f', {line}' if line else ''})"


def severed(case: Case) -> list[Clue]:
    """Detect detach, .data and no_grad by undoing them, all of them or one by one.

    Where the function is locally constant they are there on purpose: straight through.
    """
    if np.abs(case.numeric).max(initial=0) <= 1e-6 * np.abs(case.analytic).max():
        return []
    undone = again(case, Undo(cuts=True))
    if undone is None:
        return []
    met = undone.met
    exits = [f"{name} ({count}x)" for name, count in met.items() if name in LEAVES]
    if undone.overwrites:
        return [_overwritten(case, undone)]
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
                "Stay with torch operations between the input and the output: "
                "torch.stack() for torch.tensor([...]), no item() or numpy().",
            )
        ]
    return []


def _guilty(case: Case, undone: Undone) -> dict[str, str]:
    """Name the cuts without which the gradient is right, with the lines they are on.

    One alone where one is enough: others may be meant.
    """
    places = undone.places
    lines = list(dict.fromkeys(places.values()))
    every = undone.values is not None and _right(case, undone.values)
    if len(lines) == 1 and every:
        return places
    for line in lines[:_LINES] if len(lines) > 1 else ():
        alone = again(case, Undo(cuts=True, line=line))
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
            f"{words}, the gradient of {case.name} is right. As it is, there is a "
            f"gradient where the function stands still: straight through.",
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


def _overwritten(case: Case, undone: Undone) -> Clue:
    """Blame writes behind the back of autograd: seen by it, they stop the backward."""
    lines = set(undone.places.values())
    for line in undone.places.values() if len(lines) > 1 else ():
        alone = again(case, Undo(cuts=True, line=line))
        if alone is not None and alone.overwrites:
            lines = {line}
            break
    told = [_words(k, undone.met, v) for k, v in undone.places.items() if v in lines]
    return Clue(
        BugKind.STALE_CACHE,
        0.985,
        f"The function uses {', '.join(told)} to write where autograd does not see it; "
        f"where it does, torch refuses to go back: a value that the backward needs has "
        f"been overwritten.",
        "Write to a new tensor (y = y * 2, not y.data.mul_(2)), or to a clone().",
    )


def _is_straight(case: Case) -> bool:
    """Whether an input gets a gradient where the function does not move with it.

    In most of its wrong entries: the largest of a tensor may set the scale of a
    quantiser, and move that. What it does not move with far away either, such as a
    bias before a mean that is taken off, is no staircase: the cut hides that mean.
    """
    for one in sides_of(case.evidence):
        ours, true = np.abs(one.analytic), np.abs(one.numeric)
        still = one.wrong & (true <= 1e-6 * ours.max(initial=0)) & (true <= 1e-3 * ours)
        if not one.wrong.any() or still[one.wrong].mean() < _MOST_STILL:
            continue
        columns = one.part.positions[still.any(axis=0)]
        if leaving(one, columns) in (Leaving.JUMP, Leaving.LATE):
            return True
    return False


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
    undone = again(case, Undo(hooks=True))
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
