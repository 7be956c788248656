"""What cannot be called as it is meant: generators, classes, criteria of two."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

from gradlab.errors import InputError, InputTypeError
from gradlab.keywords import has_ctx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "given_to",
    "needed_arguments",
    "refuse_arrays",
    "refuse_classes",
    "refuse_criteria",
    "refuse_generators",
    "refuse_packed",
    "refuse_wanting",
    "then",
]


def needed_arguments(function: Callable[..., Any]) -> list[str]:
    """Name the arguments that a function, a torch module or a Function must be given.

    The last two say so in `forward`: their own signatures take anything.

    Examples
    --------
    >>> needed_arguments(lambda x, y=1: x), needed_arguments(print)
    (['x'], [])
    """
    inner = getattr(function, "forward", function)
    try:
        parameters = list(inspect.signature(inner).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature: who knows
        return []
    if isinstance(function, type) and inner is not function and has_ctx(function):
        parameters = parameters[1:]  # ctx, or self
    return _required(parameters)


def _required(parameters: Iterable[inspect.Parameter]) -> list[str]:
    """Name those without a default; ``*args`` and ``**kwargs`` may be left out."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind not in several
    ]


def given_to(function: Callable[..., Any], name: str) -> str:
    """Write a function, or what a class makes, and its inputs, as one writes a tuple.

    Examples
    --------
    >>> given_to(lambda x, w: x @ w, "model")
    'model, x, w'
    """
    inputs = needed_arguments(function)
    called = name if inspect.isroutine(function) else "model"
    if isinstance(function, type):
        called = f"{name}.apply"  # a Function of torch
        if not hasattr(function, "setup_context"):  # what is made of it is called
            wanted = _required(inspect.signature(function).parameters.values())
            called = f"{name}({', '.join(wanted)})"
            if not hasattr(function, "forward"):
                body = vars(function).get("__call__")
                inputs = ["x"] if body is None else needed_arguments(body)[1:]
    return ", ".join([called, *inputs])


def refuse_wanting(function: Callable[..., Any], given: int) -> None:
    """Refuse a function that wants as arguments what it should read where it is.

    Raises
    ------
    InputError
        If it needs more arguments than the inputs that it is given with ``params=``.
    """
    needed = needed_arguments(function)
    if len(needed) > given:
        msg = (
            f"with params= the function reads the parameters where they are and is "
            f"given {given or 'no'} inputs, but it needs {', '.join(needed)}; "
            f"write gl.check(lambda: ..., params=...), or leave out params="
        )
        raise InputError(msg)


def refuse_criteria(loss: Any) -> None:
    """Refuse a loss that wants a target as well: it is given the output alone.

    Raises
    ------
    InputTypeError
        If `loss` cannot be called with one argument; the message says what to pass.

    Examples
    --------
    >>> import torch
    >>> refuse_criteria(torch.nn.MSELoss())
    Traceback (most recent call last):
        ...
    gradlab.errors.InputTypeError: loss= is given the output alone, and MSELoss needs input, target; pass loss=lambda input: criterion(input, target)
    """  # noqa: E501 - the message as it is printed
    needed = [] if loss is None else needed_arguments(loss)
    if len(needed) > 1:
        name = getattr(loss, "__name__", type(loss).__name__)
        called = (
            name if inspect.isfunction(loss) and name.isidentifier() else "criterion"
        )
        told = ", ".join(needed)
        msg = (
            f"loss= is given the output alone, and {name} needs {told}; pass "
            f"loss=lambda {needed[0]}: {called}({told})"
        )
        raise InputTypeError(msg)


def refuse_generators(**functions: Any) -> None:
    """Refuse generator functions and coroutines, by name.

    Parameters
    ----------
    **functions
        Callables or None, by what the message calls them.

    Raises
    ------
    InputTypeError
        If one of them has ``yield`` in it, or is ``async``.

    Examples
    --------
    >>> def squares(x):
    ...     yield (x**2).sum()
    >>> refuse_generators(fn=squares)
    Traceback (most recent call last):
        ...
    gradlab.errors.InputTypeError: fn is a generator function (it has yield), which returns no value; write return, or pass lambda *a: next(squares(*a))
    """  # noqa: E501 - the message as it is printed
    for name, function in functions.items():
        called = getattr(function, "__name__", "it")
        if inspect.isgeneratorfunction(function):
            msg = (
                f"{name} is a generator function (it has yield), which returns no "
                f"value; write return, or pass lambda *a: next({called}(*a))"
            )
            raise InputTypeError(msg)
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(
            function
        ):
            msg = (
                f"{name} is an async function, which returns no value until it is "
                f"awaited; pass one that waits: lambda *a: asyncio.run({called}(*a))"
            )
            raise InputTypeError(msg)


