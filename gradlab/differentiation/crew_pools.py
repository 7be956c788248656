"""What executors tell about themselves, each in its own way."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any

__all__ = ["another_pool", "breadth_of", "first_line", "killed"]


def breadth_of(executor: Any) -> int:
    """Ask an executor how many workers it has; the number of processors if it hides it.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(3) as pool:
    ...     breadth_of(pool)
    3
    """
    own = getattr(executor, "_max_workers", None) or getattr(
        executor, "num_workers", None
    )
    client: Any = getattr(executor, "_client", None)
    if own is None and hasattr(client, "nthreads"):  # Dask
        with contextlib.suppress(Exception):
            own = sum(client.nthreads().values())
    return own if isinstance(own, int) and own > 0 else os.cpu_count() or 1


def another_pool(broken: ProcessPoolExecutor, breadth: int) -> ProcessPoolExecutor:
    """Make a process pool like one that broke and takes no more work."""
    settings: Any = broken  # nothing public tells how it was made
    return ProcessPoolExecutor(
        breadth,
        mp_context=settings._mp_context,  # noqa: SLF001 - as above
        initializer=settings._initializer,  # noqa: SLF001
        initargs=settings._initargs,  # noqa: SLF001
    )


def killed(cause: Exception) -> bool:
    """Whether an executor that goes on says that workers died of a task (Dask)."""
    return type(cause).__name__ == "KilledWorker"


def first_line(cause: Exception) -> str:
    r"""Return the words of an exception, but no essay.

    Examples
    --------
    >>> first_line(ValueError("one\ntwo")), first_line(ValueError())
    ('one', 'ValueError')
    """
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]
