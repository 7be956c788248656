"""Plant one realistic mistake in right code, another one for each student.

What is planted is tried before it is handed out: it runs, and for several seeds of the
inputs `gradlab.check` says that the same gradients are wrong. So there is no equivalent
mutant, and no exercise that only crashes. On inputs of another shape it is wrong as
well; there a missing transpose may raise.
"""

from __future__ import annotations

import dataclasses
import functools
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.errors import InputError
from gradlab.teaching.level import Level, load
from gradlab.teaching.marking import judge
from gradlab.teaching.own_levels import level_from
from gradlab.teaching.rewriting import changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gradlab.teaching.level import Trial
    from gradlab.teaching.rewriting import Change

__all__ = ["Planted", "answer_key", "plant"]

_SEEDS = (0, 1)
_SECONDS = 2.0  # for code that is known to end, with a mistake that may change that
_VISIBLE = 1e-3  # relative error that a student can see without doubt


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Planted:
    """Right code with one mistake in it; neither shown nor printed is where.

    Attributes
    ----------
    level
        To be played: ``gl.BugHunt(levels=[planted.level])``.
    seed
        Of which student this is.
    """

    level: Level
    seed: int | str
    _change: Change

    @property
    def source(self) -> str:
        """The code to hand out."""
        return self.level.source

    def solution(self) -> dict[str, Any]:
        """Break the seal: kind, line, right and wrong text, and the wrong gradients."""
        change = self._change
        return {
            "seed": self.seed,
            "edit": self.level.edit,
            "kind": change.kind.name,
            "difficulty": change.kind.difficulty,
            "line": change.line,
            "wrong": change.after.strip(),
            "right": change.before.strip(),
            "gradients": ", ".join(self.level.wrong),
        }

    def __repr__(self) -> str:
        return f"Planted(edit={self.level.edit!r}, seed={self.seed!r})"


def plant(
    level: Level | Any,
    *,
    seed: int | str,
    inputs: Mapping[str, Any] | Callable[..., Trial] | None = None,
    difficulty: int | None = None,
    kinds: Iterable[str] | None = None,
) -> Planted:
    r"""Plant one mistake in right code, another one for each seed.

    Parameters
    ----------
    level
        Whose repaired source is taken: one of `gradlab.teaching.levels.LEVELS`, or
        your own. Or code with a hand-written backward pass, as text, as a class or a
        function: see `gradlab.teaching.own_levels.level_from` for its forms.
    seed
        A number or a name; the same one gives the same mistake, on every machine.
        Capitals and spaces around a name do not matter.
    inputs
        With your own code: the shapes of its inputs, ``{"x": "nd", "W": "dk"}``, or a
        function that deals them, as `level_from` takes them.
    difficulty
        1 (constants and shapes), 2 (patterns) or 3 (formulas); None takes any.
    kinds
        Names of the kinds to choose from (`gradlab.teaching.mistakes.KINDS`); default
        all of that difficulty.

    Returns
    -------
    Planted
        Code that runs, and has at least one wrong gradient at every look.

    Raises
    ------
    InputError
        If no mistake of that difficulty or kind changes a gradient of this code, or
        your own code is wrong to begin with or comes without `inputs`.

    Notes
    -----
    The kind is drawn first and the place after it, so that a kind with many places is
    not more frequent than the others.

    Examples
    --------
    >>> from gradlab.teaching.levels import LEVELS
    >>> planted = plant(LEVELS[1], seed="ada", kinds=["negated"])
    >>> planted
    Planted(edit='linear_backward', seed='ada')
    >>> planted.solution()["kind"]
    'negated'

    Code of your own, here a loss with its gradient:

    >>> code = "def cubes(x):\n    dx = 3 * x**2\n    return (x**3).sum(), dx"
    >>> plant(code, seed=7, inputs={"x": "n"})
    Planted(edit='cubes', seed=7)
    """
    if not isinstance(level, Level):
        if inputs is None:
            raise InputError(
                "code of your own needs inputs=, the shape of each input by its name, "
                'such as inputs={"x": "nd", "W": "dk", "b": "k"}'
            )
        level = level_from(level, inputs)
    chosen = None if kinds is None else set(kinds)
    found: dict[str, list[Change]] = {}
    for change in changes(level.repaired):
        kind = change.kind
        if difficulty in {None, kind.difficulty} and (
            chosen is None or kind.name in chosen
        ):
            found.setdefault(kind.name, []).append(change)
    name = str(seed).strip().casefold()  # " Ada" is ada
    rng = np.random.default_rng(zlib.crc32(f"{level.edit}/{name}".encode()))
    for kind_name in rng.permutation(sorted(found)):
        places = found[str(kind_name)]
        for place in rng.permutation(len(places)):
            change = places[int(place)]
            wrong = _certified(level, change)
            if wrong:
                return Planted(_exercise(level, change, wrong), seed, change)
    raise InputError(
        f"no mistake of difficulty {difficulty!r} and kind {kinds!r} changes a "
        f"gradient of {level.edit}: allow others, or take another level"
    )


