"""Progress bars for notebooks and terminals that leave nothing behind.

Plain HTML through a display handle, not a widget: a widget in a saved notebook turns
into "model not found" when the notebook is opened again, and printing from other
threads lands in the wrong cell. The front end's Stop button ends a check early; the
report then says that it is partial. In a terminal it is one line, and Ctrl-C.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, Self

from gradlab.errors import InputError
from gradlab.presentation.screens import in_notebook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

__all__ = [
    "NotebookProgress",
    "TerminalProgress",
    "progress_bar",
    "progress_of_calls",
    "terminal_bar",
]

_EVERY = 0.1  # seconds between updates: fast enough to look alive, cheap to send
_PATIENCE = 1.0  # seconds before a bar that nobody asked for appears
_EARLY, _FEW = 5.0, 10  # seconds, and evaluations: before, no pace can be told
_NEWS = 0.3  # weight of the latest pace among those before: tqdm's own
_MINUTES = 100.0  # seconds, from which they are told in minutes


def _in_terminal() -> bool:
    """Tell whether somebody sits before a terminal that can draw a line anew.

    Examples
    --------
    >>> _in_terminal() and os.environ["TERM"] == "dumb"
    False
    """
    screen = sys.stderr is not None and sys.stderr.isatty()
    return screen and os.environ.get("TERM") != "dumb"


@contextlib.contextmanager
def progress_bar(progress: Any, unit: str = "evaluations") -> Iterator[Any]:
    """Read the argument ``progress=`` of a front door; close what was opened for it.

    Parameters
    ----------
    progress
        True for a bar; False for none; an object with tqdm's ``update``; None for a bar
        in a notebook or a terminal, once a second has passed.
    unit
        What is counted.

    Yields
    ------
    object or None
        The bar.

    Raises
    ------
    InputError
        If it is none of these.

    Examples
    --------
    >>> with progress_bar(None) as bar:
    ...     print(bar)
    None
    """
    watched = in_notebook() or _in_terminal()
    if progress is False or (progress is None and not watched):
        yield None
    elif progress is None:
        kind = NotebookProgress if in_notebook() else TerminalProgress
        with kind(unit=unit, patience=_PATIENCE) as bar:
            yield bar
    elif progress is True and in_notebook():  # a tqdm widget does not outlive a save
        with NotebookProgress(unit=unit) as bar:
            yield bar
    elif progress is True:
        from tqdm.auto import tqdm

        with tqdm(unit=f" {unit}", leave=False) as bar:
            yield bar
    elif hasattr(progress, "update"):
        yield progress
    else:
        msg = (
            f"progress must be True, or have tqdm's update(n), got "
            f"{type(progress).__name__}"
        )
        raise InputError(msg)


@contextlib.contextmanager
def progress_of_calls(progress: Any) -> Iterator[Callable[[int, int], None]]:
    """Read ``progress=`` where calls are counted: as above, or a function.

    Parameters
    ----------
    progress
        As of `progress_bar`, or a function of (calls done, calls in all).

    Yields
    ------
    callable
        Of (calls done, calls in all).

    Examples
    --------
    >>> with progress_of_calls(print) as watch:
    ...     watch(2, 3)
    2 3
    """
    if callable(progress) and not hasattr(progress, "update"):
        yield progress
        return
    with progress_bar(progress, "calls") as bar:
        told = 0

        def watch(done: int, total: int) -> None:
            nonlocal told
            if bar is None:
                return
            if hasattr(bar, "total"):
                bar.total = total
            bar.update(done - told)
            told = done

        yield watch


def terminal_bar(patience: float = _PATIENCE) -> Any:
    """Make tqdm's bar for a terminal, drawn once so many seconds have passed.

    A bar that comes and goes within a moment is a flicker. tqdm's own ``delay`` neither
    holds it back when it is reset or given other words, nor clears it then.

    Examples
    --------
    >>> with terminal_bar() as bar:
    ...     bar.n
    0
    """
    from tqdm.auto import tqdm

    kind: Any = tqdm
    shown = time.monotonic() + patience

    class Late(kind):
        drawn = False

        def display(self, *options: Any, **named: Any) -> Any:
            if not self.drawn and time.monotonic() < shown:
                return True
            self.drawn = True
            return super().display(*options, **named)

        def close(self) -> None:
            self.delay = 0 if self.drawn else math.inf  # then there is nothing to clear
            super().close()

    return Late(unit=" evaluations", leave=False)


class NotebookProgress:
    """Shows how far a check is; has tqdm's ``update``, ``reset`` and ``close``.

    Parameters
    ----------
    total
        How many are expected; None while that is unknown.
    unit
        What is counted.
    patience
        Seconds before it appears.

    Examples
    --------
    >>> bar = NotebookProgress(total=10)
    >>> bar.update(4)
    >>> bar.n, bar.total
    (4, 10)
    """

    _stop = "Stop"

    def __init__(
        self,
        total: int | None = None,
        unit: str = "evaluations",
        *,
        patience: float = 0.0,
    ) -> None:
        self.total = total
        self.n = 0
        self._unit = unit
        self._handle: Any = None
        self._began = time.monotonic()
        self._last = self._began + patience
        self._seen, self._then = 0, self._began  # what the pace was last read at
        self._pace = 0.0  # per second

    def update(self, n: float = 1) -> None:
        """Count `n` more; draws ten times a second at most."""
        self.n += int(n)
        now = time.monotonic()
        if now - self._last >= _EVERY:
            self._last = now
            self._draw()

    def reset(self, total: int | None = None) -> None:
        """Begin again, with another total."""
        self.total, self.n, self._seen = total, 0, 0

    def close(self) -> None:
        """Take the bar away."""
        if self._handle is not None:
            self._show("")
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def words(self) -> str:
        """Return what the bar says, for places that show no HTML."""
        seconds = time.monotonic() - self._began
        of = f" of {self.total:,}" if self.total else ""
        told = [f"{self.n:,}{of} {self._unit}", f"{seconds:.0f} s", self._left()]
        return " · ".join(filter(None, [*told, f"{self._stop} ends it early"]))

    def _left(self) -> str:
        """Say how long the rest takes at the latest pace; "" if that is unknown.

        As it is at first: a function may need seconds to warm up.
        """
        if not (self.total and self._pace):
            return ""
        if time.monotonic() - self._began < _EARLY and self.n < _FEW:
            return ""
        seconds = (self.total - self.n) / self._pace
        if seconds < 1:
            return ""
        if seconds < _MINUTES:
            return f"about {seconds:.2g} s left"
        return f"about {seconds / 60:.0f} min left"

    def markup(self) -> str:
        """Return the bar as HTML."""
        known = f' value="{self.n}" max="{self.total}"' if self.total else ""
        from html import escape

        words = escape(self.words())
        return (
            '<div style="font:13px var(--jp-ui-font-family,sans-serif)">'
            f'<progress{known} aria-label="progress of the check" '
            f'style="width:220px;vertical-align:middle"></progress> {words}</div>'
        )

    def _draw(self) -> None:
        done, seconds = self.n - self._seen, self._last - self._then
        if done and seconds > 0:
            news = _NEWS if self._seen >= _FEW else 1.0  # the first ones are no measure
            self._pace += news * (done / seconds - self._pace)
            self._seen, self._then = self.n, self._last
        self._present()

    def _present(self) -> None:
        if in_notebook():
            self._show(self.markup())

    def _show(self, markup: str) -> None:
        # by name: only a notebook has it, and it carries no types
        shown: Any = importlib.import_module("IPython.display")
        # words beside it, or saved notebooks, logs and slides keep "<...HTML object>"
        content = {"text/html": markup, "text/plain": self.words() if markup else ""}
        if self._handle is None:
            self._handle = shown.display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


class TerminalProgress(NotebookProgress):
    """The same words in one line on standard error, which is empty afterwards.

    Examples
    --------
    >>> TerminalProgress(total=10).words()
    '0 of 10 evaluations · 0 s · Ctrl-C ends it early'
    """

    _stop = "Ctrl-C"
    _wide = 0  # characters that are to be taken away again

    def close(self) -> None:
        """Take the line away."""
        if self._wide:
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()

    def _present(self) -> None:
        room = shutil.get_terminal_size().columns - 1  # a full line would scroll
        self._write(self.words()[:room])

    def _write(self, words: str) -> None:
        sys.stderr.write("\r" + words.ljust(self._wide))
        sys.stderr.flush()
        self._wide = len(words)
