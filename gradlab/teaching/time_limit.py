"""A time limit for code that may loop for ever, without another process.

The code runs in a thread of its own, and the caller waits for it. When the time is up,
an exception is raised in that thread: Python delivers it before the next bytecode, so
that ``while True`` ends, even when the loop catches ``Exception``. Whatever happens to
the thread, nothing of it reaches the caller: an interruption that comes a moment too
late hits a thread that has ended. A single call into C that does not come back
(``time.sleep(1e9)``, a product of two huge matrices) cannot be ended this way; the
caller stops waiting for it, and only the end of the process ends it.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import sys
import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from gradlab.differentiation.metering.timeouts import (
    EvaluationTimeout,
    arrive,
    interrupt,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["call_within"]

_Result = TypeVar("_Result")
_BUSY = 3.0  # by how much a busy machine may stretch the time on the wall
_AGAIN = 0.1  # seconds between two calls to stop: a bare `except:` swallows one
_PATIENCE = 20  # calls to stop before the thread is left to itself
_IMPORTS = 300  # times that it is let finish an import first
# what autograd loads when it is first given an incoming gradient: seconds of work
_LOADED_LATE = "torch.fx.experimental.symbolic_shapes"


class _Errand(Generic[_Result]):
    """Code under way in a thread of its own, and what became of it."""

    def __init__(self, work: Callable[[], _Result]) -> None:
        self._work = work
        self._begun = False
        self._gate = threading.Lock()
        self._closed = False  # behind the gate: nobody is to be interrupted any more
        self._done = threading.Event()
        self._result: list[_Result] = []
        self._error: BaseException | None = None
        self._clock: int | None = None
        # NumPy's floating-point errors live in the context; torch's gradient mode is
        # the thread's, and new threads have it switched on, as a cell has.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,))
        self._thread.daemon = True
        self._thread.start()

    def _run(self) -> None:
        # Until it is closed, an interruption may arrive wherever Python looks for one:
        # at calls and where loops turn back. Afterwards, one may be on its way and one
        # about to be sent. None may get out: `threading` prints a traceback then.
        try:
            try:
                try:
                    self._do()
                    self._closed = True
                except BaseException as error:  # noqa: BLE001 - handed on to the caller
                    self._closed = True
                    self._error = error
                self._receive()
            except EvaluationTimeout:
                self._receive()
        except EvaluationTimeout:
            pass
        self._done.set()

    def _do(self) -> None:
        with self._gate:
            if self._closed:  # the time was up before it could begin
                return
            self._begun = True
        if hasattr(time, "pthread_getcpuclockid"):  # not on Windows and macOS
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._result.append(self._work())

    def _receive(self) -> None:
        """Let arrive what was sent before it was closed."""
        with self._gate:
            pass
        arrive()

    def wait(self, seconds: float) -> bool:
        """Wait at most so long, and say whether it is done."""
        # a thread that an interruption ended before it could say so is done as well
        end = time.monotonic() + seconds
        while not self._done.wait(min(_AGAIN, max(0.0, end - time.monotonic()))):
            if time.monotonic() >= end or not self._thread.is_alive():
                break
        return self._done.is_set() or not self._thread.is_alive()

    def finish(self, seconds: float) -> bool:
        """Wait for so many seconds of computing, and say whether it is done.

        What other programs take of the processor does not count, up to a factor.
        """
        left = seconds
        end = time.monotonic() + _BUSY * seconds
        while not self.wait(left):
            left = min(seconds - self._computed(), end - time.monotonic())
            if left <= 0:
                return False
        return True

    def _computed(self) -> float:
        """Return how long it has computed; for ever, if that cannot be known."""
        if self._clock is None:
            return float("inf")
        try:
            return time.clock_gettime(self._clock)
        except OSError:  # the thread has just ended
            return 0.0

    def stop(self) -> bool:
        """Call it to order until it ends; False if it does not listen."""
        called, spared = 0, 0
        while called < _PATIENCE:
            if self.wait(0.0):
                return True
            with self._gate:
                if not self._begun:  # in `threading` still, and further it does not get
                    self._closed = True
                    return True
                if self._closed or interrupt(
                    self._thread.ident or 0, anyway=spared >= _IMPORTS
                ):
                    called += 1
                else:
                    spared += 1
            if self.wait(_AGAIN):
                return True
        return False

    def outcome(self) -> _Result:
        """Return what it returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._result[0]


def call_within(seconds: float, work: Callable[[], _Result]) -> _Result:
    """Call a function, and give up on it after so many seconds.

    Parameters
    ----------
    seconds
        How long it may compute. On the wall it may take three times as long, for the
        sake of busy machines, where the system tells the time of a thread.
    work
        What to call. It runs in a thread of its own, with the caller's context
        variables (NumPy's treatment of floating-point errors among them).

    Returns
    -------
    object
        What `work` returned.

    Raises
    ------
    TimeoutError
        If it ran longer. Whatever else `work` raises comes through, and a
        KeyboardInterrupt of the caller ends `work` too.

    Notes
    -----
    Needs CPython (`PyThreadState_SetAsyncExc` of its C interface). A call into C that
    does not return is not ended; the caller stops waiting for it after two seconds.

    Examples
    --------
    >>> call_within(1.0, lambda: 6 * 7)
    42
    """
    _load_first()
    errand = _Errand(work)
    try:
        in_time = errand.finish(seconds)
    except BaseException:
        errand.stop()
        raise
    if in_time:
        return errand.outcome()
    ended = errand.stop()
    msg = f"still running after {seconds:g} s: is there a loop that never ends?"
    if not ended:
        msg += " It does not listen, and goes on in the background until Python ends."
    raise TimeoutError(msg)


def _load_first() -> None:
    """Load what torch would load while the time runs.

    It is not the code's own time; and an import that is interrupted leaves a module
    behind that is half loaded, for as long as Python runs.
    """
    if "torch" in sys.modules and _LOADED_LATE not in sys.modules:
        with contextlib.suppress(ImportError):  # a torch that has it elsewhere
            importlib.import_module(_LOADED_LATE)
