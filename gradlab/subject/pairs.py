"""What a NumPy function returns: a loss, or the pair of a loss and its gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.errors import SubjectError
from gradlab.labels import with_article
from gradlab.subject.tensors.values import is_torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["gradients_of", "kind_of", "loss_of", "maybe_loss_of"]


def kind_of(value: object) -> str:
    """Describe a value in a message: its type, dtype and shape.

    Examples
    --------
    >>> kind_of(np.ones(3)), kind_of(np.float64(2)), kind_of("text")
    ('ndarray float64 (3,)', 'float64 number', 'str')
    """
    kind, dtype = type(value).__name__, str(getattr(value, "dtype", ""))
    shape = getattr(value, "shape", "")
    shape = "number" if shape == () else str(shape)
    # a number of NumPy is called by its dtype
    return " ".join(word for word in dict.fromkeys((kind, dtype, shape)) if word)


def _refuse_disorder(result: Any) -> None:
    """Refuse a dict of gradients that does not stand behind one loss."""
    if not isinstance(result, tuple | list):
        return
    places = [k for k, part in enumerate(result) if isinstance(part, Mapping)]
    if places and (len(result) != 2 or places[0] == 0):
        msg = (
            f"the function returned {len(result)} values, of which number "
            f"{places[0] + 1} is a dict; return the pair (loss, gradients), the loss "
            f"first"
        )
        raise SubjectError(msg)


def _pair(result: Any) -> tuple[Any, Any]:
    _refuse_disorder(result)
    if isinstance(result, tuple | list) and len(result) == 2:
        return result[0], result[1]
    if is_torch(result):
        msg = (
            "the inputs are NumPy arrays and the function returned a tensor; pass "
            "tensors (torch.from_numpy(x)) to check the gradient that autograd gives"
        )
        raise SubjectError(msg)
    if isinstance(result, tuple | list) and len(result) > 2:
        msg = (
            f"the function returned {len(result)} values; return the pair (loss, "
            f"gradients), with all gradients in one tuple, as in `return loss, (dw, "
            f"db)`, or in one dict, by the names of the parameters; or pass grad=, "
            f"jac=, backward= or vjp="
        )
        raise SubjectError(msg)
    msg = (
        f"there is no gradient to check: pass it as grad=, jac=, backward= or vjp=, or "
        f"let the function return the pair (loss, gradients); it returned "
        f"{with_article(kind_of(result))}"
    )
    raise SubjectError(msg)


def loss_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Pick the loss of the pair (loss, gradients) that a function returns."""
    return lambda *arguments: _scalar(_pair(fn(*arguments))[0])


def _scalar(loss: Any) -> Any:
    shape = getattr(loss, "shape", ())
    if shape and int(np.prod(shape)) != 1:
        msg = (
            f"the loss has shape {tuple(shape)}; gradients belong to a scalar: reduce "
            f"it (sum or mean), or pass jac= or vjp= for a function with several "
            "outputs"
        )
        raise SubjectError(msg)
    return loss


def gradients_of(result: Any) -> Any:
    """Pick the gradients of a pair (loss, gradients)."""
    return _pair(result)[1]


def maybe_loss_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Pick the loss, whether it is returned alone or with its gradients."""

    def call(*arguments: Any) -> Any:
        result = fn(*arguments)
        _refuse_disorder(result)
        is_pair = isinstance(result, tuple | list) and len(result) == 2
        return _scalar(result[0] if is_pair else result)

    return call
