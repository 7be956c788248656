"""Functions that return no value when they are called."""

from __future__ import annotations

import inspect
from typing import Any

from gradlab.errors import InputTypeError

__all__ = ["refuse_generators"]


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
