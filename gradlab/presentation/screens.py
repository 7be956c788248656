"""Where results are shown: a notebook, a terminal, a file; and what that can carry."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

__all__ = [
    "in_notebook",
    "ipython_shell",
    "printable",
    "shows_words_only",
    "terminal",
]

_WINDOW = 80  # columns of a notebook beside a sidebar; nobody tells its kernel
# What stands for a sign in an encoding that has none.
_PLAIN = {
    "✗": "X",
    "✓": "+",
    "↑": "^",
    "○": "o",
    "↳": ">",
    "…": "~",
    "±": "+-",
    "·": "*",
}


def terminal() -> tuple[int | None, bool]:
    """Columns of the terminal that is printed to, and whether it shows colours.

    Returns
    -------
    columns, colour
        None and False where what is printed goes to a file or a pipe, but as many
        columns as the variable ``COLUMNS`` says; 80 in a notebook, which breaks what is
        longer wherever its window ends. No colour if the variable ``NO_COLOR`` is set
        (https://no-color.org).

    Examples
    --------
    >>> terminal()  # doctest: +SKIP
    (80, True)
    """
    try:
        shown = sys.stdout.isatty()
    except (AttributeError, ValueError):  # none (pythonw), or closed
        shown = False
    if not shown:
        asked = os.environ.get("COLUMNS", "")
        columns = int(asked) if asked.isdecimal() else 0
        return columns or (_WINDOW if in_notebook() else None), False
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return shutil.get_terminal_size().columns, not plain


def printable(text: str) -> str:
    """Replace what standard output cannot carry, so that `print` does not raise.

    On Windows a script's output is cp1252 where it goes to a file or a pipe, and that
    has no tick and no cross. Words say the same.

    Examples
    --------
    >>> printable("✓ agrees")
    '✓ agrees'
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        lost = {c for c in set(text) if c.encode(encoding, "ignore") == b""}
        return text.translate({ord(c): _PLAIN.get(c, "?") for c in lost})
    except LookupError:  # an encoding that Python does not know is not ours to mend
        pass
    return text


def in_notebook() -> bool:
    """Tell whether there is a notebook to draw in.

    Examples
    --------
    >>> in_notebook()
    False
    """
    return getattr(ipython_shell(), "kernel", None) is not None


def shows_words_only() -> bool:
    """Whether this is IPython in a terminal: pages and pictures would be for nobody.

    Examples
    --------
    >>> shows_words_only()
    False
    """
    return ipython_shell() is not None and not in_notebook()


def ipython_shell() -> Any:
    """Return the running IPython, or None.

    Examples
    --------
    >>> ipython_shell() is None
    True
    """
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None
