"""A function of tensors as a model: what it calls becomes its layers.

A custom Function that a function applies, and a module that it reaches through its
closure, its globals or the object that it is a method of, is a piece with a backward of
its own, as a layer is of a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.subject.guarding.paths import path_text
from gradlab.subject.guarding.reachable import reach

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["as_module", "calls_others", "stands_for_function"]

_MARK = "_stands_for_a_function"


def as_module(fn: Callable[..., Any], call: Callable[..., Any]) -> Any:
    """Make a module of a function, with the modules that it reaches as its layers.

    Parameters
    ----------
    fn
        The user's. Its name is that of the module's class.
    call
        What the module does with the tensors that it is called on.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 2))
    >>> def model(x):
    ...     return net(x).sum()
    >>> [name for name, _ in as_module(model, model).named_modules()]
    ['', 'net', 'net.0']
    """
    import torch

    name = getattr(fn, "__name__", type(fn).__name__).strip("<>")
    body = {"forward": lambda _, *tensors: call(*tensors), _MARK: True}
    module = type(name, (torch.nn.Module,), body)()
    for key, part in _modules_of(fn).items():
        # a name may have dots: it is the user's way to write it
        module._modules[key] = part  # noqa: SLF001
    return module


def calls_others(fn: object) -> bool:
    """Whether there may be more in a function than one custom Function."""
    import torch

    owner = getattr(fn, "__self__", None)
    return not (isinstance(owner, type) and issubclass(owner, torch.autograd.Function))


def stands_for_function(module: object) -> bool:
    """Whether a module is one that `as_module` made."""
    return hasattr(type(module), _MARK)


def _modules_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """Find the modules that a function reaches, by the way that it writes them.

    Those inside others are theirs.
    """
    found = {id(place.value): place for place in reach([fn]).kinds}
    inside = {
        id(part)
        for place in found.values()
        for part in place.value.modules()
        if part is not place.value
    }
    return {
        path_text(place.path): place.value
        for key, place in found.items()
        if key not in inside
    }
