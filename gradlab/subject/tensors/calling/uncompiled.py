"""Functions that torch.compile has compiled, run as they were written for a while.

A mode of torch sees the functions that code calls. Its compiler traces the mode along
with the code, again for every mode, and may come out with another function: of
``tanh(x.detach() * x).sum()`` it lost the sum. And a function that was compiled eight
times is not compiled again, for the user either.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["uncompiled"]


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Let compiled functions run uncompiled meanwhile; nothing if none ever was.

    Examples
    --------
    >>> with uncompiled():
    ...     pass
    """
    torch = sys.modules.get("torch")
    stance = getattr(getattr(torch, "compiler", None), "set_stance", None)  # from 2.6
    if stance is None or "torch._dynamo" not in sys.modules:
        yield
        return
    with stance("force_eager"):
        yield
