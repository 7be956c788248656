"""What executors tell about themselves, each in its own way."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

__all__ = [
    "another_pool",
    "breadth_of",
    "call_off",
    "first_line",
    "forks",
    "killed",
    "nobody_left",
]


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


def call_off(flying: Iterable[Future[Any]], executor: Any) -> None:
    """Cancel what nobody waits for any more.

    Not in a process pool: what is sent to one is within a moment in its queue, where
    nothing can be cancelled; and in older Pythons (3.11 is one) a pool that breaks, as
    one does whose workers had the Ctrl-C too, gives up at a cancelled piece and leaves
    its workers as zombies.
    """
    if not isinstance(executor, ProcessPoolExecutor):
        for future in flying:
            future.cancel()


def killed(cause: Exception) -> bool:
    """Whether an executor that goes on says that workers died of a task (Dask)."""
    return type(cause).__name__ == "KilledWorker"


def nobody_left(executor: Any) -> bool:
    """Whether an executor says that it has no workers any more (Dask).

    A local cluster gives up a worker that dies before it has come up again.

    Examples
    --------
    >>> nobody_left(ProcessPoolExecutor(1))
    False
    """
    client: Any = getattr(executor, "_client", None)
    with contextlib.suppress(Exception):
        return hasattr(client, "nthreads") and not client.nthreads()
    return False


def forks(executor: Any) -> bool:
    """Whether a pool makes its processes by copying this one, its locks included."""
    context: Any = getattr(executor, "_mp_context", None)
    return bool(context is not None and context.get_start_method() == "fork")


def first_line(cause: Exception) -> str:
    r"""Return the words of an exception, but no essay.

    Examples
    --------
    >>> first_line(ValueError("one\ntwo")), first_line(ValueError())
    ('one', 'ValueError')
    """
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]
