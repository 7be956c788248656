"""The workers of a check, if there are to be any.

Pools, pickles and sockets take as long to import as all the rest of a check; who asks
for no executor does without them.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.differentiation.crews.workers import Workers

__all__ = ["crew_of"]


@contextlib.contextmanager
def crew_of(executor: Any) -> Iterator[Workers | None]:
    """Workers for as long as they are needed; none where no executor is given."""
    if executor is None:
        yield None
        return
    from gradlab.differentiation.crews.workers import Workers

    crew = Workers(executor)
    try:
        yield crew
    finally:
        crew.close()
