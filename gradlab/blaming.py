"""`blame`: which layer has a wrong backward, and which only suffer from it."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from gradlab.diagnosis.blamed_layers import in_own_code, layer_findings
from gradlab.diagnosis.severed import cuts_any, cuts_met
from gradlab.errors import InputError, InputTypeError
from gradlab.keywords import handed_on, kept_through, spelt
from gradlab.localisation.layers.audited import LayerAudit, LayerLive
from gradlab.presentation.widgets.progress import progress_of_calls
from gradlab.subject.callables import refuse_classes, refuse_criteria
from gradlab.subject.state_guard import StateGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["blame"]

_OPTIONS = ("loss", "seed", "memory_bound", "progress")


@spelt
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
    from gradlab.localisation.layers.recording.recorder import Program
    from gradlab.localisation.layers.recording.state import without_fast_paths

    known: tuple[Any, ...] = ()
    with (
        kept_through(lambda: bool(known)),
        StateGuard(inputs, kwargs, loss, module),
        without_fast_paths(),
    ):
        live = LayerLive(module, inputs, kwargs, loss, seed)
        program = Program.of(live)

        def whole() -> Any:
            return module(*inputs, **kwargs)

        with (
            progress_of_calls(progress) as watch,
            handed_on("blame", kwargs, _OPTIONS),
        ):
            raw = audit(program, watch, functools.partial(cuts_any, whole=whole))
        met = cuts_met(whole) if any(map(in_own_code, raw.blamed)) else {}
        known = raw, met, live
    raw, met, live = known
    findings, mistakes = layer_findings(raw, module, met)
    return LayerAudit(
        rows=raw.rows,
        culprits=raw.culprits,
        contaminated=raw.contaminated,
        findings=findings,
        evaluations=raw.evaluations,
        seconds=raw.seconds,
        steps=raw.steps,
        live=dataclasses.replace(live, mistakes=mistakes),
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
