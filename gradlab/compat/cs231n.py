"""The helper functions of Stanford's CS231n, with the course's own arguments.

A notebook of the course, or of the many that borrow from it, runs unchanged:

    from gradlab.compat.cs231n import eval_numerical_gradient, rel_error

Numbers are the course's: central differences with the absolute step ``h``. Different on
purpose: an entry is put back also when the function raises or is interrupted; integer
arrays are refused (the course rounds every derivative to a whole number there); the
random entries of `grad_check_sparse` come from a generator of its own. What the numbers
*mean* (is it my gradient, or the step?) is what ``gradlab.check`` tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.relative_errors import relative_error
from gradlab.errors import InputError, InputTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "eval_numerical_gradient",
    "eval_numerical_gradient_array",
    "grad_check_sparse",
    "rel_error",
]


def eval_numerical_gradient(
    f: Callable[[Any], Any],
    x: NDArray[Any],
    verbose: bool = True,  # noqa: FBT001, FBT002 - the course's signature
    h: float = 1e-5,
) -> NDArray[Any]:
    """Gradient of a scalar function by central differences, one entry at a time.

    Parameters
    ----------
    f
        Takes `x`, or reads it where it is; returns a number.
    x
        Floating array, perturbed in place and put back.
    verbose
        Whether to print each index with its derivative; default True, as in the
        course.
    h
        Step in the units of `x`; 1e-5 is near the best for values of order one.

    Returns
    -------
    ndarray
        Of the shape and dtype of `x`.

    Raises
    ------
    InputTypeError
        If `x` is not an array of floating numbers.
    InputError
        If `f` returns more than one number, or `h` is not a positive number.

    References
    ----------
    CS231n, notes on neural networks, part 3, "gradient checks".

    Examples
    --------
    >>> eval_numerical_gradient(lambda x: (x**2).sum(), np.array([5.0]))
    (0,) 9.999999...
    array([10.])
    """
    _usable(f, x, h)
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        above, below = _both_sides(f, x, index, h)
        gradient[index] = (_number(above) - _number(below)) / (2 * h)
        if verbose:
            print(index, gradient[index])  # noqa: T201 - what the course does
    return gradient


def eval_numerical_gradient_array(
    f: Callable[[Any], Any], x: NDArray[Any], df: ArrayLike, h: float = 1e-5
) -> NDArray[Any]:
    """Gradient of ``sum(f(x) * df)``, for a function that returns an array.

    Parameters
    ----------
    f
        Takes `x`, or reads it where it is; returns an array.
    x
        Floating array, perturbed in place and put back.
    df
        Upstream gradient, of the shape of ``f(x)``.
    h
        Step in the units of `x`.

    Returns
    -------
    ndarray
        Of the shape and dtype of `x`.

    Raises
    ------
    InputTypeError
        If `x` is not an array of floating numbers.
    InputError
        If `df` does not fit ``f(x)``, or `h` is not a positive number.

    Examples
    --------
    >>> x, df = np.array([0.0, 1.0]), np.array([1.0, 10.0])
    >>> eval_numerical_gradient_array(np.exp, x, df).round(6)
    array([ 1.      , 27.182818])
    """
    _usable(f, x, h)
    upstream = _numbers(df, "df")
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        above, below = _both_sides(f, x, index, h)
        if above.shape != upstream.shape and above.size != 1 != upstream.size:
            msg = (
                f"df must have the shape of f(x), which is {above.shape}, got "
                f"{upstream.shape}"
            )
            raise InputError(msg)
        gradient[index] = ((above - below) * upstream).sum() / (2 * h)
    return gradient


def rel_error(x: ArrayLike, y: ArrayLike) -> float:
    """Largest relative error ``|x - y| / max(1e-8, |x| + |y|)`` of all entries.

    Parameters
    ----------
    x, y
        Arrays of one shape. The course reads the result like this: below 1e-7 is
        right; 1e-4 may be right at a kink; above 1e-2 is wrong.

    Returns
    -------
    float
        Between 0 and 1; nan if either side has one.

    Examples
    --------
    >>> round(rel_error([1.0, 2.0], [1.0, 4.0]), 6)
    0.333333
    """
    left, right = _numbers(x, "x"), _numbers(y, "y")
    try:
        np.broadcast_shapes(left.shape, right.shape)
    except ValueError:
        msg = f"x and y must have one shape, got {left.shape} and {right.shape}"
        raise InputError(msg) from None
    return float(np.max(relative_error(left, right, 1e-8), initial=0.0))


def grad_check_sparse(
    f: Callable[[Any], Any],
    x: NDArray[Any],
    analytic_grad: NDArray[Any],
    num_checks: int = 10,
    h: float = 1e-5,
    *,
    seed: int | None = None,
) -> None:
    """Print numeric beside analytic derivative for some random entries.

    Parameters
    ----------
    f
        Takes `x`, or reads it where it is; returns a number.
    x
        Floating array, perturbed in place and put back.
    analytic_grad
        The gradient to check, of the shape of `x`.
    num_checks
        How many entries; default 10, as in the course.
    h
        Step in the units of `x`; 1e-5 is near the best for values of order one.
    seed
        Of the choice of entries; None chooses others in every call.

    Raises
    ------
    InputTypeError, InputError
        As `eval_numerical_gradient`, and if `analytic_grad` has another shape.

    Examples
    --------
    >>> x = np.array([5.0])
    >>> grad_check_sparse(lambda x: (x**2).sum(), x, 2 * x, num_checks=1)
    numerical: 10.000000 analytic: 10.000000, relative error: ...
    """
    _usable(f, x, h)
    if np.shape(analytic_grad) != x.shape:
        msg = (
            f"analytic_grad must have the shape of x, which is {x.shape}, got "
            f"{np.shape(analytic_grad)}"
        )
        raise InputError(msg)
    whole = isinstance(num_checks, int | np.integer)
    if not whole or isinstance(num_checks, bool) or num_checks < 0:
        raise InputError(f"num_checks must be an integer >= 0, got {num_checks!r}")
    if x.size == 0:
        return
    generator = np.random.default_rng(seed)
    for _ in range(num_checks):
        index = tuple(int(generator.integers(length)) for length in x.shape)
        above, below = _both_sides(f, x, index, h)
        numeric = (_number(above) - _number(below)) / (2 * h)
        analytic = analytic_grad[index]
        error = float(relative_error(np.asarray(analytic), np.asarray(numeric)))
        print(  # noqa: T201 - what the course does
            f"numerical: {numeric:f} analytic: {analytic:f}, relative error: {error:e}"
        )


def _numbers(values: Any, name: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype.kind not in "biufc":
        msg = f"{name} must be an array of numbers, got {type(values).__name__}"
        raise InputTypeError(msg)
    return array


def _usable(f: Any, x: Any, h: float) -> None:
    if not callable(f):
        raise InputTypeError(f"f must be a function of x, got {type(f).__name__}")
    if not isinstance(x, np.ndarray) or x.dtype.kind != "f":
        kind = f"array of {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
        raise InputTypeError(
            f"x must be an array of floating numbers, got {kind}; begin with "
            f"x = np.array(x, dtype=float)"
        )
    if not x.flags.writeable:
        msg = "x is read-only, and entries are perturbed in place; use x.copy()"
        raise InputError(msg)
    number = isinstance(h, int | float | np.number) and not isinstance(h, bool)
    if not number or not 0 < h < np.inf:
        msg = f"h must be a positive number, got {h!r}"
        raise InputError(msg)


def _both_sides(
    f: Callable[[Any], Any], x: NDArray[Any], index: tuple[int, ...], h: float
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Evaluate above and below one entry; copies, for f may reuse its memory."""
    before = x[index]
    try:
        x[index] = before + h
        above = _returned(f(x))
        x[index] = before - h
        below = _returned(f(x))
    finally:
        x[index] = before
    return above, below


def _returned(value: Any) -> NDArray[Any]:
    """Copy what f returned; the pair of a layer or a loss is not one array."""
    if isinstance(value, tuple | list):
        raise InputTypeError(
            f"f must return a number or an array, got a {type(value).__name__} of "
            f"{len(value)}; take the one that is differentiated: lambda x: f(x)[0]"
        )
    array = np.array(value)
    if array.dtype.kind not in "biufc":
        msg = f"f must return numbers, got {type(array[()]).__name__} {array[()]!r}"
        raise InputTypeError(msg)
    return array


def _number(value: NDArray[Any]) -> Any:
    if value.size != 1:
        msg = (
            f"f must return one number, got an array of shape {value.shape}; for "
            f"arrays there is eval_numerical_gradient_array"
        )
        raise InputError(msg)
    return value.reshape(())[()]
