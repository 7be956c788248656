"""How many examples a test draws: some for everybody, more in ``make nightly``.

A test over a grid of parameters (seeds, precisions, functions, slips) is thinned by a
mark, ``@pytest.mark.thinned(2)``: every second combination is run by day, and the rest
at night. Those by day are the squares of one colour on a chessboard, so that each value
of each parameter stays, beside half of the others.
"""

from __future__ import annotations

import os

__all__ = ["drawn", "is_left_for_the_night"]


def drawn(usual: int, at_night: int) -> int:
    """Choose a number of seeds, networks or points; the first ones are the same."""
    return at_night if _is_night() else usual


def is_left_for_the_night(item) -> bool:
    """Whether a test is one of those that its mark leaves out of `make test`."""
    mark = item.get_closest_marker("thinned")
    if mark is None or _is_night():
        return False
    (share,) = mark.args
    grid = item.iter_markers("parametrize")
    return (
        sum(_place(*axis.args[:2], item.callspec.params) for axis in grid) % share != 0
    )


def _place(names, values, chosen) -> int:
    """Which of the values of one axis of a grid is taken, known by its identity."""
    several = not isinstance(names, str) or "," in names
    name = (names.split(",") if isinstance(names, str) else names)[0].strip()
    for place, value in enumerate(values):
        held = getattr(value, "values", None)  # of pytest.param
        first = held[0] if isinstance(held, tuple) else value[0] if several else value
        if first is chosen[name]:
            return place
    msg = f"no value of {names} is {chosen[name]!r}"
    raise LookupError(msg)


def _is_night() -> bool:
    return os.environ.get("GRADLAB_HYPOTHESIS") == "nightly"
