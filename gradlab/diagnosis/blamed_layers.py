"""What an audit of the layers of a model found, as findings: `gl.blame` hands them on.

A finding is a sentence. Whoever learns more of a layer later on, as a check does that
looks at it by itself, puts the sentence together anew from its parts, `LayerMistake`.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.diagnosis.late_hooks import late_hooks
from gradlab.diagnosis.measuring.lengths import is_everyday
from gradlab.diagnosis.measuring.torch_modes import CHECKPOINT, NO_GRAPH, NOT_REENTRANT
from gradlab.labels import few_of
from gradlab.localisation.layers.audited import LayerMistake
from gradlab.localisation.layers.of_function import stands_for_function
from gradlab.localisation.layers.recording.frames import owner_name
from gradlab.tracebacks import code_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradlab.localisation.layers.audit import Blamed, RawAudit
    from gradlab.localisation.layers.recording.hooks import HookedInput

__all__ = ["in_own_code", "layer_findings"]

_ADVICE = {
    "scale": "Look for the factor that its backward forgets, or has too much.",
    "sign": "Look for the minus that its backward forgets, or has too much.",
    "detached": "Look for detach(), .data, .item(), no_grad, autograd.grad without "
    "create_graph, or a None in its backward.",
    "missing_reduction": "Divide by that length exactly where the forward does.",
    "ignores_upstream": "Multiply by the incoming gradient in its backward.",
    "stale_cache": "Write to a new tensor (y = y + 1, not y += 1), or to a clone().",
    "surrogate": "If a layer that reverses or scales gradients is meant, leave what "
    "comes before it out of the check; else return the incoming gradient unchanged.",
    "mutates_input": "Return a new tensor (g * mask, not g.mul_(mask) nor g[~mask] = "
    "0), or work on g.clone().",
    "nonfinite": "Look for a division by zero or a root of zero in its backward.",
}
_ADVICE_KEPT = (
    "Keep for each call what its backward needs, with ctx.save_for_backward, and not "
    "in a buffer, a class or a global that the next call writes to."
)
_ADVICE_ELSE = (
    "Compare its backward with the derivative on paper, or check this layer alone: "
    "gradlab.check of it, called with what the model hands it, reads its whole "
    "Jacobian."
)
_ADVICE_TOGETHER = (
    "Look for what one call does to another: a gradient or a saved value that is "
    "overwritten (g.mul_(m) for g * m), a value that a module keeps from the last of "
    "several calls, needs_input_grad of another input, or a checkpoint that draws "
    "other random numbers (preserve_rng_state=False)."
)
_ADVICE_TWICE = (
    "Its forward differentiates what is inside (autograd.grad): check each custom "
    "Function in it with order=2. A backward that detaches a factor, or leaves the "
    "graph, is right once and wrong where it is differentiated again."
)
_ADVICE_FREED = (
    "Pass create_graph=True to that autograd.grad: without it the gradient is a "
    "constant to what comes after, and the graph that it was taken of is freed."
)
_MAKE_IT_RUN = "Make its backward run and return one gradient for each input."
_NO_HOOK = "Remove the hook (keep the handle that registering it returned)."


def layer_findings(
    raw: RawAudit, module: Any, cuts: Mapping[str, str]
) -> tuple[tuple[Finding, ...], tuple[LayerMistake, ...]]:
    """Say what an audit found.

    Parameters
    ----------
    raw
        The audit.
    module
        The model.
    cuts
        What cuts the graph in its forward, and on which line: see `cuts_met`.

    Returns
    -------
    tuple
        An error for each mistake, hooks outside all modules, warnings; the mistakes.
    """
    mistakes = tuple(_mistake(blamed, cuts) for blamed in raw.blamed)
    findings = (
        *map(_finding, raw.blamed, mistakes),
        *map(_hook_finding, raw.hooked),
        *late_hooks(module),
        *_warnings(raw),
    )
    return findings, mistakes


def in_own_code(blamed: Blamed) -> bool:
    """Whether what is wrong is what a module's forward does itself, with no hook."""
    return blamed.frame.kind == "module" and not blamed.outcome.hook


def _finding(blamed: Blamed, mistake: LayerMistake) -> Finding:
    character = blamed.outcome.character
    kind, confidence = "unknown", 0.3
    if character is not None:
        kind, confidence = character.kind, character.confidence
    advice = _advice(blamed, kind)
    if mistake.hook:
        # the hook is known to be the cause, whatever it does
        if kind in {"unknown", "ignores_upstream"}:
            kind, confidence = "surrogate", 0.9
        if kind == "missing_reduction":  # of no mean, whatever axis is as long
            kind = "scale"
        advice = _NO_HOOK
    elif mistake.cuts:
        met = ", ".join(mistake.cuts)
        advice = f"Take out what stands between input and output: {met}."
        if CHECKPOINT in met:
            advice = NOT_REENTRANT
    told = mistake.sentence()
    doubts: tuple[BugKind, ...] = ()
    if blamed.outcome.raised and any(NO_GRAPH in words for words in mistake.cuts):
        # torch refuses to go back a second time through what that call has gone through
        kind, confidence, advice = "detached", 0.9, _ADVICE_FREED
    elif kind == "unknown" and blamed.outcome.together and _differentiates(blamed):
        told += " It could also be: second order."
        advice = _ADVICE_TWICE
        doubts = (BugKind.SECOND_ORDER,)
    if kind == "missing_reduction" and character and is_everyday(character.length):
        told += " It could also be: scale."
        advice += f" Or look for a factor {character.length}."
        doubts = (BugKind.SCALE,)
    where = mistake.where
    return Finding(BugKind(kind), "error", where, confidence, told, advice, doubts)


