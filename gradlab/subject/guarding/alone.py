"""Which threads have a check under way: who changes what all read must be alone.

A check evaluates copies, as a rule, and other threads may check the same function. What
is changed where it stands, for a while, is changed for all of them.
"""

from __future__ import annotations

import collections
import threading

__all__ = ["alone", "begun", "ended"]

_LOCK = threading.Lock()  # held for a count only: f may check in a thread of its own
_open: collections.Counter[int] = collections.Counter()  # guards, by thread


def begun() -> None:
    """Count a guard of this thread."""
    with _LOCK:
        _open[threading.get_ident()] += 1


def ended() -> None:
    """Count it no longer."""
    with _LOCK:
        _open[threading.get_ident()] -= 1
        if not _open[threading.get_ident()]:
            del _open[threading.get_ident()]


def alone() -> bool:
    """Whether no other thread has a check under way.

    Examples
    --------
    >>> alone()
    True
    """
    with _LOCK:
        return set(_open) <= {threading.get_ident()}
