"""`blame`: which layer has a wrong backward, and which only suffer from it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from gradlab.auditing import audited
from gradlab.building import valid_seed
from gradlab.comparison.tolerance import Tolerance
from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.differentiation.metering.budget import parse_memory
from gradlab.differentiation.method import Auto
from gradlab.errors import GradlabError
from gradlab.keywords import spelt
from gradlab.labels import few_of
from gradlab.localisation.layers.audited import LayerAudit, LayerLive, LayerState
from gradlab.pipeline.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradlab.pipeline.local_reports import LooksAlone

__all__ = ["blame"]

_ACQUITTED = "no derivative of what it returns, and right in this model"
_RIGHT = "agrees with its difference quotient"
_LOOKS = 3  # layers of unknown mistakes that are looked at by themselves
_COORDINATES = 500  # of a layer that is looked at by itself: a thousand evaluations


@spelt
def blame(
    module: Any,
    *inputs: Any,
    loss: Callable[[Any], Any] | None = None,
    seed: int = 0,
    memory_bound: int | str | None = None,
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
        Bytes that may be used beside the model, or a text such as "512MiB"; default
        what is free now.
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
        If the model has nothing to differentiate, the loss is not a scalar, the audit
        would need more memory than allowed, or an option cannot be read.
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
    live = LayerLive(module, inputs, kwargs, loss, valid_seed(seed))
    bound = None
    if memory_bound is not None:
        bound = parse_memory(memory_bound, "memory_bound", least=1)
    from gradlab.pipeline.local_reports import LooksAlone

    looks = LooksAlone()
    audit = audited(live, looks.left_open, bound, progress)
    acquitted = _acquitted(audit)
    return _explained(audit, looks) if acquitted is None else acquitted


def _acquitted(audit: LayerAudit) -> LayerAudit | None:
    """Take accusations of Functions back if the gradient of the model is right.

    What they hand on is then an agreement with others, and no mistake: gradients that
    were computed elsewhere and are attached to a value, or tangents of a group.
    """
    live = audit.live
    if live is None or not live.in_doubt or live.kwargs:  # which no check takes
        return None
    from gradlab.checks import check

    try:
        report = check(
            live.module, *live.inputs, loss=live.loss, seed=live.seed, diagnose=False
        )
    except GradlabError:
        return None
    except KeyboardInterrupt:  # what is known is worth having
        return audit
    if report.verdict != Verdict.AGREES:
        return None
    wrong = [row for row in audit.rows if row.state == LayerState.WRONG]
    now: dict[LayerState, dict[str, Any]] = {
        LayerState.WRONG: {
            "state": LayerState.UNCHECKED,
            "reason": _ACQUITTED,
            "idle": True,
        },
        LayerState.CONTAMINATED: {"state": LayerState.RIGHT, "reason": _RIGHT},
    }
    rows = tuple(
        dataclasses.replace(row, **now.get(row.state, {})) for row in audit.rows
    )
    functions = list(dict.fromkeys(f"`{r.type}`" for r in wrong if ":" in r.name))
    hand = "hands" if len(functions) == 1 else "hand"
    told = Finding(
        BugKind.SURROGATE,
        "note",
        audit.culprits[0],
        0.9,
        f"{few_of(functions, 3)} {hand} on what is no derivative of the numbers that "
        f"come out there; what comes out at the parameters of the model is right.",
        "Nothing to do, as long as it is used as it is here.",
    )
    return dataclasses.replace(
        audit,
        rows=rows,
        culprits=(),
        contaminated=(),
        findings=(told, *(f for f in audit.findings if f.severity != "error")),
        evaluations=audit.evaluations + report.evaluations,
        seconds=audit.seconds + report.seconds,
        live=dataclasses.replace(live, mistakes=(), in_doubt=False),
    )


def _explained(audit: LayerAudit, looks: LooksAlone) -> LayerAudit:
    """Name the cause of the first mistakes that have none, if their layers are small.

    Each layer's own Jacobian tells: of one sample, and of a few coordinates at most, so
    that an audit stays as cheap as it was.
    """
    from gradlab.pipeline.local_reports import explained, local_report

    if audit.live is None:
        return audit
    mistakes, looked = audit.live.mistakes, 0
    for k, (finding, mistake) in enumerate(zip(audit.findings, mistakes, strict=False)):
        if finding.kind != BugKind.UNKNOWN or looked == _LOOKS:
            continue
        looked += 1
        try:
            plan = Plan(Auto(), Tolerance(), "auto", audit.live.seed)
            local = local_report(
                audit, mistake.layer, plan=plan, most=_COORDINATES, looks=looks
            )
        except GradlabError:  # too many coordinates, say: the next may have few
            continue
        except KeyboardInterrupt:  # what is known is worth having
            return audit
        told = explained(finding, mistake, local)
        if mistake.cuts:  # these are named already, with their lines
            told = dataclasses.replace(
                finding, kind=told.kind, confidence=told.confidence, doubts=told.doubts
            )
        audit = dataclasses.replace(
            audit,
            findings=(*audit.findings[:k], told, *audit.findings[k + 1 :]),
            evaluations=audit.evaluations + local.evaluations,
            seconds=audit.seconds + local.seconds,
        )
    return audit
