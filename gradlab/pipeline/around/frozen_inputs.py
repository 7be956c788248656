"""Gradients that are right together, and other ones where an input is frozen.

A backward written by hand asks `ctx.needs_input_grad` what it can leave out, and may
leave out what another gradient is made of. A check asks for all gradients at once, and
never sees it; who freezes a layer does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.differentiation.noise.analytic_noise import rest_of_zero
from gradlab.labels import few_of
from gradlab.subject.subject import output_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter

__all__ = ["asked_for_alone"]

_LARGE = 1 << 24  # bytes of inputs above which further passes are felt
_EACH = 4  # inputs that are asked for one by one; of more, every other one
_NAMED = 3


def asked_for_alone(
    subject: Any, base: NDArray[np.float64], meter: Meter
) -> Iterator[Finding]:
    """Ask for the gradients of some inputs, the others being constants.

    Meant for graphs that contain code of the user's: torch's own operations give the
    same. A forward and a backward pass for each group of inputs, four groups at most.

    Parameters
    ----------
    subject
        Of torch, at its point; evaluated before.
    base
        f at the point, shape (rows,).
    meter
        No gradient is asked for beyond the seconds of its budget.

    Raises
    ------
    BudgetExhausted
        If they are over.
    """
    count = len(subject.inputs)
    size = sum(cell.values.nbytes for cell in subject.cells)
    if count < 2 or size > _LARGE or not output_rows(subject.outputs):
        return
    meter.in_time()
    cotangent = np.cos(1.0 + 1.7 * np.arange(len(base)))
    everything = range(count)
    whole = _gradients(subject, cotangent, everything)
    if whole is None:
        return
    groups: list[Sequence[int]] = [[k] for k in everything]
    if count > _EACH:
        groups = [everything[::2], everything[1::2]]
    for group in groups:
        # of what has no gradient at all nothing more can be lost
        if not any(whole[k].any() for k in group):
            continue
        meter.in_time()
        alone = _gradients(subject, cotangent, group)
        told = _difference(subject, base @ cotangent, whole, alone, group)
        if told and not _moves(subject, cotangent, whole):
            yield _found(subject, group, told)
            return


def _gradients(
    subject: Any, cotangent: NDArray[np.float64], group: Sequence[int]
) -> dict[int, NDArray[np.float64]] | None:
    """Gradients of some inputs by number; None where that raises, or gives none."""
    found: dict[int, NDArray[np.float64]] = {}

    def take(k: int, gradient: NDArray[Any]) -> None:
        found[k] = np.array(gradient, dtype=np.float64)

    if subject.analytic.stream(cotangent, group, take) is None:
        return None
    return found


def _difference(
    subject: Any,
    height: float,
    whole: dict[int, NDArray[np.float64]],
    alone: dict[int, NDArray[np.float64]] | None,
    group: Sequence[int],
) -> str:
    """Say what is another gradient than it was, in words; "" if nothing is."""
    if alone is None:
        names = few_of([subject.inputs[k].name for k in group], _NAMED)
        return f"there is none for {names} either, or the backward raises"
    epsilon = float(subject.epsilon)
    for k in group:
        one, two = whole[k], alone[k]
        if not np.isfinite(one).all():
            continue
        size = float(np.abs(one).max(initial=0.0))
        apart = float(np.abs(two - one).max(initial=0.0))
        if not apart <= max(epsilon**0.5 * size, rest_of_zero(subject, k, abs(height))):
            part = apart / size if size else np.inf
            name = subject.inputs[k].name
            return f"that of {name} changes by {part:.2g} times its size"
    return ""


def _moves(
    subject: Any, cotangent: NDArray[np.float64], whole: dict[int, NDArray[np.float64]]
) -> bool:
    """Whether gradients of all inputs, asked for again, are other ones themselves."""
    again = _gradients(subject, cotangent, range(len(subject.inputs)))
    if again is None:
        return True
    return any(
        not np.array_equal(one, again[k], equal_nan=True) for k, one in whole.items()
    )


def _found(subject: Any, group: Sequence[int], told: str) -> Finding:
    names = [subject.inputs[k].name for k in group]
    others = [v.name for k, v in enumerate(subject.inputs) if k not in group]
    return Finding(
        BugKind.UNKNOWN,
        "error",
        names[0],
        0.9,
        f"With no gradient asked for {few_of(others, _NAMED)} (frozen, or plain data) "
        f"{told}.",
        "Let backward compute what each gradient needs, whatever "
        "ctx.needs_input_grad says of the other inputs.",
    )
