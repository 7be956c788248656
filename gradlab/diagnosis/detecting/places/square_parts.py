"""Detector of a transpose that is lost in a part of an otherwise right Jacobian."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.measures import EXACT, Case, Clue, reaches

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["square_part"]

_LARGE = 1_000_000  # entries of a Jacobian beyond which parts are not exchanged
_SQUARE = 3  # rows of a part that is no transpose by chance
_SQUARES = 16  # places that such a part may have


def square_part(case: Case) -> list[Clue]:
    """Detect a Jacobian of which as many rows as it has columns are transposed.

    Or as many columns as it has rows.
    """
    for rows, columns in _square_parts(case):
        part = case.numeric[rows, columns]
        model = case.numeric.copy()
        model[rows, columns] = part.T
        share = case.share(model)
        if share > EXACT:
            # each output one entry, a transpose is but another order of entries
            permutes = ((~case.numeric_zero)[rows, columns].sum(axis=1) <= 1).all()
            which, taken = (
                ("columns", columns) if rows == slice(None) else ("rows", rows)
            )
            return [
                Clue(
                    BugKind.TRANSPOSE,
                    (0.92 if permutes else 0.94) * share,
                    f"The square part of the analytic Jacobian of {case.name} in its "
                    f"{which} {taken.start} to {taken.stop - 1} is that of the numeric "
                    f"one transposed; the rest agrees.",
                    f"Exchange the two indices where that part of the Jacobian of "
                    f"{case.name} is filled in, or multiply by A.T in the backward of "
                    f"y = A x, where A itself stands now.",
                )
            ]
    return []


def _square_parts(case: Case) -> Iterator[tuple[slice, slice]]:
    """Yield whole rows, or columns, that are a square with all that is wrong in it."""
    size, every = min(case.numeric.shape), slice(None)
    if not _SQUARE <= size < max(case.numeric.shape):
        return
    if case.numeric.size > _LARGE or not case.part.complete:
        return
    tall = case.numeric.shape[0] > case.numeric.shape[1]
    hit = np.flatnonzero(reaches(case.wrong, 1 if tall else 0))
    first = max(0, int(hit[-1]) - size + 1)
    last = min(int(hit[0]), max(case.numeric.shape) - size)
    for start in range(first, min(last, first + _SQUARES) + 1):
        part = slice(start, start + size)
        yield (part, every) if tall else (every, part)
