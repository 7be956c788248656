"""What the user's code raises, and in which of its lines."""

from __future__ import annotations

import os
import re
from types import TracebackType

__all__ = ["code_place", "in_one_line", "stopped_at", "without_ours"]

# Where code lives that is not the user's.
_OTHERS = (os.path.dirname(__file__), os.path.dirname(os.__file__), "<frozen")  # noqa: PTH120

_INSTALLED = re.compile("(site|dist)-packages")


def code_place(file: str, line: int, *, folder: bool = False) -> str:
    """Name a line of code: where a class or a function is defined.

    Cells of a notebook are files with a number for a name that nobody has seen; they
    are called cells.

    Examples
    --------
    >>> code_place("/home/ada/model.py", 41)
    'model.py:41'
    >>> code_place("/tmp/ipykernel_29143/2906330316.py", 2)
    'line 2 of a cell'
    """
    if not file:
        return ""
    plain = file.replace("\\", "/")
    if "/ipykernel_" in plain or plain.startswith("<ipython-input"):
        return f"line {line} of a cell"
    return f"{file if folder else plain.rpartition('/')[2]}:{line}"


def stopped_at(error: BaseException) -> str:
    """Name the deepest line of the user's own code that an exception came through.

    Returns
    -------
    str
        As `code_place` says it, in brackets and behind a space; empty where all that it
        came through belongs to gradlab, to Python or to an installed package.

    Examples
    --------
    >>> try:
    ...     {}["weight"]
    ... except KeyError as error:
    ...     stopped_at(error).startswith(" (<doctest")
    True
    """
    place, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not (file.startswith(_OTHERS) or _INSTALLED.search(file)):
            place = f" ({code_place(file, trace.tb_lineno)})"
        trace = trace.tb_next
    return place


def in_one_line(error: BaseException, most: int = 300) -> str:
    r"""Say what was raised: its kind, and as many characters of its words.

    Examples
    --------
    >>> in_one_line(ValueError("no such\naxis"))
    'ValueError: no such axis'
    """
    kind, words = type(error).__name__, " ".join(str(error).split())
    return f"{kind}: {words:.{most}}" if words else kind


def without_ours(trace: TracebackType | None) -> TracebackType | None:
    """Leave the lines of gradlab out of a traceback; None where no other is left."""
    others: list[TracebackType] = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_OTHERS[0]):
            others.append(trace)
        trace = trace.tb_next
    shown = None
    for each in reversed(others):
        shown = TracebackType(shown, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return shown
