"""Marks for a student's code: hidden inputs, a reason per gradient, no way round.

`mark` judges code that is at hand. `gradlab.teaching.isolation` runs it in a process of
its own, which is what an instructor wants: the code was written by somebody else.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.building import valid_seed
from gradlab.errors import InputError
from gradlab.teaching.level import load
from gradlab.teaching.marking import judge, real_numbers
from gradlab.teaching.watching import watched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradlab.teaching.level import Level, Size, Trial
    from gradlab.teaching.marking import Row

__all__ = ["LOOKS", "Grade", "Mark", "hidden_seeds", "mark", "nothing"]

_FULL = 100.0
_TRIALS = 3  # seeds, each in both sizes
LOOKS = 1 + 2 * _TRIALS  # how often the code is tried: shown, then hidden
# Two right formulas differ by some round-off, a formula and a difference quotient by
# more than this; a remark, never points.
_SAME = 1e-11


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """What one gradient is worth.

    Attributes
    ----------
    name
        Of the gradient; "forward" for an output that was changed.
    points
        Out of `worth`: all or nothing.
    worth
        Equal shares of 100.
    reason
        One sentence, fit to be shown to the student.
    """

    name: str
    points: float
    worth: float
    reason: str

    def __str__(self) -> str:
        return f"{self.name:<10} {self.points:5.1f}/{self.worth:.1f}  {self.reason}"


@dataclasses.dataclass(frozen=True, slots=True)
class Grade:
    """The marks of one piece of work.

    Attributes
    ----------
    edit
        Name of the class or function that was asked for.
    marks
        One for each gradient.
    seed
        Of the hidden inputs; the same seed gives the same marks again.
    seconds
        How long it took.
    printed
        The beginning of what the code printed.
    """

    edit: str
    marks: tuple[Mark, ...]
    seed: int
    seconds: float = 0.0
    printed: str = ""

    @property
    def score(self) -> float:
        """Points out of 100."""
        # gradients of equal worth add up to 100 only to rounding
        return round(sum(mark.points for mark in self.marks), 1)

    @property
    def full(self) -> bool:
        """Whether every mark is a full one."""
        return all(mark.points == mark.worth for mark in self.marks)

    def record(self) -> dict[str, Any]:
        """Return one row of a table: score and reasons.

        Examples
        --------
        >>> Grade("f", (Mark("dx", 100.0, 100.0, "right"),), seed=0).record()
        {'edit': 'f', 'score': 100.0, 'reasons': 'right', 'seed': 0}
        """
        same = {mark.reason for mark in self.marks}
        reasons = (
            same.pop()
            if len(same) == 1
            else "; ".join(f"{mark.name}: {mark.reason}" for mark in self.marks)
        )
        return {
            "edit": self.edit,
            "score": self.score,
            "reasons": reasons,
            "seed": self.seed,
        }

    def __str__(self) -> str:
        head = f"{self.edit}: {self.score:g} of 100"
        return "\n".join([head, *(f"  {mark}" for mark in self.marks)])

    def __repr__(self) -> str:  # the last line of a cell is read by people
        return str(self)


@dataclasses.dataclass(frozen=True, slots=True)
class _Look:
    """One trial of the code."""

    hidden: bool
    size: Size
    rows: Mapping[str, Row]


def nothing(level: Level, reason: str, *, seed: int) -> Grade:
    """Return the grade of work that cannot be judged, with the reason."""
    worth = _FULL / len(level.gradients)
    marks = tuple(Mark(name, 0.0, worth, reason) for name in level.gradients)
    return Grade(level.edit, marks, seed)


def hidden_seeds(seed: int, shown: int = 0) -> tuple[int, ...]:
    """Return the seeds of the hidden trials.

    Raises
    ------
    InputError
        If `seed` is none, or `shown`, which students saw, would be among them.
    """
    first = valid_seed(seed)
    seeds = tuple(range(first, first + _TRIALS))
    if shown in seeds:
        raise InputError(
            f"seed={seed} would mark the numbers that students saw (seed {shown}): "
            f"take one that is not within {_TRIALS} below it"
        )
    return seeds


def mark(
    level: Level,
    student: Any,
    *,
    seed: int,
    seconds: float = 5.0,
    by_hand: bool = True,
    shown: int = 0,
) -> Grade:
    """Mark a student's code, here and now.

    Parameters
    ----------
    level
        What was asked.
    student
        The class or function that the student wrote.
    seed
        Of the hidden inputs: three sets of numbers in each of two shapes.
    seconds
        How long the code may run per trial.
    by_hand
        Whether calls to automatic or numeric differentiation cost all points.
    shown
        The seed that students saw: code that is right there only has learned its
        answer by heart, and is told so.

    Returns
    -------
    Grade
        A gradient has its points when it is right in every hidden trial. Where the
        numbers are right and have only the digits of difference quotients, the reason
        says so; that is for the instructor to judge.

    Raises
    ------
    InputError
        If the hidden inputs would be the ones that were shown.

    Examples
    --------
    >>> from gradlab.teaching.level import load
    >>> from gradlab.teaching.levels import LEVELS
    >>> lazy = LEVELS[1]
    >>> grade = mark(lazy, load(lazy.source, lazy.edit), seed=11)
    >>> print(grade)
    linear_backward: 66.7 of 100
      dx          33.3/33.3  right in all 6 hidden trials
      dW          33.3/33.3  right in all 6 hidden trials
      db           0.0/33.3  has shape (3, 2), expected (2,) like b (6 of 6 trials)
    """
    seeds = hidden_seeds(seed, shown)
    machines: dict[str, None] = {}
    key, apart = load(level.repaired, level.edit), dict.fromkeys(level.gradients, 0.0)

    def run(code: Any, trial: Trial) -> tuple[Any, Mapping[str, Any]]:
        ours = level.run(key, trial.copy())[1]
        result, used = watched(lambda: level.run(code, trial))
        machines.update(dict.fromkeys(used))
        for name, far in _apart(result[1], ours).items():
            apart[name] = max(apart[name], far)
        return result

    plan: list[tuple[int, Size]] = [(shown, "shown")]
    plan += [(each, size) for each in seeds for size in ("hidden", "shown")]
    tried = dataclasses.replace(level, run=run)
    looks: list[_Look] = []
    for each, size in plan:
        rows = judge(tried, student, seed=each, size=size, seconds=seconds)
        named = {row.name: row for row in rows}
        looks.append(_Look(each != shown, size, named))
        if level.edit in named and "never ends" in named[level.edit].words:
            return nothing(level, named[level.edit].words, seed=seed)
    if machines and by_hand:
        reason = f"calls {', '.join(machines)}: it was to be written by hand"
        return nothing(level, reason, seed=seed)
    names = [*level.gradients]
    if any("forward" in look.rows for look in looks):
        names.insert(0, "forward")
    worth = _FULL / len(names)
    marks = (_mark(name, level.edit, looks, worth) for name in names)
    if by_hand:
        marks = (_remarked(each, apart.get(each.name, 0.0)) for each in marks)
    return Grade(level.edit, tuple(marks), int(seed))


def _apart(found: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, float]:
    """Return how far gradients of float64 are from the key's, as shares of these."""
    shares = {}
    for name, right in ours.items():
        got = real_numbers(found.get(name))
        if got is None or got.dtype != np.float64 or got.shape != np.shape(right):
            continue
        if got.size:
            scale = float(np.abs(right).max())
            shares[name] = float(np.abs(got - right).max()) / scale if scale else 0.0
    return shares


