"""The audit of a model's layers, as `blame` makes it and a check that failed.

What `gradlab.blame` adds to it, a closer look at what is wrong, is in `blaming.py`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from gradlab.diagnosis.blamed_layers import in_own_code, layer_findings
from gradlab.diagnosis.detecting.graphs.severed import cuts_any, cuts_met
from gradlab.differentiation.metering.meter import Meter
from gradlab.errors import InputError, InputTypeError
from gradlab.keywords import handed_on, kept_through
from gradlab.localisation.layers.audited import LayerAudit, LayerLive
from gradlab.presentation.widgets.progress import progress_of_calls
from gradlab.subject.callables import refuse_classes, refuse_criteria
from gradlab.subject.state_guard import StateGuard
from gradlab.subject.tensors.calling.programs import refuse_inference_mode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradlab.localisation.layers.checking.slight import Alone

__all__ = ["audited"]

_OPTIONS = ("loss", "seed", "memory_bound", "progress")


def audited(
    live: LayerLive,
    alone: Alone,
    memory_bound: int | None = None,
    progress: Any = None,
    meter: Meter | None = None,
) -> LayerAudit:
    """Audit a model as `blame` does, without a closer look at what is wrong.

    Parameters
    ----------
    live
        The model, its inputs, its loss and the seed.
    alone
        Checks a call by itself that is slightly wrong: says why it stays open, if it
        does, and what that took.
    memory_bound, progress
        As of `blame`.
    meter
        Of the check that it is part of: ends what does not return.
    """
    import torch

    module, inputs, kwargs, loss = live.module, live.inputs, live.kwargs, live.loss
    refuse_inference_mode()
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
        StateGuard(inputs, kwargs, loss, module) as guard,
        without_fast_paths(),
        (meter or Meter()).watching() as watched,
    ):
        program = Program.of(live, guard.generators)
        program = dataclasses.replace(program, known_wrong=meter is not None)

        def whole() -> Any:
            return module(*inputs, **kwargs)

        with (
            progress_of_calls(progress) as watch,
            handed_on("blame", kwargs, _OPTIONS),
        ):
            cuts = functools.partial(cuts_any, whole=whole)
            raw = audit(program, watch, cuts, alone, watched.timeouts)
        met = cuts_met(whole) if any(map(in_own_code, raw.blamed)) else {}
        known = raw, met
    raw, met = known
    findings, mistakes = layer_findings(raw, module, met)
    return LayerAudit(
        rows=raw.rows,
        culprits=raw.culprits,
        contaminated=raw.contaminated,
        findings=findings,
        evaluations=raw.evaluations,
        seconds=raw.seconds,
        steps=raw.steps,
        live=dataclasses.replace(live, mistakes=mistakes, in_doubt=raw.in_doubt),
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
