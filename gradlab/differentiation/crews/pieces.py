"""Work cut into pieces for workers, in the same way however many there are.

Pieces are contiguous. Where a subject evaluates in batches the cuts fall between two
batches, so that every batch is the one that a single process would have made.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Literal

from gradlab.subject.subject import is_torch_subject

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gradlab.subject.subject import Subject

__all__ = ["Job", "Piece", "batch_size", "cut", "halves", "singles", "works_alone"]

_PER_WORKER = 4  # pieces: with one each, all would wait for the slowest
_LONGEST = 0.5  # seconds of one piece: what an interruption or a budget may cost
_SHORTEST = 5e-3  # seconds: a shorter one is mostly travel


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Evaluations for one worker.

    Attributes
    ----------
    kind
        "rows", one coordinate displaced at a time, or "sets", many together.
    inputs
        Number of the input, of "sets" of all that are displaced.
    positions
        Coordinates to displace, shape (count,); of "sets", empty.
    displacements
        Shape (count,), of "sets" (count, coordinates).
    batched
        Whether the subject evaluates them in batches.
    alone
        Whether nothing else may run in the worker's process meanwhile.
    """

    kind: Literal["rows", "sets"]
    inputs: tuple[int, ...]
    positions: NDArray[np.intp]
    displacements: NDArray[np.float64]
    batched: bool
    alone: bool

    @property
    def count(self) -> int:
        """Number of evaluations."""
        return len(self.displacements)

    def part(self, start: int, stop: int) -> Piece:
        """Take some of the evaluations."""
        own = slice(start, stop)
        return dataclasses.replace(
            self, positions=self.positions[own], displacements=self.displacements[own]
        )


@dataclasses.dataclass(slots=True, eq=False)
class Job:
    """A piece, and what has become of it."""

    piece: Piece
    start: int  # of its evaluations among all, to put the results in order
    paid: bool = False  # charged to the meter
    asked: bool = False  # a worker did not know the subject
    deaths: int = 0  # of workers, with this piece on their desk

    @property
    def suspect(self) -> bool:
        """Whether it has to be alone, to see if it is what kills."""
        return self.deaths > 1


def cut(piece: Piece, breadth: int, each: float, unit: int) -> list[Job]:
    """Cut work into contiguous pieces.

    Parameters
    ----------
    piece
        All of it.
    breadth
        Number of workers.
    each
        Seconds of one evaluation.
    unit
        Evaluations that stay together: a batch, the two ends of a difference.

    Examples
    --------
    >>> moves = np.zeros(10)
    >>> whole = Piece("rows", 0, np.arange(10), moves, batched=False, alone=False)
    >>> [(job.start, job.piece.count) for job in cut(whole, 1, 0.01, 2)]
    [(0, 4), (4, 4), (8, 2)]
    """
    even = math.ceil(piece.count / (_PER_WORKER * breadth))
    least, most = _SHORTEST / each, _LONGEST / each
    size = max(1, int(max(min(even, most), least)))
    size = math.ceil(size / unit) * unit
    return [
        Job(piece.part(start, start + size), start)
        for start in range(0, piece.count, size)
    ]


def halves(job: Job) -> list[Job]:
    """Two jobs for a suspect; none where it is a single evaluation."""
    count, middle = job.piece.count, job.piece.count // 2
    if count < 2:
        return []
    return [
        Job(job.piece.part(a, b), job.start + a, paid=True, deaths=job.deaths)
        for a, b in ((0, middle), (middle, count))
    ]


def singles(job: Job) -> list[Job]:
    """One job for each evaluation of a piece."""
    return [
        Job(job.piece.part(i, i + 1), job.start + i, paid=True)
        for i in range(job.piece.count)
    ]


def batch_size(subject: Subject, which: int) -> int:
    """Tell how many evaluations a subject makes in one batch."""
    return max(1, subject.batch_size(which)) if is_torch_subject(subject) else 1


def works_alone(subject: Subject) -> bool:
    """Whether an evaluation touches what all threads of a process share.

    Random states that are rewound, and torch's default dtype.
    """
    if subject.reset is not None:
        return True
    if not is_torch_subject(subject):
        return False
    return bool(getattr(subject.program, "changes_defaults", False))
