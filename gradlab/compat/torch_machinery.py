"""The parts of torch's own checker that the drop-in stands on.

Where torch's code *is* the definition of a sub-check (how a block-sparse tensor is
perturbed, what "undefined gradient" means), it is called rather than rewritten, so that
the two cannot drift apart. What it gets wrong is done in the sibling files.
"""

from __future__ import annotations

import importlib
from typing import Any

from gradlab.errors import InputTypeError
from gradlab.subject.own_seeds import own_seed
from gradlab.subject.tensors.overlaps import overlaps

__all__ = [
    "as_tuple",
    "check_inputs",
    "direction",
    "generator_of",
    "is_tensor",
    "machinery",
    "random_like",
    "selector",
]


def machinery() -> Any:
    """Return the module in which torch keeps gradcheck.

    ``torch.autograd.gradcheck`` itself is the function of that name.
    """
    return importlib.import_module("torch.autograd.gradcheck")


def is_tensor(value: object) -> bool:
    """Whether torch counts `value` as a tensor, subclasses and look-alikes included."""
    from torch.overrides import is_tensor_like

    like: Any = is_tensor_like  # without a type in torch
    return bool(like(value))


def check_inputs(inputs: tuple[Any, ...]) -> None:
    """Refuse what torch refuses, and overlaps that its look at strides overlooks.

    Raises
    ------
    RuntimeError
        If two entries of a differentiable input lie at one address.
    ValueError
        If no input requires grad.
    """
    import torch

    machinery()._check_inputs(inputs)  # noqa: SLF001 - see the docstring of the file
    for number, value in enumerate(inputs):
        if not (is_tensor(value) and value.requires_grad):
            continue
        if value.layout is not torch.strided or not hasattr(value, "as_strided"):
            continue
        if overlaps(value):
            raise RuntimeError(
                f"The {number}th input has entries that share memory (strides "
                f"{tuple(value.stride())} for the shape {tuple(value.shape)}). "
                "gradcheck only supports inputs that are non-overlapping to be able to "
                "compute the numerical gradients correctly. You should call "
                ".contiguous on the input before passing it to gradcheck."
            )


def selector(func: Any, first: Any) -> tuple[Any, tuple[int, ...], int]:
    """Keep the outputs that a derivative can be taken of, in every later call.

    Chosen by position once and for all: None, numbers and integer tensors drop out
    wherever they stand, and with them every confusion of one output's number with
    another's.

    Parameters
    ----------
    func
        The user's function.
    first
        What it returned at the point.

    Returns
    -------
    callable
        Same arguments as `func`, returns a tuple of tensors.
    tuple of int
        Positions of the kept outputs. If none requires grad, all floating ones are
        kept: their numeric derivative must be zero.
    int
        How many outputs there are.
    """
    every = as_tuple(first)
    for value in every:
        if value is not None and not isinstance(value, int | float | complex | str):
            _refuse(value)
    tensors = [k for k, value in enumerate(every) if is_tensor(value)]
    kept = [k for k in tensors if every[k].requires_grad]
    kept = kept or [
        k for k in tensors if every[k].is_floating_point() or every[k].is_complex()
    ]
    if every and not tensors:
        _refuse(first)

    def selected(*arguments: Any) -> tuple[Any, ...]:
        again = as_tuple(func(*arguments))
        if len(again) != len(every):
            raise AssertionError(
                f"Expected `func` to return the same number of outputs in every call, "
                f"but got {len(every)} at the point and {len(again)} later."
            )
        return tuple(again[k] for k in kept)

    return selected, tuple(kept), len(every)


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Take one output, or a tuple or list of them, as a tuple."""
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _refuse(value: Any) -> None:
    if is_tensor(value):
        return
    raise InputTypeError(
        f"gradcheck needs a function that returns a tensor or a tuple of tensors, got "
        f"{type(value).__name__}; return the tensors, or use gradlab.check, which "
        f"takes nested outputs"
    )


def direction(like: Any, generator: Any, *, real: bool = True) -> Any:
    """Random direction with both signs and entries between 1/2 and 3/2 in size.

    Sizes of order one keep the weight of a single entry independent of how many there
    are; unequal sizes keep errors of equal size from cancelling exactly.

    Parameters
    ----------
    like
        Dense: the result is flat. Sparse: the result has the same pattern.
    generator
        CPU generator of the check's own.
    real
        Whether a complex tensor gets a real direction.
    """
    import torch

    gc = machinery()
    dtype = gc._to_real_dtype(like.dtype) if real else like.dtype  # noqa: SLF001

    def numbers(values: Any) -> Any:
        with torch.device("cpu"):
            size = torch.rand(values.numel(), generator=generator) + 0.5
            sign = torch.rand(values.numel(), generator=generator)
        drawn = torch.where(sign < 0.5, -size, size)
        return drawn.to(dtype=dtype, device=values.device)

    if like.layout is torch.sparse_coo:
        values = like._values()  # noqa: SLF001 - values() wants it coalesced
        drawn = numbers(values).view(values.shape)
        indices = like._indices()  # noqa: SLF001 - the same
        sparse = torch.sparse_coo_tensor
        return sparse(indices, drawn, like.size(), device=like.device)
    if like.layout in (
        torch.sparse_csr,
        torch.sparse_bsr,
        torch.sparse_csc,
        torch.sparse_bsc,
    ):
        rows = like.layout in (torch.sparse_csr, torch.sparse_bsr)
        compressed = like.crow_indices() if rows else like.ccol_indices()
        plain = like.col_indices() if rows else like.row_indices()
        values = like.values()
        make: Any = torch.sparse_compressed_tensor  # its stub is wrong
        drawn = numbers(values).view(values.shape)
        return make(compressed, plain, drawn, like.size(), layout=like.layout)
    return numbers(like)


def generator_of(seed: int) -> Any:
    """CPU generator of the check's own: the user's random state is untouched."""
    import torch

    return torch.Generator("cpu").manual_seed(own_seed(seed, "compat"))


def random_like(output: Any, *, non_contiguous: bool) -> Any:
    """Draw a cotangent from [-1, 1] by torch's factory and its global generator."""
    import torch

    floating = output.is_floating_point() or output.is_complex()
    return torch.testing.make_tensor(
        output.shape,
        dtype=output.dtype if floating else torch.double,
        device=output.device,
        low=-1,
        high=1,
        requires_grad=True,
        noncontiguous=non_contiguous,
    )
