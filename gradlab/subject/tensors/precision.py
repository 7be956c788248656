"""Gradients that lost their digits on the way.

Torch casts whatever a backward returns to the dtype of the input, without a word. That
a float64 gradient went through single precision can still be seen: fed with random
cotangents, all its entries happen to be float32 numbers.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.subject import EPSILON, Problem
from gradlab.subject.tensors.uncompiled import uncompiled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.subject import Variable
    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = ["Unseen", "inner_epsilon", "is_single", "lost_digits"]

_CANCELLED = 64.0  # units of round-off that sums of a few terms leave behind
_SHORT_BITS = 12  # numbers this short, such as 0.5 or -3, say nothing about a dtype


def lost_digits(
    pull: Callable[[NDArray[np.float64]], Sequence[NDArray[np.float64]]],
    inputs: Sequence[Variable],
    rows: int,
    unseen: Unseen,
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
    unseen
        What of a gradient may be left by cancellation: the difference of two roundings
        is a short number in any precision.

    Notes
    -----
    A number drawn at random is a float32 number once in 2**29 times. An analytic side
    that does not look at its cotangent proves nothing and is passed over.

    Examples
    --------
    >>> from gradlab.subject.subject import Variable
    >>> single = lambda cotangents: [np.float64(np.float32(cotangents * np.pi))]
    >>> lost_digits(single, [Variable("x", (3,))], 3, Unseen(1e-15, [1.0]))[0].kind
    'dtype'
    >>> lost_digits(single, [Variable("x", (3,))], 3, Unseen(100.0, [1.0]))
    []
    """
    cotangent = np.random.default_rng(0).normal(size=(1, rows))

    def pulled(cotangent: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        return unseen.without_debris(pull(cotangent))

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


@dataclasses.dataclass(frozen=True, slots=True)
class Unseen:
    """How little of a gradient means nothing.

    Attributes
    ----------
    size
        Round-off of f at the point: an effect below is none.
    scales
        Size of each input.
    """

    size: float
    scales: Sequence[float]

    @classmethod
    def of(cls, subject: TorchSubject) -> Unseen:
        """Tell it of a subject whose analytic side has evaluated it."""
        f = subject.forward_value
        f = subject.row() if f is None else f
        points = (np.abs(subject.point(k)) for k in range(len(subject.cells)))
        return cls(
            _CANCELLED * subject.epsilon * float(np.abs(f).sum()),
            [float(point.max(initial=0.0)) or 1.0 for point in points],
        )

    def without_debris(
        self, gradients: Sequence[NDArray[np.float64]]
    ) -> list[NDArray[np.float64]]:
        """Put zeros for what is round-off of f, or of its largest slope.

        f itself may be what is left of larger numbers, and its slopes are then: those
        of a sum of normalised rows, beside that of the bias which is added to them.
        """
        effects = [
            scale * float(np.max(np.abs(part), where=np.isfinite(part), initial=0.0))
            for part, scale in zip(gradients, self.scales, strict=True)
        ]
        size = max(self.size, _CANCELLED * EPSILON * max(effects, default=0.0))
        return [
            np.where(np.abs(part) > size / scale, part, 0.0)
            for part, scale in zip(gradients, self.scales, strict=True)
        ]


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


def inner_epsilon(subject: TorchSubject) -> float:
    """Measure the round-off of the coarsest numbers on the way, as under autocast.

    Examples
    --------
    >>> import torch
    >>> from gradlab.subject.tensors.subjects import torch_subject
    >>> half = torch_subject(lambda x: x.bfloat16().sin().float(), (torch.ones(2),))
    >>> half.epsilon, inner_epsilon(half)
    (1.1920928955078125e-07, 0.0078125)
    """
    import torch
    from torch.overrides import TorchFunctionMode

    coarsest = subject.epsilon

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal coarsest
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.is_floating_point():
                coarsest = max(coarsest, float(torch.finfo(result.dtype).eps))
            return result

    with uncompiled(), Watch():
        subject.row()
    return coarsest
