"""The bug hunt in a notebook: a window on `gradlab.teaching.hunt`."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from gradlab.keywords import named_options
from gradlab.presentation.html import script_path
from gradlab.presentation.packing import number
from gradlab.presentation.screens import ipython_shell
from gradlab.presentation.widgets.host import LiveView

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    import pandas as pd

    from gradlab.presentation.widgets.host import Answer

__all__ = ["BugHunt", "Source"]


class Source(str):
    """Code that is shown as code: as it is, not quoted on one line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@named_options
class BugHunt(LiveView):
    """Find the wrong gradient: a game of nine levels, for courses.

    Each level is a piece of broken code. Put it into a cell (copy it from the window,
    or call `paste`), edit it, run the cell, and press check.

    Parameters
    ----------
    level
        Where to start; the first is 1.
    seed
        Of the numbers that the code is tried on; the same for everybody by default.
    levels
        Levels of your own, as `gradlab.teaching.level.Level`; default gradlab's.
    namespace
        Where the code is looked up by name; default the notebook's.
    seconds
        How long the code may run per check before it counts as a loop without end.
    student
        A name for the log.

    Examples
    --------
    >>> hunt = BugHunt(level=2)
    >>> def linear_backward(dout, x, W, b):
    ...     return dout @ W.T, x.T @ dout, dout
    >>> hunt.check(linear_backward).words
    '1 of 3 wrong: db.'
    """

    _esm = "\n".join(
        path.read_text(encoding="utf-8")
        for path in (script_path(), script_path().with_name("hunt.js"))
    )

    def __init__(
        self,
        level: int = 1,
        *,
        seed: int = 0,
        levels: Any = None,
        namespace: MutableMapping[str, Any] | None = None,
        seconds: float = 5.0,
        student: str = "",
    ) -> None:
        # Late and by name: the game is a layer above its window.
        game = importlib.import_module("gradlab.teaching.hunt").Hunt
        self._hunt = game(
            levels,
            level=level,
            seed=seed,
            namespace=_user_namespace() if namespace is None else namespace,
            seconds=seconds,
            student=student,
        )
        super().__init__(kind="hunt", page=self._page())
        self._answers |= {
            "check": self._answer_check,
            "hint": self._answer_hint,
            "next": self._answer_next,
            "go": self._answer_go,
        }

    # ------------------------------------------------------------------ in a cell
    def check(self, student: Any = None) -> Any:
        """Check the code, by name in the notebook or as it is given here.

        Returns
        -------
        gradlab.teaching.hunt.Outcome
            A row for each gradient.
        """
        with self._undisturbed():
            outcome = self._hunt.check(student)
        self.page = self._page(outcome.words)
        return outcome

    def hint(self) -> Source:
        """Reveal the next hint, and return it. It costs 20 points of this level.

        Examples
        --------
        >>> gl.BugHunt(level=2).hint()
        A gradient has the shape of what it belongs to. Which of the three does not?
        """
        words = Source(self._hunt.hint())
        self.page = self._page()
        return words

    def grade(
        self, student: Any = None, *, seed: int | None = None, by_hand: bool = True
    ) -> Any:
        """Mark the code on hidden inputs: `gradlab.teaching.hunt.Hunt.grade`."""
        return self._hunt.grade(student, seed=seed, by_hand=by_hand)

    def next(self) -> BugHunt:
        """Go to the next level, once this one is solved; returns the window.

        Until then it stays, and says so.
        """
        self._answer_next({})
        return self

    def go(self, level: int) -> BugHunt:
        """Go to any level; returns the window."""
        self._answer_go({"level": level})
        return self

    def source(self, level: int | None = None) -> Source:
        """Return the broken code of a level; default the one that is played."""
        return Source(self._hunt.source(level))

    def paste(self) -> None:
        """Put the broken code into a new cell below the one that runs."""
        shell = ipython_shell()
        if shell is None:
            raise RuntimeError("there is no notebook here: copy hunt.source() instead")
        shell.set_next_input(str(self.source()))

    @property
    def score(self) -> int:
        """Points of all solved levels."""
        return int(self._hunt.score)

    def log(self) -> pd.DataFrame:
        """Return what happened as a table: one row for each check and each hint."""
        pandas = importlib.import_module("pandas")
        table: pd.DataFrame = pandas.DataFrame(self._hunt.records())
        return table

    # ------------------------------------------------------------------ the window
    def _page(self, words: str = "") -> dict[str, Any]:
        hunt = self._hunt
        level, progress = hunt.level, hunt.progress
        rows = progress.outcome.rows if progress.outcome else ()
        if not words and progress.outcome:
            words = progress.outcome.words
        return {
            "number": hunt.number,
            "title": level.title,
            "titles": [each.title for each in hunt.levels],
            "done": list(hunt.solved),
            "student": hunt.student,
            "score": hunt.score,
            "edit": level.edit,
            "story": level.story,
            "source": level.source,
            "rows": [
                {
                    "name": row.name,
                    "right": row.right,
                    "words": row.words,
                    "error": None if row.error is None else number(row.error),
                }
                for row in rows
            ],
            "words": words,
            "solved": progress.points is not None,
            "moral": level.moral if progress.points is not None else "",
            "hints": list(hunt.hints),
            "left": len(level.hints) - len(hunt.hints),
        }

    def _answer_check(self, _: dict[str, Any]) -> Answer:
        self.check()
        return {}, {}

    def _answer_hint(self, _: dict[str, Any]) -> Answer:
        self.hint()
        return {}, {}

    def _answer_next(self, _: dict[str, Any]) -> Answer:
        moved = self._hunt.advance()
        solved = self._hunt.progress.points is not None
        why = "That was the last one." if solved else "Solve this one first."
        self.page = self._page("" if moved else why)
        return {}, {}

    def _answer_go(self, message: dict[str, Any]) -> Answer:
        self._hunt.go(message["level"])
        self.page = self._page()
        return {}, {}

    def __repr__(self) -> str:
        words = self.page.get("words")
        return (
            f"{self._hunt!r}\n"
            + (f"{words}\n" if words else "")
            + "Where no window opens: hunt.source() is the broken code, hunt.check(),\n"
            "hunt.hint() and hunt.next() play."
        )


def _user_namespace() -> MutableMapping[str, Any]:
    """Return where the cells of the notebook put what they define."""
    shell = ipython_shell()
    if shell is not None:
        namespace: MutableMapping[str, Any] = shell.user_ns
        return namespace
    return vars(sys.modules["__main__"])
