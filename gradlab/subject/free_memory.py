"""Memory that was freed and is kept for later, given back to the system."""

from __future__ import annotations

import contextlib
import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["hand_back", "parked_again"]


def hand_back() -> None:
    """Let the C library return what was freed, before as much is taken elsewhere.

    glibc keeps freed memory in pieces of the size that was asked for, and what comes
    next, of another size, does not fit in. Does nothing where that call is unknown.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def parked_again(*subjects: object) -> Iterator[None]:
    """Let go of private copies that something inside asks for, once it is done.

    Parameters
    ----------
    *subjects
        Those of torch may have inputs that are parked: see `tensors.values.Cell`.
    """
    cells = [c for s in subjects for c in getattr(s, "cells", ()) if c.parked]
    yield
    for cell in cells:
        cell.park()
    if cells:
        hand_back()
