"""Gradients that lost their digits on the way.

Torch casts whatever a backward returns to the dtype of the input, without a word. That
a float64 gradient went through single precision can still be seen: fed with random
cotangents, all its entries happen to be float32 numbers.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.analytic_sides import Problem
from gradlab.subject.subject import EPSILON
from gradlab.subject.tensors.calling.uncompiled import uncompiled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.subject import Variable
    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = ["Unseen", "inner_epsilon", "is_single", "lost_digits"]

_CANCELLED = 64.0  # units of round-off that sums of a few terms leave behind
_SHORT_BITS = 12  # numbers this short, such as 0.5 or -3, say nothing about a dtype
_SINGLE_BITS = 24
_SHARE = 0.3  # of float32 numbers three of four need one of the last two digits
_ENOUGH = 16  # numbers to judge by, if as many can be had
_FACTORS = (
    *(1.2345, 0.789, 2.718, 1.414, 0.577, 1.732, 0.693, 1.618),
    *(0.915, 1.202, 2.236, 0.661, 1.902, 1.083, 0.835),
)


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
    that does not look at its cotangent proves nothing and is passed over, as is one
    whose numbers are shorter than that: they are what is left of larger ones.

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
    drawn = [
        (which, [first[which]])
        for which, variable in enumerate(inputs)
        if variable.dtype in ("float64", "complex128") and is_single(first[which])
    ]
    for factor in _FACTORS:  # each rounds anew, until there are enough to judge by
        if all(len(s) > 1 and len(_numbers(s)) >= _ENOUGH for _, s in drawn):
            break
        again = pulled(cotangent * factor)
        drawn = [
            (which, [*seen, again[which]])
            for which, seen in drawn
            if is_single(again[which]) and not np.array_equal(seen[0], again[which])
        ]
    return [
        Problem(
            "dtype",
            inputs[which].name,
            f"the gradient of {inputs[which].name} has only the digits of float32, "
            f"though {inputs[which].name} is {inputs[which].dtype}: some backward "
            f"computes in single precision",
        )
        for which, seen in drawn
        if len(seen) > 1 and _uses_all_digits(_numbers(seen))
    ]


def _numbers(values: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the numbers among some arrays, each once, zeros left out."""
    flat = np.abs(np.concatenate([part.reshape(-1) for part in values]))
    return np.unique(flat[np.isfinite(flat) & (flat != 0)])


def _uses_all_digits(numbers: NDArray[np.float64]) -> bool:
    """Whether float32 numbers end where such numbers end, and no sooner.

    What is left of numbers that cancel is short, by as much as has cancelled, and the
    smaller the shorter. Of numbers rounded to 24 digits three of four need the last one
    or the one before it, however small they are.

    Examples
    --------
    >>> rest = 1 + np.linspace(1e-10, 1e-9, 50) - 1
    >>> _uses_all_digits(rest)
    False
    >>> _uses_all_digits(np.float64(np.float32(np.linspace(1e-9, 1e-8, 50))))
    True
    """
    small = np.sort(numbers)[: (len(numbers) + 1) // 2]
    mantissa = np.frexp(small)[0] * 2.0 ** (_SINGLE_BITS - 2)
    needed = np.count_nonzero(mantissa != np.rint(mantissa))
    return bool(needed > _SHARE * len(mantissa))


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
