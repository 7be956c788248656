"""Memory of parameters that a module holds a second time, as plain tensors.

``self.tied = encoder.weight.data`` is a view: an optimiser that steps the parameter
moves it too. Whatever forward reads of it has no graph, and private parameters that
stand in for those of the module do not move it: no side of a comparison knows of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = ["held_twice"]

_MOST = 10_000  # tensors of a module that are looked at


def held_twice(subject: TorchSubject) -> dict[str, str]:
    """Name inputs whose memory the module also holds without a graph, and as what.

    Examples
    --------
    >>> import torch
    >>> from gradlab.subject.tensors.subjects import torch_subject
    >>> layer = torch.nn.Linear(2, 3)
    >>> layer.kept = [layer.weight.detach().t()]
    >>> held_twice(torch_subject(layer, (torch.ones(1, 2),)))
    {'weight': 'kept'}
    """
    module = getattr(subject.program, "module", None)
    if module is None:
        return {}
    own: list[Any] = getattr(subject.program, "own", list)()
    names = {
        _memory(tensor): variable.name
        for tensor, variable in zip(own, subject.inputs, strict=False)
        if _is_dense(tensor)
    }
    registered = {id(parameter) for parameter in module.parameters()}
    found: dict[str, str] = {}
    for where, tensor in _plain_tensors(module):
        if id(tensor) in registered or tensor.requires_grad or not _is_dense(tensor):
            continue
        name = names.get(_memory(tensor))
        if name is not None:
            found.setdefault(name, where)
    return found


def _plain_tensors(module: Any) -> Iterator[tuple[str, Any]]:
    """Attributes and buffers of all parts that are tensors, or hold some."""
    count = 0
    for prefix, part in module.named_modules():
        buffers = vars(part).get("_buffers")
        held = {**vars(part), **(buffers if isinstance(buffers, dict) else {})}
        for key, value in held.items():
            if key.startswith("_"):
                continue  # what torch itself keeps, such as lists of its own weights
            for tensor in _inside(value):
                count += 1
                if count > _MOST:
                    return
                yield (f"{prefix}.{key}" if prefix else key), tensor


def _inside(value: Any) -> list[Any]:
    import torch

    if isinstance(value, dict):
        value = list(value.values())
    some = value if isinstance(value, (list, tuple)) else [value]
    return [one for one in some if isinstance(one, torch.Tensor)]


def _is_dense(tensor: Any) -> bool:
    import torch

    return tensor.layout is torch.strided and tensor.numel() > 0


def _memory(tensor: Any) -> int | None:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (NotImplementedError, RuntimeError):  # kept from within vmap: it has none
        return None
