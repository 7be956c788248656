"""Custom Functions whose backward counts on what a later call has overwritten.

Each is right when it is run by itself. In the model others run between its forward and
its backward, and a buffer, an attribute of a class or a global that it reads on the way
back belongs to the last of them by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.labels import few_of
from gradlab.localisation.layers.audited import LayerState
from gradlab.localisation.layers.checking.call_outcome import CallOutcome
from gradlab.localisation.layers.checking.kind import Character
from gradlab.localisation.layers.products import all_finite
from gradlab.localisation.layers.recording.record import run_again
from gradlab.localisation.layers.recording.trees import Hole
from gradlab.localisation.layers.replaying.replay import Piece

if TYPE_CHECKING:
    from gradlab.localisation.layers.checking.check import Checker
    from gradlab.localisation.layers.recording.frames import Frame
    from gradlab.localisation.layers.recording.record import Recording
    from gradlab.localisation.layers.recording.recorder import Program
    from gradlab.localisation.layers.variables import Product

__all__ = ["alone", "overwritten_since"]

_DIGITS = 1e4  # roundings, by which another order of summation may differ
_SURE = 0.95


def overwritten_since(
    program: Program, recording: Recording, checker: Checker
) -> list[tuple[Frame, CallOutcome]]:
    """Find Functions whose backward answers otherwise once all has run.

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
    calls = [f for f in recording.all if f.kind == "function" and f.reached]
    if len(calls) < 2:  # one alone has nobody to disturb it
        return []
    twins = {twin.number: twin for twin in run_again(program)}
    # before any of them is run by itself: that would be the last call then
    late = {f.number: _answer(f, twins[f.number]) for f in calls if f.number in twins}
    found = []
    for frame in calls:
        answer = late.get(frame.number)
        if not answer:
            continue
        product = alone(program, frame, checker)
        places = [] if product is None else _other(frame, answer, product.passed)
        if product is None or not places:
            continue
        labels = [frame.inputs[place].label for place in places]
        words = (
            f"gives another gradient of {few_of(labels, 3)} after the whole forward "
            f"pass than right after its own, which is right: what it keeps for the way "
            f"back is overwritten in between"
        )
        outcome = CallOutcome(
            LayerState.WRONG,
            f"its backward {words}",
            wrong=[v for v in product.variables if v.label in labels],
            character=Character("stale_cache", words, _SURE),
        )
        found.append((frame, outcome))
    return found


def _answer(frame: Frame, twin: Frame) -> dict[int, Any]:
    """Ask the backward of a call, after the whole forward pass, with what arrived.

    Returns
    -------
    dict
        Gradients by the places of the inputs; empty where it cannot be asked, or
        answers otherwise when it is asked twice.
    """
    import torch

    result = (
        frame.result if isinstance(frame.result, (tuple, list)) else (frame.result,)
    )
    edges = [slot.edge for slot in twin.outputs if slot.edge is not None]
    plain = len(result) == len(frame.outputs) == len(twin.outputs)
    if not (plain and edges and all(isinstance(each, Hole) for each in result)):
        return {}

    def arrived() -> list[Any]:  # anew, for a backward may write to it
        pairs = zip(twin.outputs, frame.cotangents, strict=True)
        return [
            torch.zeros_like(slot.value) if weight is None else weight.clone()
            for slot, weight in pairs
        ]

    try:
        first, second = (edges[0].node.apply(*arrived()) for _ in range(2))
    except Exception:  # noqa: BLE001 - the user's code, called as torch calls it
        return {}
    arguments = twin.template[0]
    found: dict[int, Any] = {}
    pairs = zip(_as_tuple(first), _as_tuple(second), strict=True)
    for argument, (gradient, again) in zip(arguments, pairs, strict=False):
        if not (isinstance(argument, Hole) and isinstance(gradient, torch.Tensor)):
            continue
        if twin.inputs[argument.index].edge is None:
            continue
        if not torch.equal(gradient, again):
            return {}
        found[argument.index] = gradient.detach()
    return found


def alone(
    program: Program, frame: Frame, checker: Checker, *, raised: bool = False
) -> Product | None:
    """Run one call by itself, as the model does or in double; None where that fails."""
    piece = Piece(frame, program.owners, raised=raised)
    try:
        return piece.product()
    except Exception:  # noqa: BLE001 - the user's code
        return None
    finally:
        checker.evaluations += piece.evaluations


def _as_tuple(answer: Any) -> tuple[Any, ...]:
    return answer if isinstance(answer, tuple) else (answer,)


def _other(frame: Frame, answer: dict[int, Any], own: dict[int, Any]) -> list[int]:
    """List the inputs whose gradient is another one than that of a call alone."""
    import torch

    places = []
    for place, late in answer.items():
        early = own.get(place)
        if early is None or early.shape != late.shape or not all_finite(early):
            continue
        epsilon = torch.finfo(frame.inputs[place].value.dtype).eps
        size = float(early.abs().max()) if early.numel() else 0.0
        apart = float((early - late).abs().max()) if early.numel() else 0.0
        if not apart <= _DIGITS * epsilon * size:
            places.append(place)
    return places
