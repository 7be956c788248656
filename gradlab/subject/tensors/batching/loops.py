"""Perturbed evaluations of torch subjects, one at a time: what batches equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.errors import GradlabError
from gradlab.subject.subject import output_rows, side_by_side

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = ["looped", "looped_sets", "same_values", "trial_points"]

# Units of round-off by which batched rows may differ from single ones. With four of
# them a batch of matrix products was another function than one product of 32 terms.
_SLACK = 16


def looped(
    subject: TorchSubject,
    which: int,
    positions: NDArray[np.intp],
    displacements: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Evaluate with one coordinate displaced at a time.

    Returns
    -------
    values
        Shape (count, rows); nan where the function raised.
    taken
        The displacements really made, shape (count,).
    """
    coordinates = subject.coordinates(which)
    taken = np.empty(len(positions))
    width = output_rows(subject.outputs)
    values = np.full((len(positions), width), np.nan)
    for row, position in enumerate(positions):
        index = int(position)
        old = float(coordinates[index])
        try:
            coordinates[index] = old + displacements[row]
            taken[row] = float(coordinates[index]) - old
            values[row] = subject.row()
        except GradlabError:
            raise
        except Exception:  # noqa: BLE001, S110 - outside the domain there is no value
            pass
        finally:
            coordinates[index] = old
    return values, taken


def looped_sets(
    subject: TorchSubject, inputs: tuple[int, ...], displacements: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Evaluate with many coordinates displaced together, shape (count, rows)."""
    cells = [subject.cells[which] for which in inputs]
    points = [subject.point(which) for which in inputs]
    slots = side_by_side([len(point) for point in points])
    moved = list(zip(cells, points, slots, strict=True))
    width = output_rows(subject.outputs)
    values = np.full((len(displacements), width), np.nan)
    try:
        for row, displacement in enumerate(displacements):
            for cell, point, slot in moved:
                cell.place(point + displacement[slot])
            try:
                values[row] = subject.row()
            except GradlabError:
                raise
            except Exception:  # noqa: BLE001, S112 - outside the domain: no value
                continue
    finally:
        for cell in cells:
            cell.place(None)
    return values


def trial_points(
    subject: TorchSubject, which: int, count: int
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Coordinates from all over an input, and steps as a difference takes them."""
    cell = subject.cells[which]
    last = cell.variable.coordinates - 1
    positions = np.linspace(0, last, count).astype(np.intp)
    scale = np.maximum(1.0, np.abs(cell.point()[positions]))
    return positions, np.sqrt(subject.epsilon) * scale


def same_values(
    subject: TorchSubject, expected: NDArray[np.float64], values: NDArray[np.float64]
) -> bool:
    """Equal to a few units of round-off: of the entry, or of a large neighbour.

    An entry that is small by cancellation may differ by the round-off of what
    cancelled; the largest entry of its row stands for that, at a quarter.
    """
    if np.array_equal(expected, values):  # mostly to the last bit
        return True
    finite = np.isfinite(expected)
    if not np.array_equal(expected[~finite], values[~finite], equal_nan=True):
        return False
    magnitude = np.where(finite, np.abs(expected), 0.0)
    largest = magnitude.max(axis=1, initial=0.0, keepdims=True)
    allowed = _SLACK * subject.epsilon * np.maximum(magnitude, largest / 4)
    difference = np.abs(np.where(finite, values - expected, 0.0))
    return bool(np.all(difference <= allowed))
