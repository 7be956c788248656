"""The bug hunt without its window: levels, checks, hints, score and the log.

Everything here works in a plain Python session. `gl.BugHunt` shows it in a notebook.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.building import valid_seed
from gradlab.errors import InputError
from gradlab.teaching.isolation import grade
from gradlab.teaching.level import Level
from gradlab.teaching.levels import playable
from gradlab.teaching.marking import judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradlab.teaching.grading import Grade
    from gradlab.teaching.marking import Row

__all__ = ["Hunt", "Outcome"]

_POINTS, _PER_HINT, _PER_RETRY, _FLOOR = 100, 20, 5, 20


def _read_levels(levels: Sequence[Level] | None) -> tuple[Level, ...]:
    """Read which levels are played; all there are where none are given.

    Raises
    ------
    InputError
        Naming what is no level; a number of one is no level either.
    """
    if levels is None:
        return playable()
    if not isinstance(levels, (list, tuple)) or not levels:
        msg = f"levels= takes a list of at least one Level, got {levels!r}"
        raise InputError(msg)
    for each in levels:
        if not isinstance(each, Level):
            msg = (
                f"levels= takes Level objects, got {each!r}; to begin with a level of "
                f"those there are, give its number as level="
            )
            raise InputError(msg)
    return tuple(levels)


def _valid_seconds(seconds: Any) -> float:
    """Return how long code may run.

    Raises
    ------
    InputError
        If it is no positive number.
    """
    if not isinstance(seconds, int | float | np.number) or not seconds > 0:
        raise InputError(f"seconds must be a number > 0, got {seconds!r}")
    return float(seconds)


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one check.

    Attributes
    ----------
    rows
        A row for each gradient.
    solved
        Whether all is right, here and on inputs that nobody saw.
    words
        The sentence below the rows.
    """

    rows: tuple[Row, ...]
    solved: bool
    words: str

    def __str__(self) -> str:
        return "\n".join([*map(str, self.rows), self.words])

    def __repr__(self) -> str:  # the last line of a cell is read by people
        return str(self)


@dataclasses.dataclass(slots=True, eq=False)
class _Progress:
    """What happened on one level so far."""

    started: float
    hints: int = 0
    checks: int = 0
    points: int | None = None  # None: not solved
    last: Any = None  # what was checked
    outcome: Outcome | None = None


