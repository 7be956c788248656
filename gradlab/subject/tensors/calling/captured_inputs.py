"""Inputs that a function, or a loss, reads by itself, and not as what it was given.

A list of weights to be penalised, a closure, ``net.parameters()`` in a loss, a global
of the same name as an argument: what autograd differentiates there is the user's own
tensor, and not the private one that is perturbed. The graph tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.subject.subject import is_torch_subject
from gradlab.subject.tensors.graph import graph_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradlab.subject.subject import Subject
    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = ["followed", "followed_unseen", "own_leaves"]

_MOST = 10_000  # nodes of a graph that are walked


def followed(subject: TorchSubject, outputs: Sequence[Any]) -> bool:
    """Exchange inputs wherever they are read, if some are read elsewhere.

    Parameters
    ----------
    subject
        Evaluated; its function is searched where there is something to be found.
    outputs
        With their graph.

    Returns
    -------
    bool
        Whether another evaluation is needed for the same graph with private tensors.
    """
    search = getattr(subject.program, "search", None)
    if search is None or subject.beside or not own_leaves(subject, outputs):
        return False
    search(() if subject.loss is None else (subject.loss,))
    subject.beside = True
    return True


def followed_unseen(subject: Subject) -> bool:
    """Exchange inputs wherever else they are held, though no graph shows it.

    What the forward of a custom Function reads is in no graph: it gets a layer's
    weights for the sake of their gradients, and computes with the layer.

    Parameters
    ----------
    subject
        Of which f stood still along an input that has a gradient.

    Returns
    -------
    bool
        Whether one of them is held elsewhere, and follows from now on.
    """
    if not is_torch_subject(subject):
        return False
    program: Any = subject.program
    search = getattr(program, "search", None)
    if search is None or subject.beside:
        return False
    search(() if subject.loss is None else (subject.loss,))
    subject.beside = bool(program.beside)
    return subject.beside


def own_leaves(subject: TorchSubject, outputs: Sequence[Any]) -> tuple[str, ...]:
    """Name the inputs whose own tensor, and not the private one, ends a graph."""
    own: list[Any] = getattr(subject.program, "own", list)()
    ours = {
        id(tensor): variable.name
        for tensor, variable in zip(own, subject.inputs, strict=False)
    }
    starts = [output.grad_fn for output in outputs] if own else []
    leaves = [
        ours.get(id(getattr(node, "variable", None)))
        for node in graph_nodes(starts, _MOST)
        if not node.next_functions
    ]
    return tuple(dict.fromkeys(name for name in leaves if name is not None))
