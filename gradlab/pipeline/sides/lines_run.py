"""Which way a program goes: told apart by the lines that it runs.

A formula runs the same lines wherever it is evaluated. A loop that ends at a tolerance
runs some of them once more elsewhere, and from there on computes another function.
"""

from __future__ import annotations

import gc
import math
import sys
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    T = TypeVar("T")

__all__ = ["TooLong", "path_of", "way_of"]

_FACTOR, _PRIME = 1_000_003, 2**61 - 1  # of a rolling hash of line numbers


def path_of(call: Callable[[], T]) -> tuple[T, int]:
    """Call; return the result and a number for the lines of Python run on the way.

    What compiled code does inside is not seen. A debugger, or whoever else traces, is
    put aside for that long, and garbage is kept.

    Examples
    --------
    >>> def halvings(x):
    ...     while x > 1:
    ...         x /= 2
    ...     return x
    >>> paths = [path_of(lambda x=x: halvings(x))[1] for x in (5.0, 6.0, 9.0)]
    >>> paths[0] == paths[1], paths[1] == paths[2]
    (True, False)
    """
    result, path, _ = way_of(call)
    return result, path


class TooLong(BaseException):
    """Ends a call that runs too many lines; no ``except Exception`` is in its way."""


def way_of(call: Callable[[], T], most: float = math.inf) -> tuple[T, int, int]:
    """Call, as `path_of` does; return as well how much was run: lines, and calls.

    Parameters
    ----------
    call
        Takes no arguments.
    most
        Lines and calls after which it is ended.

    Raises
    ------
    TooLong
        Where it was: a loop that waits for what rounding never gives has no other end.

    Examples
    --------
    >>> def halvings(x):
    ...     while x > 1:
    ...         x /= 2
    ...     return x
    >>> amounts = [way_of(lambda x=x: halvings(x))[2] for x in (5.0, 6.0, 9.0)]
    >>> amounts[0] == amounts[1] < amounts[2]
    True
    """
    path = lines = 0

    def follow(frame: FrameType, _event: str, _argument: object) -> Any:
        nonlocal path, lines
        path = (path * _FACTOR + frame.f_lineno) % _PRIME
        lines += 1
        if lines > most:
            raise TooLong
        return follow

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # what is called when garbage is collected is none of its lines
    sys.settrace(follow)
    try:
        result = call()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return result, path, lines
