"""Tensors that a function reads where they are: ``params=net``.

The perturbation goes through a NumPy view that shares the tensor's memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.errors import InputError, SubjectError
from gradlab.subject.subject import SINGLE
from gradlab.subject.tensors.gradients.backward import (
    accumulated,
    with_added,
    without_grads,
)
from gradlab.subject.tensors.gradients.cotangents import has_reentrant_checkpoint
from gradlab.subject.tensors.graph import graph_nodes
from gradlab.subject.tensors.values import is_torch
from gradlab.subject.tree import flatten, leaves_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.tree import Leaf, Tree

__all__ = [
    "frozen",
    "gradients_in_place",
    "live_tree",
    "meets_halves",
    "named",
    "rounds",
    "short",
]

_PAIR = 2  # a loss and its gradients


def _live_array(tensor: Any) -> NDArray[Any]:
    """View a tensor's own memory as a NumPy array.

    Raises
    ------
    InputError
        If NumPy cannot share its memory (another device, a type NumPy lacks).
    """
    try:
        return tensor.detach().numpy()  # type: ignore[no-any-return]
    except (RuntimeError, TypeError) as cause:
        msg = (
            f"params= holds a tensor of {tensor.dtype} on {tensor.device}, whose "
            f"memory NumPy cannot share; pass what requires grad, and all that is "
            f"tensors (params=module), or the module: gl.check(module, x)"
        )
        raise InputError(msg) from cause


def live_tree(params: Any) -> tuple[Tree, list[Leaf]]:
    """Take parameters apart, tensors as arrays on the same memory; and the tensors.

    Raises
    ------
    InputError
        As of `_live_array`.
    """
    tree = flatten((named(params),), ["params"])
    tensors = {k: leaf for k, leaf in enumerate(tree.leaves) if is_torch(leaf.value)}
    arrays = {k: _live_array(leaf.value) for k, leaf in tensors.items()}
    return tree.with_values(arrays), list(tensors.values())


def frozen(leaves: Sequence[Leaf]) -> set[str]:
    """Name the tensors that do not require grad, where some do.

    Examples
    --------
    >>> import torch
    >>> from gradlab.subject.tree import Leaf
    >>> leaves = [Leaf("w", torch.ones(2)), Leaf("b", torch.ones(2))]
    >>> frozen(leaves)
    set()
    >>> _ = leaves[0].value.requires_grad_()
    >>> frozen(leaves)
    {'b'}
    """
    still = {leaf.name for leaf in leaves if not leaf.value.requires_grad}
    return still if len(still) < len(leaves) else set()


def named(params: Any) -> Any:
    """Return the parameters of a module by name; anything else as it is."""
    by_name = getattr(params, "named_parameters", None)
    return params if by_name is None else dict(by_name())


def short(params: Any) -> bool:
    """Whether tensors among parameters are in half precision, or beyond NumPy.

    What moves those is torch, for differences are taken of the same in float64.

    Examples
    --------
    >>> import torch
    >>> short([torch.ones(2)]), short([torch.ones(2), torch.ones(2).bfloat16()])
    (False, True)
    """
    try:
        arrays = [_live_array(leaf.value) for leaf in _tensors(params)]
    except InputError:
        return True
    return any(array.dtype == np.float16 for array in arrays)


def _tensors(params: Any) -> list[Leaf]:
    return [leaf for leaf in leaves_of(params, "") if is_torch(leaf.value)]


def rounds(fn: Callable[[], Any], params: Any) -> bool:
    """Whether `fn` returns a tensor, and computes with half precision inside.

    It is evaluated once, where all `params` are tensors. Under ``torch.autocast`` every
    product casts.

    Examples
    --------
    >>> import torch
    >>> w = torch.ones(2)
    >>> rounds(lambda: (w * w).sum(), {"w": w}), rounds(lambda: w.half(), {"w": w})
    (False, True)
    """
    tensors = _tensors(params)
    if not tensors or len(tensors) < len(leaves_of(params, "")):
        return False
    from gradlab.subject.tensors.in_double.narrowing import narrowing_watched

    try:
        with narrowing_watched(SINGLE) as narrowed:
            result = fn()
    except Exception:  # noqa: BLE001 - what it raises is told where it is checked
        return False
    if not is_torch(result) or not (narrowed or short(params)):
        return False
    # those of a state_dict() share their memory with what it reads, and no graph
    nodes = graph_nodes([result.grad_fn])
    read = {id(getattr(node, "variable", None)) for node in nodes}
    return not read or any(id(leaf.value) in read for leaf in tensors)


def meets_halves(fn: Callable[[], Any]) -> bool:
    """Whether torch casts to half precision in a call, as under ``torch.autocast``.

    Examples
    --------
    >>> import torch
    >>> w = torch.ones(2)
    >>> meets_halves(lambda: w * w), meets_halves(lambda: w.half().sum())
    (False, True)
    """
    from gradlab.subject.tensors.in_double.narrowing import narrowing_watched

    with narrowing_watched(SINGLE) as narrowed:
        fn()
    return bool(narrowed)


def gradients_in_place(
    fn: Callable[[], Any], leaves: Sequence[Leaf], every: Sequence[Leaf]
) -> dict[str, Any]:
    """Differentiate a loss with respect to tensors it reads by itself.

    Gradients that come with the loss are taken as they are, in a list also where it has
    one for `every` tensor, those included that are frozen.
    `.grad` plays no part; ``requires_grad`` is switched on for the call only.
    """
    import torch

    names, tensors = [leaf.name for leaf in leaves], [leaf.value for leaf in leaves]
    kept = [(t, t.requires_grad) for t in tensors if t.is_leaf]
    wanted = [t for t in tensors if t.is_floating_point() or t.is_complex()]
    try:
        for tensor in wanted:
            if tensor.is_leaf:
                tensor.requires_grad_(True)
        with torch.enable_grad():
            result = fn()
        for asked_for in (leaves, every):
            returned = _returned(result, asked_for)
            if returned is not None:
                return returned
        loss = result[0] if isinstance(result, tuple | list) else result
        if not isinstance(loss, torch.Tensor):
            msg = (
                f"with tensors in params=, the function must return a scalar tensor, "
                f"got {type(loss).__name__}"
            )
            raise SubjectError(msg)
        if not loss.requires_grad:
            return dict.fromkeys(names)
        asked = wanted
        if not all(flag for _, flag in kept):
            asked = _on_the_same_memory(wanted, loss)
        found = _of_loss(loss, asked)
        by_tensor = {id(t): g for t, g in zip(wanted, found, strict=True)}
        return {n: by_tensor.get(id(t)) for n, t in zip(names, tensors, strict=True)}
    finally:
        for tensor, flag in kept:
            tensor.requires_grad_(flag)


def _of_loss(loss: Any, asked: Sequence[Any]) -> Sequence[Any]:
    """Differentiate a loss, with what a backward on the way adds to ``.grad`` itself.

    All of the graph takes part: a reversible block may lead to no parameter.
    """
    import torch

    if has_reentrant_checkpoint([loss]):  # grad() does not reach what it holds
        return accumulated([loss.sum()], None, asked)
    own = {id(tensor) for tensor in asked}
    others = (leaf for leaf in _leaves_behind(loss) if id(leaf) not in own)
    every = [*asked, *(leaf for leaf in others if leaf.requires_grad)]
    with without_grads(asked):
        returned = torch.autograd.grad(loss.sum(), every, allow_unused=True)
        return with_added(returned[: len(asked)], asked)


def _leaves_behind(loss: Any) -> list[Any]:
    behind = [getattr(node, "variable", None) for node in graph_nodes([loss.grad_fn])]
    return list({id(leaf): leaf for leaf in behind if leaf is not None}.values())


def _returned(result: Any, leaves: Sequence[Leaf]) -> dict[str, Any] | None:
    """Pick the gradients of a pair (loss, gradients), by name; None if it is no pair.

    Those that stand in no mapping must have the shapes of the tensors, or be None:
    beside a loss a function may return its predictions.
    """
    if not isinstance(result, tuple | list) or len(result) != _PAIR:
        return None
    found = result[1]
    if hasattr(found, "keys"):
        return dict(found)
    single = hasattr(found, "shape") and len(leaves) == 1
    found = (found,) if single else found
    if not isinstance(found, tuple | list) or len(found) != len(leaves):
        return None
    for gradient, leaf in zip(found, leaves, strict=True):
        shape = getattr(gradient, "shape", None)
        if gradient is not None and shape != leaf.value.shape:
            return None
    return {leaf.name: each for leaf, each in zip(leaves, found, strict=True)}


def _on_the_same_memory(tensors: Sequence[Any], loss: Any) -> list[Any]:
    """Replace what a module hands out without its graph by what it computes with.

    The tensors of ``state_dict()`` are the parameters' memory, and not the parameters.
    """
    leaves = {id(leaf): leaf for leaf in _leaves_behind(loss)}
    where = {(t.data_ptr(), t.shape, t.stride()): t for t in leaves.values()}
    return [
        t
        if id(t) in leaves or (t.requires_grad and not t.is_leaf)
        else where.get((t.data_ptr(), t.shape, t.stride()), t)
        for t in tensors
    ]
