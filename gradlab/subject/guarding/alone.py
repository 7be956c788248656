"""Which threads have a check under way: who changes what all read must be alone.

A check evaluates copies, as a rule, and other threads may check the same function. What
is changed where it stands, for a while, is changed for all of them. No lock is taken:
Ctrl-C may come between any two steps, and one that is left locked stops every check
from then on. A single operation on a dictionary is not cut in two.
"""

from __future__ import annotations

import threading
import weakref

__all__ = ["alone", "begun", "ended"]

# Thread of each guard, by its identity. One that is cut short goes with the guard.
_open: dict[int, tuple[int, weakref.ref[object]]] = {}


def begun(guard: object) -> None:
    """Note a guard of this thread."""
    _open[id(guard)] = threading.get_ident(), weakref.ref(guard)


def ended(guard: object) -> None:
    """Forget it."""
    _open.pop(id(guard), None)


def alone() -> bool:
    """Whether no other thread has a check under way.

    Examples
    --------
    >>> alone()
    True
    """
    here = threading.get_ident()
    return all(
        thread == here or guard() is None for thread, guard in tuple(_open.values())
    )
