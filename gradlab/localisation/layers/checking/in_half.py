"""Functions whose backward is another one in half precision than in double.

A call that computes in half is checked in double, where differences have digits. What a
backward does in half alone (a branch by dtype, a kernel of its own) is not looked at
then: so its gradient as the model takes it is compared with the one that is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradlab.labels import few_of
from gradlab.localisation.layers.audited import LayerState
from gradlab.localisation.layers.checking.call_outcome import CallOutcome
from gradlab.localisation.layers.checking.kept import alone
from gradlab.localisation.layers.checking.kind import Character
from gradlab.subject.tensors.values import dtype_name

if TYPE_CHECKING:
    from typing import Any

    import torch

    from gradlab.localisation.layers.checking.check import Checker
    from gradlab.localisation.layers.recording.frames import Frame
    from gradlab.localisation.layers.recording.record import Recording
    from gradlab.localisation.layers.recording.recorder import Program
    from gradlab.localisation.layers.variables import Product

__all__ = ["wrong_in_half"]

_APART = 0.25  # of all influence of the call, in the norm: no rounding comes to that
_CANCELS = 32.0  # roundings of what goes out, which a gradient of nothing is left with
_ALIKE = 0.05  # of the outputs, in the norm: beyond, it is another function in half
_STEADY = 0.05  # what a common factor may leave of the gradient, in the norm
_SURE = 0.9


def wrong_in_half(
    program: Program, recording: Recording, checker: Checker
) -> list[tuple[Frame, CallOutcome]]:
    """Find Functions that are right in double, and give another gradient in half.

    Parameters
    ----------
    program, recording
        A model, of which all calls are right by themselves.
    checker
        That found them so.

    Returns
    -------
    list
        Such calls, and what is wrong about them.
    """
    found = []
    for frame in recording.all:
        half = _half(frame)
        if frame.kind != "function" or not frame.reached or half is None:
            continue
        if frame.exit_random is not frame.entry.random:  # other draws in other formats
            continue
        own = alone(program, frame, checker)
        right = alone(program, frame, checker, raised=True)
        if own is None or right is None or not _same_function(own, right):
            continue
        if wrong := _apart(own, right, half):
            found.append((frame, _outcome(own, right, wrong, half)))
    return found


def _outcome(
    own: Product, right: Product, wrong: list[int], half: torch.dtype
) -> CallOutcome:
    """Say which gradients differ, and by what factor if they have one in common."""
    variables = [right.variables[k] for k in wrong]
    factors = [_factor(own.gradients[k], right.gradients[k]) for k in wrong]
    words = (
        f"gives another gradient of {few_of([v.label for v in variables], 3)} in "
        f"{dtype_name(half)} than in float64, which is right"
    )
    common = max(factors) - min(factors) <= _STEADY * abs(factors[0])
    kind = "scale" if common and factors[0] else "unknown"
    if kind == "scale":
        words += f": {factors[0]:.3g} times that"
    return CallOutcome(
        LayerState.WRONG,
        f"its backward {words}",
        wrong=variables,
        character=Character(kind, words, _SURE),
    )


def _half(frame: Frame) -> torch.dtype | None:
    """Return the format of half precision that a call is handed, if it is any."""
    import torch

    dtypes = [slot.value.dtype for slot in frame.inputs if slot.wanted]
    return next((d for d in dtypes if d in (torch.float16, torch.bfloat16)), None)


def _same_function(own: Product, right: Product) -> bool:
    """Whether both are the same but for what half precision rounds off."""
    if [v.label for v in own.variables] != [v.label for v in right.variables]:
        return False
    pairs = zip(own.outputs, right.outputs, strict=True)
    return all(
        bool((_double(a) - _double(b)).norm() <= _ALIKE * _double(b).norm())
        for a, b in pairs
        if a is not None and b is not None
    )


def _apart(own: Product, right: Product, half: torch.dtype) -> list[int]:
    """List the variables whose gradients differ by a share of all that the call does.

    Of gradients that cancel to nothing rounding is all there is: what counts is what a
    difference would do to the loss, beside the influence of all inputs.
    """
    import torch

    unit = _CANCELS * torch.finfo(half).eps
    sizes = [_double(v.base).norm() for v in right.variables]
    influence = [
        _double(gradient).norm() * size
        for gradient, size in zip(right.gradients, sizes, strict=True)
        if gradient is not None
    ]
    influence += [
        unit * _double(weight).norm() * _double(out).norm()
        for weight, out in zip(right.cotangents, right.outputs, strict=False)
        if weight is not None and out is not None
    ]
    whole = max((float(each) for each in influence), default=0.0)
    found = []
    for k, (a, b) in enumerate(zip(own.gradients, right.gradients, strict=True)):
        if a is None or b is None:
            continue
        gap = float((_double(a) - _double(b)).norm() * sizes[k])
        if _APART * whole < gap < float("inf"):
            found.append(k)
    return found


def _factor(own: Any, right: Any) -> float:
    """Tell what the one gradient is times the other; 0 if it is no such factor."""
    own, right = _double(own), _double(right)
    size = right.norm()
    factor = float((own / size * right.conj() / size).real.sum()) if size else 0.0
    steady = (own - factor * right).norm() <= _STEADY * own.norm()
    return factor if steady else 0.0


def _double(tensor: Any) -> Any:
    import torch

    wide = torch.complex128 if tensor.is_complex() else torch.float64
    return tensor.detach().to(wide)
