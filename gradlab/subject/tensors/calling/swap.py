"""Calling a module on other parameters and buffers, and leaving it as it was.

This does what ``torch.func.functional_call`` does, with the places looked up once: a
check calls one module thousands of times, and finding a parameter by its qualified
name costs more than many a layer.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any

from gradlab.subject.holders import Holder, holders_of
from gradlab.subject.tensors.calling.fixed_places import FreePlaces
from gradlab.subject.tensors.gradients.deliberate import padded_row
from gradlab.subject.tensors.in_double.transient_parameters import Loan, reading_lent
from gradlab.subject.tensors.incremental.words import is_batched

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["Swap"]


class Swap:
    """The places in a module where given parameters and buffers stand.

    A tensor that stands in several places (tied weights) is exchanged in all of them.
    To an embedding its padding row is a constant: its gradient treats it so, hence it
    keeps the row of the module's own weight, whatever else the weight is.

    Attributes
    ----------
    own
        The module's own tensors, by name.
    roots
        What was searched for other places that hold them; None where nothing was.
    """

    def __init__(self, module: Any, names: Iterable[str]) -> None:
        wanted = set(names)
        members = dict(module.named_parameters()) | dict(module.named_buffers())
        self.own = {name: members[name] for name in wanted}
        self.roots: tuple[object, ...] | None = None
        self.made = 0  # parameters, in the last call
        self._beside: list[Holder] = []
        self._module = module
        self._places: list[tuple[dict[str, Any], str, str]] = []
        self._padded: dict[int, int] = {}  # place: row that is a constant
        self._dressed: list[tuple[dict[str, Any], str]] = []  # those of parameters
        name_of = self.name_of()
        for part in module.modules():
            self._find_places(part, name_of)
        uses = Counter(name for _, _, name in self._places)
        self._tied = {name for name, count in uses.items() if count > 1}
        self._free_places = FreePlaces(module)

    def _find_places(self, part: Any, name_of: Mapping[int, str]) -> None:
        """List where a part keeps tensors that are exchanged."""
        for table in (part._parameters, part._buffers):  # noqa: SLF001 - what functional_call writes to as well
            for own_name, tensor in table.items():
                if id(tensor) not in name_of:
                    continue
                if table is part._parameters:  # noqa: SLF001 - as above
                    self._dressed.append((table, own_name))
                row = padded_row(part) if own_name == "weight" else None
                if row is not None:
                    self._padded[len(self._places)] = row
                self._places.append((table, own_name, name_of[id(tensor)]))

    def name_of(self) -> dict[int, str]:
        """Names of the module's own tensors, by their ids."""
        return {id(tensor): name for name, tensor in self.own.items()}

    def search(self, roots: Sequence[object]) -> None:
        """Exchange them also where they are held beside the module's own tables.

        In a list of weights to be penalised, in a closure, by a tensor's own name: a
        walk, which is worth it where one was seen to be read there.
        """
        self.roots = (self._module, *roots)
        tables, names = {id(table) for table, _, _ in self._places}, self.name_of()
        found = holders_of(names.keys(), self.roots)
        self._beside = [place for place in found if id(place.space) not in tables]
        parts = (id(part) for place in self._beside for part in place.parts())
        self._tied |= {names[part] for part in parts if part in names}

    @property
    def beside(self) -> bool:
        """Whether the search found places besides the module's own tables."""
        return bool(self._beside)

    @property
    def lends(self) -> bool:
        """Whether its parameters are found in its tables alone, and as they are."""
        return not (self._padded or self._free_places or self._beside)

    def call(self, state: Mapping[str, Any], arguments: tuple[Any, ...]) -> object:
        """Return ``module(*arguments)`` with `state` in place of its own tensors."""
        if any(type(value) is Loan for value in state.values()):
            with self.standing(state):
                return self._module(*arguments)
        saved = self._saved()
        try:
            self._exchange(state, saved[0])
            return self._module(*arguments)
        finally:
            self._put_back(*saved)

    @contextlib.contextmanager
    def standing(self, state: Mapping[str, Any]) -> Iterator[None]:
        """Let `state` stand there for what else reads the module, such as a loss.

        What is a `Loan` is made when the module reads it.
        """
        saved = self._saved()
        lent = self._lent(state)
        try:
            self._exchange(state, saved[0])
            with reading_lent(lent) as lender:
                yield
            self.made = lender.made
        finally:
            self._put_back(*saved)

    def _lent(self, state: Mapping[str, Any]) -> dict[int, tuple[Any, dict[str, Loan]]]:
        """By table: the module that it is of, and what is lent to it."""
        owners = {id(p._parameters): p for p in self._module.modules()}  # noqa: SLF001 - as above
        found: dict[int, tuple[Any, dict[str, Loan]]] = {}
        for table, own_name, name in self._places:
            if type(state[name]) is Loan:
                part = owners[id(table)]
                found.setdefault(id(table), (part, {}))[1][own_name] = state[name]
        return found

    def _saved(self) -> tuple[list[Any], list[dict[str, Any]]]:
        """Tensors in the tables, and what `FreePlaces` is going to change."""
        tensors = [table[own_name] for table, own_name, _ in self._places]
        return tensors, self._free_places.saved()

    def _exchange(self, state: Mapping[str, Any], saved: list[Any]) -> None:
        for table, own_name, name in self._places:
            if type(state[name]) is not Loan:
                table[own_name] = state[name]
        for place, row in self._padded.items():
            table, own_name, name = self._places[place]
            table[own_name] = _with_row(
                state[name], saved[place], row, alone=name not in self._tied
            )
        for table, own_name in self._dressed:
            _dress(table[own_name])
        if self._free_places:
            self._free_places.set_up()
        if self._beside:
            others = {id(tensor): state[name] for name, tensor in self.own.items()}
            for holder in self._beside:
                holder.exchange(others)

    def _put_back(self, saved: list[Any], fixed: list[dict[str, Any]]) -> None:
        for holder in self._beside:
            holder.put(holder.held)
        for (table, own_name, _), tensor in zip(self._places, saved, strict=True):
            table[own_name] = tensor
        if self._free_places:
            self._free_places.put_back(fixed)


def _dress(tensor: Any) -> None:
    """Let a tensor that cannot be made a Parameter be taken for one.

    Such as one of many under vmap, or one with a tangent. It is the mark that torch
    gives parameters of tensor subclasses.
    """
    import torch

    if type(tensor) is not torch.nn.Parameter:
        tensor._is_param = True  # noqa: SLF001 - see above


def _with_row(tensor: Any, own: Any, row: int, *, alone: bool) -> Any:
    """Give a stand-in for a weight the one row that the module's own weight has."""
    import torch

    own = own.detach()[row].to(tensor.dtype)
    if alone and not (is_batched(tensor) or tensor.requires_grad):
        tensor.data[row] = own  # data: this is no write of the user's
        return tensor
    mask = torch.arange(tensor.shape[0], device=tensor.device) == row
    return torch.where(mask[:, None], own, tensor)
