"""Ctrl-C must not cut a restoration in two."""

from __future__ import annotations

import inspect
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import types

__all__ = ["MOST_RETRIES", "DeferredInterrupt"]

MOST_RETRIES = 1000  # restorations interrupted in a row before giving up

# without the turning of a handler into an enum, which fails by an exception each time
_get, _put = inspect.unwrap(signal.getsignal), inspect.unwrap(signal.signal)


class DeferredInterrupt:
    """Ctrl-C while a guard puts state back waits until it is back.

    Elsewhere the handler that was there before decides, at once. Only the main thread
    can receive the signal, so in others this does nothing.

    Parameters
    ----------
    owner
        The guard.
    *methods
        Its methods that must not be interrupted.
    """

    __slots__ = ("_codes", "_installed", "_owner", "_previous", "pending")

    def __init__(self, owner: object, *methods: Any) -> None:
        self._owner = owner
        self._codes: tuple[types.CodeType, ...] = tuple(
            method.__code__ for method in methods
        )
        self._previous: Any = None
        self._installed = False
        self.pending = False

    def install(self) -> None:
        """Put the handler in place; does nothing where SIGINT is ignored."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._previous = _get(signal.SIGINT)
        if callable(self._previous):
            self._installed = True
            _put(signal.SIGINT, self._on_signal)

    def _on_signal(self, number: int, frame: types.FrameType | None) -> None:
        if self._entering_or_leaving(frame):
            self.pending = True
        else:
            self._previous(number, frame)

    def _entering_or_leaving(self, frame: types.FrameType | None) -> bool:
        """Whether the owner's own methods are on the stack, even before line one."""
        while frame is not None:
            if (
                frame.f_code in self._codes
                and frame.f_locals.get("self") is self._owner
            ):
                return True
            frame = frame.f_back
        return False

    def remove(self) -> None:
        """Give the signal back to the handler that had it before."""
        # Whoever put a handler of their own on top of ours keeps it.
        if self._installed and _get(signal.SIGINT) == self._on_signal:
            _put(signal.SIGINT, self._previous)
        self._installed = False

    def deliver(self) -> None:
        """Let the handler from before have the signal that was kept from it."""
        if self.pending:
            self.pending = False
            self._previous(signal.SIGINT, sys._getframe(1))  # noqa: SLF001 - what a handler is given
