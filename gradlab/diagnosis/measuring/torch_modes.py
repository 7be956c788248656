"""A torch subject whose function is called under a mode of torch for a while."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from gradlab.subject.tensors.in_double.returning import EXITS
from gradlab.subject.tensors.values import is_torch
from gradlab.tracebacks import code_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    Mode = Callable[[], Any]  # makes a context manager for one call

__all__ = [
    "CHECKPOINT",
    "LEAVES",
    "NOT_REENTRANT",
    "NO_GRAPH",
    "calling_instruction",
    "calling_line",
    "in_checkpoint",
    "read_as_numbers",
    "under",
]

# what makes a tensor of numbers: tensors in a list are read as such
_READS = frozenset({"tensor", "as_tensor", "asarray"})
LEAVES = EXITS | {f"torch.{name}" for name in _READS}  # as they are named in findings
NO_GRAPH = "grad without create_graph"  # a gradient that forward takes as a constant
CHECKPOINT = "re-entrant checkpoint"  # what is called so in a finding
NOT_REENTRANT = (
    "Pass use_reentrant=False to that checkpoint: a re-entrant one hands on no "
    "gradient where no tensor that it is given requires grad."
)
_OWN = ("torch.", "gradlab.", "numpy.", "contextlib.")


def calling_line() -> str:
    """Name the line of the user's code that is being run: the innermost one.

    Examples
    --------
    >>> calling_line().partition(":")[0] != "torch_modes.py"
    True
    """
    return calling_instruction()[0]


def calling_instruction() -> tuple[str, int]:
    """Name the line of the user's code that is being run, and the place in its code.

    The same again in a loop, and two places for two calls on one line.
    """
    # inspect.stack reads every source file
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        module = f"{frame.f_globals.get('__name__', '')}."
        if not module.startswith(_OWN):
            line = code_place(frame.f_code.co_filename, frame.f_lineno)
            return line, frame.f_lasti
        frame = frame.f_back
    return "", 0


def in_checkpoint() -> bool:
    """Whether the line that the user's code runs has called `torch.utils.checkpoint`.

    A re-entrant one runs without recording; where no input of it requires grad, nothing
    inside gets a gradient.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        module = f"{frame.f_globals.get('__name__', '')}."
        if module == "torch.utils.checkpoint." or not module.startswith(_OWN):
            return module.startswith(_OWN)
        frame = frame.f_back
    return False


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


def read_as_numbers(name: str, args: Any) -> list[Any]:
    """List the tensors in a list of which a function of torch makes another tensor.

    Their numbers alone: ``torch.tensor([a, b])`` has no graph, unlike ``torch.stack``.
    """
    if name not in _READS or not args or not isinstance(args[0], (list, tuple)):
        return []
    found: list[Any] = []
    todo = [args[0]]
    while todo:
        members = todo.pop()
        todo += [each for each in members if isinstance(each, (list, tuple))]
        found += filter(is_torch, members)
    return found
