"""Second derivatives by autograd, as a subject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.errors import SubjectError
from gradlab.subject.subject import output_rows
from gradlab.subject.tensors.outputs import cotangent_tensors
from gradlab.subject.tensors.subjects import TorchSubject
from gradlab.subject.tensors.values import Cell, as_parameter, make_cell

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.tensors.calling.programs import Program

__all__ = ["COTANGENT", "second_order"]

COTANGENT = "the incoming gradient"  # no name that an input may have


def second_order(
    subject: TorchSubject,
    seed: int = 0,
    *,
    cotangent: NDArray[np.float64] | None = None,
    varied: bool = False,
) -> TorchSubject:
    """Return the subject's gradient as a subject of its own.

    Its outputs are the gradients, one for each input and named ``grad.<input>``, of
    ``c . f(inputs)`` with one fixed random cotangent ``c``; its numeric side therefore
    differentiates the first backward, and its analytic side is the backward of the
    backward. Checking it is checking the second derivative.

    Parameters
    ----------
    subject
        A torch subject.
    seed
        Of the cotangent; standard normal entries, so that no output is left out.
    cotangent
        Weights of the output rows in place of random ones, shape (rows,).
    varied
        Whether the cotangent is an input as well, the last one, named `COTANGENT`: what
        a backward does with the incoming gradient is differentiated too.

    Raises
    ------
    SubjectError
        If an input is sparse: torch has no second derivatives there.

    Examples
    --------
    >>> import torch
    >>> from gradlab.subject.tensors.subjects import torch_subject
    >>> cubed = torch_subject(lambda x: x**3, (torch.ones(1),))
    >>> hessian = second_order(cubed)
    >>> bool(np.isclose(hessian.row(), 3 * np.random.default_rng([0, 29]).normal()))
    True
    """
    sparse = [cell.variable.name for cell in subject.cells if cell.pattern]
    if sparse:
        msg = (
            f"second derivatives with respect to the sparse input {sparse[0]!r} are "
            f"not available; pass it dense"
        )
        raise SubjectError(msg)
    rows = output_rows(subject.outputs)
    if cotangent is None:
        cotangent = np.random.default_rng([seed, 29]).normal(size=rows)
    cells = [_copied(cell) for cell in subject.cells]
    program = _Gradients(subject, cotangent)
    if varied:
        cells.append(_weights(cotangent, cells[0].values))
    second = TorchSubject(program, cells, root="grad")
    second.chunk_bytes = subject.chunk_bytes
    second.whole = True  # a gradient that is cut off its graph is what is looked for
    second.reset = subject.reset  # the same random draw, the same state
    return second


def _weights(cotangent: NDArray[np.float64], like: Any) -> Cell:
    import torch

    plain = torch.from_numpy(cotangent.copy())
    return make_cell(COTANGENT, plain.to(device=like.device, dtype=like.real.dtype))


def _copied(cell: Cell) -> Cell:
    copy = make_cell(cell.variable.name, cell.source, dtype=cell.values.dtype)
    copy.hooks, copy.aliased = cell.hooks, cell.aliased
    copy.parameter = cell.parameter
    copy.values = copy.dressed(copy.values)
    return copy


def _leaf(cell: Cell, value: Any) -> Any:
    plain = value.detach()
    if cell.parameter:
        return as_parameter(plain, requires_grad=True)
    return plain.requires_grad_()


class _Gradients:
    """Program that maps the inputs of a subject to its gradient."""

    def __init__(self, subject: TorchSubject, cotangent: NDArray[np.float64]) -> None:
        self._subject = subject
        self._cotangent = cotangent
        self.kind = f"gradient of a {subject.kind}"

    @property
    def buffers(self) -> dict[str, Any]:
        """Buffers of the subject's own program."""
        return self._subject.program.buffers

    def call(
        self, values: Sequence[Any], buffers: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return gradients by the names of the inputs, differentiable themselves."""
        import torch

        # values that require grad come from the analytic side: keep their graph
        wanted = any(value.requires_grad for value in values)
        values, weights = self._parted(values)
        with torch.enable_grad():
            cells = self._subject.cells
            leaves = [
                value if value.requires_grad else _leaf(cell, value)
                for cell, value in zip(cells, values, strict=True)
            ]
            mutated = self._subject.mutated
            given = [  # a function that writes to its input cannot be given a leaf
                leaf.clone()
                if cell.variable.name in mutated and not cell.parameter
                else leaf
                for cell, leaf in zip(cells, leaves, strict=True)
            ]
            tensors = self._subject.observed(given, buffers).tensors
            seeds = cotangent_tensors(weights, tensors)
            live = [i for i, tensor in enumerate(tensors) if tensor.requires_grad]
            gradients: Sequence[Any] = [None] * len(leaves)
            if live:
                gradients = torch.autograd.grad(
                    [tensors[i] for i in live],
                    leaves,
                    [seeds[i] for i in live],
                    create_graph=wanted,
                    allow_unused=True,
                )
        return {
            variable.name: torch.zeros_like(value) if gradient is None else gradient
            for variable, value, gradient in zip(
                self._subject.inputs, values, gradients, strict=True
            )
        }

    def standing(
        self, values: Sequence[Any], buffers: Mapping[str, Any] | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Stand where the subject's own program does, which has the loss."""
        return self._subject.program.standing(self._parted(values)[0], buffers)

    def _parted(self, values: Sequence[Any]) -> tuple[Sequence[Any], Any]:
        """Split off the cotangent, which may be the last of the values."""
        count = len(self._subject.cells)
        if len(values) > count:
            return values[:count], values[count]
        return values, self._cotangent

    def widened(self, cells: Sequence[Cell], *, copied: bool) -> Program | None:  # noqa: ARG002 - the protocol
        """Return the gradient of the subject in float64."""
        if copied:
            return None
        double = self._subject.in_double()
        return None if double is None else _Gradients(double, self._cotangent)
