"""A Jacobian with what is known about its error."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Jacobian"]


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
    >>> gl.numeric_jacobian(lambda x: x**2, np.ones(3), method="central")
    Jacobian(shape=(3, 3), method='central', evaluations=9)
    """

    value: NDArray[Any]
    error: NDArray[np.float64]
    step: NDArray[np.float64]
    evaluations: int
    method: str

    def __repr__(self) -> str:
        return (
            f"Jacobian(shape={self.value.shape}, method={self.method!r}, "
            f"evaluations={self.evaluations})"
        )
