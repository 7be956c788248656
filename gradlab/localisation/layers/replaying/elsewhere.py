"""Code of a piece that is run where its inputs moved, and may not come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gradlab.differentiation.metering.timeouts import NotReturnedError
from gradlab.localisation.layers.variables import ReplayError
from gradlab.subject.ending import ended

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run_elsewhere"]

_Result = TypeVar("_Result")


def run_elsewhere(work: Callable[[], _Result]) -> _Result:
    """Return what it returns.

    Raises
    ------
    ReplayError
        If it was ended: then nothing is known of it there.

    Examples
    --------
    >>> run_elsewhere(lambda: 6 * 7)
    42
    """
    try:
        return ended(work)
    except NotReturnedError as stop:
        raise ReplayError(f"does not return when its inputs move: {stop}") from stop
