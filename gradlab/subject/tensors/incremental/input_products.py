"""The products by which inputs enter a function, for slopes by the chain rule.

Where all that becomes of a weight is linear for a while, as products are, the function
can depend on nothing of it but what comes out there, and of a small batch that has far
fewer entries: 8 times 100 instead of 256 times 100. Whether it is so is not guessed:
tensors without memory stand for the inputs (`following`), and
every use of them is known. A weight may have several, one at each step of a recurrence:
its slopes are then the sum of what is carried back from each.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.subject import side_by_side
from gradlab.subject.tensors.batching.loops import same_values
from gradlab.subject.tensors.batching.stacks import vmapped
from gradlab.subject.tensors.gradients.engine import run_backward
from gradlab.subject.tensors.incremental.differing import OtherUseError, differing
from gradlab.subject.tensors.incremental.following import End, end_replaced, ends_of
from gradlab.subject.tensors.outputs import to_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.tensors.subjects import TorchSubject
    from gradlab.subject.tensors.values import Cell

__all__ = ["Product", "products_of"]

_FILLED = 2**18  # numbers that a batch may fill at once: 2 MiB, as caches are
_FIRST, _MOST = 256, 4096  # displacements in one batch: to begin with, and at most


def products_of(subject: TorchSubject, inputs: Sequence[int]) -> list[Product]:
    """Find the products by which some inputs enter, all of them.

    Parameters
    ----------
    subject
        At its point, evaluated before. It is evaluated once more.
    inputs
        Their numbers; those that are not of float64 are left out.

    Returns
    -------
    list of Product
        f depends on an input by nothing but those of which it is a factor. What is no
        product is one with a factor of one: an input that f uses as it is.
    """
    import torch

    cells = subject.cells
    inputs = tuple(which for which in inputs if _may_be(cells[which]))
    if subject.needs_grad or subject.mutated or not subject.outputs or not inputs:
        return []
    if any(cell.pattern for cell in cells):
        return []
    versions = [cell.values._version for cell in cells]  # noqa: SLF001 - torch's only mark of a change
    tensors, call = _call(subject, inputs)
    try:
        if subject.reset is not None:
            subject.reset()
        with torch.no_grad():
            ends = ends_of(tensors, call)
    except Exception:  # noqa: BLE001 - whatever the user's code makes of such tensors
        return []
    finally:
        subject.undo_writes(versions)
    if subject.mutated:
        return []
    return [Product(subject, inputs, end) for end in ends]


def _may_be(cell: Cell) -> bool:
    """Whether an input may be followed."""
    import torch

    values = cell.values
    return values.layout is torch.strided and values.dtype is torch.float64


def _call(
    subject: TorchSubject, inputs: Sequence[int]
) -> tuple[list[Any], Callable[[list[Any]], tuple[Any, ...]]]:
    """Give the tensors of some inputs, and what evaluates with others in place."""
    given = [part.tensor() for part in subject.cells]

    def call(made: list[Any]) -> tuple[Any, ...]:
        for which, each in zip(inputs, made, strict=True):
            given[which] = each
        return subject.observed(given).tensors

    return [given[which] for which in inputs], call


class Product:
    """A product that stands between some inputs and the outputs of a subject.

    Attributes
    ----------
    point
        Its entries, flat.
    factors
        Numbers of the inputs that it is linear in.
    end
        Where the evaluation goes on with it.
    """

    def __init__(
        self, subject: TorchSubject, inputs: tuple[int, ...], end: End
    ) -> None:
        self._subject, self._inputs, self.end = subject, inputs, end
        self.point: NDArray[np.float64] = end.values.cpu().numpy().reshape(-1)
        self.factors = frozenset(inputs[place] for place in end.inputs)

    def transposed(
        self,
        inputs: Sequence[int],
        weigh: Callable[[Any], Any] | None = None,
        others: Sequence[Product] = (),
    ) -> Callable[[NDArray[np.float64]], list[NDArray[np.float64]]]:
        """Give what carries slopes with respect to the product to some inputs.

        Parameters
        ----------
        inputs
            Their numbers; each is a factor of it, or of one of the others.
        weigh
            Applied to the other factor of each, a tensor: `abs` for what adds up
            whatever its sign, a square for the squares of what is independent.
        others
            Products of the same evaluation, whose slopes are carried together with
            those of this one: their entries stand beside its own.

        Returns
        -------
        callable
            From (rows, entries) to (rows, coordinates) for each of the inputs.
        """
        import torch

        tensors = [each if weigh is None else weigh(each) for each in self._tensors()]
        leaves = [tensors[self._inputs.index(which)] for which in inputs]
        for leaf in leaves:
            leaf.requires_grad_()
        with torch.enable_grad():
            made = [each.end.made(tensors, weigh) for each in (self, *others)]
        slots = side_by_side([each.numel() for each in made])

        def pull(slopes: NDArray[np.float64]) -> list[NDArray[np.float64]]:
            several = len(slopes) > 1
            given = torch.from_numpy(np.ascontiguousarray(slopes))
            cotangents = [
                given[:, slot].reshape((-1, *each.shape) if several else each.shape)
                for each, slot in zip(made, slots, strict=True)
            ]
            cotangents = [
                each.to(out.device) for each, out in zip(cotangents, made, strict=True)
            ]
            found = run_backward(made, cotangents, leaves, keep=True, batched=several)
            return [each.reshape(len(slopes), -1).cpu().numpy() for each in found]

        return pull

    def push(self, which: int, moves: NDArray[np.float64]) -> NDArray[np.float64]:
        """Say how the entries move when one factor moves so; (entries,).

        As linear as it is, a long move tells that with more digits than a short one.
        """
        import torch

        tensors, place = self._tensors(), self._inputs.index(which)
        size = float(np.abs(moves).max(initial=0.0)) or 1.0
        factor = torch.zeros_like(tensors[place])
        with torch.no_grad():
            tensors[place] = factor
            here = self.end.made(tensors)
            long = torch.from_numpy(moves / size).to(factor.device)
            tensors[place] = long.reshape(factor.shape)
            difference = self.end.made(tensors) - here
        moved: NDArray[np.float64] = size * difference.reshape(-1).cpu().numpy()
        return moved

    def _tensors(self) -> list[Any]:
        """Give the inputs that are followed, at their point."""
        cells = self._subject.cells
        return [cells[which].tensor().detach() for which in self._inputs]

    def rows(
        self, positions: NDArray[np.intp], displacements: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Evaluate with one entry of the product displaced at a time.

        In batches where that comes to the same; see
        `gradlab.subject.subject.Subject.rows`, which does so with the entries of an
        input.

        Raises
        ------
        Exception
            Whatever the function raises beside the point.
        """
        import torch

        values = self.end.values
        old = self.point[positions]
        taken = (old + displacements) - old
        width = values.shape[-1] if values.dim() else 1
        places = np.divmod(positions, width)
        moves = tuple(
            torch.from_numpy(each).to(values.device) for each in (*places, taken)
        )
        for narrow in (True, False):
            try:
                return self._batched(moves, narrow), taken
            except Exception:  # noqa: BLE001, S112 - vmap raises many types
                continue
        rows = [self._single(*move) for move in zip(*moves, strict=True)]
        return np.concatenate(rows), taken

    def _batched(self, moves: tuple[Any, ...], narrow: bool) -> NDArray[np.float64]:  # noqa: FBT001 - only here
        """Evaluate by vmap, and one of the displacements by itself as well.

        Going by the column that moves alone where functions of torch allow
        (`differing`), if it is `narrow`.
        """
        parts, at, size, count = [], 0, _FIRST, len(moves[0])
        sizes: list[int] = [] if narrow else [len(self.point)]

        def moved(row: Any, column: Any, step: Any) -> tuple[Any, ...]:
            return self._moved(row, column, step, sizes if narrow else None)

        while at < count:
            batch = tuple(each[at : at + size] for each in moves)
            parts.append(vmapped(self._subject, moved, batch))
            at += size
            size = min(max(_FIRST, _FILLED // max(1, *sizes)), _MOST)
        values = np.concatenate(parts)
        some = int(np.random.default_rng(count).integers(count))
        expected = self._single(*(each[some] for each in moves))
        if not np.isfinite(values).all():  # what is infinite cannot be changed by a bit
            raise OtherUseError
        if not same_values(self._subject, expected, values[some : some + 1]):
            raise OtherUseError
        return values

    def _single(self, row: Any, column: Any, step: Any) -> NDArray[np.float64]:
        """Evaluate with one entry displaced, by itself: (1, rows)."""
        import torch

        if self._subject.reset is not None:
            self._subject.reset()
        with torch.no_grad():
            return to_row(self._moved(row, column, step, None))[None]

    def _moved(
        self, row: Any, column: Any, step: Any, sizes: list[int] | None
    ) -> tuple[Any, ...]:
        """Evaluate with one entry of the product displaced.

        As a tensor that differs in one column, which adds to the `sizes` of what has to
        be filled; without these, as any other tensor.
        """
        import torch

        def moved(values: Any) -> Any:
            out = values if values.dim() else values.reshape(1)
            *lead, width = out.shape
            rows = torch.arange(math.prod(lead), device=out.device)
            by = ((rows == row) * step).reshape(*lead, 1)
            if sizes is None or not values.dim():
                columns = torch.arange(width, device=out.device)
                return (out + by * (columns == column)).reshape(values.shape)
            index = column.reshape(1)
            part = torch.index_select(out, -1, index) + by
            return differing(out, -1, index, part, sizes)

        return end_replaced(*_call(self._subject, self._inputs), self.end.number, moved)
