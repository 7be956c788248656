"""Gradients that lost their digits on the way.

Torch casts whatever a backward returns to the dtype of the input, without a word. That
a float64 gradient went through single precision can still be seen: fed with random
cotangents, all its entries happen to be float32 numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.subject.subject import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.subject import Variable
    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = ["cancellation_of", "is_single", "lost_digits"]

_CANCELLED = 64.0  # units of round-off that sums of a few terms leave behind
_SHORT_BITS = 12  # numbers this short, such as 0.5 or -3, say nothing about a dtype


def lost_digits(
    pull: Callable[[NDArray[np.float64]], Sequence[NDArray[np.float64]]],
    inputs: Sequence[Variable],
    rows: int,
    cancelled: Sequence[float],
) -> list[Problem]:
    """Find float64 inputs whose gradient comes through single precision.

    Parameters
    ----------
    pull
        Gradients of all inputs for cotangents of shape (1, rows).
    inputs
        The inputs, in the same order.
    rows
        Number of output rows.
    cancelled
        Size, for each input, up to which a gradient may be what cancellation left: the
        difference of two roundings is a short number in any precision.

    Notes
    -----
    A number drawn at random is a float32 number once in 2**29 times. An analytic side
    that does not look at its cotangent proves nothing and is passed over.

    Examples
    --------
    >>> from gradlab.subject.subject import Variable
    >>> single = lambda cotangents: [np.float64(np.float32(cotangents * np.pi))]
    >>> lost_digits(single, [Variable("x", (3,))], 3, [1e-15])[0].kind
    'dtype'
    >>> lost_digits(single, [Variable("x", (3,))], 3, [100.0])
    []
    """
    cotangent = np.random.default_rng(0).normal(size=(1, rows))

    def pulled(cotangent: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        pairs = zip(pull(cotangent), cancelled, strict=True)
        return [np.where(np.abs(part) > least, part, 0.0) for part, least in pairs]

    first = pulled(cotangent)
    suspects = [
        which
        for which, variable in enumerate(inputs)
        if variable.dtype in ("float64", "complex128") and is_single(first[which])
    ]
    if not suspects:
        return []
    second = pulled(cotangent * 1.2345)
    return [
        Problem(
            "dtype",
            inputs[which].name,
            f"the gradient of {inputs[which].name} has only the digits of float32, "
            f"though {inputs[which].name} is {inputs[which].dtype}: some backward "
            f"computes in single precision",
        )
        for which in suspects
        if is_single(second[which]) and not np.array_equal(first[which], second[which])
    ]


def cancellation_of(subject: TorchSubject) -> list[float]:
    """Size of gradients, for each input, that the round-off of f could hide.

    Parameters
    ----------
    subject
        Whose analytic side has evaluated it.
    """
    f = subject.forward_value if subject.forward_value is not None else subject.row()
    size = _CANCELLED * subject.epsilon * float(np.abs(f).sum())
    points = [np.abs(subject.point(k)) for k in range(len(subject.cells))]
    return [size / (float(point.max(initial=0.0)) or 1.0) for point in points]


def is_single(values: NDArray[np.float64]) -> bool:
    """Whether all are float32 numbers, and one at least is not a short one.

    Examples
    --------
    >>> is_single(np.array([0.1])), is_single(np.float64(np.float32([0.1])))
    (False, True)
    """
    numbers = values[np.isfinite(values) & (values != 0)]
    with np.errstate(over="ignore", under="ignore"):
        if not np.array_equal(numbers.astype(np.float32).astype(np.float64), numbers):
            return False
    mantissa = np.frexp(numbers)[0] * 2**_SHORT_BITS
    return bool(np.any(mantissa != np.rint(mantissa)))
