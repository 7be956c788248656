"""Whether a thread goes round and round in the user's code.

What takes long may be a compilation, a download, a first call that loads a library: it
comes to an end, and must not be cut in two. Each stands behind one instruction of the
user's code, from beginning to end. An iteration that does not converge comes back to
instructions that it has left, time and again, with other values in its variables; so
does an integrator, to the function that it integrates.
"""

from __future__ import annotations

import dis
import sys
from typing import TYPE_CHECKING

from gradlab.subject.guarding.library_code import is_library

if TYPE_CHECKING:
    from types import CodeType, FrameType

__all__ = ["Rounds"]

_ENOUGH = 5  # times that it came back
_BACK = "JUMP_BACKWARD"  # in the names of instructions that end a turn of a loop


class Rounds:
    """Looks at a thread now and then.

    Parameters
    ----------
    thread
        Its identifier.
    """

    def __init__(self, thread: int) -> None:
        self._thread = thread
        # where it was, and what its variables held: identities, for to hold is to keep
        self._seen: dict[tuple[CodeType, int], dict[str, int]] = {}
        self._last: tuple[CodeType, int] | None = None
        self._returns = 0

    @property
    def closed(self) -> bool:
        """Whether it came back often enough."""
        return self._returns >= _ENOUGH

    def look(self) -> None:
        """See where it is in the user's code."""
        top = sys._current_frames().get(self._thread)  # noqa: SLF001 - documented
        frame = top
        while frame is not None and is_library(frame.f_globals.get("__name__")):
            frame = frame.f_back
        if frame is None:
            return
        here = frame.f_code, frame.f_lasti
        names = tuple(frame.f_locals.items())  # at once: another thread may add to them
        held = {name: id(value) for name, value in names}
        before = self._seen.get(here)
        if before is not None:
            moved = here != self._last or held != before
            self._returns += moved or (frame is top and _turns(frame))
        self._seen[here] = held
        self._last = here


def _turns(frame: FrameType) -> bool:
    """Whether a frame is at the end of a turn of a loop, and in no call."""
    return _BACK in dis.opname[frame.f_code.co_code[frame.f_lasti]]
