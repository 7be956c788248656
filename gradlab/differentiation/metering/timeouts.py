"""An end to evaluations that do not return.

Away from the point a function may take for ever where it took a moment before: an
integrator whose step shrinks to nothing, an iteration that does not converge. Another
thread watches the clock, and raises an exception in the one that evaluates: Python
delivers it before the next bytecode, so that a loop ends, as it does by Ctrl-C. Nothing
of it may arrive after the function has returned; a gate between the two sees to that.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import sys
import threading
import time
from typing import TYPE_CHECKING, Self, TypeVar

from gradlab.differentiation.metering.circling import Rounds
from gradlab.subject.ending import ended_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "WATCHING",
    "EvaluationTimeout",
    "NotReturnedError",
    "Timeouts",
    "Watch",
    "arrive",
    "interrupt",
]

WATCHING = "gradlab, watching the clock"  # name of the thread

_Result = TypeVar("_Result")
_IMPATIENT = 0.25  # of a limit, that is left for the next when one has outlasted it
_LONGEST, _FACTOR = 10.0, 1000.0  # an evaluation may take: seconds, times the usual
_ROUNDS = 1.0  # second, instead of ten, for what only goes round and round
_LEAST, _LEAST_FACTOR = 0.5, 100.0  # the same where many have taken longer
# The same where as many were ended that others will be: half a second is for a machine
# that is busy, and a check of a hundred such points should not take a minute.
_LAST, _OFTEN = 0.1, 8
_LOOKS = 20  # at the clock, in the shortest limit
_IMPORTS = "<frozen importlib._bootstrap>"  # where every import of a module runs
_TOO_LONG = 10.0  # limits, after which an import is interrupted as well
_BYTECODES = 10  # an interruption arrives on the next one that looks for it


class NotReturnedError(TimeoutError):
    """Raised instead of what an evaluation would have returned."""


class EvaluationTimeout(SystemExit):
    """Raised in a thread whose time is up; ``except Exception`` does not catch it."""


def interrupt(thread: int, *, anyway: bool = False) -> bool:
    """Raise `EvaluationTimeout` in a thread, before its next bytecode.

    Not while it imports: a module that is half loaded stays so until Python ends, and
    whoever imports it later gets what is left of it.

    Parameters
    ----------
    thread
        Its identifier.
    anyway
        Whether to raise it all the same.

    Returns
    -------
    bool
        Whether it was sent.
    """
    if not anyway and _imports(thread):
        return False
    send = ctypes.pythonapi.PyThreadState_SetAsyncExc
    send(ctypes.c_ulong(thread), ctypes.py_object(EvaluationTimeout))
    return True


def _imports(thread: int) -> bool:
    """Whether a thread is in the middle of an import."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - its documented name
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTS:
            return True
        frame = frame.f_back
    return False


def arrive() -> None:
    """Let arrive what was sent to this thread; raises it, if there is anything."""
    for _ in range(_BYTECODES):  # it arrives on one of these
        pass