class Hunt:
    """A run through the levels: `check` until it is solved, then `advance`.

    A solved level is worth 100 points, less 20 for each hint and 5 for each check
    after the first, and 20 at least: whoever gets there has learned something. The same
    code checked again costs nothing: a cell with a slip of syntax leaves what was.

    Parameters
    ----------
    levels
        Default: all of gradlab's whose libraries are installed.
    level
        Where to start; the first is 1.
    seed
        Of the inputs; one seed gives everybody the same numbers.
    namespace
        Where `check` looks for the student's code, if it is not given.
    seconds
        How long a student's code may run per check.
    student
        A name for the log; for the teacher's book-keeping only.

    Examples
    --------
    >>> hunt = Hunt(level=2)
    >>> def linear_backward(dout, x, W, b):
    ...     return dout @ W.T, x.T @ dout, dout.sum(axis=0)
    >>> hunt.check(linear_backward).solved, hunt.score
    (True, 100)
    """

    def __init__(
        self,
        levels: Sequence[Level] | None = None,
        *,
        level: int = 1,
        seed: int = 0,
        namespace: Mapping[str, Any] | None = None,
        seconds: float = 5.0,
        student: str = "",
    ) -> None:
        self.levels = _read_levels(levels)
        self.seed, self.student = valid_seed(seed), str(student)
        self.seconds = _valid_seconds(seconds)
        self._namespace = {} if namespace is None else namespace
        self._progress: dict[int, _Progress] = {}
        self._records: list[dict[str, Any]] = []
        self.number = 0
        self.go(level)

    # ------------------------------------------------------------------ where we are
    @property
    def level(self) -> Level:
        """The level that is played."""
        return self.levels[self.number - 1]

    @property
    def progress(self) -> _Progress:
        """What happened on this level so far."""
        return self._progress[self.number]

    @property
    def score(self) -> int:
        """Points of all solved levels."""
        return sum(each.points or 0 for each in self._progress.values())

    @property
    def solved(self) -> tuple[int, ...]:
        """Numbers of the solved levels."""
        solved = (n for n, p in self._progress.items() if p.points is not None)
        return tuple(sorted(solved))

    @property
    def hints(self) -> tuple[str, ...]:
        """The hints that were revealed on this level."""
        return self.level.hints[: self.progress.hints]

    def go(self, level: int) -> None:
        """Play another level; what was done on this one is kept."""
        self._at(level)
        self.number = int(level)
        self._progress.setdefault(self.number, _Progress(time.monotonic()))

    def advance(self) -> bool:
        """Go to the next level once this one is solved; return whether it was."""
        if self.progress.points is None or self.number == len(self.levels):
            return False
        self.go(self.number + 1)
        return True

    def source(self, level: int | None = None) -> str:
        """Return the broken code of a level, ready to be pasted into a cell."""
        return self._at(self.number if level is None else level).source

    def _at(self, number: int) -> Level:
        whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
        if not (whole and 1 <= number <= len(self.levels)):
            raise InputError(
                f"there is no level {number!r}: choose one of 1 to {len(self.levels)}"
            )
        return self.levels[number - 1]

    # ---------------------------------------------------------------------- playing
    def check(self, student: Any = None) -> Outcome:
        """Look at the student's code: every gradient, then once more unseen.

        Parameters
        ----------
        student
            The class or function; default: whatever has its name in the namespace.

        Returns
        -------
        Outcome
            A row for each gradient. What the code raises is an answer as well.
        """
        level, progress = self.level, self.progress
        if student is None:
            student = self._namespace.get(level.edit)
        if student is None:
            words = f"There is no {level.edit} yet: run the cell that defines it first."
            return Outcome((), solved=False, words=words)
        rows = judge(level, student, seed=self.seed, seconds=self.seconds)
        solved = all(row.right for row in rows)
        words = _summary(rows)
        if student is progress.last and _same(rows, progress.outcome):
            words += f" As before, for free: run the cell with your {level.edit} first."
        elif progress.points is None:
            progress.checks += 1
        progress.last = student
        if solved:
            solved, words = self._once_more(student)
        if solved:
            words = self._reward()
        progress.outcome = Outcome(rows, solved, words)
        self._note("check", rows, solved=solved)
        return progress.outcome

    def _once_more(self, student: Any) -> tuple[bool, str]:
        """Check on a shape and numbers that were not shown; say no more than that."""
        unseen = judge(
            self.level, student, seed=self.seed, size="hidden", seconds=self.seconds
        )
        bad = [row.name for row in unseen if not row.right]
        if not bad:
            return True, ""
        return False, (
            "Right on these numbers, wrong on others of another shape "
            f"({', '.join(bad)}): does the code compute the gradient, or repeat it?"
        )

    def _reward(self) -> str:
        """Count the points, the first time."""
        progress = self.progress
        if progress.points is not None:
            return f"Solved before, with {progress.points} points."
        lost = _PER_HINT * progress.hints + _PER_RETRY * (progress.checks - 1)
        progress.points = max(_FLOOR, _POINTS - lost)
        words = f"Solved: {progress.points} points."
        if len(self.solved) == len(self.levels) > 1:
            most = _POINTS * len(self.levels)
            every = "Both" if len(self.levels) == 2 else f"All {len(self.levels)}"
            words += f" {every} bugs found, {self.score} of {most}!"
        return words

    def grade(
        self, student: Any = None, *, seed: int | None = None, by_hand: bool = True
    ) -> Grade:
        r"""Mark the student's code on hidden inputs, in a process of its own.

        Parameters
        ----------
        student
            The class or function, or the text of a program that defines it; default:
            whatever has its name in the namespace.
        seed
            Of the hidden inputs; default: a fresh one, told in the grade.
        by_hand
            Whether calls to automatic or numeric differentiation cost all points.

        Returns
        -------
        Grade
            A score out of 100, and a reason for each gradient. Hints do not count:
            this is about the code, `score` is about the game.

        Raises
        ------
        InputError
            If there is nothing to grade.

        Examples
        --------
        >>> Hunt(level=2).grade("def linear_backward(*_):\n    return 1 / 0").score
        0.0
        """
        level = self.level
        if student is None:
            student = self._namespace.get(level.edit)
        if student is None:
            raise InputError(
                f"there is no {level.edit} to grade: run the cell that defines it, or "
                "pass the class or function"
            )
        return grade(
            level,
            student,
            seed=seed,
            seconds=self.seconds,
            by_hand=by_hand,
            shown=self.seed,
        )

    def hint(self) -> str:
        """Reveal the next hint, for 20 points; the last one is the answer."""
        progress = self.progress
        if progress.points is not None:
            return "This one is solved."
        if progress.hints == len(self.level.hints):
            return "There are no more hints: the last one is the answer."
        progress.hints += 1
        self._note("hint")
        return self.hints[-1]

    # -------------------------------------------------------------------- the log
    def _note(
        self, event: str, rows: Sequence[Row] = (), *, solved: bool = False
    ) -> None:
        progress = self.progress
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        self._records.append(
            {
                "time": now,
                "student": self.student,
                "level": self.number,
                "title": self.level.title,
                "event": event,
                "checks": progress.checks,
                "hints": progress.hints,
                "wrong": ", ".join(row.name for row in rows if not row.right),
                "words": "; ".join(row.words for row in rows if not row.right),
                "solved": solved,
                "points": progress.points or 0,
                "score": self.score,
                "seconds": round(time.monotonic() - progress.started, 1),
            }
        )

    def records(self) -> list[dict[str, Any]]:
        """Return what happened, one record for each check and each hint.

        Examples
        --------
        >>> hunt = Hunt()
        >>> _ = hunt.hint()
        >>> hunt.records()[0]["event"]
        'hint'
        """
        return [dict(record) for record in self._records]

    def __repr__(self) -> str:
        return (
            f"Hunt: level {self.number} of {len(self.levels)}, {self.level.title}; "
            f"{len(self.solved)} solved, score {self.score}"
        )


def _summary(rows: tuple[Row, ...]) -> str:
    wrong = [row.name for row in rows if not row.right]
    if len(rows) == 1:
        return f"{wrong[0]} is wrong." if wrong else "Right."
    return f"{len(wrong)} of {len(rows)} wrong: {', '.join(wrong)}."


def _same(rows: tuple[Row, ...], outcome: Outcome | None) -> bool:
    """Whether a check of the same code said the same before: it taught nothing new."""
    before = () if outcome is None else outcome.rows
    return [(r.name, r.words) for r in rows] == [(r.name, r.words) for r in before]
