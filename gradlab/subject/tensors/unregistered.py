"""Trainable tensors that a module keeps, and that are no parameters of it.

Layers in a plain list, a tensor in an attribute: the gradient reaches them, and no
optimiser that is given `module.parameters()` ever moves them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.subject.tensors.graph import graph_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["reached", "unregistered"]

_MEMBERS = 1000  # of a list or dict that are looked at
_DEEP = 3  # lists within lists


def unregistered(module: Any) -> dict[str, Any]:
    """List the tensors that require grad in attributes of a module, by their paths.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Linear(2, 2)
    >>> net.more = [torch.nn.Linear(2, 1, bias=False)]
    >>> net.scale = torch.ones(2, requires_grad=True)
    >>> list(unregistered(net))
    ['more[0].weight', 'scale']
    """
    import torch

    torchs = vars(torch.nn.Module()).keys()
    known = {id(tensor) for tensor in module.parameters()}
    found: dict[str, Any] = {}
    for path, part in module.named_modules():
        for name, value in list(vars(part).items()):
            if name in torchs:
                continue
            for place, tensor in _kept(f"{path}.{name}".lstrip("."), value, _DEEP):
                if tensor.requires_grad and tensor.is_leaf and id(tensor) not in known:
                    known.add(id(tensor))
                    found[place] = tensor
    return found


def _kept(name: str, value: Any, deep: int) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, torch.nn.Module):
        for key, parameter in value.named_parameters():
            yield f"{name}.{key}", parameter
    elif isinstance(value, (list, tuple, dict)) and deep:
        pairs: Iterable[tuple[Any, Any]] = enumerate(value)
        if isinstance(value, dict):
            pairs = value.items()
        for k, (key, member) in enumerate(list(pairs)):
            if k < _MEMBERS:
                yield from _kept(f"{name}[{key!r}]", member, deep - 1)


def reached(named: dict[str, Any], outputs: Sequence[Any]) -> list[str]:
    """Name those of some tensors that a graph leads to."""
    nodes = graph_nodes(output.grad_fn for output in outputs)
    there = {id(getattr(node, "variable", None)) for node in nodes}
    return [name for name, tensor in named.items() if id(tensor) in there]