class Watch:
    """Ends evaluations that outlast a limit.

    Parameters
    ----------
    limit
        Seconds that the first may take.
    least
        And each after many were ended: where one does not return, others do not either.
    ended
        Gets the seconds of each that is ended; what is there was ended before.
    left
        Says how many seconds there are for all of them: once none are left, `least` is
        the limit.
    last
        Seconds that each may take after so many were ended that it is the rule; `least`
        if left out.
    rounds
        Seconds that the first may take if it goes round in circles; `limit` if left
        out.

    Examples
    --------
    >>> with Watch(10.0, 0.5, []) as watch:
    ...     watch.call(lambda: 6 * 7)
    42
    """

    def __init__(
        self,
        limit: float,
        least: float,
        ended: list[float],
        left: Callable[[], float] = lambda: float("inf"),
        last: float | None = None,
        rounds: float | None = None,
    ) -> None:
        self._first, self._least, self._ended = limit, least, ended
        self._first_round = limit if rounds is None else min(rounds, limit)
        self._last = least if last is None else min(last, least)
        self._left = left
        self._began: float | None = None
        self._sending = False  # the thread that watches stands in the gate
        self._sent = False
        self._over = threading.Event()
        self._evaluating = threading.get_ident()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the thread that watches end."""
        self._over.set()

    def call(self, work: Callable[[], _Result]) -> _Result:
        """Call a function in this thread.

        Raises
        ------
        NotReturnedError
            If it was ended. Whatever else it raises comes through.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name=WATCHING)
            self._thread.daemon = True
            self._thread.start()
        if self._began is not None:  # inside of another one, which is watched
            return work()
        self._sent = False
        self._began = began = time.monotonic()
        try:
            try:
                result = work()
            finally:
                self._settle()
        except EvaluationTimeout:
            self._settle_again()
        except BaseException:
            self._settle_again()  # Ctrl-C may have come before it was done
            raise
        else:
            if not self._sent:  # else it swallowed what ended it: it did not get there
                return result
        took = min(self._limit, time.monotonic() - began)
        self._ended.append(took)
        msg = f"it had not returned after {took:.2g} s"
        raise NotReturnedError(msg)

    @property
    def _limit(self) -> float:
        """Seconds that the next evaluation may take."""
        return self._limit_from(self._first)

    def _limit_from(self, first: float) -> float:
        count = len(self._ended)
        if count >= _OFTEN:
            return self._last
        return max(self._least, first * _IMPATIENT**count)

    def _look(self) -> None:
        """Look at the clock now and then, in the thread that watches."""
        watched, rounds = None, Rounds(self._evaluating)
        while not self._over.wait(self._least / _LOOKS):
            began = self._began
            if began is None:
                continue
            if began is not watched:
                watched, rounds = began, Rounds(self._evaluating)
            # time and again: a bare `except:` swallows one
            took = time.monotonic() - began
            soon, limit = map(self._limit_from, (self._first_round, self._first))
            if took > soon / 2:
                rounds.look()
            limit = soon if rounds.closed else limit
            if took > limit or (took > self._least and self._left() <= 0):
                self._sending = True
                if self._began is began:  # else it has returned meanwhile
                    anyway = took > _TOO_LONG * self._limit
                    self._sent |= interrupt(self._evaluating, anyway=anyway)
                self._sending = False

    def _settle(self) -> None:
        """Close the gate, and let arrive what was sent before.

        The gate is no lock: Ctrl-C may come between any two steps, and one that is left
        locked stops every evaluation from then on. Who watches says that he sends, and
        looks again whether he may; who evaluates says that he has done, and waits then.
        """
        self._began = None
        while self._sending:
            time.sleep(0)
        if self._sent:
            arrive()

    def _settle_again(self) -> None:
        """Settle after an interruption has arrived: a second may be under way."""
        for _ in range(2):
            with contextlib.suppress(EvaluationTimeout):
                self._settle()


@dataclasses.dataclass(slots=True, eq=False)
class Timeouts:
    """How long evaluations of a call may take, and those that took longer.

    Parameters
    ----------
    usual
        Seconds that one at the point itself took at most, by `time.monotonic` as those
        that are watched; 0 before there was one.
    usual_side
        Seconds that the first of its gradients took.
    ended
        Seconds after which each was ended.
    """

    usual: float = 0.0
    usual_side: float = 0.0
    ended: list[float] = dataclasses.field(default_factory=list)
    _watches: dict[bool, Watch] = dataclasses.field(default_factory=dict)
    _left: Callable[[], float] | None = None  # while it watches

    @contextlib.contextmanager
    def watching(self, left: Callable[[], float]) -> Iterator[None]:
        """End evaluations that do not return, where it is known how long they take.

        A thousand times as long as at the point is for ever, from ten seconds on, or
        from one if it goes round in circles; or what is `left`, for who has no more.
        """
        if self._left is not None:
            yield
            return
        self._left = left
        try:
            with ended_by(self):
                yield
        finally:
            for watch in self._watches.values():
                watch.close()
            self._watches, self._left = {}, None

    def call(self, work: Callable[[], _Result], *, side: bool = False) -> _Result:
        """Call a function of the user's; see `Watch.call`.

        The first evaluation, and the first gradient, may take what time they take.
        """
        watch = self._watches.get(side)
        if watch is None:
            usual = self.usual_side if side else self.usual
            if not usual:
                return self._first_side(work) if side else work()
            left = self._left or (lambda: float("inf"))
            least = max(_LEAST, _LEAST_FACTOR * usual)
            limit = max(_LONGEST, _FACTOR * usual)
            last = max(_LAST, _LEAST_FACTOR * usual)
            rounds = max(_ROUNDS, _FACTOR * usual)
            watch = Watch(limit, least, self.ended, left, last, rounds)
            self._watches[side] = watch
        return watch.call(work)

    def _first_side(self, work: Callable[[], _Result]) -> _Result:
        began = time.monotonic()
        try:
            return work()
        finally:
            self.usual_side = time.monotonic() - began
