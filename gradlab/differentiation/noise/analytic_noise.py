"""How far the analytic side may be off by round-off alone, measured.

A gradient that is exactly zero by cancellation, such as that of a bias in front of a
batch normalisation, comes out of single precision as 1e-8, and that is no mistake. How
large such a rest is depends on what cancelled inside, which no formula on the result
can know. It can be measured: displace every input by less than its own rounding and
see how much the gradient moves. `value_noise` and `value_bend` ask the same of f, to be
held against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.analytic.gradients_elsewhere import gradients_at
from gradlab.subject.subject import (
    DOUBLE,
    block_slices,
    input_columns,
    is_torch_subject,
    output_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.subject.subject import Subject

__all__ = [
    "AWAY",
    "GRADIENTS",
    "MOST_ROWS",
    "SCATTER",
    "analytic_noise",
    "rest_of_zero",
    "rounding_noise",
    "rows_together",
    "value_bend",
    "value_noise",
]

# The largest of four deviations is below half of the typical one once in some hundred
# entries.
_REPETITIONS = 4
GRADIENTS = 1 + 2 * _REPETITIONS  # that `rounding_noise` asks for
SCATTER = 4.0  # times the scatter seen in four repetitions: as far as round-off goes
MOST_ROWS = 256  # outputs for which gradients are asked for five times
_REST = 256.0  # units of round-off of what cancels
AWAY = 2.0**10  # roundings away every sum inside has rounded anew, and little has bent
# Step ahead for one behind: of two of the same length the remainders of x + h and x - h
# add up to those of 2 x, and nothing is seen. What three such values deviate from a
# line by, in units of the noise of one.
_GOLDEN = (np.sqrt(5.0) - 1) / 2
_LINE = np.array([1.0, -1 - _GOLDEN, _GOLDEN])
_BEND = _LINE / np.linalg.norm(_LINE)


def analytic_noise(
    subject: Subject,
    cotangents: NDArray[np.float64],
    *,
    seed: int = 0,
) -> list[NDArray[np.float64]]:
    """Measure the scatter of the analytic side under roundings of its inputs.

    Every coordinate is multiplied by ``1 + eps * u`` with ``u`` uniform in [-1, 1], a
    displacement that already happened when the input was stored, and the gradient is
    asked for again. What moves is round-off of the analytic side, amplified by the
    conditioning of the problem. A bug does not move.

    Parameters
    ----------
    subject
        Back at its point afterwards, whatever happens.
    cotangents
        Shape (rows asked for, output rows).
    seed
        Of the displacements.

    Returns
    -------
    list of numpy.ndarray
        For each input the largest deviation seen, and at least the median of its row,
        shape (rows asked for, coordinates); zeros where there is no analytic side, or
        none that could be asked. Nan never counts as a deviation.

    References
    ----------
    Parker, *Monte Carlo Arithmetic* (1997): random rounding as an instrument.

    Examples
    --------
    >>> import torch
    >>> from gradlab.subject.tensors.subjects import torch_subject
    >>> x = torch.tensor([1.0, 2.0], dtype=torch.float32)
    >>> subject = torch_subject(lambda x: (x**3).sum(), (x,))
    >>> bool((analytic_noise(subject, np.ones((1, 1)))[0] < 1e-5).all())
    True
    """
    points = [subject.point(which) for which in range(len(subject.inputs))]
    noise = [np.zeros((len(cotangents), len(point))) for point in points]
    if subject.analytic is None:
        return noise
    center = subject.analytic.pull(cotangents).values
    for there in _rounded(subject, points, seed):
        moved = gradients_at(subject, there, cotangents)
        if moved is None:
            return noise
        for largest, here, rounded in zip(noise, center, moved, strict=True):
            with np.errstate(invalid="ignore"):  # inf - inf
                deviation = np.abs(rounded - here)
            np.fmax(largest, deviation, out=largest)
    for largest in noise:
        if largest.size:  # a saturated entry stands still, but is not more exact
            np.maximum(largest, np.median(largest, axis=1, keepdims=True), out=largest)
    return noise


def rounding_noise(
    subject: Subject,
    cotangents: NDArray[np.float64],
    *,
    twin: Subject | None = None,
    aside: float = 0.0,
    seed: int = 0,
) -> list[NDArray[np.float64]]:
    """Measure the scatter of gradients about a line, or about those of a twin.

    ``exp(x) - 1 - x`` next to 0 rounds to the same number wherever x is moved by less
    than a rounding of its own, and is wrong by a tenth all the same. A thousand
    roundings away the 1 rounds anew. Where what comes out of that is round-off it
    jumps; a formula, right or wrong, is a smooth function, nearly a line so close by.

    Parameters
    ----------
    subject
        At its point, which is put back, whatever happens.
    cotangents
        Shape (rows asked for, output rows).
    twin
        The same in float64, of which the gradients are taken off first.
    aside
        How far beside the point to measure, relative: far more than a thousand
        roundings, where equal numbers at the point must not stay equal.
    seed
        Of the displacements.

    Returns
    -------
    list of ndarray
        For each input the largest deviation of three values from a line, in units of
        the noise of one, shape (rows asked for, coordinates); zeros where gradients
        cannot be asked for. Nan never counts.
    """
    points = [subject.point(which) for which in range(len(subject.inputs))]
    noise = [np.zeros((len(cotangents), len(point))) for point in points]
    rng = np.random.default_rng([seed, 1])
    if aside:
        points = [p * (1 + aside * rng.uniform(-1, 1, len(p))) for p in points]
    epsilon = _epsilon_inside(subject)
    away = min(AWAY * epsilon, float(np.sqrt(epsilon)))

    def asked(moves: list[NDArray[np.float64]]) -> list[NDArray[np.float64]] | None:
        there = {
            which: _stored(point * (1 + move), subject.epsilon)
            for which, (point, move) in enumerate(zip(points, moves, strict=True))
        }
        own = gradients_at(subject, there, cotangents)
        if twin is None or own is None:
            return None if own is None else list(own)
        wide = gradients_at(twin, there, cotangents)
        with np.errstate(invalid="ignore"):  # inf - inf
            pairs = None if wide is None else zip(own, wide, strict=True)
            return None if pairs is None else [short - long for short, long in pairs]

    center = asked([np.zeros(len(point)) for point in points])
    if center is None:
        return noise
    for _ in range(_REPETITIONS):
        moves = [away * rng.uniform(0.5, 1, len(point)) for point in points]
        ahead = asked([_GOLDEN * move for move in moves])
        behind = asked([-move for move in moves])
        if ahead is None or behind is None:
            return noise
        for largest, *three in zip(noise, ahead, center, behind, strict=True):
            with np.errstate(invalid="ignore"):
                bend = np.abs(np.tensordot(_BEND, three, axes=1))
            np.fmax(largest, bend, out=largest)
    return noise


def _stored(values: NDArray[np.float64], epsilon: float) -> NDArray[np.float64]:
    """Round to the digits that an input in such a precision has."""
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissa / epsilon) * epsilon, exponent))


def value_noise(subject: Subject, meter: Meter, *, seed: int) -> NDArray[np.float64]:
    """Measure in the same way how far f itself is off by round-off, shape (rows,).

    Also where f is zero by cancellation, and its size says nothing of it. An entry that
    stands still is not more exact than its neighbours of the same output. The meter is
    charged, but cannot refuse: who asks has somebody accused.
    """
    meter.owe(1 + _REPETITIONS)
    points = [subject.point(which) for which in range(len(subject.inputs))]
    center = subject.row()
    largest = np.zeros(len(center))
    for row in _rows_at(subject, _rounded(subject, points, seed)):
        with np.errstate(invalid="ignore"):
            np.fmax(largest, np.abs(row - center), out=largest)
    for rows in block_slices(subject.outputs):
        largest[rows] = largest[rows].max(initial=0.0)
    return largest


def value_bend(subject: Subject, meter: Meter, *, seed: int) -> NDArray[np.float64]:
    """Measure how far f is from a line where `rounding_noise` looks, shape (rows,).

    Raises
    ------
    BudgetExhausted
        If the budget does not hold the evaluations: two times four, and the point.
    """
    meter.spend(1 + 2 * _REPETITIONS)
    points = [subject.point(which) for which in range(len(subject.inputs))]
    away = min(AWAY * subject.epsilon, float(np.sqrt(subject.epsilon)))
    rng = np.random.default_rng([seed, 1])
    largest = np.zeros(output_rows(subject.outputs))
    center = subject.row()
    for _ in range(_REPETITIONS):
        moves = [away * rng.uniform(0.5, 1, len(point)) for point in points]
        pairs = list(enumerate(zip(points, moves, strict=True)))
        there = ({k: p * (1 + s * m) for k, (p, m) in pairs} for s in (_GOLDEN, -1.0))
        ahead, behind = _rows_at(subject, there)
        with np.errstate(invalid="ignore"):
            bend = np.abs(np.tensordot(_BEND, [ahead, center, behind], axes=1))
        np.fmax(largest, bend, out=largest)
    return largest


def _rows_at(
    subject: Subject, places: Iterable[dict[int, NDArray[np.float64]]]
) -> list[NDArray[np.float64]]:
    """Evaluate f at a few points, given by input; it is back at its own afterwards."""
    rows = []
    try:
        for there in places:
            for which, point in there.items():
                subject.place(which, point)
            rows.append(subject.row())
    finally:
        for which in range(len(subject.inputs)):
            subject.place(which, None)
    return rows


def rest_of_zero(subject: Subject, which: int, height: float) -> float:
    """Tell what may be left of a gradient that is zero by cancellation.

    It is the rounding of the terms that cancel, which are as large as f makes them.

    Parameters
    ----------
    subject
        At its point.
    which
        The input that the gradient is taken by.
    height
        Of f, weighted as what is pulled back is.
    """
    reach = float(np.abs(subject.point(which)).max(initial=0.0)) or 1.0
    return _REST * subject.epsilon * height / reach


def rows_together(subject: Subject, meter: Meter) -> int:
    """Tell for how many outputs gradients may be asked for at a time."""
    width = 8 * max(input_columns(subject.inputs), 1)
    return max(1, meter.room(MOST_ROWS * width) // width)


def _epsilon_inside(subject: Subject) -> float:
    """Round-off of a subject in short precision, which may be shorter inside."""
    if subject.epsilon < DOUBLE or not is_torch_subject(subject):
        return subject.epsilon
    from gradlab.subject.tensors.gradients.precision import inner_epsilon

    return inner_epsilon(subject)


def _rounded(
    subject: Subject, points: Sequence[NDArray[np.float64]], seed: int
) -> Iterator[dict[int, NDArray[np.float64]]]:
    """Yield a few points less than a rounding away, by input."""
    rng = np.random.default_rng(seed)
    epsilon = _epsilon_inside(subject)
    for _ in range(_REPETITIONS):
        yield {
            which: point * (1 + epsilon * rng.uniform(-1, 1, size=len(point)))
            for which, point in enumerate(points)
        }
