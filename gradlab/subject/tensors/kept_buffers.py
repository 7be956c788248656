"""Buffers of a module that its forward writes to, and reads the next time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.tensors.outputs import to_row

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = ["read_again", "written_buffers"]


def written_buffers(subject: TorchSubject) -> dict[str, Any]:
    """Return what the first call left of the buffers that it wrote to.

    They are the subject's own copies, put back after every call.
    """
    held: Any = getattr(subject.program, "held", None)
    return {} if held is None else held.left


def read_again(subject: TorchSubject, base: NDArray[np.float64]) -> tuple[str, ...]:
    """Name the buffers that a call writes to, if a second call is another one for it.

    Parameters
    ----------
    subject
        A module; it is called once.
    base
        What its first call gave, shape (rows,).
    """
    import torch

    left = written_buffers(subject)
    if subject.reset is not None:
        subject.reset()
    grad = bool(subject.needs_grad)
    try:
        with torch.set_grad_enabled(grad):
            buffers = {**subject.program.buffers}
            buffers.update({key: tensor.clone() for key, tensor in left.items()})
            second = subject.observed(subject.values_apart(grad), buffers)
        again = to_row(second.tensors)
    except Exception:  # noqa: BLE001 - the user's code; the second call is not compared
        return ()
    if np.array_equal(again, base, equal_nan=True):
        return ()
    return tuple(f"module.{key}" for key in left)
