"""``chainer.gradient_check``: the same functions, decided by the same rule.

    from gradlab.compat.chainer import check_backward, check_double_backward

They work on Chainer's own functions and links (once chainer has been imported by the
user: it is never imported here), on torch functions, and on NumPy functions that come
with a ``vjp``. A failure is an `AssertionError`, as in Chainer, and carries a report on
every entry. Not inherited: nan equal to nan passes there; the user's random state is
consumed, and the state of layers is not put back. The rule itself is weak by nature:
one number for everything; use `gradlab.check` where an error must not hide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.compat.chainer_backward import Options, compare, is_floating, matched
from gradlab.compat.chainer_engines import (
    NumpyEngine,
    TorchEngine,
    VariableEngine,
    engine_for,
    plain,
    pull,
)
from gradlab.compat.chainer_numeric import NondifferentiableError, numerical_grad
from gradlab.compat.torch_machinery import as_tuple, machinery
from gradlab.errors import InputError, SubjectError
from gradlab.subject.state_guard import StateGuard
from gradlab.subject.tensors.values import is_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gradlab.compat.chainer_engines import Engine

__all__ = [
    "NondifferentiableError",
    "check_backward",
    "check_double_backward",
    "numerical_grad",
]


def check_backward(  # noqa: PLR0917 - chainer's signature
    func: Callable[..., Any],
    x_data: Any,
    y_grad: Any,
    params: Any = (),
    eps: float = 1e-3,
    atol: float = 1e-5,
    rtol: float = 1e-4,
    no_grads: Sequence[bool] | None = None,
    dtype: Any = None,
    detect_nondifferentiable: bool = False,  # noqa: FBT001, FBT002 - chainer's signature
    *,
    vjp: Callable[..., Any] | None = None,
    seed: int = 0,
) -> None:
    """Compare backward with differences, along one random direction.

    Parameters
    ----------
    func
        Takes the inputs (variables, tensors or arrays), returns outputs.
    x_data
        Input, or tuple of inputs; None and integer arrays pass through.
    y_grad
        Gradients of the outputs, of their shapes and dtypes; None for an output that
        does not count. None alone stands for 1, for one output of shape ().
    params
        Parameters the function reads: variables, tensors or arrays; their gradients
        are checked too.
    eps
        Step along a direction of unit length.
    atol, rtol
        Agreement is ``|numeric - backward| <= atol + rtol * |backward|``.
    no_grads
        One flag for each input: whether it has no gradient. Default: the inputs that
        are not floating.
    dtype
        Floating dtype in which differences are evaluated; default that of each input.
    detect_nondifferentiable
        See `numerical_grad`.
    vjp
        For functions of arrays: ``vjp(cotangents, *inputs)`` returns the gradients of
        the inputs, then of `params`. `cotangents` is a tuple if there are several
        outputs.
    seed
        Of the direction.

    Raises
    ------
    GradientMismatchError
        An `AssertionError`, with a `gradlab.Report` as ``.report``.
    NondifferentiableError
        If asked for, and found.
    InputError
        A `ValueError`: arguments that do not fit.
    SubjectError
        A `RuntimeError`: an input without gradient was given one.

    Examples
    --------
    >>> x, gy = np.array([0.5, 2.0]), np.array([1.0, -3.0])
    >>> check_backward(np.sin, x, gy, vjp=lambda g, x: g * np.cos(x))
    """
    inputs, parameters = as_tuple(x_data), as_tuple(params)
    with StateGuard(inputs, parameters, func, vjp):
        engine = engine_for(func, inputs, parameters, vjp)
        xs = [plain(x) for x in inputs]
        options = Options(
            eps,
            atol,
            rtol,
            _flags(no_grads, xs),
            _floating(dtype),
            detect_nondifferentiable,
            seed,
        )
        compare(engine, xs, y_grad, options)


def check_double_backward(  # noqa: PLR0917 - chainer's signature
    func: Callable[..., Any],
    x_data: Any,
    y_grad: Any,
    x_grad_grad: Any,
    params: Any = (),
    params_grad_grad: Any = (),
    eps: float = 1e-3,
    atol: float = 1e-4,
    rtol: float = 1e-3,
    no_grads: Sequence[bool] | None = None,
    dtype: Any = None,
    detect_nondifferentiable: bool = False,  # noqa: FBT001, FBT002 - chainer's signature
    *,
    vjp: Callable[..., Any] | None = None,
    double_vjp: Callable[..., Any] | None = None,
    seed: int = 0,
) -> None:
    """Compare the backward of the backward with differences of the backward.

    First-order correctness is assumed, not checked.

    Parameters
    ----------
    func, x_data, y_grad, params, eps, atol, rtol, no_grads, dtype, \
