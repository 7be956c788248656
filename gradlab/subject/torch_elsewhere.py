"""Parameters that a module's forward, or a loss, reads beside the module's tables.

A list of weights to be penalised, a closure, ``net.parameters()`` in a loss: what
autograd differentiates there is the user's own tensor, and not the private one that is
perturbed. The graph tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradlab.subject.torch_subjects import TorchSubject

__all__ = ["followed", "own_leaves"]

_MOST = 10_000  # nodes of a graph that are walked


def followed(subject: TorchSubject, outputs: Sequence[Any]) -> bool:
    """Exchange parameters wherever they are read, if some are read elsewhere.

    Parameters
    ----------
    subject
        Evaluated; its module is searched where there is something to be found.
    outputs
        With their graph.

    Returns
    -------
    bool
        Whether another evaluation is needed for the same graph with private tensors.
    """
    swap = getattr(subject.program, "swap", None)
    if swap is None or subject.elsewhere or not own_leaves(subject, outputs):
        return False
    swap.search(() if subject.loss is None else (subject.loss,))
    subject.elsewhere = True
    return True


def own_leaves(subject: TorchSubject, outputs: Sequence[Any]) -> tuple[str, ...]:
    """Name the inputs whose own tensor, and not the private one, ends a graph."""
    swap = getattr(subject.program, "swap", None)
    if swap is None:
        return ()
    names = swap.name_of()
    keys = getattr(subject.program, "keys", ())
    ours = {
        key: cell.variable.name for key, cell in zip(keys, subject.cells, strict=False)
    }
    waiting = [output.grad_fn for output in outputs]
    seen: set[Any] = set()
    found: dict[str, None] = {}
    while waiting and len(seen) < _MOST:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if not node.next_functions:
            name = names.get(id(getattr(node, "variable", None)))
            if name in ours:
                found[ours[name]] = None
        waiting += [parent for parent, _ in node.next_functions]
    return tuple(found)
