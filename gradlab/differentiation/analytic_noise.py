"""How far the analytic side may be off by round-off alone, measured.

A gradient that is exactly zero by cancellation, such as that of a bias in front of a
batch normalisation, comes out of single precision as 1e-8, and that is no mistake. How
large such a rest is depends on what cancelled inside, which no formula on the result
can know. It can be measured: displace every input by less than its own rounding and
see how much the gradient moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.subject.subject import DOUBLE, block_slices, is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.metering import Meter
    from gradlab.subject.subject import Subject

__all__ = ["MOST_ROWS", "SCATTER", "analytic_noise", "rounding_noise", "value_noise"]

# The largest of four deviations is below half of the typical one once in some hundred
# entries.
_REPETITIONS = 4
SCATTER = 4.0  # times the scatter seen in four repetitions: as far as round-off goes
MOST_ROWS = 256  # outputs for which gradients are asked for five times
_AWAY = 2.0**10  # roundings away every sum inside has rounded anew, and little has bent
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
        With an analytic side that evaluates at what the coordinates hold, as autograd
        does. The point is put back, whatever happens.
    cotangents
        Shape (rows asked for, output rows).
    seed
        Of the displacements.

    Returns
    -------
    list of numpy.ndarray
        For each input the largest deviation seen, and at least the median of its row,
        shape (rows asked for, coordinates); zeros where there is no analytic side. Nan
        never counts as a deviation.

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
    for _ in _rounded(subject, points, seed):
        moved = subject.analytic.pull(cotangents).values
        for largest, here, there in zip(noise, center, moved, strict=True):
            with np.errstate(invalid="ignore"):  # inf - inf
                deviation = np.abs(there - here)
            np.fmax(largest, deviation, out=largest)
    for largest in noise:
        if largest.size:  # a saturated entry stands still, but is not more exact
            np.maximum(largest, np.median(largest, axis=1, keepdims=True), out=largest)
    return noise


def rounding_noise(
    subject: Subject,
    twin: Subject,
    cotangents: NDArray[np.float64],
    *,
    seed: int = 0,
) -> list[NDArray[np.float64]]:
    """Measure the scatter of short gradients about those of a twin in float64.

    ``exp(x) - 1 - x`` next to 0 rounds to the same number wherever x is moved by less
    than a rounding of its own, and is wrong by a tenth all the same. A thousand
    roundings away the 1 rounds anew. What both sides differ by jumps there where it is
    round-off; of a slip it is a smooth function, nearly a line.

    Parameters
    ----------
    subject, twin
        At the same point, which is put back, whatever happens.
    cotangents
        Shape (rows asked for, output rows).
    seed
        Of the displacements.

    Returns
    -------
    list of numpy.ndarray
        For each input the largest deviation of three values from a line, in units of
        the noise of one, shape (rows asked for, coordinates). Nan never counts.
    """
    points = [subject.point(which) for which in range(len(subject.inputs))]
    noise = [np.zeros((len(cotangents), len(point))) for point in points]
    sides = subject.analytic, twin.analytic
    if sides[0] is None or sides[1] is None:
        return noise
    pulls = sides[0].pull, sides[1].pull
    rng = np.random.default_rng([seed, 1])
    epsilon = _epsilon_inside(subject)
    away = min(_AWAY * epsilon, float(np.sqrt(epsilon)))

    def apart(moves: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        for which, (point, move) in enumerate(zip(points, moves, strict=True)):
            there = _stored(point * (1 + move), subject.epsilon)
            subject.place(which, there)
            twin.place(which, there)
        pairs = zip(*(pull(cotangents).values for pull in pulls), strict=True)
        with np.errstate(invalid="ignore"):  # inf - inf
            return [own - wide for own, wide in pairs]

    try:
        center = apart([np.zeros(len(point)) for point in points])
        for _ in range(_REPETITIONS):
            moves = [away * rng.uniform(0.5, 1, len(point)) for point in points]
            ahead = apart([_GOLDEN * move for move in moves])
            behind = apart([-move for move in moves])
            for largest, *three in zip(noise, ahead, center, behind, strict=True):
                with np.errstate(invalid="ignore"):
                    bend = np.abs(np.tensordot(_BEND, three, axes=1))
                np.fmax(largest, bend, out=largest)
    finally:
        for which in range(len(points)):
            subject.place(which, None)
            twin.place(which, None)
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
    for _ in _rounded(subject, points, seed):
        with np.errstate(invalid="ignore"):
            np.fmax(largest, np.abs(subject.row() - center), out=largest)
    for rows in block_slices(subject.outputs):
        largest[rows] = largest[rows].max(initial=0.0)
    return largest


def _epsilon_inside(subject: Subject) -> float:
    """Round-off of a subject in short precision, which may be shorter inside."""
    if subject.epsilon < DOUBLE or not is_torch_subject(subject):
        return subject.epsilon
    from gradlab.subject.tensors.precision import inner_epsilon

    return inner_epsilon(subject)  # type: ignore[arg-type] # a TorchSubject


def _rounded(
    subject: Subject, points: Sequence[NDArray[np.float64]], seed: int
) -> Iterator[None]:
    """Stand beside the point, less than a rounding away, a few times."""
    rng = np.random.default_rng(seed)
    epsilon = _epsilon_inside(subject)
    try:
        for _ in range(_REPETITIONS):
            for which, point in enumerate(points):
                units = rng.uniform(-1, 1, size=len(point))
                subject.place(which, point * (1 + epsilon * units))
            yield
    finally:
        for which in range(len(points)):
            subject.place(which, None)