def refuse_classes(fn: object) -> None:
    """Refuse the class of a custom Function or of a module where a call was meant.

    Both can be called, and what comes back is no tensor but an object.

    Raises
    ------
    InputTypeError
        If `fn` is such a class; the message says what to pass.

    Examples
    --------
    >>> import torch
    >>> refuse_classes(torch.nn.Linear)
    Traceback (most recent call last):
        ...
    gradlab.errors.InputTypeError: Linear is a class; pass an instance of it, Linear(...)
    """  # noqa: E501 - the message as it is printed
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if isinstance(fn, torch.autograd.Function):
        name = type(fn).__name__
        msg = f"the function is an object of the class {name}; pass {name}.apply"
        raise InputTypeError(msg)
    if not isinstance(fn, type):
        _refuse_forward(fn)
        return
    name = fn.__name__
    if issubclass(fn, torch.autograd.Function):
        msg = f"{name} is a class; pass the function that it makes, {name}.apply"
        raise InputTypeError(msg)
    if issubclass(fn, torch.nn.Module):
        msg = f"{name} is a class; pass an instance of it, {name}(...)"
        raise InputTypeError(msg)


def _refuse_forward(fn: object) -> None:
    """Refuse the forward of a Function, which autograd calls with a context."""
    name = getattr(fn, "__qualname__", "")
    if not (inspect.isfunction(fn) and name.endswith(".forward")):
        return
    if next(iter(inspect.signature(fn).parameters), "") == "ctx":
        apply = f"{name.rpartition('.')[0].rpartition('.')[2]}.apply"
        msg = f"forward is called by autograd, with its ctx; pass {apply}"
        raise InputTypeError(msg)


def refuse_arrays(fn: object) -> None:
    """Refuse to give arrays to a Function of torch, which differentiates tensors.

    Raises
    ------
    InputTypeError
        If `fn` is the ``apply`` of one.
    """
    torch, owner = sys.modules.get("torch"), getattr(fn, "__self__", None)
    if torch is None or not isinstance(owner, type):
        return
    if issubclass(owner, torch.autograd.Function):
        msg = (
            f"{owner.__name__}.apply takes tensors, and there is none among the "
            f"inputs; pass torch.tensor(x, dtype=torch.float64)"
        )
        raise InputTypeError(msg)


def refuse_packed(fn: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """Refuse all inputs in one tuple or list, as gradcheck takes them.

    Raises
    ------
    InputError
        If `fn` needs as many arguments as the one container has elements.

    Examples
    --------
    >>> refuse_packed(lambda x, w: x @ w, [(1.0, 2.0)])
    Traceback (most recent call last):
        ...
    gradlab.errors.InputError: the function takes 2 arguments (x, w) and got one tuple of 2; unpack it: check(fn, *inputs)
    """  # noqa: E501 - the message as it is printed
    if len(inputs) != 1 or type(inputs[0]) not in {tuple, list} or len(inputs[0]) < 2:
        return
    owner = getattr(fn, "__self__", None)
    apply = isinstance(owner, type) and hasattr(owner, "forward")
    needed = needed_arguments(owner if apply else fn)  # type: ignore[arg-type]
    if len(needed) == len(inputs[0]):
        count = len(needed)
        msg = (
            f"the function takes {count} arguments ({', '.join(needed)}) and got one "
            f"{type(inputs[0]).__name__} of {count}; unpack it: check(fn, *inputs)"
        )
        raise InputError(msg)


def then(outer: Callable[..., Any], inner: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls one on what the other returns.

    Examples
    --------
    >>> then(abs, min)(-2, 1)
    2
    """
    return lambda *arguments: outer(inner(*arguments))
