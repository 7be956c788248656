"""`blame`: which layer has a wrong backward, and which only suffer from it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import TYPE_CHECKING, Any

from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.diagnosis.severed import cuts_any, cuts_met
from gradlab.errors import InputError, InputTypeError
from gradlab.keywords import handed_on
from gradlab.labels import code_place
from gradlab.localisation.layers.audited import LayerAudit, LayerLive
from gradlab.localisation.layers.recording.frames import owner_name
from gradlab.presentation.widgets.progress import progress_of_calls
from gradlab.subject.callables import refuse_classes, refuse_criteria
from gradlab.subject.state_guard import StateGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gradlab.localisation.layers.audit import Blamed, RawAudit
    from gradlab.localisation.layers.recording.hooks import HookedInput

__all__ = ["CUTS", "blame"]

# what comes before the operations that cut the graph in a forward, in a sentence
CUTS = " Its forward uses "
_OPTIONS = ("loss", "seed", "memory_bound", "progress")
_ADVICE = {
    "scale": "Look for the factor that its backward forgets, or has too much.",
    "sign": "Look for the minus that its backward forgets, or has too much.",
    "detached": "Look for detach(), .data, .item(), no_grad, autograd.grad without "
    "create_graph, or a None in its backward.",
    "missing_reduction": "Divide by that length exactly where the forward does.",
    "ignores_upstream": "Multiply by the incoming gradient in its backward.",
    "nonfinite": "Look for a division by zero or a root of zero in its backward.",
}


def blame(
    module: Any,
    *inputs: Any,
    loss: Callable[[Any], Any] | None = None,
    seed: int = 0,
    memory_bound: int | None = None,
    progress: Any = None,
    **kwargs: Any,
) -> LayerAudit:
    """Audit every submodule and every custom ``autograd.Function`` of a model.

    The model is run once, forward and backward. Then each call in it is repeated by
    itself, on the inputs and the incoming gradient that it really had, and its own
    vector-Jacobian product is compared with central differences of that piece along
    random directions. What a container does is separated from what its children do by
    cutting the children out, so every operation is looked at exactly once and the cost
    is a few training steps, whatever the depth.

    Parameters
    ----------
    module
        A ``torch.nn.Module``.
    *inputs
        What the model is called with. Tensors that require grad are audited too.
    loss
        From the model's output to a scalar tensor, say ``lambda out:
        F.cross_entropy(out, y)``; audited like a layer, under the name "loss". None
        stands for a fixed random weight per output entry.
    seed
        Of the random directions, and of the weights where there is no loss.
    memory_bound
        Bytes that may be used beside the model; default what is free now.
    progress
        As of `gradlab.check`, in calls of layers; or a function that is called with
        (calls done, calls in all).
    **kwargs
        Keyword arguments of the model.

    Returns
    -------
    LayerAudit
        `culprits` names what is wrong itself, the root cause first: the call whose
        backward runs first, that is, the one nearest to the loss; what is inside a
        container comes before the container. A custom Function names the module that
        calls it, the root goes by its class name.

    Raises
    ------
    InputError
        If the model has nothing to differentiate, the loss is not a scalar, or the
        audit would need more memory than allowed.
    InputTypeError
        If `module` is no module, or the loss no tensor.
    SubjectError
        If the model raises, or cannot be repeated.

    Notes
    -----
    Nothing is changed: parameters, buffers, ``.grad``, hooks, mode and random states
    are afterwards what they were, even after an interrupt.

    References
    ----------
    Central differences and their balance of errors: Nocedal and Wright, *Numerical
    Optimization*, 2nd ed. (2006), section 8.1.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())
    >>> audit = blame(model.double(), torch.ones(2, 3, dtype=torch.float64))
    >>> audit.culprits, [str(row.state) for row in audit.rows]
    ((), ['right', 'right', 'right'])
    """
    import torch

    refuse_classes(module)
    if not isinstance(module, torch.nn.Module):
        raise InputTypeError(
            f"blame audits a torch.nn.Module, got {type(module).__name__}; wrap a "
            "function in a module, or use gradlab.check"
        )
    if loss is not None and not callable(loss):
        raise InputTypeError(
            f"loss must be callable (output -> scalar tensor), got "
            f"{type(loss).__name__}"
        )
    refuse_criteria(loss)
    _refuse_empty(module, inputs, kwargs)
    _refuse_large(module, memory_bound)
    from gradlab.localisation.layers.audit import audit
    from gradlab.localisation.layers.recording.owners import Owners
    from gradlab.localisation.layers.recording.recorder import Program
    from gradlab.localisation.layers.recording.state import (
        random_now,
        without_fast_paths,
    )

    with StateGuard(inputs, kwargs, loss, module), without_fast_paths():
        program = Program(
            module, inputs, kwargs, loss, random_now(), seed, Owners(module)
        )

        def whole() -> Any:
            return module(*inputs, **kwargs)

        with (
            progress_of_calls(progress) as watch,
            handed_on("blame", kwargs, _OPTIONS),
        ):
            raw = audit(program, watch, functools.partial(cuts_any, whole=whole))
        met = cuts_met(whole) if any(map(_is_own_code, raw.blamed)) else {}
    return LayerAudit(
        rows=raw.rows,
        culprits=raw.culprits,
        contaminated=raw.contaminated,
        findings=(
            *(_with_cuts(_finding(blamed), blamed, met) for blamed in raw.blamed),
            *map(_hook_finding, raw.hooked),
            *_late_hooks(module),
            *_warnings(raw),
        ),
        evaluations=raw.evaluations,
        seconds=raw.seconds,
        steps=raw.steps,
        live=LayerLive(
            module, inputs, kwargs, loss, seed, tuple(b.frame.name for b in raw.blamed)
        ),
    )


def _tensors(inputs: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    import torch

    from gradlab.localisation.layers.recording.trees import leaves

    return leaves((inputs, dict(kwargs)), torch.Tensor)


def _refuse_empty(
    module: Any, inputs: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    import torch

    parameters = list(module.parameters())
    name = type(module).__name__
    lazy: Any = torch.nn.parameter.is_lazy
    if any(lazy(p) or p.is_meta for p in parameters):
        raise InputError(
            f"{name} has parameters without values (lazy, or on the meta device); run "
            "the model once, or move it to a real device with to_empty"
        )
    if any(tensor.requires_grad for tensor in (*parameters, *_tensors(inputs, kwargs))):
        return
    if not parameters:
        raise InputError(
            f"{name} has no parameters, and no input requires grad: there is nothing "
            "to differentiate; call requires_grad_() on an input to audit it"
        )
    raise InputError(
        f"all {len(parameters)} parameters of {name} are frozen, and no input requires "
        "grad: there is nothing to differentiate"
    )


def _refuse_large(module: Any, bound: int | None) -> None:
    """Estimate the memory: the largest layer three times over (gradient, moved copies).

    Activations come on top; they are those of one training step.
    """
    need, name = 0, ""
    for key, part in module.named_modules():
        own = [p for p in part._parameters.values() if p is not None]  # noqa: SLF001
        # Low precision is checked in double precision.
        size = sum(p.numel() * max(8, p.element_size()) for p in own)
        if 3 * size > need:
            need, name = 3 * size, key
    free = _free_memory(module) if bound is None else bound
    if free is not None and need > free:
        raise InputError(
            f"auditing layer `{name or type(module).__name__}` takes about "
            f"{need / 2**20:.4g} MiB beside the model, and {free / 2**20:.4g} MiB are "
            + ("free" if bound is None else "allowed by memory_bound")
            + "; audit a smaller copy of the model, with fewer units per layer"
        )


def _free_memory(module: Any) -> int | None:
    """Bytes the model's device can still give; None where it does not say."""
    import torch

    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:  # noqa: PTH123
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def _finding(blamed: Blamed) -> Finding:
    """Say what is wrong: where, how, and who only suffers."""
    frame, outcome = blamed.frame, blamed.outcome
    character = outcome.character
    culprit = _culprit(blamed)
    if blamed.upstream == 0:
        tail = "nothing upstream is contaminated by it"
    elif blamed.upstream == 1:
        tail = "the one gradient upstream is only contaminated by it"
    else:
        tail = f"the {blamed.upstream} gradients upstream are only contaminated by it"
    kind, words, confidence = "unknown", outcome.reason, 0.3
    if character is not None:
        kind, words, confidence = character.kind, character.words, character.confidence
    advice = _ADVICE.get(
        kind,
        "Compare its backward with the derivative on paper, or check this layer alone "
        "(gradlab.check), which reads its whole Jacobian.",
    )
    if outcome.hook:
        # the hook is known to be the cause, whatever it does
        if kind in {"unknown", "ignores_upstream"}:
            kind, confidence = "surrogate", 0.9
        if kind == "missing_reduction":  # of no mean, whatever axis is as long
            kind, words = "scale", words.partition(", and ")[0]
        because = f" because of {outcome.hook}"
        advice = "Remove the hook (keep the handle that registering it returned)."
    else:
        because = ""
    own_code = " in its own code, between the calls of its layers"
    if outcome.hook or not frame.children:
        own_code = " in its own code" if frame.children else ""
    if outcome.together:
        own_code = " together with its layers, each right by itself"
        first, *more = [variable.label for variable in outcome.wrong]
        others = f" and {len(more)} more" if more else ""
        tail = f"wrong is the gradient of {first}{others}"
    return Finding(
        BugKind(kind),
        "error",
        owner_name(frame),
        confidence,
        f"{culprit} is wrong{own_code}{because}: its backward {words}; {tail}.",
        advice,
    )


