"""The meter of a call: what evaluations may cost, and what they have cost."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING, Protocol, Self

from gradlab.differentiation.metering.bar import Bar
from gradlab.differentiation.metering.budget import Budget
from gradlab.differentiation.metering.timeouts import Timeouts
from gradlab.errors import GradlabError
from gradlab.labels import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from gradlab.differentiation.failures import Failure
    from gradlab.subject.subject import Subject

__all__ = [
    "DEAR",
    "INTERRUPTED",
    "BudgetExhausted",
    "Crew",
    "Meter",
    "why_stopped",
]


INTERRUPTED = "interrupted"  # why work was left undone, if not by the budget
DEAR = 2_000_000  # coordinates: from so many on every evaluation is dear
_UNBOUNDED = 1 << 60  # evaluations
# of a budget in seconds: how long others are waited for, and what may be kept back
_GRACE, _KEPT = 1.1, 0.2
_PART = 16  # of a bound on memory that one batch may take


def _now() -> float:
    """Look at the clock that is there when it is called: tests put up one of theirs."""
    return time.perf_counter()


class Crew(Protocol):
    """Workers elsewhere that evaluate for this process; None: it does so itself."""

    @property
    def breadth(self) -> int:
        """Number of workers."""

    def enlist(self, subject: Subject, meter: Meter) -> None:
        """Make a subject known, before anything costs time; raises if it cannot."""

    def rows(
        self,
        subject: Subject,
        which: int,
        positions: NDArray[np.intp],
        displacements: NDArray[np.float64],
        meter: Meter,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Do what `displaced_rows` does, or None: it is to be done here."""

    def sets(
        self,
        subject: Subject,
        inputs: tuple[int, ...],
        displacements: NDArray[np.float64],
        meter: Meter,
    ) -> NDArray[np.float64] | None:
        """Do what `displaced_sets` does, or None: it is to be done here."""


class BudgetExhausted(GradlabError):  # noqa: N818 - a signal, not an error
    """Raised inside a check when its budget is spent; the check turns it into words."""


def why_stopped(stop: BaseException | None) -> str:
    """Say in a remark why work was left undone; None: it was not even begun.

    Examples
    --------
    >>> why_stopped(KeyboardInterrupt()), why_stopped(BudgetExhausted())
    ('interrupted', 'the budget ended')
    """
    return INTERRUPTED if isinstance(stop, KeyboardInterrupt) else "the budget ended"


