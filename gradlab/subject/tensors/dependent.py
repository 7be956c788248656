"""Tensors that were computed from each other before they became inputs.

``y = 2 * x; f(x, y)`` has two inputs that move together. gradlab differentiates with
respect to each alone, on private copies, which is right as mathematics and surprising
to somebody who expects the total derivative: so it is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.subject.tensors.graph import graph_nodes
from gradlab.subject.tensors.values import is_torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradlab.subject.tree import Leaf

__all__ = ["dependent_inputs"]

_MOST = 10_000  # nodes of a graph that are walked; a longer history is not an input's


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
