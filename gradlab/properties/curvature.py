"""Second derivatives as products: H v from what the user has, or from autograd.

Shared by `gradlab.taylor_test` and `gradlab.check_hessian`. Everything is in real
coordinates (see `gradlab.subject.subject`), inputs one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.errors import GradlabError, InputError, SubjectError
from gradlab.subject.numpy_values import as_numpy
from gradlab.subject.subject import analytic_of, is_torch_subject
from gradlab.subject.tree import is_mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.subject import Subject, Variable

__all__ = [
    "called",
    "hessian_product",
    "refuse_complex",
    "refuse_products",
    "split_flat",
]


def split_flat(
    flat: NDArray[np.float64], inputs: Sequence[Variable]
) -> list[NDArray[np.float64]]:
    """Cut real coordinates of all inputs together into those of each."""
    ends = np.cumsum([variable.coordinates for variable in inputs])
    return list(np.split(flat, ends[:-1]))


def refuse_products(hvp: Any, hess: Any) -> None:
    """Refuse what is no product, before anything is evaluated.

    Raises
    ------
    InputError
        If both are given, or one is no function.
    """
    if hvp is not None and hess is not None:
        raise InputError("pass one of hvp= and hess=, got both")
    for name, value in (("hvp", hvp), ("hess", hess)):
        if value is not None and not callable(value):
            raise InputError(f"{name}= must be a function, got {type(value).__name__}")


def refuse_complex(what: str, inputs: Sequence[Variable]) -> None:
    """Refuse complex inputs by their names, where `what` is for real ones.

    Raises
    ------
    InputError
        If there are any.

    Examples
    --------
    >>> from gradlab.subject.subject import Variable
    >>> refuse_complex("jvp= goes", [Variable("z", (2,), "complex128")])
    Traceback (most recent call last):
    ...
    gradlab.errors.InputError: jvp= goes with real inputs, z is complex: ...
    """
    names = [variable.name for variable in inputs if variable.is_complex]
    if names:
        are = "is" if len(names) == 1 else "are"
        raise InputError(
            f"{what} with real inputs, {', '.join(names)} {are} complex: pass real "
            f"and imaginary part as inputs of their own"
        )


def called(name: str, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Call something of the user's; what it raises is retold with its name.

    Raises
    ------
    SubjectError
        If it raises.
    """
    try:
        return function(*arguments)
    except GradlabError:
        raise
    except Exception as cause:
        msg = (
            f"{name}= raised {type(cause).__name__}: {cause} (it was called with "
            f"{len(arguments)} arguments: inputs, then directions)"
        )
        raise SubjectError(msg) from cause


def hessian_product(
    subject: Subject,
    cotangent: NDArray[np.float64],
    *,
    hvp: Callable[..., Any] | None,
    hess: Callable[..., Any] | None,
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Return ``v -> H v``, where H is the Hessian of ``cotangent . f``.

    Parameters
    ----------
    subject
        At its point.
    cotangent
        Weights of the output rows, shape (rows,).
    hvp
        ``hvp(*inputs, *directions)`` returns H times the directions, one array for
        each input that is differentiated (one array alone for one input).
    hess
        ``hess(*inputs)`` returns the Hessian of a function of one array, as a matrix
        (n, n) or of shape ``x.shape + x.shape``.

    Raises
    ------
    InputError
        If both are given, or none where autograd cannot help.
    """
    refuse_products(hvp, hess)
    if hvp is None and hess is None:
        return _autograd_product(subject, cotangent)
    refuse_complex("hvp= and hess= go", subject.inputs)
    if len(cotangent) != 1:
        msg = (
            f"hvp= and hess= go with a scalar function, this one has {len(cotangent)} "
            f"outputs; reduce them, or pass one of them"
        )
        raise InputError(msg)
    given = _given_hess(subject, hess) if hvp is None else _given_hvp(subject, hvp)
    weight = float(cotangent[0])
    return lambda flat: weight * given(flat)


def _autograd_product(
    subject: Any, cotangent: NDArray[np.float64]
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    if not is_torch_subject(subject):
        msg = (
            "second derivatives of a NumPy function need hvp= (Hessian times vector) "
            "or hess= (the matrix); torch functions bring their own"
        )
        raise InputError(msg)
    from gradlab.differentiation.analytic.second_order import second_order

    twin = second_order(subject, cotangent=cotangent)
    twin.row()
    analytic = analytic_of(twin)

    def product(flat: NDArray[np.float64]) -> NDArray[np.float64]:
        pulled = analytic.pull(flat[None, :])
        raised = [problem for problem in pulled.problems if problem.kind == "raised"]
        if raised:
            raise SubjectError(f"the backward of the backward: {raised[0].detail}")
        return np.concatenate([values[0] for values in pulled.values])

    return product


def _given_hvp(
    subject: Any, hvp: Callable[..., Any]
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    inputs: Sequence[Variable] = subject.inputs

    def product(flat: NDArray[np.float64]) -> NDArray[np.float64]:
        directions = [
            part.reshape(variable.shape)
            for part, variable in zip(split_flat(flat, inputs), inputs, strict=True)
        ]
        result = called("hvp", hvp, (*_arguments(subject), *directions))
        if is_mapping(result):
            result = [result[variable.name] for variable in inputs]
        several = isinstance(result, tuple | list) and len(inputs) > 1
        parts = list(result) if several else [result]
        shapes = [np.shape(part) for part in parts]
        wanted = [variable.shape for variable in inputs]
        if shapes != wanted:
            got = "None" if result is None else _shapes(shapes)
            msg = (
                f"hvp= returned {got}; expected the shapes of the inputs, "
                f"{_shapes(wanted)}"
            )
            raise InputError(msg)
        arrays = [as_numpy(part, "what hvp= returned") for part in parts]
        return np.concatenate([a.astype(np.float64).ravel() for a in arrays])

    return product


def _given_hess(
    subject: Any, hess: Any
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    size = sum(variable.size for variable in subject.inputs)
    if len(subject.inputs) != 1:
        names = ", ".join(variable.name for variable in subject.inputs)
        msg = (
            f"hess= goes with one input, there are several ({names}); choose one with "
            f"wrt=, or pass hvp=(*inputs, *directions)"
        )
        raise InputError(msg)
    matrix = as_numpy(called("hess", hess, _arguments(subject)), "what hess= returned")
    shape = subject.inputs[0].shape
    wanted = dict.fromkeys([(size, size), (*shape, *shape)])
    if matrix.shape not in wanted or matrix.dtype.kind not in "biuf":
        msg = (
            f"hess= returned shape {matrix.shape}, expected "
            f"{' or '.join(map(str, wanted))}, and real numbers"
        )
        raise InputError(msg)
    matrix = matrix.astype(np.float64).reshape(size, size)
    return lambda flat: np.asarray(matrix @ flat)


def _arguments(subject: Any) -> tuple[Any, ...]:
    if subject.reset is not None:
        subject.reset()
    if subject.live:
        return ()
    return tuple(subject.fresh_arguments())


def _shapes(shapes: Sequence[Sequence[int]]) -> str:
    return ", ".join(str(tuple(shape)) for shape in shapes)
