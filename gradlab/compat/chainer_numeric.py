"""Chainer's numerical gradient, and its test for points without a derivative."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.compat.chainer_engines import plain
from gradlab.compat.torch_machinery import as_tuple
from gradlab.errors import GradlabError, InputError, SubjectError
from gradlab.subject.tensors.values import is_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["NondifferentiableError", "numerical_grad"]

_TWO = (-1.0, 1.0)  # in units of eps
_FIVE = (-1.0, -0.5, 0.0, 0.5, 1.0)
# Coefficients of the derivative, per eps; five points cancel the third derivative.
_WEIGHTS_TWO = np.array([-0.5, 0.5])
_WEIGHTS_FIVE = np.array([1.0, -8.0, 0.0, 8.0, -1.0]) / 6.0


class NondifferentiableError(GradlabError):
    """The function has no derivative at the point, as far as five values can tell."""


def numerical_grad(  # noqa: PLR0917 - chainer's signature
    f: Callable[[], Any],
    inputs: Sequence[Any],
    grad_outputs: Sequence[Any],
    eps: float = 1e-3,
    detect_nondifferentiable: bool = False,  # noqa: FBT001, FBT002 - chainer's signature
    diff_atol: float = 0,
    diff_rtol: float = 1e-2,
    center_outputs: Any = None,  # noqa: ARG001 - chainer ignores it as well
) -> tuple[Any, ...]:
    """Gradient of ``sum(y * grad_output)`` by central differences.

    Parameters
    ----------
    f
        Takes no argument, reads the arrays in `inputs` where they are, returns a tuple
        of arrays (or one).
    inputs
        Floating arrays, NumPy's or tensors; perturbed in place and put back.
    grad_outputs
        One for each output: an array, a number, or None for "do not count this".
    eps
        Step, in the units of the input; absolute. 1e-3 as in Chainer, where inputs are
        float32.
    detect_nondifferentiable
        Whether to evaluate at five points, and raise where they are far from a
        parabola. Strongly curved smooth functions are taken for kinks as well.
    diff_atol, diff_rtol
        How far: root mean square residual over ``diff_atol + diff_rtol * range``.
    center_outputs
        Ignored.

    Returns
    -------
    tuple
        One gradient for each input, of its shape and dtype.

    Raises
    ------
    NondifferentiableError
        If asked for, and found.
    InputError
        If `eps` is not positive, or the arguments are not sequences.
    SubjectError
        If an input is no floating array, or `f` returns another number of outputs.

    Examples
    --------
    >>> x = np.array([1.0, 2.0])
    >>> numerical_grad(lambda: (x**2,), (x,), (1.0,))[0].round(6)
    array([2., 4.])
    """
    if not eps > 0:
        raise InputError(f"eps must be a positive number, got {eps!r}")
    for name, value in (("inputs", inputs), ("grad_outputs", grad_outputs)):
        if not isinstance(value, tuple | list):
            kind = type(value).__name__
            raise InputError(f"{name} must be a tuple or a list, got {kind}")
    seeds = [None if g is None else _double(g) for g in grad_outputs]
    points = _FIVE if detect_nondifferentiable else _TWO
    weights = _WEIGHTS_FIVE if detect_nondifferentiable else _WEIGHTS_TWO
    gradients = []
    for number, array in enumerate(inputs):
        flat = _floating(array, number)
        gradient = np.zeros(flat.shape)
        for index in np.ndindex(flat.shape):
            values = _evaluated(f, flat, index, [eps * p for p in points], len(seeds))
            if detect_nondifferentiable:
                where = (number, index, eps)
                _inspect(values, where, diff_atol, diff_rtol)
            gradient[index] = _contracted(values, seeds, weights / eps)
        gradients.append(_back(gradient, array))
    return tuple(gradients)


def _floating(array: Any, number: int) -> NDArray[Any]:
    """View on an input that writes through."""
    if is_torch(array):
        array = array.detach().numpy()
    if not hasattr(array, "dtype") or np.dtype(array.dtype).kind != "f":
        what = getattr(array, "dtype", type(array).__name__)
        raise SubjectError(
            f"the dtype of inputs must be floating, got {what} for input {number}"
        )
    view: NDArray[Any] = array
    return view


def _back(gradient: NDArray[np.float64], like: Any) -> Any:
    if is_torch(like):
        return like.detach().new_tensor(gradient)
    return gradient.astype(like.dtype)


def _double(value: Any) -> NDArray[np.float64]:
    """Copy of anything array-like in float64: variables, tensors, numbers."""
    return np.array(plain(value), dtype=np.float64)


def _evaluated(
    f: Callable[[], Any],
    array: NDArray[Any],
    index: tuple[int, ...],
    steps: list[float],
    count: int,
) -> list[list[NDArray[np.float64] | None]]:
    """Evaluate at each displacement of one entry; copies in float64."""
    before = array[index]
    values = []
    try:
        for step in steps:
            array[index] = before + step
            every = as_tuple(f())
            if len(every) != count:
                raise SubjectError(
                    f"f must return as many outputs as there are grad_outputs, got "
                    f"{len(every)} and {count}"
                )
            values.append([None if y is None else _double(y) for y in every])
    finally:
        array[index] = before
    return values


def _contracted(
    values: list[list[NDArray[np.float64] | None]],
    seeds: list[NDArray[np.float64] | None],
    weights: NDArray[np.float64],
) -> float:
    total = 0.0
    for k, seed in enumerate(seeds):
        if seed is None:
            continue
        across = [row[k] for row in values]
        if any(y is None for y in across):
            if seed.any():
                raise SubjectError(f"output {k} is None, but its gradient is not")
            continue
        slope = sum(
            w * y for w, y in zip(weights, across, strict=True) if w and y is not None
        )
        total += float(np.sum(seed * slope))
    return total


def _inspect(
    values: list[list[NDArray[np.float64] | None]],
    where: tuple[int, tuple[int, ...], float],
    atol: float,
    rtol: float,
) -> None:
    """Fit a parabola to five equally spaced values of every output entry."""
    for k in range(len(values[0])):
        rows = [row[k] for row in values]
        if any(y is None or y.size == 0 for y in rows):
            continue
        table = np.stack([y.ravel() for y in rows if y is not None])
        finite = np.isfinite(table)
        if (finite != finite[0]).any():
            raise NondifferentiableError(_told(where, k, "is finite at some of", table))
        if not finite.all():
            continue
        basis = np.vander(np.array(_FIVE), 3)
        fit, *_ = np.linalg.lstsq(basis, table, rcond=None)
        residual = np.sqrt(np.square(table - basis @ fit).sum(axis=0) / 5)
        span = table.max(axis=0) - table.min(axis=0)
        bad = (residual > atol + rtol * span) & (span > 0)
        if bad.any():
            entry = int(np.argmax(np.where(bad, residual / np.where(span, span, 1), 0)))
            words = (
                f"is no parabola (residual {residual[entry]:.3g}, allowed "
                f"{atol + rtol * span[entry]:.3g}, range {span[entry]:.3g}) at"
            )
            raise NondifferentiableError(_told(where, k, words, table[:, [entry]]))


def _told(
    where: tuple[int, tuple[int, ...], float],
    output: int,
    words: str,
    table: NDArray[np.float64],
) -> str:
    number, index, eps = where
    told = ", ".join(f"{value:.9g}" for value in table[:, 0])
    return (
        f"input {number}, entry {index}: output {output} {words} the five points "
        f"within eps = {eps:g}: {told}; move the point away from the kink, or make eps "
        f"smaller"
    )