def _remarked(mark: Mark, apart: float) -> Mark:
    """Tell the instructor where right numbers have the digits of differences."""
    if mark.points < mark.worth or not _SAME < apart < np.inf:
        return mark
    remark = (
        f", but to {-np.log10(apart):.0f} digits only, as difference quotients are: "
        "look at the code"
    )
    return dataclasses.replace(mark, reason=mark.reason + remark)


def _mark(name: str, edit: str, looks: Sequence[_Look], worth: float) -> Mark:
    """Judge one gradient from all its trials."""

    def wrong(look: _Look) -> Row | None:
        if edit in look.rows:  # it raised
            return look.rows[edit]
        row = look.rows.get(name)
        return None if row is None or row.right else row

    hidden = [look for look in looks if look.hidden]
    bad = [(look, row) for look in hidden if (row := wrong(look)) is not None]
    if not bad:
        return Mark(name, worth, worth, f"right in all {len(hidden)} hidden trials")
    look, row = bad[0]
    count = f"{len(bad)} of {len(hidden)} trials"
    reason = f"{row.words} ({count})"
    if all(wrong(each) is None for each in looks if not each.hidden):
        reason = f"right on the numbers that were shown, but {reason}"
        if len(bad) == len(hidden):
            reason += ": is it computed, or repeated?"
    sizes = {each.size for each, _ in bad}
    if len(sizes) == 1 and len(bad) == len(hidden) // 2:
        reason += f", in one of two shapes only ({look.size})"
    return Mark(name, 0.0, worth, reason)