detect_nondifferentiable, seed
        As in `check_backward`; `no_grads` has one flag for each input.
    x_grad_grad, params_grad_grad
        Gradients of the gradients of the floating inputs, and of `params`.
    vjp, double_vjp
        For functions of arrays: ``vjp`` as in `check_backward`, and
        ``double_vjp(cotangents, *inputs, *y_grads)``, which returns the gradients of
        its result with respect to the inputs, `y_grad` and `params`.

    Raises
    ------
    GradientMismatchError, NondifferentiableError, InputError, SubjectError
        As in `check_backward`.

    Examples
    --------
    >>> x, gy, ggx = np.array([0.5, 2.0]), np.array([1.0, -3.0]), np.ones(2)
    >>> check_double_backward(
    ...     np.sin,
    ...     x,
    ...     gy,
    ...     ggx,
    ...     vjp=lambda gy, x: gy * np.cos(x),
    ...     double_vjp=lambda gg, x, gy: (-gg * gy * np.sin(x), gg * np.cos(x)),
    ... )
    """
    inputs, parameters = as_tuple(x_data), as_tuple(params)
    seeds = as_tuple(x_grad_grad) + as_tuple(params_grad_grad)
    with StateGuard(inputs, parameters, func, vjp, double_vjp):
        first = engine_for(func, inputs, parameters, vjp)
        xs = [plain(x) for x in inputs]
        gys = matched(first.outputs(xs), y_grad)
        if any(g is None for g in gys):
            raise InputError("y_grad must be given for every output, got None")
        flags = _flags(no_grads, xs) + (False,) * len(gys)
        second = _gradient_engine(first, func, inputs, parameters, gys, vjp, double_vjp)
        options = Options(
            eps,
            atol,
            rtol,
            flags,
            _floating(dtype),
            detect_nondifferentiable,
            seed,
        )
        compare(second, [*xs, *gys], seeds, options, "check_double_backward")


def _gradient_engine(
    first: Engine,
    func: Callable[..., Any],
    inputs: tuple[Any, ...],
    params: tuple[Any, ...],
    gys: tuple[Any, ...],
    vjp: Callable[..., Any] | None,
    double_vjp: Callable[..., Any] | None,
) -> Engine:
    """Engine for ``(inputs, y_grads) -> gradients of inputs and params``."""
    count = len(inputs)
    floating = [k for k, x in enumerate(inputs) if is_floating(plain(x))]
    if isinstance(first, NumpyEngine):
        if double_vjp is None:
            raise InputError("a function of arrays needs double_vjp= for this check")
        known = vjp

        def of_arrays(*values: Any) -> tuple[Any, ...]:
            seeds = values[count] if len(gys) == 1 else values[count:]
            found = known(seeds, *values[:count]) if known is not None else ()
            every = as_tuple(found)
            return (*(every[k] for k in floating), *every[count:])

        return NumpyEngine(of_arrays, double_vjp, params)
    if isinstance(first, TorchEngine):
        likes = (*inputs, *(_tensor_like(g, inputs) for g in gys))
        return TorchEngine(_of_tensors(func, count, floating, params), params, likes)
    variable = first.variable if isinstance(first, VariableEngine) else None
    return VariableEngine(
        _of_variables(func, count, floating, params), params, variable
    )


def _tensor_like(array: Any, inputs: tuple[Any, ...]) -> Any:
    device = next((x.device for x in inputs if is_torch(x)), "cpu")
    return machinery().torch.tensor(array, device=device)


def _of_tensors(
    func: Callable[..., Any],
    count: int,
    floating: Sequence[int],
    params: tuple[Any, ...],
) -> Callable[..., tuple[Any, ...]]:
    def gradients(*values: Any) -> tuple[Any, ...]:
        ys = as_tuple(func(*values[:count]))
        seeds = [g.to(y.dtype) for y, g in zip(ys, values[count:], strict=True)]
        targets = [values[k] for k in floating] + [p for p in params if p.requires_grad]
        found = machinery().torch.autograd.grad(
            ys, targets, seeds, create_graph=True, allow_unused=True
        )
        return tuple(
            target.new_zeros(target.shape) if g is None else g
            for g, target in zip(found, targets, strict=True)
        )

    return gradients


def _of_variables(
    func: Callable[..., Any],
    count: int,
    floating: Sequence[int],
    params: tuple[Any, ...],
) -> Callable[..., tuple[Any, ...]]:
    def gradients(*values: Any) -> tuple[Any, ...]:
        ys = as_tuple(func(*values[:count]))
        for variable in (*values[:count], *params):
            if variable is not None:
                variable.cleargrad()
        pull(ys, values[count:], again=True)
        for k in range(count):
            if (
                k not in floating
                and values[k] is not None
                and values[k].grad is not None
            ):
                raise SubjectError(f"input {k} is not floating, but got a gradient")
        every = [values[k].grad_var for k in floating] + [p.grad_var for p in params]
        for variable in (*values, *params):
            if variable is not None:
                variable.cleargrad()
        return tuple(every)

    return gradients


def _flags(no_grads: Sequence[bool] | None, xs: Sequence[Any]) -> tuple[bool, ...]:
    if no_grads is None:
        return tuple(x is not None and not is_floating(x) for x in xs)
    if len(no_grads) != len(xs):
        raise InputError(
            f"no_grads must have one flag for each of the {len(xs)} inputs, got "
            f"{len(no_grads)}"
        )
    return tuple(bool(flag) for flag in no_grads)


def _floating(dtype: Any) -> np.dtype[Any] | None:
    if dtype is None:
        return None
    found: np.dtype[Any] = np.dtype(dtype)
    if found.kind != "f":
        raise InputError(f"dtype must be floating, got {found}")
    return found
