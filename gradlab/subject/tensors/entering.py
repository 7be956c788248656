"""The product by which an input enters a function.

Where all that becomes of a weight is one product, the function can depend on nothing
of it but that product, and of a small batch that has far fewer entries: 8 times 100
instead of 256 times 100. Whether it is so is not guessed: a tensor without memory
stands for the input (`gradlab.subject.tensors.standing_in`), and whatever else is done
with that is known. The product is linear in each factor, so that slopes with respect to
its entries are carried to those of the factor by another product, exactly.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.tensors.differing import OtherUseError, differing
from gradlab.subject.tensors.loops import same_values
from gradlab.subject.tensors.outputs import to_row
from gradlab.subject.tensors.stacks import vmapped
from gradlab.subject.tensors.standing_in import Met, standing_in
from gradlab.subject.tensors.words import is_transformed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.tensors.subjects import TorchSubject
    from gradlab.subject.tensors.values import Cell

__all__ = ["Product", "products_of"]

_FILLED = 2**18  # numbers that a batch may fill at once: 2 MiB, as caches are
_FIRST, _MOST = 256, 4096  # displacements in one batch: to begin with, and at most


def products_of(subject: TorchSubject, inputs: Sequence[int]) -> list[Product]:
    """Find the products by which some inputs enter, and nothing else of them does.

    Parameters
    ----------
    subject
        At its point, evaluated before. It is evaluated once more.
    inputs
        Their numbers. Matrices of float64 may be factors, and vectors a bias.
    """
    cells, found = subject.cells, dict[int, Product]()
    if subject.needs_grad or subject.mutated or not subject.outputs:
        return []
    if any(cell.pattern for cell in cells):
        return []
    for which, met in _met(subject, [k for k in inputs if _may_be(cells[k])]).items():
        if met.number not in found:
            found[met.number] = Product(subject, which, met.out)
        found[met.number].factors[which] = _Factor.of(met)
    return list(found.values())


def _may_be(cell: Cell) -> bool:
    """Whether an input may be a factor, a matrix, or a bias, a vector."""
    import torch

    values = cell.values
    plain = values.layout is torch.strided and values.dtype is torch.float64
    return plain and values.dim() in {1, 2}


def _met(subject: TorchSubject, inputs: Sequence[int]) -> dict[int, Met]:
    """Find the product that each input is part of, if nothing more becomes of it."""
    import torch

    if not inputs:
        return {}
    found: dict[int, Met] = {}
    refused: set[int] = set()

    def meet(met: Met) -> Any:
        if met.place in found or is_transformed(met.out):
            refused.add(met.place)
        factor = None if met.other is None else met.other.clone()  # or it is written to
        found[met.place] = dataclasses.replace(met, other=factor, out=met.out.clone())
        return met.out

    versions = [cell.values._version for cell in subject.cells]  # noqa: SLF001 - torch's only mark of a change
    try:
        if subject.reset is not None:
            subject.reset()
        with torch.no_grad():
            _called(subject, inputs, meet, refused)
    except Exception:  # noqa: BLE001 - whatever the user's code makes of such tensors
        return {}
    finally:
        subject.undo_writes(versions)
    return {inputs[k]: met for k, met in found.items() if k not in refused}


def _called(
    subject: TorchSubject,
    inputs: Sequence[int],
    meet: Callable[[Met], Any],
    refused: set[int] | None = None,
) -> tuple[Any, ...]:
    """Evaluate with something standing for some inputs."""
    given = [part.tensor() for part in subject.cells]

    def call(made: list[Any]) -> tuple[Any, ...]:
        for which, each in zip(inputs, made, strict=True):
            given[which] = each
        return subject.observed(given).tensors

    return standing_in([given[which] for which in inputs], meet, call, refused)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Factor:
    """How a product depends on one input: linear, and known."""

    side: str
    turned: bool
    other: NDArray[np.float64]  # the other factor, a matrix; of a bias, ones

    @classmethod
    def of(cls, met: Met) -> _Factor:
        columns = met.out.shape[-1]
        if met.side == "added":
            rows = met.out.numel() // max(columns, 1)
            return cls("right", turned=False, other=np.ones((rows, 1)))
        other = met.other.detach().cpu().numpy()
        return cls(met.side, met.turned, other.reshape(-1, other.shape[-1]))

    def pull(
        self,
        slopes: NDArray[np.float64],
        shape: tuple[int, int],
        weigh: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None,
    ) -> NDArray[np.float64]:
        """Carry what belongs to the entries of the product to those of the factor."""
        other = self.other if weigh is None else weigh(self.other)
        there = slopes.reshape(-1, *shape)
        here = other.T @ there if self.side == "right" else there @ other.T
        here = here.swapaxes(1, 2) if self.turned else here
        return here.reshape(len(slopes), -1)

    def push(
        self, moves: NDArray[np.float64], shape: tuple[int, int]
    ) -> NDArray[np.float64]:
        """Say how the product moves with the factor, flat."""
        inner = self.other.shape[1 if self.side == "right" else 0]
        own = (inner, shape[1]) if self.side == "right" else (shape[0], inner)
        here = moves.reshape(own[::-1]).T if self.turned else moves.reshape(own)
        there = self.other @ here if self.side == "right" else here @ self.other
        return np.asarray(there.reshape(-1))


class Product:
    """A product that stands between some inputs and the outputs of a subject.

    Attributes
    ----------
    which
        One of its factors.
    point
        Its entries, flat.
    shape
        Rows, all leading axes together, and columns.
    factors
        By number of the input: how the product depends on it.
    """

    def __init__(self, subject: TorchSubject, which: int, out: Any) -> None:
        self._subject, self.which = subject, which
        columns = out.shape[-1]
        self.point: NDArray[np.float64] = out.detach().cpu().numpy().reshape(-1)
        self.shape = (out.numel() // max(columns, 1), columns)
        self.factors: dict[int, _Factor] = {}

    def pull(
        self,
        which: int,
        slopes: NDArray[np.float64],
        weigh: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
    ) -> NDArray[np.float64]:
        """Carry slopes with respect to the product to one of its factors.

        Parameters
        ----------
        which
            Number of the input.
        slopes
            Of every output, with respect to every entry: (rows, entries).
        weigh
            Applied to the other factor: ``np.abs`` for what adds up whatever its sign,
            ``np.square`` for the squares of what is independent.

        Returns
        -------
        ndarray
            Shape (rows, coordinates).
        """
        return self.factors[which].pull(slopes, self.shape, weigh)

    def push(self, which: int, moves: NDArray[np.float64]) -> NDArray[np.float64]:
        """Say how the entries move when one factor moves so; (entries,)."""
        return self.factors[which].push(moves, self.shape)

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

        device = self._subject.cells[self.which].values.device
        old = self.point[positions]
        taken = (old + displacements) - old
        places = np.unravel_index(positions, self.shape)
        moves = tuple(torch.from_numpy(each).to(device) for each in (*places, taken))
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
        (`gradlab.subject.tensors.differing`), if it is `narrow`.
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

        index = column.reshape(1)

        def meet(met: Met) -> Any:
            *lead, width = met.out.shape
            rows = torch.arange(math.prod(lead), device=met.out.device)
            by = ((rows == row) * step).reshape(*lead, 1)
            if sizes is None:
                columns = torch.arange(width, device=met.out.device)
                return met.out + by * (columns == column)
            part = torch.index_select(met.out, -1, index) + by
            return differing(met.out, -1, index, part, sizes)

        return _called(self._subject, [self.which], meet)
