"""Private copies of tensors, and flat views on their real coordinates.

Nothing here writes to a tensor of the user's. What gets perturbed is a copy with the
same layout: strides are kept, because kernels (and custom functions) may take another
path for a non-contiguous tensor. A tensor whose entries overlap in memory, such as an
expanded one, cannot be perturbed entry by entry; its copy is spread out and the cell
remembers it.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab import labels
from gradlab.errors import InputTypeError
from gradlab.subject.subject import Variable
from gradlab.subject.tensors.batching.devices import has_no_memory
from gradlab.subject.tensors.overlaps import overlaps
from gradlab.subject.tensors.patterns import Pattern, sparse_pattern

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.subject.subject import Coordinates
    from gradlab.subject.tensors.in_double.transient_parameters import Lending

__all__ = [
    "Cell",
    "as_parameter",
    "bare",
    "dtype_name",
    "is_differentiable",
    "is_double",
    "is_torch",
    "looks_like_module",
    "make_cell",
    "private_copy",
    "real_numbers",
]

# A strided copy of one column of a huge matrix would cost as much as the matrix; from
# this many bytes of gaps on, the layout is given up.
_MAX_GAP_BYTES = 1 << 26
_LARGE = 1 << 16  # entries that are not put back before somebody looks at them


def is_torch(value: object) -> bool:
    """Whether `value` is a tensor; never imports torch.

    Examples
    --------
    >>> is_torch(np.ones(3))
    False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def looks_like_module(fn: object) -> bool:
    """Whether `fn` is an ``nn.Module``; never imports torch.

    Examples
    --------
    >>> looks_like_module(np.sin)
    False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(fn, torch.nn.Module)


def is_differentiable(value: object) -> bool:
    """Whether `value` is a floating or complex tensor.

    Examples
    --------
    >>> is_differentiable(1.5)
    False
    """
    if not is_torch(value):
        return False
    dtype = value.dtype  # type: ignore[attr-defined] # a tensor
    return bool(dtype.is_floating_point or dtype.is_complex)


def is_double(value: object) -> bool:
    """Whether `value` is a tensor in double precision; torch is there already."""
    torch = sys.modules["torch"]
    wide = (torch.float64, torch.complex128)
    return isinstance(value, torch.Tensor) and value.dtype in wide


def dtype_name(dtype: Any) -> str:
    """Word for a torch dtype, as `Variable` has it: "float32", "bfloat16".

    Examples
    --------
    >>> import torch
    >>> dtype_name(torch.bfloat16)
    'bfloat16'
    """
    return str(dtype).removeprefix("torch.")


def real_numbers(tensor: Any) -> NDArray[np.float64]:
    """Real coordinates of a dense tensor: flat, float64, fresh memory.

    Examples
    --------
    >>> import torch
    >>> real_numbers(torch.tensor([1 + 2j, 3 - 1j]))
    array([ 1.,  2.,  3., -1.])
    """
    import torch

    dense = tensor.detach()
    if dense.is_conj() or dense.is_neg():  # lazy, and NumPy cannot see them
        dense = dense.resolve_conj().resolve_neg()
    if has_no_memory(dense):
        dense = dense.clone()
    if dense.dtype.is_complex:
        dense = torch.view_as_real(dense)
    fresh = dense.dtype is not torch.float64 or dense.device.type != "cpu"
    if fresh:
        dense = dense.to("cpu", torch.float64)
    array: NDArray[np.float64] = dense.numpy()
    return (array if fresh else np.array(array, order="C")).reshape(-1)


def as_parameter(tensor: Any, *, requires_grad: bool = False) -> Any:
    """Parameter that shares the memory of a tensor, and its count of writes.

    Code of the user's that asks what it is, or assigns it to a module, must find what
    it finds in its own module.

    Examples
    --------
    >>> import torch
    >>> type(as_parameter(torch.zeros(2))).__name__
    'Parameter'
    """
    import torch

    return torch.nn.Parameter(tensor, requires_grad=requires_grad)


def bare(tensor: Any) -> Any:
    """Give the numbers of a tensor whose class may add otherwise, as a group does."""
    import torch

    return tensor if type(tensor) is torch.Tensor else tensor.as_subclass(torch.Tensor)


def private_copy(tensor: Any, dtype: Any = None) -> Any:
    """Detached copy of a dense tensor with the strides of the original.

    Overlapping entries are spread out (the copy is contiguous then), and so are gaps
    of more than 64 MiB.

    Parameters
    ----------
    tensor
        In any layout that has strides.
    dtype
        Of the copy; None keeps the tensor's own.

    Examples
    --------
    >>> import torch
    >>> private_copy(torch.zeros(4, 6)[:, ::2]).stride()
    (6, 2)
    """
    import torch

    source = tensor.detach()
    span = 1 + sum(
        stride * max(size - 1, 0)
        for stride, size in zip(source.stride(), source.shape, strict=True)
    )
    gap = (span - source.numel()) * source.element_size()
    kind = {"dtype": dtype or source.dtype, "device": source.device}
    with torch.no_grad():
        if source.numel() == 0 or overlaps(source) or gap > _MAX_GAP_BYTES:
            # copy_ also resolves lazy conjugation, which clone would keep
            copy = torch.empty(source.shape, **kind)
        else:
            copy = torch.empty_strided(source.shape, source.stride(), **kind)
        return copy.copy_(source)


class _NumpyFlat:
    """Coordinates of a CPU tensor, through NumPy: ten times faster than indexing it."""

    __slots__ = ("_flat", "_length")

    def __init__(self, real: Any) -> None:
        array = real.numpy()
        self._flat = array.flat  # writes through, contiguous or not
        self._length = array.size

    def __len__(self) -> int:
        return int(self._length)

    def __getitem__(self, position: int, /) -> float:
        return float(self._flat[position])

    def __setitem__(self, position: int, value: float, /) -> None:
        self._flat[position] = value


class _TensorFlat:
    """Coordinates of a tensor that NumPy cannot see: bfloat16, or on a device."""

    __slots__ = ("_real",)

    def __init__(self, real: Any) -> None:
        self._real = real

    def __len__(self) -> int:
        return int(self._real.numel())

    def _index(self, position: int) -> tuple[int, ...]:
        return labels.unravel(int(position) % len(self), self._real.shape)

    def __getitem__(self, position: int, /) -> float:
        return float(self._real[self._index(position)])

    def __setitem__(self, position: int, value: float, /) -> None:
        self._real[self._index(position)] = float(value)


@dataclasses.dataclass(slots=True, eq=False)
class Cell:
    """One input: where the user keeps it, and the private copy that is perturbed."""

    variable: Variable
    source: Any  # the user's stored values, detached; read, never written
    values: Any  # private stored values, dense
    pattern: Pattern | None = None
    hooks: tuple[Any, ...] = ()  # the user's tensor hooks: they are part of backward
    aliased: bool = False
    parked: bool = False  # values are the source itself for now: see `park`
    astray: bool = False  # values are not those of the point, and nobody wants them
    parameter: bool = False  # the user's is one, and so is what stands in for it
    # displaces it while parked; None where only a private copy can be displaced
    lending: Lending | None = None

    def park(self) -> None:
        """Let go of the private copy until something asks for it again.

        Meanwhile `values` tells what kind of numbers they are, and is not written to.
        """
        if self.pattern is None:
            kind = self.values.detach()
            if kind.dtype is self.source.dtype:
                kind = self.source
            else:  # one number that looks like many
                kind = kind.new_zeros(()).expand(self.source.shape)
            self.values, self.parked, self.astray = kind, True, False

    def own(self) -> Any:
        """Private stored values: made again or put back, if that was left undone."""
        if self.parked:
            copy = private_copy(self.source, self.values.dtype)
            if self.lending is not None:
                self.lending.displaced(copy)
                self.lending.moves.clear()
            self.values, self.parked = self.dressed(copy), False
        elif self.astray:
            self.place(None, now=True)
        return self.values

    def forget(self) -> None:
        """Do not put values back that are about to be written all over."""
        self.astray = False

    def dressed(self, tensor: Any) -> Any:
        """Give what stands in for a parameter as one, and anything else as it is."""
        return as_parameter(tensor) if self.parameter else tensor

    def real(self) -> Any:
        """View on the real coordinates; no copy."""
        import torch

        # the user's function may have made it require grad
        plain = bare(self.own().detach())
        return torch.view_as_real(plain) if plain.dtype.is_complex else plain

    def tensor(self) -> Any:
        """Give what the user's function is called with."""
        if self.pattern is None:
            return self.own()
        return self.dressed(self.pattern.build(self.values.detach()))

    def apart(self) -> Any:
        """Give the same in memory of its own, for a function that writes to it."""
        return self.dressed(self.tensor().detach().clone())

    def leaf(self, *, apart: bool = False) -> Any:
        """Leaf that requires grad and shares the private memory, unless `apart`."""
        plain = self.own().detach()
        if self.pattern is not None:
            plain = self.pattern.build(plain)
        plain = plain.clone() if apart else plain
        if self.parameter:
            leaf = as_parameter(plain, requires_grad=True)
        else:
            leaf = plain.requires_grad_()
        for hook in self.hooks:
            leaf.register_hook(hook)
        return leaf

    def coordinates(self) -> Coordinates:
        """Flat writable view; see `gradlab.subject.subject.Coordinates`."""
        import torch

        real = self.real()
        seen_by_numpy = (torch.float64, torch.float32, torch.float16)
        if real.device.type == "cpu" and real.dtype in seen_by_numpy:
            return _NumpyFlat(real)
        return _TensorFlat(real)

    def point(self) -> NDArray[np.float64]:
        """Real coordinates of the user's tensor."""
        return real_numbers(self.source)

    def place(self, values: NDArray[np.float64] | None, *, now: bool = False) -> None:
        """Overwrite the private copy, by the user's values where `values` is None.

        Large ones are put back when they are looked at, unless that is to be `now`:
        perhaps they are displaced again before.
        """
        import torch

        with torch.no_grad():
            if values is None and self.parked and self.lending is not None:
                self.lending.moves.clear()
            elif values is None:
                large = self.pattern is None and self.values.numel() >= _LARGE
                self.astray = large and not now and not self.parked
                if not (self.astray or self.parked):
                    self.values.detach().copy_(self.source)
            else:
                real = self.real()
                plain = np.require(values, np.float64, ("C", "W")).reshape(real.shape)
                real.copy_(torch.from_numpy(plain))


