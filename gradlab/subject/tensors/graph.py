"""The graph that autograd records: a walk over it, and inputs that it connects.

``y = 2 * x; f(x, y)`` has two inputs that move together. gradlab differentiates with
respect to each alone, on private copies, which is right as mathematics and surprising
to somebody who expects the total derivative: so it is told.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gradlab.subject.tensors.values import is_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gradlab.subject.tree import Leaf

__all__ = ["dependent_inputs", "graph_nodes", "name_of", "nodes_so_far"]

_MOST = 10_000  # nodes of a graph that are walked; a longer history is not an input's


def graph_nodes(
    starts: Iterable[Any],
    most: float = math.inf,
    skip: Callable[[Any], bool] | None = None,
) -> Iterator[Any]:
    """Walk over a graph towards its leaves, each node once.

    Parameters
    ----------
    starts
        Nodes to begin with, such as the ``grad_fn`` of outputs; None is no node.
    most
        Nodes after which the walk ends.
    skip
        Whether a node is left out, and what is only behind it.

    Examples
    --------
    >>> import torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> [node.name() for node in graph_nodes([(x.exp() + x).grad_fn])]
    ['AddBackward0', 'torch::autograd::AccumulateGrad', 'ExpBackward0']
    """
    waiting = list(starts)
    seen: set[Any] = set()
    while waiting and len(seen) < most:
        node = waiting.pop()
        if node is None or node in seen or (skip is not None and skip(node)):
            continue
        seen.add(node)
        yield node
        waiting += [parent for parent, _ in node.next_functions]


def nodes_so_far() -> int:
    """Count the nodes of graphs that were made in this thread.

    Examples
    --------
    >>> import torch
    >>> before = nodes_so_far()
    >>> node = torch.ones(2, requires_grad=True).exp().grad_fn
    >>> node._sequence_nr() in range(before, nodes_so_far())
    True
    """
    import torch

    with torch.enable_grad():
        node: Any = torch.ones((), requires_grad=True).view(1).grad_fn
    return int(node._sequence_nr())  # noqa: SLF001


def name_of(node: Any) -> str:
    """Return what torch calls a node, whatever a Function keeps as ``ctx.name``.

    Examples
    --------
    >>> import torch
    >>> name_of(torch.ones(2, requires_grad=True).exp().grad_fn)
    'ExpBackward0'
    """
    return str(type(node).name(node))


def dependent_inputs(leaves: Sequence[Leaf]) -> tuple[str, ...]:
    """Name the inputs that were computed from others.

    Parameters
    ----------
    leaves
        The user's own inputs, with their names.

    Returns
    -------
    tuple of str
        Sentences such as ``"y from x"``; empty where nothing depends on anything.
    """
    tensors = [leaf for leaf in leaves if is_torch(leaf.value)]
    tensors = [leaf for leaf in tensors if leaf.value.requires_grad]
    return tuple(
        f"{later.name} from {earlier.name}"
        for later in tensors
        for earlier in tensors
        if later is not earlier and _comes_from(later.value, earlier.value)
    )


def _comes_from(later: Any, earlier: Any) -> bool:
    """Whether the history of one tensor passes through another."""
    if later is earlier or later.grad_fn is None:
        return False
    target = earlier.grad_fn
    if target is not None and target is later.grad_fn:
        return False  # two outputs of one operation
    return any(
        node is target or getattr(node, "variable", None) is earlier
        for node in graph_nodes([later.grad_fn], _MOST)
    )
