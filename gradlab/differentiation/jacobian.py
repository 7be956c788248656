"""A Jacobian with what is known about its error."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Jacobian"]

_SHOWN = 400  # numbers at most at the end of a cell; of more, the corners


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Jacobian:
    """Derivative of one output with respect to one input.

    Parameters
    ----------
    value
        The derivative, of shape output + input, as NumPy would index it.
    error
        Estimated absolute error of every entry, same shape and units. For an
        analytic Jacobian, the round-off of the arithmetic it was computed in.
    step
        Step size behind every entry, in the units of the input; nan where no step
        was taken (analytic).
    evaluations
        How many times the function was evaluated.
    method
        Name of the method: "central", "adaptive", "reverse", ...

    Examples
    --------
    >>> gl.numeric_jacobian(lambda x: x**2, np.ones(2), method="complex-step")
    Jacobian(shape=(2, 2), method='complex-step', evaluations=23), bars up to 7e-15
    [[2. 0.]
     [0. 2.]]

    NumPy takes it for its value:

    >>> np.allclose(gl.numeric_jacobian(np.sin, np.ones(2)), np.diag(np.cos([1, 1])))
    True
    """

    value: NDArray[Any]
    error: NDArray[np.float64]
    step: NDArray[np.float64]
    evaluations: int
    method: str

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        """Hand `value` to NumPy, which would take the object for a number otherwise."""
        value = np.asarray(self.value, dtype=dtype)
        return value.copy() if copy else value

    def __repr__(self) -> str:
        head = (
            f"Jacobian(shape={self.value.shape}, method={self.method!r}, "
            f"evaluations={self.evaluations})"
        )
        if not self.value.size:
            return head
        ends = 3 if self.value.ndim < 3 else 1  # of four axes that is 20 lines, not 150
        values = (
            np.array2string(self.value, precision=6, threshold=_SHOWN, edgeitems=ends)
            if self.value.ndim
            else f"{self.value.item():.6g}"
        )
        return f"{head}, bars up to {np.max(self.error):.0e}\n{values}"