def _is_own_code(blamed: Blamed) -> bool:
    """Whether what is wrong is what a module's forward does itself, with no hook."""
    return blamed.frame.kind == "module" and not blamed.outcome.hook


def _with_cuts(finding: Finding, blamed: Blamed, cuts: Mapping[str, str]) -> Finding:
    """Tell what cuts the graph on the lines of a forward that is wrong."""
    if not _is_own_code(blamed):
        return finding
    try:
        length = len(inspect.getsourcelines(type(blamed.frame.target).forward)[0])
    except (OSError, TypeError):  # typed in, or compiled
        return finding
    lines = {
        code_place(blamed.file, line)
        for line in range(blamed.line, blamed.line + length)
    }
    met = [words for words, line in cuts.items() if line in lines]
    if not met:
        return finding
    return dataclasses.replace(
        finding,
        evidence=f"{finding.evidence}{CUTS}{', '.join(met)}, where no gradient passes.",
        advice=f"Take out what stands between input and output: {', '.join(met)}.",
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
        if len(parent.children) > 1 or own:
            place = f" ({code})" if code else ""
            return f"The Function `{frame.type}`{place} in `{owner}`"
    place = f"{frame.type}, {code}".rstrip(", ")
    return f"`{owner}` ({place})"


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
        "Remove the hook (keep the handle that registering it returned).",
    )


def _late_hooks(module: Any) -> tuple[Finding, ...]:
    """Warn of hooks that change ``.grad`` after the backward: no audit runs those."""
    names = [
        name
        for name, parameter in module.named_parameters()
        if getattr(parameter, "_post_accumulate_grad_hooks", None)
    ]
    if not names:
        return ()
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return (
        Finding(
            BugKind.UNKNOWN,
            "warning",
            names[0],
            0.1,
            f"`{names[0]}`{more} has a hook that runs after its gradient was "
            "accumulated; what it does to .grad was not looked at.",
            "Look at what was given to register_post_accumulate_grad_hook.",
        ),
    )


def _warnings(raw: RawAudit) -> tuple[Finding, ...]:
    """One warning for all layers that were called and could not be checked."""
    rows = raw.unchecked
    if not rows:
        return ()
    names = ", ".join(f"`{row.name}`" for row in rows[:3])
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    return (
        Finding(
            BugKind.UNKNOWN,
            "warning",
            rows[0].name,
            0.1,
            f"{names}{more} could not be checked: {rows[0].reason}.",
            "Read the reason of each row in the table of the audit.",
        ),
    )
