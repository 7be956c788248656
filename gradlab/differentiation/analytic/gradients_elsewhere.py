"""The analytic side at another point: gradients are asked for where f stands then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.subject.subject import holds_numbers, is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    Points = Mapping[int, NDArray[np.float64]]

__all__ = ["gradients_at"]


def gradients_at(
    subject: Any, points: Points, cotangents: NDArray[np.float64]
) -> tuple[NDArray[np.float64], ...] | None:
    """Ask the analytic side at another point.

    Parameters
    ----------
    subject
        Of any kind; at its own point afterwards.
    points
        Coordinates of the inputs that move, by position; without any the side is asked
        anew where it is.
    cotangents
        Shape (count, rows).

    Returns
    -------
    tuple of ndarray or None
        Per input, shape (count, coordinates); None where gradients are given as
        numbers, and cannot be asked for. What the user's code raises there propagates.
    """
    side = subject.analytic
    if side is None or holds_numbers(subject):
        return None
    live = subject.live
    if not live and not is_torch_subject(subject):
        twin = subject.moved(points)
        return None if twin is None else tuple(twin.analytic.pull(cotangents).values)
    try:
        for which, point in points.items():
            subject.place(which, point)
        fresh = side.asked_anew() if live else side
        return tuple(fresh.pull(cotangents).values)
    finally:
        for which in points:
            subject.place(which, None)
