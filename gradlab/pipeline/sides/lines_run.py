"""Which way a program goes: told apart by the lines that it runs.

A formula runs the same lines wherever it is evaluated. A loop that ends at a tolerance
runs some of them once more elsewhere, and from there on computes another function.
"""

from __future__ import annotations

import collections
import gc
import math
import os
import pathlib
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    T = TypeVar("T")

__all__ = ["TooLong", "Way", "path_of", "way_of"]

_FACTOR, _PRIME = 1_000_003, 2**61 - 1  # of a rolling hash of line numbers
# what leads to the program is none of its lines, and takes longer than many an f
_OWN = tuple(
    str(pathlib.Path(__file__).parents[2] / name) + os.sep
    for name in ("subject", "differentiation")
)


class Way(NamedTuple):
    """Lines that a call has run.

    Attributes
    ----------
    path
        A number for all of them in their order.
    times
        How often each was run, calls and returns counted, by file and number.
    called
        Code of the functions that were called, and the globals of each.
    """

    path: int
    times: collections.Counter[tuple[str, int]]
    called: dict[CodeType, dict[str, Any]]

    @property
    def lines(self) -> int:
        """How many were run."""
        return self.times.total()

    def is_iterated_by(self, longer: Way) -> bool:
        """Whether another way is this one with more turns of a loop.

        A branch that is taken or not runs lines that the other does not, or one line
        in place of another. Where a loop takes more turns, whatever was run is run
        again, and what was run most often is run more often.

        Examples
        --------
        >>> def halved(x, least, *, also=0):
        ...     while x > least:
        ...         x /= 2
        ...     return x + also if also > least else x
        >>> short, long, other = (
        ...     way_of(lambda case=case: halved(9.0, **case))[1]
        ...     for case in ({"least": 1}, {"least": 0.1}, {"least": 1, "also": 2})
        ... )
        >>> short.is_iterated_by(long), short.is_iterated_by(other)
        (True, False)
        """
        if self.lines >= longer.lines or not self.times.keys() <= longer.times.keys():
            return False
        most, more = (way.times.most_common(1) for way in (self, longer))
        return bool(most) and most[0][1] < more[0][1]


def path_of(call: Callable[[], T]) -> tuple[T, int]:
    """Call; return the result and a number for the lines of Python run on the way.

    What compiled code does inside is not seen, and how gradlab comes to call a function
    is left out. A debugger, or whoever else traces, is put aside for that long, and
    garbage is kept.

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
    path = 0

    def follow(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal path
        if event == "call" and frame.f_code.co_filename.startswith(_OWN):
            return None
        path = (path * _FACTOR + frame.f_lineno) % _PRIME
        return follow

    result = _traced(call, follow)
    return result, path


def _traced(call: Callable[[], T], follow: Callable[..., Any]) -> T:
    """Call while every call of Python's is followed."""
    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # what is called when garbage is collected is none of its lines
    sys.settrace(follow)
    try:
        return call()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()


class TooLong(BaseException):
    """Ends a call that runs too many lines; no ``except Exception`` is in its way."""


def way_of(call: Callable[[], T], most: float = math.inf) -> tuple[T, Way]:
    """Call, as `path_of` does; return as well how often each line was run.

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
    >>> amounts = [way_of(lambda x=x: halvings(x))[1].lines for x in (5.0, 6.0, 9.0)]
    >>> amounts[0] == amounts[1] < amounts[2]
    True
    """
    path = lines = 0
    # of each code: itself, the globals of its last call, and what counts its lines
    codes: dict[int, tuple[CodeType, dict[str, Any], Callable[..., Any]]] = {}
    files: dict[str, dict[int, int]] = {}

    def counting(file: str) -> Callable[..., Any]:
        """Make what is called at every line of a file: it should look nothing up."""
        times = files.setdefault(file, collections.defaultdict(int))

        def count(frame: FrameType, _event: str, _argument: object) -> Any:
            nonlocal path, lines
            line = frame.f_lineno
            path = (path * _FACTOR + line) % _PRIME
            lines += 1
            times[line] += 1
            if lines > most:
                raise TooLong
            return count

        return count

    def follow(frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        known = codes.get(id(code))
        count = counting(code.co_filename) if known is None else known[2]
        codes[id(code)] = code, frame.f_globals, count
        return count(frame, event, argument)

    result = _traced(call, follow)
    times = {(file, n): k for file, counts in files.items() for n, k in counts.items()}
    called = {code: space for code, space, _ in codes.values()}
    return result, Way(path, collections.Counter(times), called)
