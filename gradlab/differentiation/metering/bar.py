"""The progress bar of a call, or none.

What a progress bar is told of work before all of it is planned.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.differentiation.metering.meter import Meter

__all__ = ["Bar", "Course", "foreseen"]


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


@dataclasses.dataclass(slots=True, eq=False)
class Course:
    """Work of many parts of a kind, whose pace tells how much of it is left.

    Parameters
    ----------
    meter
        What counts it.
    pace
        Evaluations of one part: expected, then the mean of those that were done.
    told
        Number of evaluations when it was last asked.
    """

    meter: Meter
    pace: float
    told: int
    parts: int = 0

    def goes_on(self, left: int, *, typical: bool = True) -> None:
        """Tell the bar that a part is done, and so many are left.

        Parameters
        ----------
        typical
            Whether those will cost what this one did.
        """
        meter = self.meter
        spent, self.told = meter.evaluations - self.told, meter.evaluations
        if typical:
            self.parts += 1
            self.pace += (spent - self.pace) / self.parts
        until = meter.evaluations + round(self.pace * left)
        meter.bar.lengthen(until - max(meter.bar.announced, meter.evaluations))
        meter.bar.announced = until


@contextlib.contextmanager
def foreseen(meter: Meter, each: float, parts: int = 1) -> Iterator[Course]:
    """Tell the bar of about so many evaluations, before any of them is planned.

    What is expected inside is part of them, and what was not needed in the end is taken
    back.

    Examples
    --------
    >>> from gradlab.differentiation.metering.bar import Bar
    >>> from gradlab.differentiation.metering.meter import Meter
    >>> from gradlab.presentation.widgets.progress import NotebookProgress
    >>> bar = NotebookProgress(total=10)
    >>> meter = Meter(bar=Bar(bar))
    >>> with foreseen(meter, 50, parts=2) as course:
    ...     meter.expect(24)
    ...     meter.spend(20)
    ...     print(bar.n, bar.total)
    ...     course.goes_on(1)
    ...     print(bar.n, bar.total)
    20 110
    20 50
    >>> bar.total
    30
    """
    before = meter.bar.announced
    meter.expect(each * parts)
    meter.bar.announced = max(before, meter.evaluations + round(each * parts))
    try:
        yield Course(meter, each, meter.evaluations)
    finally:
        meter.bar.lengthen(min(0, max(meter.evaluations, before) - meter.bar.announced))
        meter.bar.announced = before
