"""What a piece is differentiated by, and what came of it."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["BackwardError", "Product", "ReplayError", "Variable", "double_of"]


class ReplayError(Exception):
    """A piece cannot be run by itself; the message says why, as part of a sentence."""


class BackwardError(ReplayError):
    """The backward of a piece raised."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """One tensor with respect to which a piece is differentiated.

    Parameters
    ----------
    label
        "input 0", "weight", "output of fc1".
    kind, place
        "input" and its position; "child" and (child, output); "parameter" and None.
    base
        Its value; of a parameter the very memory, not to be written to.
    parameter
        The parameter itself.
    dtype
        In which it is checked, where that is wider than its own.
    """

    label: str
    kind: str
    place: Any
    base: Any
    parameter: Any = None
    dtype: Any = None


@dataclasses.dataclass(slots=True, eq=False)
class Product:
    """One vector-Jacobian product of a piece.

    Parameters
    ----------
    variables, gradients
        What it was taken with respect to, and the results (None where no gradient
        came).
    passed
        Gradient handed on to each input by its position, also where the model asked
        for none: what a caller cut off by mistake is seen only so.
    outputs
        Values of the piece's outputs, those handed to children last.
    cotangents
        Weight of each output; None where it plays no part.
    size
        Of the weighted outputs, once somebody has asked.
    scales
        By variable: by how much it is moved, once somebody has asked; None for its own
        size.
    """

    variables: list[Variable]
    gradients: list[Any]
    passed: dict[int, Any]
    outputs: list[Any]
    cotangents: list[Any]
    size: float | None = None
    scales: dict[int, float | None] = dataclasses.field(default_factory=dict)


def double_of(tensor: Any) -> Any:
    """Double precision of the kind of number that a tensor holds."""
    import torch

    if tensor.is_complex():
        return torch.complex128
    return torch.float64 if tensor.is_floating_point() else tensor.dtype
