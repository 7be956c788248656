"""The progress bar of a call, or none."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["Bar"]


@dataclasses.dataclass(slots=True, eq=False)
class Bar:
    """Moves what the user passed as ``progress=``.

    Parameters
    ----------
    progress
        Anything with tqdm's `update`; whatever else tqdm has is asked for. Moved by one
        for each evaluation; None: nobody looks.
    announced
        Number of evaluations up to which it knows of all; see `foreseen`.
    """

    progress: Any = None
    announced: int = 0

    def begin(self, total: int, words: str = "") -> None:
        """Say how long it is, and what it stands for."""
        bar = self.progress
        if bar is not None and hasattr(bar, "reset"):
            bar.reset(total=total or None)
            if words and hasattr(bar, "set_description"):
                bar.set_description(words)

    def advance(self, count: int) -> None:
        """Move it; one that turns out to be too short grows."""
        bar = self.progress
        if bar is None:
            return
        total, done = getattr(bar, "total", None), getattr(bar, "n", None)
        if total is not None and done is not None and done + count > total:
            bar.total = done + count
        bar.update(count)  # of a bar nothing else is asked for

    def expect(self, more: float, done: int) -> None:
        """Tell it of evaluations that nobody knew of when so many were done."""
        within = self.announced - done
        if within > 0:
            more = max(0.0, more - within)
            self.announced += round(more)
        self.lengthen(more)

    def expect_at_least(self, count: int) -> None:
        """Tell it that so many are ahead in all, where it knows of fewer."""
        bar = self.progress
        known = (getattr(bar, "total", None) or 0) - getattr(bar, "n", 0)
        self.lengthen(max(0, count - known))

    def lengthen(self, more: float) -> None:
        """Move its end, which is never before what was done."""
        bar = self.progress
        if bar is not None and getattr(bar, "total", None) and hasattr(bar, "n"):
            bar.total = max(bar.n, round(bar.total + more))
