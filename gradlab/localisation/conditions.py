"""Conditions that would poison a comparison, met before it: randomness, state, writes.

The first evaluation is watched. A function that draws random numbers is rewound to the
same draw before every evaluation; one that keeps state is rewound to the same state;
one that writes to its inputs has them put back. Each is remembered, to be told.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.differentiation.evaluation import base_row
from gradlab.errors import SubjectError
from gradlab.subject.guarding.random_state import RandomFreeze
from gradlab.subject.state_guard import HiddenState
from gradlab.subject.subject import is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.subject.state_guard import StateGuard

__all__ = ["Conditions", "first_evaluation"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a function does besides returning a value, as its first evaluations show.

    Parameters
    ----------
    random
        Names of the sources that were drawn from, and are frozen to one draw.
    state
        What the function changes, where that changes its values; it is put back.
    mutated
        Inputs that it writes to.
    dependent
        Inputs that were computed from others, each as "b from a".
    """

    random: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    mutated: tuple[str, ...] = ()
    dependent: tuple[str, ...] = ()


def first_evaluation(
    subject: Any,
    roots: tuple[object, ...],
    meter: Meter,
    guard: StateGuard | None = None,
) -> tuple[NDArray[np.float64], Conditions]:
    """Evaluate once, and make the function repeatable if it is not.

    Parameters
    ----------
    subject
        Gets its `reset` and `rewrites_inputs` set as needed.
    roots
        What the user passed: everything that state could hide in.
    meter
        Charged with one evaluation, and up to two more where state was seen to change.
    guard
        Entered with the same `roots` just before: what it has saved serves here.

    Returns
    -------
    base
        f at the point, shape (rows,).
    conditions
        What was seen, and is rewound or put back from now on.
    """
    if guard is None:
        freeze, hidden = RandomFreeze(*roots), HiddenState(*roots)
    else:
        freeze, hidden = guard.random_freeze(), guard.hidden_state()
    base = _watched(subject, meter, freeze.restore, hidden)
    mutated = tuple(subject.mutated)
    if mutated and not is_torch_subject(subject):
        subject.rewrites_inputs = True
        subject.put_back()
    steps: list[Callable[[], None]] = []
    consumed = freeze.consumed()
    if consumed:
        steps.append(lambda: freeze.restore(only=consumed))
    state: tuple[str, ...] = ()
    changes = [
        change
        for change in hidden.changes()
        if change.restorable and change.kind != "random"
    ]
    if changes and not (mutated and subject.live):
        if consumed:
            freeze.restore(only=consumed)
        again = _once_more(subject, meter)
        if again is None or not np.array_equal(again, base, equal_nan=True):
            hidden.changes()  # what a second evaluation changes belongs to it too
            state = tuple(dict.fromkeys(c.where for c in changes))
            steps.append(hidden.restore)
        elif is_torch_subject(subject):  # what a batch keeps is no tensor outside of it
            steps.append(hidden.restore)
    if steps:
        subject.reset = _all_of(steps)
        subject.reset()
    if state:  # what is compared starts from the state that is put back
        base = base_row(subject, meter)
        subject.reset()
    if is_torch_subject(subject):
        from gradlab.subject.tensors.kept_buffers import read_again, written_buffers

        if written_buffers(subject):
            meter.spend(1)
            state += read_again(subject, base)
    conditions = Conditions(
        random=consumed, state=state, mutated=mutated, dependent=subject.dependent
    )
    return base, conditions


def _watched(
    subject: Any, meter: Meter, redraw: Callable[[], None], hidden: HiddenState
) -> NDArray[np.float64]:
    """Evaluate at the point; torch does so twice, to learn its mode.

    A module may keep the length of a table in an attribute, and the table in a buffer,
    of which it has copies that are put back after each call: so is its state.
    """
    held = is_torch_subject(subject) and getattr(subject.program, "held", None)
    begun = False

    def reset() -> None:
        nonlocal begun
        redraw()
        if begun and held and hidden.changes():
            hidden.restore()
        begun = True

    subject.reset = reset
    base = base_row(subject, meter)
    subject.reset = None
    return base


def _once_more(subject: Any, meter: Meter) -> NDArray[np.float64] | None:
    """Evaluate without putting anything back; None if that raises."""
    try:
        return base_row(subject, meter)
    except SubjectError:
        return None


def _all_of(steps: list[Callable[[], None]]) -> Callable[[], None]:
    if len(steps) == 1:
        return steps[0]

    def run() -> None:
        for step in steps:
            step()

    return run