def _advice(blamed: Blamed, kind: str) -> str:
    """Say what to do about a kind of mistake, hooks and cuts aside."""
    if blamed.outcome.raised and kind != "stale_cache":
        return _MAKE_IT_RUN
    if kind == "stale_cache" and not blamed.outcome.raised:
        return _ADVICE_KEPT
    if blamed.outcome.together and kind == "unknown":
        return _ADVICE_TOGETHER
    return _ADVICE.get(kind, _ADVICE_ELSE)


def _mistake(blamed: Blamed, cuts: Mapping[str, str]) -> LayerMistake:
    """Put down what is wrong: where, how, and who only suffers."""
    frame, outcome = blamed.frame, blamed.outcome
    character = outcome.character
    backward = outcome.reason if character is None else character.words
    if outcome.hook and character is not None and character.kind == "missing_reduction":
        backward = backward.partition(", and ")[0]
    return LayerMistake(
        layer=frame.name,
        where=owner_name(frame),
        statement=f"{_culprit(blamed)} is wrong{_in_which_code(blamed)}",
        backward=backward,
        spoiled=_spoiled(blamed),
        hook=outcome.hook,
        cuts=_cuts_in_forward(blamed, cuts),
        only_slopes=character is not None and character.only_slopes,
    )


def _culprit(blamed: Blamed) -> str:
    """Name what is wrong, and where it stands.

    A module that does nothing but apply a Function is named itself.
    """
    frame, owner = blamed.frame, owner_name(blamed.frame)
    code = code_place(blamed.file, blamed.line)
    parent = frame.parent
    if frame.kind == "function" and parent is not None:
        own = getattr(parent.target, "_parameters", {})
        if len(parent.children) > 1 or own or stands_for_function(parent.target):
            place = f" ({code})" if code else ""
            return f"The Function `{frame.type}`{place} in `{owner}`"
    place = f"{frame.type}, {code}".rstrip(", ")
    return f"`{owner}` ({place})"


def _in_which_code(blamed: Blamed) -> str:
    """Which code of a layer is meant: of a container not that of its layers."""
    hook = blamed.outcome.hook
    if blamed.outcome.together:
        each = "none of which raises" if blamed.outcome.raised else "each right"
        where = f" together with its layers, {each} by itself"
    elif not blamed.frame.children:
        where = ""
    elif hook:
        where = " in its own code"
    else:
        where = " in its own code, between the calls of its layers"
    return f"{where} because of {hook}" if hook else where


def _spoiled(blamed: Blamed) -> str:
    """Which gradients are wrong for it."""
    if blamed.outcome.raised:
        return "no gradient passes through it"
    if blamed.outcome.together:
        first, *more = [variable.label for variable in blamed.outcome.wrong]
        others = f" and {len(more)} more" if more else ""
        return f"wrong is the gradient of {first}{others}"
    if blamed.upstream == 0:
        return "nothing upstream is contaminated by it"
    if blamed.upstream == 1:
        return "the one gradient upstream is only contaminated by it"
    return f"the {blamed.upstream} gradients upstream are only contaminated by it"


def _cuts_in_forward(blamed: Blamed, cuts: Mapping[str, str]) -> tuple[str, ...]:
    """Find what cuts the graph on the lines of a forward that is wrong itself."""
    if not in_own_code(blamed):
        return ()
    try:
        length = len(inspect.getsourcelines(type(blamed.frame.target).forward)[0])
    except (OSError, TypeError):  # typed in, or compiled
        return ()
    lines = {
        code_place(blamed.file, line)
        for line in range(blamed.line, blamed.line + length)
    }
    return tuple(words for words, line in cuts.items() if line in lines)


def _differentiates(blamed: Blamed) -> bool:
    """Whether a forward calls ``torch.autograd.grad``, by the names in its code."""
    forward = getattr(type(blamed.frame.target), "forward", None)
    code = getattr(forward, "__code__", None)
    return code is not None and {"autograd", "grad"} <= set(code.co_names)


def _hook_finding(hooked: HookedInput) -> Finding:
    factor = hooked.factor
    what = "changes its gradient"
    if factor is not None:
        what = f"multiplies its gradient by {factor:.6g}"
    return Finding(
        BugKind.SURROGATE if factor is None else BugKind.SCALE,
        "error",
        hooked.label,
        0.9,
        f"The hook {hooked.hook} on the tensor given as {hooked.label}, outside all "
        f"modules, {what}.",
        _NO_HOOK,
    )


def _warnings(raw: RawAudit) -> tuple[Finding, ...]:
    """One warning for all layers that were called and could not be checked."""
    rows = raw.unchecked
    if not rows:
        return ()
    names = few_of([f"`{row.name}`" for row in rows], 3)
    return (
        Finding(
            BugKind.UNKNOWN,
            "warning",
            rows[0].name,
            0.1,
            f"{names} could not be checked: {rows[0].reason}.",
            "Read the reason of each row in the table of the audit.",
        ),
    )
