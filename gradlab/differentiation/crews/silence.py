"""When nothing comes back from an executor: why that may be, told while one waits."""

from __future__ import annotations

import warnings
from typing import Any

from gradlab.differentiation.crews.pools import forks, nobody_left
from gradlab.errors import SubjectError

__all__ = ["LOOK", "Silence"]

LOOK = 30.0  # seconds without an answer, before somebody looks why
# Pieces' worth of silence that is none: each takes half a second, mostly.
_PIECES = 20.0

_NOBODY = (
    "every worker of executor= has died, and none is left: the function ends the "
    "process it runs in at some displaced points (exit, a crash of compiled code, "
    "memory); leave executor= out only if this process may end as well"
)
_FORKED = (
    "they are forks of this process, and a fork can wait for ever for a lock that a "
    "thread of this one held; pass ProcessPoolExecutor(..., mp_context="
    'multiprocessing.get_context("forkserver")), or "spawn".'
)
_BUSY = "are they still starting, or busy with something else?"


class Silence:
    """Counts the seconds since the last answer, and speaks up once.

    Examples
    --------
    >>> silence = Silence()
    >>> silence.heard()
    >>> silence.lasts(None, killed=False, longest=60.0)  # nothing to say yet
    """

    def __init__(self) -> None:
        self._seconds, self._told = 0.0, False

    def heard(self) -> None:
        """Start again: an answer came."""
        self._seconds = 0.0

    def lasts(self, executor: Any, *, killed: bool, longest: float) -> None:
        """Take in that nothing came back for another `LOOK` seconds.

        Parameters
        ----------
        executor
            Whose workers are waited for.
        killed
            Whether it has told of workers that died of their work.
        longest
            Seconds that the longest piece of work should take.

        Warns
        -----
        RuntimeWarning
            Once, where that is far longer than the work should take.

        Raises
        ------
        SubjectError
            If there is nobody left to wait for.
        """
        if killed and nobody_left(executor):
            raise SubjectError(_NOBODY)
        self._seconds += LOOK
        if self._told or self._seconds < _PIECES * longest:
            return
        self._told = True
        why = _FORKED if forks(executor) else _BUSY
        warnings.warn(
            f"no worker of executor= has answered for {self._seconds:.0f} seconds: "
            f"{why} Ctrl-C leaves a partial report",
            RuntimeWarning,
            stacklevel=2,
        )