@functools.lru_cache(maxsize=1024)  # a whole class draws from the same mistakes
def _certified(level: Level, change: Change) -> tuple[str, ...]:
    """Return the gradients that a change makes wrong; none if it is not fit."""
    try:
        student = load(change.source, level.edit)
    except Exception:  # noqa: BLE001 - code with a mistake in it may do anything
        return ()
    wrong: tuple[str, ...] = ()
    for seed in _SEEDS:
        rows = judge(level, student, seed=seed, seconds=_SECONDS)
        bad = [row for row in rows if not row.right]
        names = tuple(row.name for row in bad)
        if not names or not set(names) <= set(level.gradients):
            return ()  # nothing changed, or the forward pass did, or it raised
        if any(row.error is not None and row.error < _VISIBLE for row in bad):
            return ()  # hardly anything changed
        wrong = wrong or names
        if names != wrong:
            return ()  # a mistake that comes and goes cannot be marked fairly
    rows = judge(level, student, size="hidden", seconds=_SECONDS)
    return wrong if not all(row.right for row in rows) else ()


def _exercise(level: Level, change: Change, wrong: tuple[str, ...]) -> Level:
    """Turn a change into a level to be played."""
    are, they = ("is", "it") if len(wrong) == 1 else ("are", "they")
    whole = "\n".join(level.repaired.splitlines()[change.line - 1 :])
    broken = "\n".join(change.source.splitlines()[change.line - 1 :])
    return dataclasses.replace(
        level,
        title=f"Planted in {level.edit}",
        story=f"Somebody made one mistake in the backward pass of `{level.edit}`. What "
        "it should compute is said in its docstring. Find the line, and mend it.",
        source=change.source,
        repair=(broken, whole),
        wrong=wrong,
        hints=(
            f"Wrong {are}: {', '.join(wrong)}. From what {are} {they} made?",
            f"Look for {change.kind.hint}.",
            f"Line {change.line} should read: `{change.before.strip()}`",
        ),
        moral="Which gradients are wrong says where on the way back it happened; how "
        "they are wrong says what it was.",
    )


def answer_key(
    level: Level | Any,
    seeds: Iterable[int | str],
    *,
    difficulty: int | None = None,
    inputs: Mapping[str, Any] | Callable[..., Trial] | None = None,
) -> list[dict[str, Any]]:
    """Return the solutions of a whole class, one record for each seed.

    The arguments are those of `plant`.

    Examples
    --------
    >>> from gradlab.teaching.levels import LEVELS
    >>> key = answer_key(LEVELS[1], ["ada", "grace"], difficulty=1)
    >>> [record["seed"] for record in key]
    ['ada', 'grace']
    """
    if not isinstance(level, Level) and inputs is not None:
        level = level_from(level, inputs)  # once, not for every student
    planted = (
        plant(level, seed=seed, difficulty=difficulty, inputs=inputs) for seed in seeds
    )
    return [each.solution() for each in planted]
