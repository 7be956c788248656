"""A torch subject whose function is called under a mode of torch for a while."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Mode = Callable[[], Any]  # makes a context manager for one call

__all__ = ["under"]


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
