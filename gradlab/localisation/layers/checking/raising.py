"""Calls whose backward raises: whether that is their own fault, or of the replay."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from gradlab.labels import few_of
from gradlab.localisation.layers.audited import LayerState
from gradlab.localisation.layers.checking.call_outcome import CallOutcome
from gradlab.localisation.layers.checking.kind import Character
from gradlab.subject.analytic_sides import OVERWRITTEN

if TYPE_CHECKING:
    from gradlab.localisation.layers.recording.frames import Frame
    from gradlab.localisation.layers.replaying.replay import Piece
    from gradlab.localisation.layers.variables import Variable

__all__ = ["failed_backward"]

_PARTICULARS = re.compile(r"[\[(\d]")  # shapes, dtypes and counts: not so in a replay
_MOST = 32  # tensors that are asked for one by one


def failed_backward(piece: Piece, message: str, raised: str) -> CallOutcome:
    """Judge a call whose backward raises when it is run by itself.

    Parameters
    ----------
    piece
        The call.
    message
        What it raised, in words.
    raised
        What the backward of the whole model raised; "" if nothing.
    """
    if "invalid gradient" in message and "shape" in message:
        return _wrong(piece, message, Character("wrong_shape", "", 1.0))
    if OVERWRITTEN in message and _alike(message, raised):
        message += _overwriting(piece.frame)
        return _wrong(piece, message, Character("stale_cache", "", 0.9))
    ran = piece.frame.reached and not raised
    if (piece.frame.kind == "function" and not ran) or _alike(message, raised):
        return _wrong(piece, message, Character("unknown", "", 0.5))
    # the model's own run did not raise: it may be the replay that cannot
    told = f"its backward raised {message}"
    return CallOutcome(LayerState.UNCHECKED, told, failed=True)


def _wrong(piece: Piece, message: str, character: Character) -> CallOutcome:
    """Blame a call for what its backward raised: nothing before it gets a gradient."""
    words = f"raised {message.rstrip('.')}"  # the sentence goes on
    return CallOutcome(
        LayerState.WRONG,
        f"its backward {words}",
        wrong=_without_gradient(piece),
        character=dataclasses.replace(character, words=words),
    )


def _without_gradient(piece: Piece) -> list[Variable]:
    """List what gets no gradient, even where it alone is asked for."""
    variables, found = piece.variables(), []
    for k, variable in enumerate(variables[:_MOST]):
        try:
            piece.product(only=k)
        except Exception:  # noqa: BLE001 - the user's code
            found.append(variable)
    return found + variables[_MOST:]


def _alike(message: str, raised: str) -> bool:
    """Whether a call raised by itself what the backward of the whole model raised."""
    words = _PARTICULARS.split(raised)[0]
    return bool(words) and message.startswith(words)


def _overwriting(frame: Frame) -> str:
    """Name the calls inside that write to what they are given."""
    calls = [call for call in frame.children if call.overwritten]
    names = list(dict.fromkeys(f"`{call.name}` ({call.type})" for call in calls))
    if not names:
        return ""
    does = "writes to what it is" if len(names) == 1 else "write to what they are"
    return f"; {few_of(names, 3)} {does} given"
