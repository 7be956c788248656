"""Who ends calls of the user's code that do not return, if anybody does.

A subject calls the user's function by `ended`, an analytic side that is written by hand
its gradients. Whoever has `ended_by` under way in this thread may end such a call.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Ender", "endable", "ended", "ended_by", "side_ended"]

_Result = TypeVar("_Result")


class Ender(Protocol):
    """Calls functions, and ends those that do not return."""

    def call(self, work: Callable[[], _Result], *, side: bool = False) -> _Result:
        """Return what a function returns, or raise: a `TimeoutError` if it was ended.

        Parameters
        ----------
        side
            Whether it is a gradient: these take another time.
        """


class _Here(threading.local):
    ender: Ender | None = None


_HERE = _Here()


@contextlib.contextmanager
def ended_by(ender: Ender) -> Iterator[None]:
    """Let somebody end calls that are made in this thread.

    Examples
    --------
    >>> class Impatient:
    ...     def call(self, work, *, side=False):
    ...         raise TimeoutError
    >>> with ended_by(Impatient()):
    ...     ended(print, "never")
    Traceback (most recent call last):
    TimeoutError
    """
    before, _HERE.ender = _HERE.ender, ender
    try:
        yield
    finally:
        _HERE.ender = before


def ended(work: Callable[..., _Result], *arguments: Any) -> _Result:
    """Call the function under check, for as long as it may take."""
    ender = _HERE.ender
    if ender is None:
        return work(*arguments)
    return ender.call(functools.partial(work, *arguments) if arguments else work)


def endable(work: Callable[..., _Result]) -> Callable[..., _Result]:
    """Return what calls a function so each time."""
    return functools.partial(ended, work)


def side_ended(work: Callable[[], _Result]) -> _Result:
    """Call what computes its gradient, for as long as that may take."""
    ender = _HERE.ender
    return work() if ender is None else ender.call(work, side=True)
