"""Detector of tables whose rows are looked up twice and written once: embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.lookups import counted, is_table, lined_up
from gradlab.diagnosis.measuring.measures import EXACT, Case, Clue, reaches
from gradlab.diagnosis.measuring.moving import slopes_at
from gradlab.diagnosis.measuring.places import index_words
from gradlab.subject.subject import unit_vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["every_row_repeated", "named_rows", "repeated_rows"]

_SUSPECTED = 0.52  # trust in what nothing speaks against
_FEWEST = 4  # rows of which some are wrong by an index and by no accident
_ASKED = 2  # entries whose slopes have to stay
_SAME = 1e-5  # relative: a slope that has stayed


def repeated_rows(case: Case) -> list[Clue]:
    """Detect a table that is wrong in just those rows that are looked up repeatedly.

    ``g[ids] += d`` adds once to each row, however often its index stands in `ids`. So
    it is of columns, and ``g[:, ids] += d``.
    """
    if not is_table(case):
        return []
    for axis, noun in lined_up(case):
        if clues := _repeated(case, axis, noun):
            return clues
    return []


def _repeated(case: Case, axis: int, noun: str) -> list[Clue]:
    shape = case.variable.shape
    wrong = _lines(case, case.wrong, axis)
    moves = _lines(case, ~case.numeric_zero, axis)
    for name, counts in counted(case, shape[axis]):
        several, once = (counts > 1) & moves, (counts == 1) & moves
        if not once.any() or not np.array_equal(wrong, several):
            continue
        rows = np.flatnonzero(several).tolist()
        words = index_words(rows, shape[axis], noun) or f"{len(rows)} {noun}s"
        called = f"`{name}`" if name else "an array of indices that it uses"
        uses = np.maximum(counts, 1).reshape(
            np.where(np.arange(len(shape)) == axis, -1, 1)
        )
        one = case.share(case.numeric / np.broadcast_to(uses, shape).ravel()) > EXACT
        part = ", and hold the gradient of one of these uses" if one else ""
        trust = 0.9 if int(once.sum()) + len(rows) > 3 else 0.7
        return [
            Clue(
                BugKind.LOST_ACCUMULATION,
                0.95 if one else trust,
                f"{case.name} is wrong in just those {noun}s whose index stands more "
                f"than once in {called} ({words}){part}; {noun}s that are looked up "
                f"once are right.",
                f"Use np.add.at (index_add_ in torch): an indexed assignment, and += "
                f"as well, writes each {noun} of the gradient of {case.name} once.",
            )
        ]
    return []


def named_rows(case: Case) -> list[Clue]:
    """Detect a table that is wrong in just those rows whose index an array holds.

    Its other rows have a gradient as well, of another use: scores of all words, say.
    """
    if not is_table(case) or not case.scalar or case.variable.shape[0] < _FEWEST:
        return []
    length = case.variable.shape[0]
    wrong, moves = _lines(case, case.wrong), _lines(case, ~case.numeric_zero)
    for name, counts in counted(case, length):
        there = counts > 0
        if wrong.sum() < 2 or not np.array_equal(wrong, there):
            continue
        if not (moves & ~there).any():
            continue  # none is right beside them
        rows = index_words(np.flatnonzero(there).tolist(), length, "row")
        called = f"`{name}`" if name else "an array of indices that it uses"
        return [
            Clue(
                BugKind.MISSING_TERM,
                0.79,
                f"{case.name} is wrong in just those rows whose index stands in "
                f"{called} ({rows or f'{int(there.sum())} rows'}); the others have a "
                f"gradient as well, and are right: what belongs to these indices, "
                f"looked up or counted as labels, is missing, or is another.",
                f"Add up the gradients of every use of {case.name}: np.add.at for the "
                f"rows that are looked up, beside that of the whole table.",
                (BugKind.LOST_ACCUMULATION, BugKind.WRONG_INDEX),
            )
        ]
    return []


def every_row_repeated(case: Case) -> list[Clue]:
    """Suspect a table of which every row is looked up repeatedly, and is wrong.

    None is right beside them, so that this is no more than a doubt.
    """
    if not is_table(case) or not case.scalar:
        return []
    length = case.variable.shape[0]
    moves = _lines(case, ~case.numeric_zero)
    if length < 2 or not np.array_equal(_lines(case, case.wrong), moves):
        return []
    for name, counts in counted(case, length):
        if np.array_equal(counts > 1, moves) and _rows_apart(case):
            called = f"`{name}`" if name else "an array of indices that it uses"
            return [
                Clue(
                    BugKind.LOST_ACCUMULATION,
                    _SUSPECTED,
                    f"The function keeps the rows of {case.name} apart, the index of "
                    f"each stands more than once in {called}, and all are wrong.",
                    f"Use np.add.at (index_add_ in torch): an indexed assignment, and "
                    f"+= as well, writes each row of the gradient of {case.name} once.",
                )
            ]
    return []


def _rows_apart(case: Case) -> bool:
    """Whether the slope of an entry that moves f stays when other rows move."""
    shape, which, rng = case.variable.shape, case.part.which, case.evidence.rng
    width = case.variable.size // shape[0]
    for entry in rng.permutation(np.flatnonzero(~case.numeric_zero[0]))[:_ASKED]:
        moved = case.point + (0.3 + 0.3 * np.abs(case.point)) * rng.normal(
            size=len(case.point)
        )
        own = slice(entry // width * width, (entry // width + 1) * width)
        moved[own] = case.point[own]
        unit = unit_vectors(len(moved), [entry])
        slope = slopes_at(case.evidence, {which: moved}, which, unit)[0]
        if not abs(slope - case.numeric[0, entry]) <= _SAME * abs(slope):
            return False
    return True


def _lines(case: Case, mask: NDArray[np.bool_], axis: int = 0) -> NDArray[np.bool_]:
    """Rows of the input in which anything is true, for any output."""
    touched = np.moveaxis(reaches(mask, 0).reshape(case.variable.shape), axis, 0)
    return reaches(touched.reshape(len(touched), -1), 1)
