"""Detectors of gradients that were taken elsewhere, and are held as numbers.

What a training loop left in ``.grad`` need not be the gradient at this point, of this
batch, nor computed with as many digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.measures import Case, Clue, sides_of
from gradlab.subject.subject import holds_numbers, is_torch_subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["few_bits", "right_when_asked"]

_SEVERAL = 6  # different numbers that are hardly all short by chance
_NEAR = 0.1  # of the length of a gradient: half precision, over a few layers
_BITS, _FINE = 8, 2.0**12  # of a bfloat16; and steps of a grid that is no coarse one
_LOW = np.uint32(0xFFFF)  # bits of float32 that bfloat16 has not


def few_bits(case: Case) -> list[Clue]:
    """Detect gradients that hold numbers of bfloat16 and are nearly right."""
    if case.variable.is_complex or not 0 < case.relative_total < _NEAR:
        return []
    sides = [side for side in sides_of(case.evidence) if side.wrong.any()]
    if not all(_is_bfloat16(side.analytic) for side in sides):
        return []
    values = np.unique(np.concatenate([side.analytic[side.wrong] for side in sides]))
    if len(values) < _SEVERAL or _on_one_grid(values[values != 0]):
        return []
    return [
        Clue(
            BugKind.DTYPE,
            0.97,
            f"The gradient of {case.name} holds numbers of bfloat16, of three digits, "
            f"and is near the right one: it was computed in half precision.",
            "Check without autocast, or allow for its digits with rtol=1e-2; master "
            "weights and losses belong in float32.",
        )
    ]


def _is_bfloat16(values: NDArray[np.float64]) -> bool:
    with np.errstate(all="ignore"):
        short = np.ascontiguousarray(values, dtype=np.float32)
    exact = np.array_equal(short, values)
    return exact and not (short.view(np.uint32) & _LOW).any()


def _on_one_grid(values: NDArray[np.float64]) -> bool:
    """Whether numbers are small multiples of one, as whole numbers are."""
    fraction, exponent = np.frexp(values)
    whole = np.abs(fraction * 2**_BITS).astype(np.int64)
    units = (whole & -whole) * 2.0 ** (exponent - _BITS)
    return bool(np.abs(values).max() < _FINE * units.min())


def right_when_asked(case: Case) -> list[Clue]:
    """Detect numbers that autograd, asked at this point, does not give."""
    subject, kept = case.evidence.subject, case.evidence.kept
    if not (is_torch_subject(subject) and holds_numbers(subject)):
        return []
    if "autograd now" not in kept:
        from gradlab.subject.tensors.gradients.analytic import ReverseMode

        case.evidence.meter.spend(1)
        kept["autograd now"] = ReverseMode(subject).pull(np.ones((1, 1))).values
    now = np.asarray(kept["autograd now"][case.part.which])[:, case.part.positions]
    gap, size = np.abs(now - case.numeric)[case.wrong], np.abs(case.error)[case.wrong]
    if not (gap <= 10 * case.tolerance[case.wrong] + 1e-4 * size).all():
        return []
    return [
        Clue(
            BugKind.UNKNOWN,
            0.85,
            f"Autograd, asked now, gives the right gradient of {case.name}: the one "
            f"given was taken of another batch or at other values, or holds what an "
            f"earlier backward pass left.",
            "Set .grad to None, call backward() once on this batch, and check what "
            "that leaves before optimizer.step().",
            (BugKind.ACCUMULATED_GRAD, BugKind.STALE_CACHE),
            of_each=True,
        )
    ]
