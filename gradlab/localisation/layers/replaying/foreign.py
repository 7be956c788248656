"""History that a call is handed inside an object, where no slot stands for it.

A policy returns a distribution, a cell its state in a class of its own, and the next
call takes tensors out of it that hang on the recorded run. Run again by itself, that
call has them as they were: they do not move, so no gradient is to go there, either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.products import nodes_behind
from gradlab.subject.tensors.graph import graph_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["hangs_on", "others_used"]


def hangs_on(outputs: list[Any], made: range) -> bool:
    """Whether some outputs have history of a run, by the numbers of its nodes."""
    return any(node._sequence_nr() in made for node in nodes_behind(outputs))  # noqa: SLF001


def others_used(outputs: list[Any], known: Iterable[Any], made: range) -> list[Any]:
    """List parameters behind some outputs that are no part of the call.

    What another run made is not looked behind.

    Parameters
    ----------
    outputs
        Tensors with their graphs, or None.
    known
        Parameters that are left out.
    made
        Numbers of the nodes of the other run.

    Returns
    -------
    list
        Each once.
    """
    import torch

    starts = (out.grad_fn for out in outputs if out is not None)
    nodes = graph_nodes(starts, skip=lambda node: node._sequence_nr() in made)  # noqa: SLF001
    left_out = {id(tensor) for tensor in known}
    leaves = (getattr(node, "variable", None) for node in nodes)
    found = {id(leaf): leaf for leaf in leaves if isinstance(leaf, torch.nn.Parameter)}
    return [leaf for key, leaf in found.items() if key not in left_out]
