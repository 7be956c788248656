"""A torch subject whose function is called under a mode of torch for a while."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from gradlab.labels import code_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    Mode = Callable[[], Any]  # makes a context manager for one call

__all__ = ["calling_line", "under"]

_OWN = ("torch.", "gradlab.", "numpy.", "contextlib.")


def calling_line() -> str:
    """Name the line of the user's code that is being run: the innermost one.

    Examples
    --------
    >>> calling_line().partition(":")[0] != "torch_modes.py"
    True
    """
    # inspect.stack reads every source file
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        module = f"{frame.f_globals.get('__name__', '')}."
        if not module.startswith(_OWN):
            return code_place(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return ""


@contextlib.contextmanager
def under(subject: Any, program: Mode, loss: Mode) -> Iterator[None]:
    """Call a subject's program and its loss under modes while the block runs.

    Parameters
    ----------
    subject
        Of torch; it is as it was afterwards, whatever happens.
    program, loss
        Called before every call of either; may be the same.
    """
    before = subject.program, subject.loss
    subject.program = _Under(subject.program, program)
    if subject.loss is not None:
        subject.loss = _Under(subject.loss, loss)
    try:
        yield
    finally:
        subject.program, subject.loss = before


class _Under:
    """A program or a loss that is called under a mode."""

    def __init__(self, inner: Any, mode: Mode) -> None:
        self._inner, self._mode = inner, mode

    def call(self, *arguments: Any) -> Any:
        """Call the program."""
        with self._mode():
            return self._inner.call(*arguments)

    def __call__(self, *arguments: Any) -> Any:
        """Call the loss."""
        with self._mode():
            return self._inner(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
