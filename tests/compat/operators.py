"""PyTorch's own operator database as subjects: one sample for each operator."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

MOST_NUMBERS = 300  # differentiable entries of a sample
ENOUGH = 20  # of the first samples, one with no more entries is preferred: same code
LOOK = 10  # at so many samples of each operator


@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """One operator at one point, as a function of its differentiable tensors."""

    name: str
    fn: Callable[..., Any]
    tensors: tuple[Any, ...]
    nondet_tol: float


def samples(share=0, shares=1):
    """One float64 sample of each operator that has a gradient and is small enough.

    Every `shares`-th operator from number `share` on.
    """
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the database warns of its own tests
        from torch.testing._internal import common_utils
        from torch.testing._internal.common_methods_invocations import op_db
        from torch.testing._internal.opinfo import core

        found = []
        with contextlib.ExitStack() as quick:
            # It looks for a unittest among all callers, whose source is read for that.
            for module in (common_utils, core):
                quick.enter_context(
                    mock.patch.object(
                        module, "extract_test_fn", return_value=None, create=True
                    )
                )
            for op in op_db[share::shares]:
                torch.manual_seed(0)
                sample = _sample(torch, op)
                if sample is not None:
                    found.append(sample)
    return found


def _sample(torch, op):
    if not op.supports_autograd or torch.float64 not in op.supported_dtypes("cpu"):
        return None
    from torch.utils import _pytree

    best = None
    offered = op.sample_inputs("cpu", torch.float64, requires_grad=True)
    for tried in itertools.islice(offered, LOOK):
        parts, form = _pytree.tree_flatten((tried.input, tried.args, tried.kwargs))
        places = [
            k
            for k, leaf in enumerate(parts)
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        size = sum(parts[k].numel() for k in places)
        if 0 < size <= MOST_NUMBERS and (best is None or size < best[0]):
            best = size, tried, parts, form, places
        if best is not None and best[0] <= ENOUGH:
            break
    if best is None:
        return None
    _, first, leaves, shape, where = best
    tensors = tuple(leaves[k].detach().clone().requires_grad_() for k in where)

    def fn(*chosen):
        filled = list(leaves)
        for k, tensor in zip(where, chosen, strict=True):
            filled[k] = tensor
        head, args, kwargs = _pytree.tree_unflatten(filled, shape)
        torch.manual_seed(0)  # dropout and the like: one function, not a family
        result = op.gradcheck_wrapper(op.get_op(), head, *args, **kwargs)
        result = first.output_process_fn_grad(result)
        parts = _pytree.tree_leaves(result)
        return tuple(
            part
            for part in parts
            if isinstance(part, torch.Tensor)
            and (part.is_floating_point() or part.is_complex())
        )

    variant = f".{op.variant_test_name}" if op.variant_test_name else ""
    return Sample(op.name + variant, fn, tensors, op.gradcheck_nondet_tol)
