"""The graph that autograd records: a walk over it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["graph_nodes", "name_of"]


def graph_nodes(starts: Iterable[Any], most: float = math.inf) -> Iterator[Any]:
    """Walk over a graph towards its leaves, each node once.

    Parameters
    ----------
    starts
        Nodes to begin with, such as the ``grad_fn`` of outputs; None is no node.
    most
        Nodes after which the walk ends.

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
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [parent for parent, _ in node.next_functions]


def name_of(node: Any) -> str:
    """Return what torch calls a node, whatever a Function keeps as ``ctx.name``.

    Examples
    --------
    >>> import torch
    >>> name_of(torch.ones(2, requires_grad=True).exp().grad_fn)
    'ExpBackward0'
    """
    return str(type(node).name(node))
