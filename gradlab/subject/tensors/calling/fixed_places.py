"""Modules that count on where their parameters lie, made to read what stands in.

On a GPU there are two. Recurrent modules move the memory of their weights into one
block when they find others than before (`flatten_parameters`), those that stand in for
them included: what is then written to an entry is read by nobody. And
``torch.cuda.make_graphed_callables`` puts a forward on a module that replays kernels on
the memory that its parameters had; its own forward is kept in that closure.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["FreePlaces", "free_places"]

_MADE_BY_GRAPHS = "make_graphed_callables.<locals>"
_OWN_FORWARD = "orig_fwd"  # torch's name for the one that was replaced
# A recurrent module's second list of weights, made again when they are others.
_FLAT = ("_flat_weights", "_flat_weight_refs")
_FLATTEN = "flatten_parameters"
# What cuDNN says of weights that lie apart. Not by `catch_warnings`: that lets all that
# was said once be said again.
_APART: Any = (
    "ignore",
    re.compile("RNN module weights are not part of single contiguous chunk"),
    UserWarning,
    None,
    0,
)


class FreePlaces:
    """Attributes that let the parts of a module read tensors wherever they lie.

    Parameters
    ----------
    module
        With all its parts.

    Examples
    --------
    >>> import torch
    >>> bool(FreePlaces(torch.nn.Linear(2, 2))), bool(FreePlaces(torch.nn.GRU(2, 2)))
    (False, True)
    """

    def __init__(self, module: Any) -> None:
        import torch

        self._parts: list[tuple[dict[str, Any], str, Any, tuple[str, ...]]] = []
        for part in module.modules():
            if isinstance(part, torch.nn.RNNBase):
                names = (_FLATTEN, *_FLAT)
                self._parts.append((vars(part), _FLATTEN, _leave_apart, names))
            forward = _forward_without_graph(part)
            if forward is not None:
                self._parts.append((vars(part), "forward", forward, ("forward",)))

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._parts)

    def saved(self) -> list[dict[str, Any]]:
        """Give what is there now, for `put_back`."""
        return [
            {name: attributes[name] for name in names if name in attributes}
            for attributes, _, _, names in self._parts
        ]

    def set_up(self) -> None:
        """Let them read tensors wherever they lie."""
        for attributes, name, value, _ in self._parts:
            attributes[name] = value
        warnings.filters.insert(0, _APART)  # type: ignore[attr-defined] # a list

    def put_back(self, saved: list[dict[str, Any]]) -> None:
        """Undo `set_up`, with what was `saved` before it."""
        for (attributes, _, _, names), before in zip(self._parts, saved, strict=True):
            for name in names:
                attributes.pop(name, None)
            attributes.update(before)
        with contextlib.suppress(ValueError):  # somebody has set all filters anew
            warnings.filters.remove(_APART)  # type: ignore[attr-defined] # a list


@contextlib.contextmanager
def free_places(module: Any) -> Iterator[None]:
    """Let all parts of a module read tensors wherever they lie meanwhile."""
    places = FreePlaces(module)
    saved = places.saved()
    try:
        places.set_up()
        yield
    finally:
        places.put_back(saved)


def _forward_without_graph(part: Any) -> Callable[..., Any] | None:
    """Own forward of a module that replays a CUDA graph; None for any other."""
    forward = vars(part).get("forward")
    if not getattr(forward, "__qualname__", "").startswith(_MADE_BY_GRAPHS):
        return None
    names = forward.__code__.co_freevars
    cells = dict(zip(names, forward.__closure__ or (), strict=True))
    return cells[_OWN_FORWARD].cell_contents if _OWN_FORWARD in cells else None


def _leave_apart() -> None:
    """Stand for `flatten_parameters`."""
