"""Evaluating a subject near its point: loop or batch, counted, bounded, interruptible.

Every evaluation of a check passes through a `Meter`. A function that raises away from
the point has, as far as a difference quotient is concerned, no value there: its row is
nan, and the meter remembers the first such exception.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gradlab.differentiation.metering.timeouts import NotReturnedError
from gradlab.differentiation.sizes.scales import failed_along, failed_with
from gradlab.errors import GradlabError, OutputsChangedError, SubjectError
from gradlab.labels import tensor_wanted
from gradlab.subject.subject import is_torch_subject, output_rows, side_by_side
from gradlab.tracebacks import stopped_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.failures import Failure
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.subject.subject import Subject

    _Move: TypeAlias = tuple[int, NDArray[np.float64], NDArray[np.float64]]

__all__ = [
    "base_row",
    "displaced_rows",
    "displaced_sets",
    "evaluate_rows",
    "evaluate_sets",
    "line_of",
    "line_rows",
    "row_or_nan",
]

_CHUNK_BYTES = 64 * 2**20  # of results held by one batch
_BESIDE = 1e-4  # of a coordinate, or of one: how far a derivative has to look


def base_row(subject: Subject, meter: Meter) -> NDArray[np.float64]:
    """Evaluate at the point itself.

    Raises
    ------
    SubjectError
        If the function raises; the user's exception is the cause.
    """
    meter.spend(1)
    began = time.monotonic()
    try:
        with np.errstate(all="ignore"):
            row = subject.row()
    except GradlabError:
        raise
    except Exception as cause:
        where = tensor_wanted(cause) or stopped_at(cause)
        where = where or " (call it once with these inputs to see where)"
        kind = type(cause).__name__
        msg = f"the function raised {kind} at the given inputs: {cause}{where}"
        raise SubjectError(msg) from cause
    meter.timeouts.usual = max(meter.timeouts.usual, time.monotonic() - began)
    return row


def row_or_nan(
    subject: Subject,
    width: int,
    meter: Meter,
    *,
    far: Callable[[], bool] = lambda: False,
    failure: Callable[[], Failure | None] = lambda: None,
) -> NDArray[np.float64]:
    """Evaluate; a function that raises away from the point has no value there.

    Nor has one whose outputs change their shape `far` from it, as those of an
    integrator do that gives up where the solution grows without bounds. How far it is
    is asked only then: among millions of coordinates that takes longer than many an f.
    So is `failure`, what the meter remembers of one that raised.
    """
    try:
        return subject.row()
    except OutputsChangedError:
        if not far():
            raise
        return np.full(width, np.nan)
    except GradlabError:
        raise
    except NotReturnedError:
        return np.full(width, np.nan)
    except Exception as cause:  # noqa: BLE001 - whatever the user's code raises
        meter.failed(cause, failure())
        return np.full(width, np.nan)


def displaced_rows(
    subject: Subject,
    which: int,
    positions: NDArray[np.intp],
    displacements: NDArray[np.float64],
    meter: Meter,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Evaluate with one coordinate of one input displaced at a time.

    Parameters
    ----------
    subject
        At its point; it is there again afterwards, whatever happens.
    which
        Number of the input.
    positions, displacements
        Coordinate and displacement of each evaluation, shape (count,).
    meter
        Charged for every evaluation.

    Returns
    -------
    values
        Shape (count, rows); nan in rows where the function raised.
    taken
        The displacements really made, ``(x + d) - x`` in the arithmetic of the input;
        shape (count,). A quotient must divide by these, not by what was asked for.
    """
    width = output_rows(subject.outputs)
    values = np.empty((len(positions), width))
    taken = np.empty(len(positions))
    chunk = max(1, meter.room(_CHUNK_BYTES) // max(8 * width, 1))
    for start in range(0, len(positions), chunk):
        part = slice(start, start + chunk)
        moves = positions[part], displacements[part]
        crew = meter.crew
        done = None if crew is None else crew.rows(subject, which, *moves, meter)
        if done is not None:
            values[part], taken[part] = done
            continue
        out = values[part], taken[part]
        if _learnt(subject, which, moves, out, meter):
            continue
        batched = subject.batches(which, len(moves[0]))
        evaluate_rows(subject, which, moves, out, meter, batched=batched)
    return values, taken


def _learnt(
    subject: Subject,
    which: int,
    moves: tuple[NDArray[np.intp], NDArray[np.float64]],
    out: tuple[NDArray[np.float64], NDArray[np.float64]],
    meter: Meter,
) -> bool:
    """Whether these rows were the trial of batches, and are evaluated with it."""
    if not is_torch_subject(subject) or meter.left() < len(moves[0]):
        return False
    with np.errstate(all="ignore"):
        done = subject.first_rows(which, *moves)
    if done is None:
        return False
    meter.spend(len(moves[0]))
    out[0][:], out[1][:] = done
    return True


def evaluate_rows(
    subject: Subject,
    which: int,
    moves: tuple[NDArray[np.intp], NDArray[np.float64]],
    out: tuple[NDArray[np.float64], NDArray[np.float64]],
    meter: Meter,
    *,
    batched: bool,
) -> None:
    """Evaluate in this process, as one batch or one after the other.

    Parameters
    ----------
    moves
        Positions and displacements, as for `displaced_rows`.
    out
        Where its two results go.
    """
    if not batched:
        _loop(subject, which, *moves, *out, meter)
        return
    meter.spend(len(moves[0]))
    with np.errstate(all="ignore"):
        out[0][:], out[1][:] = subject.rows(which, *moves)


def _loop(
    subject: Subject,
    which: int,
    positions: NDArray[np.intp],
    displacements: NDArray[np.float64],
    values: NDArray[np.float64],
    taken: NDArray[np.float64],
    meter: Meter,
) -> None:
    flat, row = subject.coordinates(which), subject.row
    unbounded = meter.unbounded
    i = -1
    try:
        with np.errstate(all="ignore"):
            for i, (position, displacement) in enumerate(
                zip(positions.tolist(), displacements.tolist(), strict=True)
            ):
                if not unbounded:
                    meter.spend(1)
                old = flat[position]
                try:
                    flat[position] = old + displacement
                    taken[i] = float(flat[position]) - float(old)
                    values[i] = row()
                except OutputsChangedError:
                    if not _is_far(old, displacement):
                        raise
                    values[i] = np.nan
                except GradlabError:
                    raise
                except NotReturnedError:
                    values[i] = np.nan
                except Exception as cause:  # noqa: BLE001 - whatever the user's code raises
                    failure = failed_with(subject, which, position, displacement)
                    meter.failed(cause, failure)
                    values[i] = np.nan
                finally:
                    flat[position] = old
    finally:
        if unbounded:  # counted at once: a call for each would cost as much as f
            meter.evaluations += i + 1


def _is_far(
    point: float | NDArray[np.float64], moves: float | NDArray[np.float64]
) -> bool:
    """Whether coordinates move further than beside a point: differences step less."""
    return bool((np.abs(moves) > _BESIDE * np.maximum(np.abs(point), 1.0)).any())


def displaced_sets(
    subject: Subject,
    inputs: tuple[int, ...],
    displacements: NDArray[np.float64],
    meter: Meter,
) -> NDArray[np.float64]:
    """Evaluate with many coordinates of some inputs displaced together.

    Parameters
    ----------
    inputs
        Their numbers.
    displacements
        Of every coordinate of these, side by side, one row for each evaluation; shape
        (count, coordinates).

    Returns
    -------
    ndarray
        Shape (count, rows); nan in rows where the function raised.
    """
    if is_torch_subject(subject):
        meter.spend(len(displacements))
        with np.errstate(all="ignore"):
            return subject.sets(inputs, displacements)
    crew = meter.crew
    done = None if crew is None else crew.sets(subject, inputs, displacements, meter)
    if done is not None:
        return done
    return evaluate_sets(subject, inputs, displacements, meter)


def evaluate_sets(
    subject: Subject,
    inputs: tuple[int, ...],
    displacements: NDArray[np.float64],
    meter: Meter,
) -> NDArray[np.float64]:
    """Evaluate in this process, one after the other; see `displaced_sets`."""
    width = output_rows(subject.outputs)
    values = np.empty((len(displacements), width))
    points = [subject.point(which) for which in inputs]
    slots = side_by_side([len(point) for point in points])
    room = _room(points)
    try:
        with np.errstate(all="ignore"):
            for i, displacement in enumerate(displacements):
                moves = [displacement[slot] for slot in slots]
                moved = functools.partial(zip, inputs, points, moves, strict=True)
                values[i] = _moved_row(subject, moved, width, meter, room)
    finally:
        for which in inputs:
            subject.place(which, None)
    return values


def _moved_row(
    subject: Subject,
    moved: Callable[[], Iterable[_Move]],
    width: int,
    meter: Meter,
    room: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Evaluate with inputs at points plus moves; whoever calls this puts them back.

    Moves may lie in `room`, where their sums with the points are written.
    """
    meter.spend(1)
    for which, point, move in moved():
        subject.place(which, np.add(point, move, out=room[: len(point)]))

    def far() -> bool:
        return any(_is_far(point, move) for _, point, move in moved())

    return row_or_nan(
        subject, width, meter, far=far, failure=lambda: failed_along(moved())
    )


def _room(points: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Memory for the largest, taken once: for each evaluation it would cost as much."""
    return np.empty(max(map(len, points), default=0))


def line_of(
    subject: Subject,
    moves: Iterable[tuple[int, NDArray[np.intp], NDArray[np.float64]]],
) -> list[NDArray[np.float64] | None]:
    """Write moves of some coordinates, by input, as `line_rows` asks for directions."""
    line: list[NDArray[np.float64] | None] = [None] * len(subject.inputs)
    for which, positions, amounts in moves:
        direction = np.zeros(subject.inputs[which].coordinates)
        direction[positions] = amounts
        line[which] = direction
    return line


def line_rows(
    subject: Subject,
    directions: Sequence[NDArray[np.float64] | None],
    steps: Sequence[float],
    meter: Meter,
) -> NDArray[np.float64]:
    """Evaluate at ``x + t d`` for each `t`, all inputs displaced together.

    Parameters
    ----------
    directions
        Per input: real coordinates of the direction, or None to leave it alone.
    steps
        The values of `t`.

    Returns
    -------
    ndarray
        Shape (len(steps), rows).
    """
    width = output_rows(subject.outputs)
    values = np.empty((len(steps), width))
    lines = [
        (k, subject.point(k), d) for k, d in enumerate(directions) if d is not None
    ]
    room = _room([point for _, point, _ in lines])
    try:
        with np.errstate(all="ignore"):
            for i, step in enumerate(steps):
                moved = functools.partial(_along, lines, step, room)
                values[i] = _moved_row(subject, moved, width, meter, room)
    finally:
        for k, *_ in lines:
            subject.place(k, None)
    return values


def _along(
    lines: list[_Move], step: float, room: NDArray[np.float64]
) -> Iterator[_Move]:
    """Make one move after the other: each may be of millions of coordinates."""
    for which, point, direction in lines:
        yield which, point, np.multiply(step, direction, out=room[: len(point)])
