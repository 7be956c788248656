"""Parameters in place, in float64: wider copies seen wherever torch computes.

A loss that reads a module's parameters where they live may reach them, and tensors in
single precision beside them, in any way. What it hands to torch is exchanged on the way
in: a parameter for its wide copy, any other tensor of short numbers for itself in
float64. Nothing of the user's is written to, and a function that writes to short
numbers, which would be lost, is refused. Casts that lose nothing of any parameter are
left out, as they are where a module is widened.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from gradlab.subject.tensors.calling.constants import double_dtype
from gradlab.subject.tensors.calling.uncompiled import uncompiled
from gradlab.subject.tensors.in_double.lossless_casts import Casts
from gradlab.subject.tensors.values import is_differentiable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gradlab.subject.tree import Leaf

__all__ = ["WideTensors", "double_default", "widened_call"]

_SETTERS = frozenset({"__set__", "__setitem__"})
_SETTERS |= {f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "pow")}


def widened_call(
    tensors: Sequence[Leaf], call: Callable[..., Any], arrays: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return `call`, computed in float64 on other parameters.

    Parameters
    ----------
    tensors
        Leaves that hold the user's tensors, with their names.
    call
        What reads the tensors where they are.
    arrays
        Writable array of each, by name; what they hold may change between calls.

    Examples
    --------
    >>> import torch
    >>> from gradlab.subject.tree import Leaf
    >>> w, wide = torch.ones(2), np.array([1.0, 1.0 + 1e-12])
    >>> call = widened_call([Leaf("w", w)], lambda: (w * w).sum(), {"w": wide})
    >>> float(call()) > 2, w.dtype
    (True, torch.float32)
    """
    import torch
    from torch.overrides import TorchFunctionMode

    wide = {id(leaf.value): torch.from_numpy(arrays[leaf.name]) for leaf in tensors}
    learnt = [wide[id(leaf.value)] for leaf in tensors if leaf.value.requires_grad]
    real = [leaf.value for leaf in tensors if is_differentiable(leaf.value)]
    casts = Casts.harmless(tensor.dtype for tensor in real)

    class Widening(TorchFunctionMode):
        """Exchanges the arguments of every call of torch."""

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            del types
            return _exchanging(func, wide, args, kwargs or {})

    @functools.wraps(call)
    def inside(*arguments: Any) -> Any:
        with uncompiled(), casts.left_out(), Widening():
            try:
                return call(*arguments)
            except RuntimeError:
                if all(tensor.requires_grad for tensor in learnt):
                    raise
            for tensor in learnt:  # a step of training, that calls backward itself
                tensor.requires_grad_(True)
            return call(*arguments)

    return inside


class WideTensors:
    """Stands in for the tensors that hand-written code holds itself, in float64.

    Examples
    --------
    >>> import torch
    >>> x, wide = torch.ones(2), torch.ones(2, dtype=torch.float64)
    >>> WideTensors().around(lambda: x @ wide)().dtype
    torch.float64
    """

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call`, computed in float64 whatever it meets."""
        widened = widened_call([], call, {})

        @functools.wraps(call)
        def inside(*arguments: Any) -> Any:
            with double_default():
                return widened(*arguments)

        return inside


@contextlib.contextmanager
def double_default() -> Iterator[None]:
    """Make float64 torch's default dtype."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _exchanging(
    func: Any, wide: Mapping[int, Any], args: Any, kwargs: Mapping[str, Any]
) -> Any:
    """Call a function of torch with wide arguments, if it loses nothing by that."""
    given = [_exchanged(value, wide) for value in args]
    named = {key: _exchanged(value, wide) for key, value in kwargs.items()}
    name = getattr(func, "__name__", "")
    writes = name in _SETTERS or (name.endswith("_") and not name.endswith("__"))
    lost = writes and bool(args) and given[0] is not args[0]
    written = getattr(getattr(func, "__self__", None), "__name__", "")
    if name == "__set__" and written == "grad" and id(args[0]) in wide:
        lost = False  # the wide copy has a gradient of its own
    if lost or named.get("out") is not kwargs.get("out"):
        msg = f"{name} writes to a tensor of short numbers"
        raise TypeError(msg)
    return func(*given, **named)


def _exchanged(value: Any, wide: Mapping[int, Any]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        other, wanted = wide.get(id(value)), double_dtype(value)
        if other is None and value.dtype != wanted:  # or it would be copied
            other = value.to(wanted)
        return value if other is None else other
    if type(value) in (list, tuple):
        return type(value)(_exchanged(part, wide) for part in value)
    return value
