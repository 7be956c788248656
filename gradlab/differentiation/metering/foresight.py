"""What a progress bar is told of work before all of it is planned."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.differentiation.metering.meter import Meter

__all__ = ["Course", "foreseen"]


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
