"""The complex step: a derivative without cancellation, for analytic NumPy functions.

``f(x + ih) = f(x) + i h f'(x) + O(h^2)``, so ``Im f(x + ih) / h`` is exact to round-off
for any tiny h (Squire and Trapp, SIAM Review 40, 1998; Martins, Sturdza and Alonso, ACM
TOMS 29, 2003). It needs code that carries complex numbers through, and none of ``abs``,
``max``, comparisons or conjugates on the way: that is tested before it is believed, in
`gradlab.pipeline.sides.measuring`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.quotients import Quotients
from gradlab.errors import ComplexStepError, GradlabError
from gradlab.subject.numpy_subjects import ArraySubject
from gradlab.subject.subject import EPSILON, output_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.subject.subject import Subject

__all__ = ["complex_step", "underflow"]

_TINY = 1e-30  # relative step: nothing cancels, so it only has to be tiny
_ULPS = 16  # round-off of a derivative whose terms do not cancel
_FAR = 0.01  # of the scale: so far no output stands still that the input enters
_SHORTER = 0.6  # of the step, when it is looked at again
_AGAIN = 3  # looks: of one, what rounding does may happen to be the same


def complex_step(
    subject: Subject,
    which: int,
    positions: NDArray[np.intp],
    scales: NDArray[np.float64],
    step: float | None,
    meter: Meter,
) -> Quotients:
    """Differentiate by a step along the imaginary axis; one evaluation each.

    Three more, right beside the point and with a shorter step, show what rounding and
    truncation do to all columns together: terms of a derivative may cancel as those of
    a function do, and a step that was asked for may be long.

    Raises
    ------
    ComplexStepError
        If the subject is not a NumPy function of real inputs, does not carry complex
        numbers through, or is not analytic.
    """
    twin = _complex_twin(subject, which)
    rows = output_rows(subject.outputs)
    value = np.empty((rows, len(positions)))
    steps = np.full(len(positions), step) if step is not None else _TINY * scales
    flat = twin.coordinates(which)
    try:
        with np.errstate(all="ignore"):
            for i, position in enumerate(positions.tolist()):
                meter.spend(1)
                flat[2 * position + 1] = steps[i]
                try:
                    row = twin.row()
                finally:
                    flat[2 * position + 1] = 0.0
                if i == 0:
                    _refuse_dropped(twin, which, row, scales, meter)
                value[:, i] = _imaginary(twin, row, rows) / steps[i]
    except GradlabError:
        raise
    except Exception as cause:
        msg = (
            f"the function does not take complex numbers ({type(cause).__name__}: "
            f"{cause}); the complex step needs NumPy code that carries them through: "
            'use method="central"'
        )
        raise ComplexStepError(msg) from cause
    with np.errstate(all="ignore"):
        error = _ULPS * subject.epsilon * np.abs(value)
        shaken = _shaken(twin, (which, positions, steps), value, subject.epsilon, meter)
        seen = np.where(value != 0, shaken[:, None] / steps, 0.0)
        seen = np.fmax(seen, underflow(subject.epsilon) / steps)
        error = np.where(np.isnan(value), np.inf, np.fmax(error, seen))
    shape = np.full(value.shape, steps)
    return Quotients(value=value, error=error, step=shape, bend=np.zeros_like(value))


def underflow(epsilon: float) -> float:
    """Smallest imaginary part that is not lost, in arithmetic of that rounding unit.

    Examples
    --------
    >>> underflow(2.0**-52), underflow(2.0**-23)
    (2.2250738585072014e-308, 1.1754943508222875e-38)
    """
    double = epsilon <= EPSILON
    return float(np.finfo(np.float64 if double else np.float32).tiny)


def _complex_twin(subject: Subject, which: int) -> ArraySubject:
    if not isinstance(subject, ArraySubject) or subject.live:
        what = (
            "parameters in place" if isinstance(subject, ArraySubject) else subject.kind
        )
        msg = (
            f"the complex step needs a NumPy function of its inputs, not {what}: torch "
            f'and in-place parameters cannot be made complex; use method="central"'
        )
        raise ComplexStepError(msg)
    variable = subject.inputs[which]
    if variable.is_complex or any(
        output.name.endswith(".imag") for output in subject.outputs
    ):
        msg = (
            f"{variable.name} or the output is complex already; the complex step has "
            'no axis left: use method="central"'
        )
        raise ComplexStepError(msg)
    return subject.made_complex(which)


def _refuse_dropped(
    twin: ArraySubject,
    which: int,
    row: NDArray[np.float64],
    scales: NDArray[np.float64],
    meter: Meter,
) -> None:
    """Tell outputs that drop imaginary parts from those that an input does not enter.

    Both are real. The latter do not move either where the input moves by a hundredth.
    """
    real = [dtype.kind != "c" for dtype in twin.reader.dtypes]
    if not any(real):
        return
    sizes = [int(np.prod(shape)) for shape in twin.reader.shapes]
    pairs = zip(sizes, real, strict=True)
    mask = np.concatenate([np.full(s if r else 2 * s, r) for s, r in pairs])
    moved = twin.point(which)
    moved[::2] += (
        _FAR * float(scales.max(initial=0.0)) * np.cos(np.arange(moved.size // 2))
    )
    meter.spend(1)
    try:
        twin.place(which, moved)
        there = twin.row()
    finally:
        twin.place(which, None)
    if not np.array_equal(there[mask], row[mask], equal_nan=True):
        msg = (
            "the function returns real numbers for a complex input: somewhere the "
            "imaginary part is dropped (abs, real, float(), an array of float dtype); "
            'use method="central"'
        )
        raise ComplexStepError(msg)


def _imaginary(
    twin: ArraySubject, row: NDArray[np.float64], rows: int
) -> NDArray[np.float64]:
    """Imaginary parts of the outputs, from the row of the complex twin."""
    parts, start = [], 0
    for shape, dtype in zip(twin.reader.shapes, twin.reader.dtypes, strict=True):
        size = int(np.prod(shape))
        if dtype.kind == "c":
            start += size
            parts.append(row[start : start + size])
        else:
            parts.append(np.zeros(size))
        start += size
    imaginary = np.concatenate(parts)
    if len(imaginary) != rows:
        msg = (
            f"the function returns {len(imaginary)} numbers for a complex input, and "
            f'{rows} for a real one; use method="central"'
        )
        raise ComplexStepError(msg)
    return imaginary


def _shaken(
    twin: ArraySubject,
    moves: tuple[int, NDArray[np.intp], NDArray[np.float64]],
    value: NDArray[np.float64],
    epsilon: float,
    meter: Meter,
) -> NDArray[np.float64]:
    """Say how far steps of all columns at once, right beside the point, are off.

    Parameters
    ----------
    moves
        Number of the input, coordinates and steps of the columns.
    value
        The slopes found, (rows, n).
    epsilon
        Round-off of the arithmetic.

    Returns
    -------
    ndarray
        In units of f, shape (rows,); 0 where there is no value beside the point.
    """
    which, positions, steps = moves
    rng = np.random.default_rng(1)
    point = twin.point(which)
    most = np.zeros(len(value))
    try:
        for _ in range(_AGAIN):
            meter.spend(1)
            signs, ulps = rng.choice([-1.0, 1.0], (2, len(positions)))
            ulps *= rng.integers(1, 4, len(positions)) * epsilon
            moved = point.copy()
            moved[2 * positions] *= 1 + ulps
            moved[2 * positions + 1] = _SHORTER * steps * signs
            twin.place(which, moved)
            row = _imaginary(twin, twin.row(), len(value)) / _SHORTER
            # the shorter step shows two thirds of what the longer one truncates
            most = np.fmax(most, 2 * np.abs(row - value @ (steps * signs)))
    finally:
        twin.place(which, None)
    return most
