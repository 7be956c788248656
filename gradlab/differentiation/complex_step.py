"""The complex step: a derivative without cancellation, for analytic NumPy functions.

``f(x + ih) = f(x) + i h f'(x) + O(h^2)``, so ``Im f(x + ih) / h`` is exact to round-off
for any tiny h (Squire and Trapp, SIAM Review 40, 1998; Martins, Sturdza and Alonso, ACM
TOMS 29, 2003). It needs code that carries complex numbers through, and none of ``abs``,
``max``, comparisons or conjugates on the way: that is tested before it is believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.quotients import Quotients
from gradlab.errors import ComplexStepError, GradlabError
from gradlab.subject.numpy_subjects import ArraySubject
from gradlab.subject.subject import output_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.evaluation import Meter
    from gradlab.subject.subject import Subject

__all__ = ["complex_step"]

_TINY = 1e-30  # relative step: nothing cancels, so it only has to be tiny
_AGREE = 1e-4  # how close a plain difference must come for the step to be believed


def complex_step(
    subject: Subject,
    which: int,
    positions: NDArray[np.intp],
    scales: NDArray[np.float64],
    step: float | None,
    meter: Meter,
) -> Quotients:
    """Differentiate by a step along the imaginary axis; one evaluation each.

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
    _believe(subject, which, positions, scales, value, meter)
    error = 16 * np.finfo(np.float64).eps * np.abs(value)
    shape = np.broadcast_to(steps, value.shape).copy()
    return Quotients(value=value, error=error, step=shape, bend=np.zeros_like(value))


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


def _imaginary(
    twin: ArraySubject, row: NDArray[np.float64], rows: int
) -> NDArray[np.float64]:
    """Imaginary parts of the outputs, from the row of the complex twin."""
    if any(dtype.kind != "c" for dtype in twin.reader.dtypes):
        msg = (
            "the function returns real numbers for a complex input: somewhere the "
            "imaginary part is dropped (abs, real, float(), an array of float dtype); "
            'use method="central"'
        )
        raise ComplexStepError(msg)
    parts, start = [], 0
    for shape in twin.reader.shapes:
        size = int(np.prod(shape))
        parts.append(row[start + size : start + 2 * size])
        start += 2 * size
    imaginary = np.concatenate(parts)
    if len(imaginary) != rows:
        msg = "the function returns other shapes for complex inputs; use central"
        raise ComplexStepError(msg)
    return imaginary


def _believe(
    subject: Subject,
    which: int,
    positions: NDArray[np.intp],
    scales: NDArray[np.float64],
    value: NDArray[np.float64],
    meter: Meter,
) -> None:
    """Compare along one random direction with plain differences, before believing.

    ``abs``, ``max`` or a conjugate inside gives a number, but the wrong one.
    """
    rng = np.random.default_rng(0)
    direction = np.zeros(subject.inputs[which].coordinates)
    direction[positions] = rng.choice([-1.0, 1.0], len(positions)) * scales
    origin = subject.point(which)
    expected = value @ direction[positions]
    found, bars = [], []
    try:
        with np.errstate(all="ignore"):
            for h in (1e-5, 1e-4):
                meter.spend(2)
                subject.place(which, origin + h * direction)
                up = subject.row()
                subject.place(which, origin - h * direction)
                down = subject.row()
                found.append((up - down) / (2 * h))
                bars.append(1e-15 * np.maximum(np.abs(up), np.abs(down)) / h)
    finally:
        subject.place(which, None)
    spread = np.abs(found[1] - found[0]) + bars[0]
    size = np.abs(value) @ np.abs(direction[positions])
    wrong = np.abs(expected - found[0]) > 5 * spread + _AGREE * size
    if wrong.any():
        msg = (
            f"the function is not analytic in {subject.inputs[which].name}: the "
            f"complex step says {expected[wrong][0]:.6g} along a random direction, "
            f"differences say {found[0][wrong][0]:.6g} (abs, max, a comparison or a "
            'conjugate on the way?); use method="central"'
        )
        raise ComplexStepError(msg)
