"""Which threads have a check under way: who changes what all read must be alone.

A check evaluates copies, as a rule, and other threads may check the same function. What
is changed where it stands, for a while, is changed for all of them.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["alone", "begun", "ended"]

_LOCK = threading.RLock()
_open: collections.Counter[int] = collections.Counter()  # guards, by thread


def begun() -> None:
    """Count a guard of this thread; waits for whoever is `alone`."""
    with _LOCK:
        _open[threading.get_ident()] += 1


def ended() -> None:
    """Count it no longer."""
    with _LOCK:
        _open[threading.get_ident()] -= 1
        if not _open[threading.get_ident()]:
            del _open[threading.get_ident()]


@contextlib.contextmanager
def alone() -> Iterator[bool]:
    """Let no other thread begin a check in the block; say whether none is under way.

    Examples
    --------
    >>> with alone() as only:
    ...     only
    True
    """
    with _LOCK:
        yield set(_open) <= {threading.get_ident()}
