"""Where the stored values of a sparse tensor stand, and tensors made around them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.errors import InputTypeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Pattern", "sparse_pattern"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Where the stored values of a sparse tensor stand."""

    layout: Any
    indices: tuple[Any, ...]  # one tensor (COO) or compressed and plain indices
    shape: tuple[int, ...]
    support: NDArray[np.intp]  # flat positions in the dense array, in order of storage

    def build(self, values: Any) -> Any:
        """Sparse tensor around other values; no copy."""
        import torch

        if self.layout is torch.sparse_coo:
            return torch.sparse_coo_tensor(
                self.indices[0],
                values,
                self.shape,
                device=values.device,
                is_coalesced=True,
                check_invariants=False,
            )
        compressed: Any = torch.sparse_compressed_tensor  # its stub is wrong
        return compressed(
            *self.indices,
            values,
            self.shape,
            layout=self.layout,
            device=values.device,
            check_invariants=False,
        )

    def gather(self, gradient: Any) -> Any:
        """Entries of a gradient, dense or sparse, at the stored positions."""
        import torch

        dense = gradient if gradient.layout is torch.strided else gradient.to_dense()
        where = torch.as_tensor(self.support, device=dense.device)
        return dense.reshape(-1)[where]


def _coo_support(indices: Any, shape: tuple[int, ...], inner: int) -> NDArray[np.intp]:
    """Flat positions of COO entries; `inner` entries hang on each index."""
    flat = np.zeros(indices.shape[1], dtype=np.intp)
    for row, size in zip(indices.cpu().numpy(), shape, strict=False):
        flat = flat * size + row
    return np.asarray(flat[:, None] * inner + np.arange(inner), dtype=np.intp).ravel()


def sparse_pattern(tensor: Any, name: str) -> tuple[Pattern, Any]:
    """Pattern and stored values (detached) of a sparse tensor, coalesced first."""
    import torch

    shape = tuple(tensor.shape)
    if tensor.layout is torch.sparse_coo:
        coalesced = tensor.detach().coalesce()
        indices, values = coalesced.indices(), coalesced.values()
        inner = int(np.prod(values.shape[1:], dtype=np.intp))
        support = _coo_support(indices, shape, inner)
        return Pattern(tensor.layout, (indices,), shape, support), values
    plain = tensor.detach()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        indices = (plain.crow_indices(), plain.col_indices())
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        indices = (plain.ccol_indices(), plain.row_indices())
    else:
        msg = (
            f"input {name!r} has the layout {tensor.layout}, which has no entries to "
            f"perturb; pass a dense, COO, CSR, CSC, BSR or BSC tensor"
        )
        raise InputTypeError(msg)
    values = plain.values()
    if len(shape) != 2:
        msg = (
            f"input {name!r} is a {tensor.layout} tensor of shape {shape}; only "
            f"matrices are supported in this layout, so pass x.to_sparse_coo()"
        )
        raise InputTypeError(msg)
    # number the stored values, and see where torch itself puts each number
    count = values.numel()
    kind = {"dtype": torch.float64, "device": values.device}
    numbers = torch.arange(1, count + 1, **kind).reshape(values.shape)
    pattern = Pattern(tensor.layout, indices, shape, np.empty(0, dtype=np.intp))
    numbered = pattern.build(numbers).to_sparse_coo().coalesce().cpu()
    flat = _coo_support(numbered.indices(), shape, 1)
    order = numbered.values().numpy().astype(np.intp)
    support = np.empty(count, dtype=np.intp)
    stored = order > 0  # blocks may be padded by explicit zeros
    support[order[stored] - 1] = flat[stored]
    return Pattern(tensor.layout, indices, shape, support), values
