"""Writes that autograd does not see: under no_grad, on ``.data``, through NumPy.

What it computes is the gradient at the values written, as if they had always been
there. No difference quotient sees that function, for every evaluation writes again.
Where forward does so to its own parameters, to keep norms at one or to clip weights, it
is meant; where a function does so to what it is given, a slope is lost.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.own_seeds import own_seed
from gradlab.subject.tensors.values import real_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = ["Written", "unrecorded", "written_parameters"]

_STEP = 1e-3  # of each entry: a norm that is one at the point is written beside it


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Written:
    """Entries of one input that the function overwrites with something else.

    Parameters
    ----------
    which
        Position of the input.
    positions
        Its real coordinates that change, at the point or next to it.
    most
        Largest change at the point; zero where it has been made before.
    """

    which: int
    positions: NDArray[np.intp]
    most: float


def written_parameters(subject: TorchSubject) -> list[Written]:
    """Find the parameters that an evaluation leaves with other values.

    Evaluates at the point and on either side of it, where the function was seen to
    write to a parameter; otherwise not at all.

    Examples
    --------
    >>> import torch
    >>> from gradlab.subject.tensors.subjects import torch_subject
    >>> layer = torch.nn.Embedding(3, 2, max_norm=1e-6)
    >>> subject = torch_subject(layer, (torch.tensor([0, 2]),))
    >>> _ = subject.row()
    >>> written_parameters(subject)[0].positions
    array([0, 1, 4, 5])
    """
    found = []
    for which, cell in enumerate(subject.cells):
        name = cell.variable.name
        if (
            not cell.parameter
            or cell.pattern is not None
            or name not in subject.mutated
        ):
            continue
        gaps = [_gap(subject, which, step) for step in (0.0, _STEP, -_STEP)]
        positions = np.flatnonzero(np.any(gaps, axis=0))
        if len(positions):
            found.append(Written(which, positions, float(gaps[0].max())))
    return found


def unrecorded(subject: TorchSubject, which: int) -> Written | None:
    """Find what a function writes to an input that is no parameter, unrecorded.

    Examples
    --------
    >>> import torch
    >>> from gradlab.subject.tensors.subjects import torch_subject
    >>> def clipped(x):
    ...     x.data.clamp_(max=1)
    ...     return x**2
    >>> subject = torch_subject(clipped, (torch.tensor([0.5, 2.0]),))
    >>> _ = subject.row()
    >>> unrecorded(subject, 0).positions
    array([1])
    """
    cell = subject.cells[which]
    plain = cell.pattern is None and not cell.parameter
    if not plain or cell.variable.name not in subject.mutated:
        return None
    values, leaves = subject.with_leaves([which])
    given = values[which].grad_fn  # of the copy that it may write to
    before = real_numbers(leaves[0])
    subject.evaluate(values, grad=True)
    after = real_numbers(values[which])
    if values[which].grad_fn is not given or after.shape != before.shape:
        return None
    gap = np.abs(after - before)
    positions = np.flatnonzero(gap)
    return Written(which, positions, float(gap.max())) if len(positions) else None


def _gap(subject: TorchSubject, which: int, step: float) -> NDArray[np.float64]:
    """Size of what forward changes in each coordinate of a parameter."""
    import torch

    values = subject.values_apart(bool(subject.needs_grad))
    held: Any = values[which].detach()
    if step:
        rng = np.random.default_rng(own_seed(which, "writes"))
        away = torch.from_numpy(1 + step * rng.normal(size=tuple(held.shape)))
        held.mul_(away.to(held.device, held.dtype))
    before = real_numbers(held)
    subject.evaluate(values, bool(subject.needs_grad))
    after = real_numbers(values[which])
    if after.shape != before.shape:  # other data altogether
        return np.full_like(before, np.inf)
    same = (after == before) | (np.isnan(after) & np.isnan(before))
    gap: NDArray[np.float64] = np.where(same, 0.0, np.abs(after - before))
    return gap
