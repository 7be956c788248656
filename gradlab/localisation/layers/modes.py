"""Layers that compute something else in training mode, and were left in it."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["Modal", "modal_layers"]


@dataclasses.dataclass(frozen=True, slots=True)
class Modal:
    """A layer in training mode that would compute something else in eval mode.

    Parameters
    ----------
    name, type
        Qualified name, and class.
    random
        Whether it draws (dropout); else it uses statistics of the batch, and moves its
        running statistics at every call (batch norm).
    """

    name: str
    type: str
    random: bool


def modal_layers(module: Any) -> tuple[Modal, ...]:
    """List the layers of torch in a module for which training mode matters.

    Parameters
    ----------
    module
        An ``nn.Module``; layers of other classes are asked for nothing.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.0))
    >>> modal_layers(model)
    (Modal(name='0', type='BatchNorm1d', random=False),)
    """
    return tuple(
        Modal(name or type(layer).__name__, type(layer).__name__, random)
        for name, layer in module.named_modules()
        if layer.training
        for random in _ways(layer)
    )


def _ways(layer: Any) -> tuple[bool, ...]:
    """Return (True,) for a layer that draws, (False,) for one with statistics."""
    from torch import nn
    from torch.nn.modules import batchnorm, dropout

    if isinstance(layer, batchnorm._BatchNorm):  # noqa: SLF001 - the common base class
        return (False,)
    if isinstance(layer, batchnorm._NormBase):  # noqa: SLF001 - instance norm
        return (False,) if layer.track_running_stats else ()
    if isinstance(layer, dropout._DropoutNd):  # noqa: SLF001 - the common base class
        return (True,) if layer.p > 0 else ()
    if isinstance(layer, nn.RReLU):
        return (True,)
    if isinstance(layer, nn.RNNBase):
        return (True,) if layer.dropout > 0 and layer.num_layers > 1 else ()
    if isinstance(layer, nn.MultiheadAttention):
        return (True,) if layer.dropout > 0 else ()
    return ()