@dataclasses.dataclass(slots=True, eq=False)
class Meter:
    """Counts evaluations and keeps the budget; tells the progress bar of both.

    Parameters
    ----------
    budget
        What may be spent.
    bar
        Moved by one for each evaluation.
    evaluations
        How many there were.
    raised, first_exception, nearest
        How many of them raised, what the first of these did, and how near to the point
        one did, where that is known.
    started
        Time of the clock when the call began.
    crew
        Who evaluates, if not this process.
    each
        Seconds of one evaluation as it was measured, 0 while that is not known.
    timeouts
        Ends evaluations that do not return; see `watching`.
    memory
        Bound in bytes on what is held beside the user's own; None is unbounded.
    kept
        Evaluations of the budget that are kept back just now; see `keeping`.
    """

    budget: Budget = dataclasses.field(default_factory=Budget)
    bar: Bar = dataclasses.field(default_factory=Bar)
    evaluations: int = 0
    raised: int = 0
    first_exception: Exception | None = None
    nearest: Failure | None = None
    started: float = dataclasses.field(default_factory=_now)
    crew: Crew | None = None
    each: float = 0.0
    timeouts: Timeouts = dataclasses.field(default_factory=Timeouts)
    memory: int | None = None
    kept: int = 0

    def room(self, most: int) -> int:
        """Bytes of one batch: at most so many, and a small part of the bound.

        Examples
        --------
        >>> Meter().room(1000), Meter(memory=8000).room(1000)
        (1000, 500)
        """
        return most if self.memory is None else min(most, self.memory // _PART)

    def spend(self, count: int, *, show: bool = True) -> None:
        """Account for `count` evaluations that are about to happen.

        Parameters
        ----------
        count
            How many.
        show
            Whether to move the bar at once; else whoever waits for them does.

        Raises
        ------
        BudgetExhausted
            If they do not fit; nothing is counted then.
        """
        self.need(count)
        self.in_time()
        self.evaluations += count
        if show:
            self.bar.advance(count)

    @contextlib.contextmanager
    def keeping(self, evaluations: int) -> Iterator[None]:
        """Keep so many evaluations back for what comes after; half of them at most.

        Examples
        --------
        >>> meter = Meter(Budget(evaluations=50))
        >>> with meter.keeping(20):
        ...     meter.left()
        30
        """
        before, all_ = self.kept, self.budget.evaluations or _UNBOUNDED
        self.kept = max(0, min(evaluations, (all_ - self.evaluations) // 2))
        try:
            yield
        finally:
            self.kept = before

    def release(self) -> None:
        """Let what is kept back be spent: nothing that comes after needs it."""
        self.kept = 0

    def closed(self) -> Meter:
        """Return a copy that lets nothing be spent: who pressed Stop wants no more.

        Examples
        --------
        >>> Meter(evaluations=7).closed().left()
        0
        """
        nothing = Budget(evaluations=self.evaluations)
        return dataclasses.replace(self, budget=nothing, kept=0)

    def _kept_seconds(self) -> float:
        kept = self.kept * self.seconds / max(self.evaluations, 1)
        return min(kept, _KEPT * (self.budget.seconds or 0.0))

    def need(self, count: int) -> None:
        """Begin nothing that takes `count` evaluations where fewer are left.

        Raises
        ------
        BudgetExhausted
            If they do not fit.
        """
        limit = self.budget.evaluations
        if limit is not None and self.evaluations + count > limit - self.kept:
            verb = "is" if limit == 1 else "are"
            msg = f"{plural(limit, 'evaluation')} {verb} spent"
            raise BudgetExhausted(msg)

    def in_time(self) -> None:
        """Begin nothing more, gradients neither, where the seconds are over.

        Raises
        ------
        BudgetExhausted
            If they are.
        """
        seconds = self.budget.seconds
        if seconds is not None and self.seconds > seconds - self._kept_seconds():
            msg = f"{seconds:g} seconds are spent"
            raise BudgetExhausted(msg)

    def owe(self, count: int) -> None:
        """Account for evaluations that no end of a budget may prevent, and show them.

        Examples
        --------
        >>> meter = Meter(Budget(evaluations=2))
        >>> meter.owe(5)
        >>> meter.evaluations, meter.left()
        (5, 0)
        """
        self.evaluations += count
        self.bar.advance(count)

    def expect(self, more: float) -> None:
        """Tell the bar of evaluations that nobody knew of before; fewer if negative.

        While more is `foreseen`, only of what goes beyond that.
        """
        self.bar.expect(more, self.evaluations)

    def left(self) -> int:
        """Return how many evaluations the budget leaves; never less than 0.

        Of a budget in seconds, a tenth of what is left: so much may be lost.
        """
        most = _UNBOUNDED
        if self.budget.evaluations is not None:
            most = self.budget.evaluations - self.kept - self.evaluations
        if self.budget.seconds is not None and self.evaluations:
            each = self.seconds / self.evaluations
            left = self.budget.seconds - self._kept_seconds() - self.seconds
            time_left = max(0.0, left)
            most = min(most, int(0.1 * time_left / max(each, 1e-9)) + 1)
        return max(0, most)

    @property
    def unspent(self) -> float | None:
        """What is left of the budget, in evaluations or seconds; None without one.

        Examples
        --------
        >>> Meter(Budget(evaluations=20), evaluations=5).unspent
        15
        """
        if self.budget.evaluations is not None:
            return self.budget.evaluations - self.evaluations
        if self.budget.seconds is not None:
            return max(0.0, self.budget.seconds - self.seconds)
        return None

    def grace(self) -> float:
        """Return the seconds that one may wait for what others do; inf if unbounded.

        A tenth beyond the budget: what is nearly done by then is not thrown away.

        Examples
        --------
        >>> Meter().grace()
        inf
        """
        if self.budget.seconds is None:
            return float("inf")
        return max(0.0, _GRACE * self.budget.seconds - self.seconds)

    @property
    def unbounded(self) -> bool:
        """Whether evaluations need only be counted."""
        limits = (self.budget.evaluations, self.budget.seconds, self.bar.progress)
        return all(limit is None for limit in limits)

    @property
    def seconds(self) -> float:
        """Seconds since the meter was made."""
        return _now() - self.started

    @contextlib.contextmanager
    def watching(self) -> Iterator[Self]:
        """End evaluations that do not return, at the latest when the budget ends.

        Whoever makes a meter opens this around all that it is for.

        Examples
        --------
        >>> with Meter(Budget(evaluations=2)).watching() as meter:
        ...     meter.spend(1)
        """
        with self.timeouts.watching(self.grace):
            yield self

    def failed(self, cause: Exception, failure: Failure | None = None) -> None:
        """Remember that the function raised away from the point, and how far away."""
        self.raised += 1
        known = [each for each in (self.nearest, failure) if each is not None]
        self.nearest = min(known, key=lambda each: each.away, default=None)
        if self.first_exception is None:
            self.first_exception = cause

    @contextlib.contextmanager
    def overlooking(self) -> Iterator[None]:
        """Forget what is raised inside: nobody has asked for a value there.

        Examples
        --------
        >>> meter = Meter()
        >>> with meter.overlooking():
        ...     meter.failed(ValueError())
        >>> meter.raised
        0
        """
        before = self.raised, self.first_exception, self.nearest
        try:
            yield
        finally:
            self.raised, self.first_exception, self.nearest = before
