"""Perturbed evaluations of torch subjects, one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.errors import GradlabError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.subject.torch_subjects import TorchSubject

__all__ = ["looped", "looped_sets"]


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
    width = sum(variable.size for variable in subject.outputs)
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
    subject: TorchSubject, which: int, displacements: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Evaluate with many coordinates displaced together, shape (count, rows)."""
    cell, point = subject.cells[which], subject.point(which)
    width = sum(variable.size for variable in subject.outputs)
    values = np.full((len(displacements), width), np.nan)
    try:
        for row, displacement in enumerate(displacements):
            cell.place(point + displacement)
            try:
                values[row] = subject.row()
            except GradlabError:
                raise
            except Exception:  # noqa: BLE001, S112 - outside the domain: no value
                continue
    finally:
        cell.place(None)
    return values
