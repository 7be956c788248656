"""Parameters in float64 that exist only while a module reads them.

A copy of a float32 model in float64 is twice as large as the model. To evaluate it, one
layer after the other is enough: each parameter is made, displaced as it is to be, when
the module looks it up, and forgotten soon after. What cannot be done so, such as a
gradient, gets private copies as ever.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import weakref
from collections.abc import ItemsView, ValuesView
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.tensors.values import Cell

__all__ = ["Lending", "Loan", "Rooms", "lent", "may_be_lent", "reading_lent"]

_ROOM = 8  # of what all loans would take, one in so many bytes is kept
_SMALL = 1 << 14  # numbers for which no room is looked for


class Rooms:
    """Memory for float64 numbers, used again once no tensor shows it any more.

    Examples
    --------
    >>> rooms = Rooms()
    >>> one, two = rooms.take(20_000), rooms.take(20_000)
    >>> place = one.ctypes.data
    >>> del one
    >>> rooms.take(20_000).ctypes.data == place
    True
    """

    def __init__(self) -> None:
        self._rooms: list[tuple[NDArray[np.float64], Any]] = []

    def take(self, count: int) -> NDArray[np.float64]:
        """Return an array with any content, which is free again when it is gone."""
        if count <= _SMALL:
            return np.empty(count)
        free = [
            k
            for k, (room, user) in enumerate(self._rooms)
            if len(room) >= count and user() is None
        ]
        k = min(free, key=lambda k: len(self._rooms[k][0]), default=len(self._rooms))
        if not free:
            self._rooms.append((np.empty(count), None))
        room = self._rooms[k][0]
        shown = room[:count]
        self._rooms[k] = room, weakref.ref(shown)
        return shown


@dataclasses.dataclass(slots=True, eq=False)
class Lending:
    """How a parameter without a private copy is displaced.

    Attributes
    ----------
    rooms
        Where it is made.
    moves
        By first coordinate: what to add, and how many times.
    """

    rooms: Rooms
    moves: dict[int, tuple[NDArray[np.float64], float]] = dataclasses.field(
        default_factory=dict
    )

    def made(self, source: Any) -> Any:
        """Give the values in a room, displaced."""
        import torch

        with torch.no_grad():
            made = torch.from_numpy(self.rooms.take(source.numel())).view(source.shape)
            return self.displaced(made.copy_(source))

    def displaced(self, tensor: Any) -> Any:
        """Add what is to be added to a contiguous tensor."""
        import torch

        with torch.no_grad():
            flat = tensor.view(-1)
            for start, (values, factor) in self.moves.items():
                part = flat[start : start + len(values)]
                part.add_(torch.from_numpy(values), alpha=factor)
        return tensor


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Loan:
    """What stands for a parameter until somebody looks it up; of no use as it is."""

    cell: Cell
    lending: Lending

    def made(self) -> Any:
        """Give what it stands for."""
        return self.cell.dressed(self.lending.made(self.cell.source))


def may_be_lent(cell: Cell) -> bool:
    """Whether a parameter can be made a block at a time: plain memory of the host."""
    source = cell.source
    return (
        cell.parameter
        and cell.pattern is None
        and not (cell.aliased or source.dtype.is_complex)
        and source.device.type == "cpu"
        and bool(source.is_contiguous())
        and not source.is_neg()
    )


def lent(cell: Cell) -> Loan | None:
    """Return the loan of a cell that has no private copy; None for others."""
    if cell.lending is None or not cell.parked:
        return None
    return Loan(cell, cell.lending)


class _Lender:
    """Makes parameters, and keeps some of those that were read last."""

    def __init__(self, loans: Sequence[Loan]) -> None:
        cells = {id(loan.cell): loan.cell for loan in loans}
        self._room = sum(cell.values.nbytes for cell in cells.values()) // _ROOM
        self._kept: collections.OrderedDict[int, Any] = collections.OrderedDict()
        self._alive: weakref.WeakValueDictionary[int, Any] = (
            weakref.WeakValueDictionary()
        )
        self._taken = 0
        self.made = 0

    def of(self, loan: Loan) -> Any:
        """Return a parameter; the same as before where somebody still has it."""
        key = id(loan.cell)
        found = self._alive.get(key)
        if found is None:
            self._leave(loan.cell.values.nbytes)
            found = loan.made()
            self._alive[key] = found
            self.made += 1
        if key not in self._kept:
            self._taken += found.nbytes
            self._kept[key] = found
        self._kept.move_to_end(key)
        return found

    def _leave(self, size: int) -> None:
        """Forget what was read longest ago, until there is room for so many bytes."""
        while self._kept and self._taken + size > self._room:
            self._taken -= self._kept.popitem(last=False)[1].nbytes


class _Table(dict[str, Any]):
    """The parameters of one module, some of which are made when they are read.

    Iterating by hand, so that ``dict(table)`` and the like read them too.
    """

    def __init__(self, table: Mapping[str, Any], lender: _Lender) -> None:
        super().__init__(table)
        self._lender = lender

    def _read(self, value: Any) -> Any:
        return self._lender.of(value) if type(value) is Loan else value

    def __getitem__(self, key: str) -> Any:
        return self._read(super().__getitem__(key))

    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401 - which is this

    def pop(self, key: str, *default: Any) -> Any:
        return self._read(super().pop(key, *default))

    def values(self) -> ValuesView[Any]:  # type: ignore[override] # a view as well
        return ValuesView(self)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override] # a view as well
        return ItemsView(self)

    def copy(self) -> dict[str, Any]:
        return dict(self)


@contextlib.contextmanager
def reading_lent(parts: Mapping[int, tuple[Any, dict[str, Loan]]]) -> Iterator[_Lender]:
    """Let modules find parameters that are made when they are read, meanwhile.

    Parameters
    ----------
    parts
        By any key: a module, and by name what of its parameters is lent.
    """
    every = [loan for _, loans in parts.values() for loan in loans.values()]
    lender = _Lender(every)
    kept = [(vars(part), part._parameters) for part, _ in parts.values()]  # noqa: SLF001 - torch's table
    try:
        for part, loans in parts.values():
            vars(part)["_parameters"] = _Table({**part._parameters, **loans}, lender)  # noqa: SLF001 - as above
        yield lender
    finally:
        for space, table in kept:
            space["_parameters"] = table
