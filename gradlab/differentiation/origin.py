"""Where differences start from."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.subject.subject import Subject

__all__ = ["Origin", "computes_otherwise"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """A subject at its point, and f there, (rows,), which all differences share."""

    subject: Subject
    base: NDArray[np.float64]


def computes_otherwise(own: Origin, twin: Origin) -> NDArray[np.bool_]:
    """Tell outputs, (rows,), that a twin in other arithmetic computes otherwise.

    In another branch, or with another draw. Rounding inside explains a tenth; of a
    function that draws random numbers so much may be another draw, of a mean over many,
    and no more is taken for rounding than the root of the round-off.
    """
    base, known = own.base, np.isfinite(own.base)
    rough, least = 0.1, 1e-2
    if own.subject.reset is not None or twin.subject.draws:
        rough = least = min(own.subject.epsilon**0.5, least)
    size = float(np.max(np.abs(base), where=known, initial=0.0))
    with np.errstate(all="ignore"):
        near = np.abs(twin.base - base) <= rough * np.abs(base) + least * size
    return np.asarray(known & ~near)
