"""Judging an answer without giving it away.

A judge takes what a student answered and returns a sentence that says what is off, or
an empty string if it is right. The judges here are for numbers, for one of several
names, and for a set of names; what is right is computed when it is asked for.
"""

from __future__ import annotations

import dataclasses
import math
import textwrap
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gradlab.errors import InputError
from gradlab.teaching.time_limit import call_within
from gradlab.tracebacks import in_one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "Answer",
    "Exercise",
    "Open",
    "choice",
    "complaint",
    "dealt",
    "names",
    "number",
]

Status = Literal["open", "right", "wrong"]

_SECONDS = 20.0  # for a student's code; the longest exercise takes about two
_GLYPHS = {"open": "○", "right": "✓", "wrong": "✗"}


class Open(Exception):  # noqa: N818 - not an error: nothing has been tried yet
    """Raised by a judge: there is nothing to judge yet."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What is said about an answer.

    Attributes
    ----------
    exercise
        Its number, "2.1" for the first of the second lesson.
    status
        "open" if nothing was answered yet, "right" or "wrong".
    words
        What is off; or, if it is right, what it shows.
    """

    exercise: str
    status: Status
    words: str

    @property
    def right(self) -> bool:
        """Whether the exercise is solved."""
        return self.status == "right"

    def __str__(self) -> str:
        head = f"{_GLYPHS[self.status]} {self.exercise}  "
        said = {"open": "not solved yet: ", "right": "right. ", "wrong": ""}
        return textwrap.fill(
            said[self.status] + self.words,
            width=80,
            initial_indent=head,
            subsequent_indent=" " * len(head),
        )

    def __repr__(self) -> str:  # the last line of a cell is read by people
        return str(self)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Exercise:
    """One question.

    Attributes
    ----------
    task
        What is to be handed over, in a few words.
    judge
        ``judge(answer, seed)`` returns what is off, "" if nothing is. It raises `Open`
        where there is nothing to judge yet.
    moral
        What a right answer shows, in one sentence.
    """

    task: str
    judge: Callable[[Any, int], str]
    moral: str

    def answer(self, name: str, value: Any, seed: int) -> Answer:
        """Judge one answer, whatever it is."""
        if value is None or value is Ellipsis:
            return Answer(name, "open", f"hand over {self.task}.")
        try:
            words = call_within(_SECONDS, lambda: self.judge(value, seed))
        except (Open, NotImplementedError):
            return Answer(name, "open", f"hand over {self.task}.")
        except Exception as error:  # noqa: BLE001 - whatever a student's code raises
            return Answer(name, "wrong", complaint(error))
        return Answer(name, "wrong" if words else "right", words or self.moral)


def complaint(error: BaseException) -> str:
    """Say what somebody's code raised.

    Examples
    --------
    >>> complaint(ZeroDivisionError("division by zero"))
    'it raised ZeroDivisionError: division by zero'
    """
    return f"it raised {in_one_line(error, 200)}"


def dealt(kinds: Sequence[str], letter: str, stream: Sequence[int]) -> str:
    """Return which of several kinds is behind a letter; each is behind one.

    Parameters
    ----------
    kinds
        As many as there are letters.
    letter
        "A" for the first.
    stream
        Seeds of the order.

    Raises
    ------
    InputError
        A `ValueError`, if there is no such letter.

    Examples
    --------
    >>> sorted(dealt(["sign", "factor"], letter, [0, 1]) for letter in "AB")
    ['factor', 'sign']
    """
    letters = [chr(ord("A") + k) for k in range(len(kinds))]
    if letter not in letters:
        raise InputError(f"letter must be one of {', '.join(letters)}, got {letter!r}")
    order = np.random.default_rng(stream).permutation(len(kinds))
    return kinds[int(order[letters.index(letter)])]


def _of_value(judge: Callable[[Any], str]) -> Callable[[Any, int], str]:
    """Make a judge of one that does not need the seed."""
    return lambda value, _seed: judge(value)


