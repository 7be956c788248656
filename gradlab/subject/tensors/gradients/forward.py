"""Forward-mode autograd: Jacobian-vector products, one column at a time or batched."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.analytic_sides import AnalyticDefaults, Problem, Pullback
from gradlab.subject.subject import output_rows
from gradlab.subject.tensors.batching.levels import unannounced
from gradlab.subject.tensors.gradients.cotangents import SLACK
from gradlab.subject.tensors.outputs import stack_of_rows, to_row
from gradlab.tracebacks import in_one_line, stopped_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = ["ForwardMode", "push"]


def push(
    subject: TorchSubject, which: int, tangents: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Jacobian-vector products with respect to one input.

    Parameters
    ----------
    subject
        A torch subject whose function supports forward mode.
    which
        Position of the input.
    tangents
        Real coordinates, of shape (count, coordinates).

    Returns
    -------
    numpy.ndarray
        Shape (count, rows).

    Raises
    ------
    Exception
        Whatever torch raises where a function has no forward-mode formula.

    Examples
    --------
    >>> import torch
    >>> from gradlab.subject.tensors.subjects import torch_subject
    >>> subject = torch_subject(torch.sin, (torch.zeros(2),))
    >>> push(subject, 0, np.array([[3.0, 0.0]]))
    array([[3., 0.]])
    """
    cell = subject.cells[which]
    if cell.pattern is not None:
        msg = f"{cell.variable.name} is sparse: torch has no sparse tangents"
        raise NotImplementedError(msg)
    rows = output_rows(subject.outputs)
    result = np.zeros((len(tangents), rows))
    if not len(tangents):
        return result
    first = _single(subject, which, tangents[0])
    width = 8 * (tangents.shape[1] + rows)
    size = max(1, subject.chunk_bytes // max(width, 1))
    batched = len(tangents) > 1
    for start in range(0, len(tangents), size):
        part = tangents[start : start + size]
        block = _batched(subject, which, part) if batched else None
        if block is not None and start == 0:
            scale = float(np.max(np.abs(first[np.isfinite(first)]), initial=0.0))
            slack = SLACK * subject.epsilon * scale
            if not np.allclose(block[0], first, rtol=0, atol=slack, equal_nan=True):
                block = None
        if block is None:
            batched = False
            block = np.stack([_single(subject, which, tangent) for tangent in part])
        result[start : start + len(part)] = block
    return result


def _single(
    subject: TorchSubject, which: int, tangent: NDArray[np.float64]
) -> NDArray[np.float64]:
    import torch
    from torch.autograd import forward_ad as typeless

    forward_ad: Any = typeless  # torch annotates none of it

    _load_formulas()
    with forward_ad.dual_level():
        values = subject.values_apart(grad=False)
        primal = values[which].detach().clone()
        values[which] = forward_ad.make_dual(primal, _tangent(subject, which, tangent))
        outputs = subject.evaluate(values, grad=True)
        subject.forward_value = to_row(outputs)
        pushed = [forward_ad.unpack_dual(tensor).tangent for tensor in outputs]
    return to_row(
        [
            torch.zeros_like(tensor) if part is None else part
            for tensor, part in zip(outputs, pushed, strict=True)
        ]
    )


def _load_formulas() -> None:
    """Let torch load its decompositions, which warn about themselves."""
    import torch
    from torch.autograd import forward_ad as typeless

    forward_ad: Any = typeless  # torch annotates none of it

    with warnings.catch_warnings(), forward_ad.dual_level():
        warnings.simplefilter("ignore")
        zero = torch.zeros(1, device="cpu")
        forward_ad.make_dual(zero, torch.ones_like(zero))


def _batched(
    subject: TorchSubject, which: int, tangents: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    import torch

    values = subject.values_apart(grad=False)

    def column(tangent: Any) -> tuple[Any, ...]:
        def evaluate(value: Any) -> tuple[Any, ...]:
            here: list[Any] = list(values)
            here[which] = value
            return subject.observed(here).tensors

        pushed: tuple[Any, ...] = torch.func.jvp(
            evaluate, (values[which].detach(),), (tangent,)
        )[1]
        return pushed

    if subject.reset is not None:
        subject.reset()
    randomness = "error" if subject.reset is None else "same"
    try:
        with unannounced():
            mapped = torch.func.vmap(column, randomness=randomness)
            stack: Sequence[Any] = mapped(_tangent(subject, which, tangents))
    except Exception:  # noqa: BLE001 - vmap raises many types; the loop will tell
        return None
    return stack_of_rows(stack, len(tangents))


def _tangent(subject: TorchSubject, which: int, numbers: NDArray[np.float64]) -> Any:
    """Real coordinates, with leading dimensions, as tangents of an input."""
    import torch

    values = subject.cells[which].values
    lead = numbers.shape[:-1]
    real = torch.tensor(numbers, device=values.device)
    if not values.dtype.is_complex:
        return real.reshape((*lead, *values.shape)).to(values.dtype)
    pairs = real.reshape((*lead, *values.shape, 2))
    return torch.view_as_complex(pairs).to(values.dtype)


class ForwardMode(AnalyticDefaults):
    """Analytic side from forward-mode autograd.

    The whole Jacobian is built column by column, once for each call of `pull`, and the
    cotangents are multiplied with it.
    """

    takes_cotangents = True
    makes_whole = True
    description = "autograd, forward mode"

    def __init__(self, subject: TorchSubject) -> None:
        self._subject = subject

    def jacobian(self) -> tuple[list[NDArray[np.float64]], list[Problem]]:
        """Blocks of shape (rows, coordinates), one for each input."""
        blocks: list[NDArray[np.float64]] = []
        problems: list[Problem] = []
        for which, variable in enumerate(self._subject.inputs):
            try:
                block = push(self._subject, which, np.eye(variable.coordinates)).T
            except Exception as error:  # noqa: BLE001 - anything a user's jvp raises
                rows = output_rows(self._subject.outputs)
                block = np.full((rows, variable.coordinates), np.nan)
                detail = f"jvp raised {in_one_line(error)}{stopped_at(error)}"
                problems.append(Problem("raised", variable.name, detail))
            blocks.append(block)
        return blocks, problems

    def on(self, subject: TorchSubject) -> ForwardMode:
        """Return the same mode of autograd for another subject."""
        return ForwardMode(subject)

    def pull(self, cotangents: NDArray[np.float64]) -> Pullback:
        """Vector-Jacobian products; see `Analytic`."""
        seeds = np.atleast_2d(np.asarray(cotangents, dtype=np.float64))
        blocks, problems = self.jacobian()
        return Pullback(tuple(seeds @ block for block in blocks), tuple(problems))
