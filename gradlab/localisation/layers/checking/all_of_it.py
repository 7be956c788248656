"""Whether the gradient of a whole model is right where a Function of it is wrong.

A Function may hand on what is no derivative of the numbers that it returns, and be
right where it is used: one that attaches gradients which were computed elsewhere to a
value, or one whose backward speaks of the tangent space of a group, as the next one
understands it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.products import gradients
from gradlab.localisation.layers.recording.frames import walk
from gradlab.localisation.layers.recording.owners import standing_in
from gradlab.localisation.layers.recording.record import run_with_sums
from gradlab.localisation.layers.replaying.directions import Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gradlab.localisation.layers.checking.call_outcome import CallOutcome
    from gradlab.localisation.layers.recording.frames import Frame
    from gradlab.localisation.layers.recording.recorder import Program

__all__ = ["may_be_right"]

_DIRECTIONS = 2
_STEP = 1e-2  # of the sizes: long, for models in single precision
_CLOSE = 0.05  # relative: what is farther apart is no matter of the step


def may_be_right(
    program: Program,
    wrong: Sequence[tuple[Frame, CallOutcome]],
    names: Sequence[str],
) -> bool:
    """Whether Functions alone are wrong, and what they lead to is roughly right.

    Runs the model three times or five, where no simple mistake is known of any of them.
    What is right for certain needs a closer look.

    Parameters
    ----------
    program
        A model.
    wrong
        Calls in it.
    names
        Of parameters behind them; others are left out where there are any.
    """
    import torch

    if program.known_wrong or not wrong or not _only_odd(wrong):
        return False
    every = _parameters(program)
    chosen = [p for p in every if program.owners.name(p) in names] or every
    if not chosen:
        return False
    try:
        sums = run_with_sums(program)[1]
        found = gradients(sums, [torch.ones_like(each) for each in sums], chosen)
        pairs = list(zip(chosen, found, strict=True))
        seeds = range(program.seed, program.seed + _DIRECTIONS)
        return all(_alike(program, pairs, seed) for seed in seeds)
    except Exception:  # noqa: BLE001 - the user's code, at points it was not at before
        return False


def _only_odd(wrong: Sequence[tuple[Frame, CallOutcome]]) -> bool:
    """Whether all that is wrong are odd Functions, and modules that call them.

    The own code of a module is run with all calls cut out of it. Where a solver ends
    in a Function that differentiates it as a whole, that code follows the steps of the
    solver, and finds no gradient there, or others than the Function hands on.
    """
    if any(outcome.raised or outcome.hook for _, outcome in wrong):
        return False
    odd = {id(frame) for frame, outcome in wrong if _is_odd(frame, outcome)}
    return all(any(id(each) in odd for each in walk([frame])) for frame, _ in wrong)


def _is_odd(frame: Frame, outcome: CallOutcome) -> bool:
    """Whether a Function is wrong by no factor, and the loss depends on its backward.

    What the forward itself differentiates (a force) is right by a wrong Function too.
    """
    known = outcome.character is not None and outcome.character.kind != "unknown"
    return frame.kind == "function" and frame.reached and not known


def _parameters(program: Program) -> list[Any]:
    return [p for p in program.module.parameters() if p.requires_grad]


def _alike(program: Program, pairs: list[tuple[Any, Any]], seed: int) -> bool:
    """Whether parameters and their gradients agree with the model along a direction."""
    lines = [Direction(p.detach(), seed + k) for k, (p, _) in enumerate(pairs)]
    analytic = math.fsum(
        line.slope(found)[0] for line, (_, found) in zip(lines, pairs, strict=True)
    )
    chosen = [parameter for parameter, _ in pairs]
    ends = []
    for sign in (1.0, -1.0):
        moved = [_recorded(line.move(sign * _STEP)) for line in lines]
        with standing_in(program.owners, zip(chosen, moved, strict=True)):
            ends.append(math.fsum(float(s) for s in run_with_sums(program)[1]))
    numeric = (ends[0] - ends[1]) / (2 * _STEP)
    return abs(analytic - numeric) <= _CLOSE * max(abs(analytic), abs(numeric))


def _recorded(value: Callable[[], Any]) -> Callable[[], Any]:
    """Make values that require grad: a sum without history would be left out."""
    return lambda: value().requires_grad_()
