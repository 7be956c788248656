"""Inner products of tensors, and the gradients that autograd gives for them."""

from __future__ import annotations

import collections
import math
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.variables import BackwardError, ReplayError
from gradlab.subject.tensors.gradients.backward import with_added, without_grads
from gradlab.subject.tensors.gradients.cotangents import is_reentrant
from gradlab.subject.tensors.gradients.engine import run_backward
from gradlab.subject.tensors.graph import graph_nodes
from gradlab.tracebacks import stopped_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "all_finite",
    "any_nonzero",
    "change_along",
    "finite_part",
    "gradients",
    "inner",
    "leaves_behind",
    "length",
    "nearest_parameter",
    "nodes_behind",
    "refuses_grad",
    "weighted_sums",
]

_FAR = 2000  # nodes; between two neighbouring layers there are rarely more than ten


def inner(one: Any, two: Any) -> float:
    """Return the real inner product, in double precision."""
    import torch

    if one.is_complex() or two.is_complex():
        one, two = (
            torch.view_as_real(each.to(torch.complex128).resolve_conj().contiguous())
            for each in (one, two)
        )
    # in one pass over memory, and without a temporary
    return float(torch.dot(one.double().reshape(-1), two.double().reshape(-1)))


def length(tensor: Any) -> float:
    """Root of the sum of squares, in double precision."""
    import torch

    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return float(torch.linalg.vector_norm(real, dtype=torch.float64))


def all_finite(tensor: Any) -> bool:
    """Whether no entry is nan or infinite: a finite sum has no such term."""
    import torch

    total = tensor.detach().sum()
    return bool(torch.isfinite(total)) or bool(torch.isfinite(tensor).all())


def any_nonzero(tensor: Any) -> bool:
    """Whether an entry is not zero: a sum that is not has such a term."""
    return bool(tensor.sum() != 0) or bool(tensor.any())


def change_along(weight: Any, output: Any, base: Any) -> float:
    """Inner product of a weight with what changed; what stays infinite has not."""
    change = inner(weight, output - base)
    if math.isfinite(change):
        return change
    moved = output.masked_fill(output == base, 0.0)
    return inner(weight, moved - base.masked_fill(output == base, 0.0))


def finite_part(tensor: Any) -> Any:
    """Put zero where a tensor is nan or infinite."""
    return tensor if all_finite(tensor) else tensor.nan_to_num(0.0, 0.0, 0.0)


def weighted_sums(outputs: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
    """Sum each output with its weights, so that the gradient of all sums is the VJP.

    ``torch.autograd.grad`` takes weights, too, but imports half a second of symbolic
    algebra to compare their shapes.

    Parameters
    ----------
    outputs, weights
        Tensors of the same shapes; outputs without history are left out.
    """
    return [
        # For complex numbers Re<w, z> has the gradient w by torch's convention.
        (
            (output * weight.conj()).real if output.is_complex() else output * weight
        ).sum()
        for output, weight in zip(outputs, weights, strict=True)
        if output.requires_grad
    ]


def refuses_grad(error: Exception) -> bool:
    """Whether a re-entrant checkpoint does not run for chosen gradients.

    That of torch says so, and those of others in nearly the same words.
    """
    return "heckpoint" in str(error) and ".grad()" in str(error)


def gradients(
    outputs: list[Any], weights: list[Any], wrt: list[Any], *, chosen: bool = True
) -> list[Any]:
    """Take the gradient of weighted outputs.

    With what a backward adds to the ``.grad`` of parameters itself: that of a
    reversible network calls ``backward()``, and returns None for them.

    Parameters
    ----------
    outputs, weights
        Tensors; where the weight is None the output plays no part.
    wrt
        Tensors to differentiate by.
    chosen
        Whether to ask for these alone, where no re-entrant checkpoint is on the way;
        else by ``backward()``, as training does.

    Returns
    -------
    list
        Dense gradients; None where none came.

    Raises
    ------
    BackwardError
        If autograd raises.
    """
    import torch

    pairs = [
        (output, weight)
        for output, weight in zip(outputs, weights, strict=True)
        if weight is not None and output.requires_grad
    ]
    if not pairs or not wrt:
        return [None] * len(wrt)
    try:
        with without_grads(wrt):
            found = with_added(_backward(pairs, wrt, chosen=chosen), wrt)
    except ReplayError:
        raise
    except Exception as error:
        message = str(error).split("\n")[0].split(". Hint: ")[0] + stopped_at(error)
        raise BackwardError(f"{type(error).__name__}: {message}") from error
    return [
        None if g is None else (g.to_dense() if g.layout is not torch.strided else g)
        for g in found
    ]


def _backward(
    pairs: list[tuple[Any, Any]], wrt: list[Any], *, chosen: bool
) -> tuple[Any, ...]:
    """Send weights backwards, in memory of their own: a backward may write to them."""
    import torch

    outputs = [output for output, _ in pairs]
    chosen = chosen and not any(map(is_reentrant, nodes_behind(outputs)))
    if chosen and all(_fits(output, weight) for output, weight in pairs):
        own = [weight.clone() for _, weight in pairs]
        return run_backward(outputs, own, wrt, keep=False, batched=False)
    sums = weighted_sums(outputs, [weight for _, weight in pairs])
    if not chosen:
        torch.autograd.backward(sums)  # which is added to what they have
        return (None,) * len(wrt)
    found: tuple[Any, ...] = torch.autograd.grad(sums, wrt, allow_unused=True)
    return found


def _fits(output: Any, weight: Any) -> bool:
    """Whether torch's engine may be handed a weight as it is."""
    kinds = [(t.shape, t.dtype, t.device, t.layout) for t in (output, weight)]
    return bool(kinds[0] == kinds[1])


def nodes_behind(outputs: list[Any]) -> Iterator[Any]:
    """Walk over the graph behind some outputs, of which some may be None."""
    return graph_nodes(out.grad_fn for out in outputs if out is not None)


def nearest_parameter(edge: Any, names: Mapping[int, str]) -> Any:
    """Find the parameter with the fewest operations between it and an edge.

    Parameters
    ----------
    edge
        Of the recorded graph; may be None.
    names
        Of all parameters, by identity.

    Returns
    -------
    Tensor or None
        None where there is none, or none near.
    """
    waiting = collections.deque([] if edge is None else [edge.node])
    seen = set(waiting)
    while waiting and len(seen) < _FAR:
        node = waiting.popleft()
        tensor = getattr(node, "variable", None)
        if id(tensor) in names:
            return tensor
        parents = [parent for parent, _ in node.next_functions if parent is not None]
        waiting.extend(parent for parent in parents if parent not in seen)
        seen.update(parents)
    return None


def leaves_behind(outputs: list[Any]) -> list[Any]:
    """List the leaf tensors of the graph behind some outputs."""
    variables = [getattr(node, "variable", None) for node in nodes_behind(outputs)]
    return [variable for variable in variables if variable is not None]