def make_cell(name: str, tensor: Any, *, dtype: Any = None) -> Cell:
    """Private cell for one tensor of the user's.

    Parameters
    ----------
    name
        Name of the input.
    tensor
        Floating or complex, in any layout but nested and MKL-DNN.
    dtype
        Cast to this dtype; None keeps the tensor's own.

    Raises
    ------
    InputTypeError
        If the layout has no entries to perturb.

    Examples
    --------
    >>> import torch
    >>> make_cell("x", torch.eye(2).to_sparse()).variable.support
    array([0, 3])
    """
    import torch

    pattern = None
    source = tensor.detach()
    if getattr(source, "is_nested", False):
        msg = f"input {name!r} is a nested tensor; pass a padded one, or a list of them"
        raise InputTypeError(msg)
    if source.device.type == "meta":
        msg = f"input {name!r} is on the device meta, without values; pass a real one"
        raise InputTypeError(msg)
    if source.layout is not torch.strided:
        pattern, source = sparse_pattern(tensor, name)
    if dtype is not None and source.dtype is not dtype:
        source = source.to(dtype)
    shape, support = tuple(tensor.shape), pattern.support if pattern else None
    aliased = overlaps(source)
    variable = Variable(name, shape, dtype_name(source.dtype), support)
    hooks = tuple((tensor._backward_hooks or {}).values())  # noqa: SLF001 - no public way
    cell = Cell(variable, source, private_copy(source), pattern, hooks, aliased)
    cell.parameter = isinstance(tensor, torch.nn.Parameter)
    cell.values = cell.dressed(cell.values)
    return cell
