"""What returns no value when it is called: generators, coroutines, classes."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from gradlab.errors import InputTypeError

__all__ = ["refuse_classes", "refuse_generators"]


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
    if torch is None or not isinstance(fn, type):
        return
    name = fn.__name__
    if issubclass(fn, torch.autograd.Function):
        msg = f"{name} is a class; pass the function that it makes, {name}.apply"
        raise InputTypeError(msg)
    if issubclass(fn, torch.nn.Module):
        msg = f"{name} is a class; pass an instance of it, {name}(...)"
        raise InputTypeError(msg)
