"""What the lessons in `tutorials/` call: predictions compared, answers judged.

Every lesson asks for a prediction before it shows an experiment, and ends in exercises.
The answers are not written down here or in the lessons: what is right is computed, by
algebra or by a fresh measurement, when somebody asks.
"""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING, Any

from gradlab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradlab.teaching.answering import Answer, Exercise

__all__ = ["Remark", "check_answer", "compare", "exercises"]

# modules of gradlab.teaching with a table EXERCISES, in the order of the lessons
_SHELVES = (
    "exercises_steps",
    "exercises_hunt",
    "exercises_functions",
    "exercises_training",
    "exercises_scale",
)


class Remark(str):
    """A sentence that the end of a cell shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def exercises() -> Mapping[str, Exercise]:
    """Return all exercises by number, in the order of the lessons.

    Examples
    --------
    >>> list(exercises())[:2]
    ['1.1', '1.2']
    """
    found: dict[str, Exercise] = {}
    for shelf in _SHELVES:
        found |= importlib.import_module(f"gradlab.teaching.{shelf}").EXERCISES
    return found


def check_answer(exercise: str, answer: Any, *, seed: int = 0) -> Answer:
    """Judge an answer, and say what is off without giving the right one.

    Parameters
    ----------
    exercise
        Its number in the lesson, such as "2.1".
    answer
        What the lesson asks for: a number, a name, names, a function or a class. None
        and ``...`` stand for "not solved yet", and so does code that raises
        `NotImplementedError`.
    seed
        Of the hidden inputs; where a lesson deals puzzles, of the puzzle.

    Returns
    -------
    Answer
        ``answer.right``, and a sentence at the end of a cell. Nothing is raised
        because an answer is wrong, whatever a student's code does.

    Raises
    ------
    InputError
        If there is no such exercise.

    Examples
    --------
    >>> check_answer("1.1", None)
    ○ 1.1  not solved yet: hand over the time in seconds, a number.
    >>> check_answer("1.1", -3.0).right
    False
    """
    found = exercises()
    if exercise not in found:
        msg = f"there is no exercise {exercise!r}; there are {', '.join(found)}"
        raise InputError(msg)
    return found[exercise].answer(exercise, answer, seed)


def compare(prediction: Any, measured: Any, *, within: float = 1.05) -> Remark:
    """Put a prediction beside what was measured.

    Parameters
    ----------
    prediction
        A number or a name, written down before the experiment; None if there is none.
    measured
        What the experiment gave.
    within
        Factor by which a number may be off and still be well predicted.

    Returns
    -------
    Remark
        One sentence. A prediction that was wrong costs nothing: what surprises is
        remembered.

    Examples
    --------
    >>> compare(10, 99.7)
    You predicted 10, measured was 99.7: 10 times as much. Why?
    >>> compare("W1", "W1")
    You predicted W1, and so it is.
    """
    if prediction is None or prediction is Ellipsis:
        return Remark(f"Measured: {_shown(measured)}. What would you have predicted?")
    head = f"You predicted {_shown(prediction)}"
    if _is_number(prediction) and _is_number(measured):
        return Remark(f"{head}, {_numbers(float(prediction), float(measured), within)}")
    if prediction == measured:
        return Remark(f"{head}, and so it is.")
    return Remark(f"{head}, it turned out to be {_shown(measured)}. Why?")


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool | str) and hasattr(value, "__float__")


def _numbers(mine: float, measured: float, within: float) -> str:
    """Compare two numbers in words."""
    shown = f"measured was {_shown(measured)}"
    if mine == measured:
        return f"{shown}: well predicted."
    ratio = measured / mine if mine else math.nan
    if not math.isfinite(ratio) or ratio <= 0:
        return f"{shown}. Why?"
    if max(ratio, 1 / ratio) <= within:
        return f"{shown}: well predicted."
    if max(ratio, 1 / ratio) < 2:
        return f"{shown}: near, but not it. Why?"
    if ratio > 1:
        return f"{shown}: {_shown(ratio, 2)} times as much. Why?"
    return f"{shown}: a factor of {_shown(1 / ratio, 2)} less. Why?"


def _shown(value: Any, digits: int = 3) -> str:
    if not _is_number(value):
        return str(value)
    number = float(value)
    if number == round(number) and abs(number) < 1e6:
        return f"{number:.0f}"
    return f"{number:.{digits}g}"