def number(
    truth: Callable[[], float],
    slips: Mapping[str, Callable[[float], float]] | None = None,
    *,
    within: float = 1.02,
) -> Callable[[Any, int], str]:
    """Judge a number, and name the slips that lead to known wrong ones.

    Parameters
    ----------
    truth
        Computes the right number.
    slips
        A sentence for each known slip -> the number that it leads to, from the right
        one.
    within
        Factor by which an answer may be off either way.

    Examples
    --------
    >>> judge = number(lambda: 6.0, {"that is the radius": lambda truth: truth / 2})
    >>> judge(6, 0), judge(3, 0), judge(500, 0)
    ('', 'that is the radius', 'too large, by more than a factor of ten')
    """

    def judge(value: Any) -> str:
        try:
            # an array or tensor with one entry is a number, too
            found = float(value.item() if hasattr(value, "item") else value)
        except (TypeError, ValueError, RuntimeError):
            return f"a number was expected, not a {type(value).__name__}"
        if not math.isfinite(found):
            return f"a finite number was expected, not {found}"
        right = truth()
        if _close(found, right, within):
            return ""
        for words, slip in (slips or {}).items():
            if _close(found, slip(right), min(within, 1.5)):
                return words
        if found == 0 or found * right < 0:
            return "the sign is not right" if found else "it is not zero"
        far = max(found / right, right / found) > 10
        side = "large" if abs(found) > abs(right) else "small"
        by = "more" if far else "less"
        return f"too {side}, by {by} than a factor of ten"

    return _of_value(judge)


def _close(found: float, right: float, within: float) -> bool:
    if right == 0 or found * right <= 0:
        return found == right
    return max(found / right, right / found) <= within


def choice(
    truth: Callable[[], str], wrong: Mapping[str, str]
) -> Callable[[Any, int], str]:
    """Judge one of several names.

    Parameters
    ----------
    truth
        Computes the right name.
    wrong
        Name -> what speaks against it, for all that can be chosen; the sentence of the
        right one is never said.

    Examples
    --------
    >>> judge = choice(lambda: "b", {"a": "look again", "b": "look again"})
    >>> judge("a", 0), judge("c", 0), judge("b", 0)
    ('look again', "choose one of 'a', 'b'", '')
    """

    def judge(value: Any) -> str:
        chosen = value.strip() if isinstance(value, str) else ""
        chosen = chosen if chosen in wrong else chosen.lower()
        if chosen not in wrong:
            return f"choose one of {_listed(wrong)}"
        return "" if chosen == truth() else wrong[chosen]

    return _of_value(judge)


def names(
    truth: Callable[[], Iterable[str]], among: Iterable[str], hint: str
) -> Callable[[Any, int], str]:
    """Judge a set of names: how many are right is said, which ones is not.

    Parameters
    ----------
    truth
        Computes the right names.
    among
        All that can be chosen.
    hint
        Where to look again.

    Examples
    --------
    >>> judge = names(lambda: {"W1", "b1"}, ["W1", "b1", "W2"], "look at the mask")
    >>> judge(["W1", "W2"], 0)
    '1 of your 2 belongs there and 1 is missing: look at the mask'
    """
    known = tuple(among)

    def judge(value: Any) -> str:
        try:
            chosen = {value} if isinstance(value, str) else set(value)
        except TypeError:
            return f"a list of names was expected, not a {type(value).__name__}"
        strange = [name for name in chosen if name not in known]
        if strange:
            return f"{strange[0]!r} is not among {_listed(known)}"
        right = set(truth())
        if chosen == right:
            return ""
        good, missing = len(chosen & right), len(right - chosen)
        verb = "belongs" if good == 1 else "belong"
        lack = f"{missing or 'none'} {'is' if missing <= 1 else 'are'} missing"
        return f"{good} of your {len(chosen)} {verb} there and {lack}: {hint}"

    return _of_value(judge)


def _listed(options: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in options)
