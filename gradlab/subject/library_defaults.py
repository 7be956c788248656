"""Tolerances that a library's functions have by default: named, and found by a call.

Whoever writes ``solve_ivp(f, (0, 2), y0)`` has a tolerance of a thousandth, and it
stands in none of his lines. What a call runs of libraries tells whose defaults it may
have used, and their names tell which of these are tolerances.
"""

from __future__ import annotations

import re
import types
from typing import TYPE_CHECKING, Any, NamedTuple

from gradlab.subject.exchanging import Place, attribute_of, item_of
from gradlab.subject.guarding.library_code import is_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Default", "defaults_in", "others_for"]

# rtol, xatol, tolerance_grad, epsabs, ...; an ``eps`` is a step or stands under a root
_NAME = re.compile(r"tol|^eps_?(abs|rel|ilon)")
_DECORATORS = 9  # around a function, at most


class Default(NamedTuple):
    """A tolerance that some functions of a library have by default.

    Attributes
    ----------
    name
        Of the parameter.
    value
        What it is by default.
    library
        Name of the package.
    functions
        Those that were called and have it.
    """

    name: str
    value: float
    library: str
    functions: tuple[types.FunctionType, ...]


def defaults_in(
    called: Mapping[types.CodeType, dict[str, Any]], is_small: Callable[[Any], bool]
) -> list[Default]:
    """List tolerances by default of the library functions that a call has run.

    Parameters
    ----------
    called
        Code that was run, and the globals of each.
    is_small
        Says whether a value can be a tolerance.

    Examples
    --------
    >>> import numpy as np
    >>> close = np.isclose.__wrapped__
    >>> called = {close.__code__: close.__globals__}
    >>> [each[:3] for each in defaults_in(called, lambda v: isinstance(v, float))]
    [('rtol', 1e-05, 'numpy'), ('atol', 1e-08, 'numpy')]
    """
    found: dict[tuple[str, float, str], list[types.FunctionType]] = {}
    for code, space in called.items():
        library = _library(space)
        if not library or not any(map(_NAME.search, _parameters(code))):
            continue
        function = _function(code, space)
        if function is None:
            continue
        for name, value in _defaults(function):
            if _NAME.search(name) and is_small(value):
                found.setdefault((name, float(value), library), []).append(function)
    return [Default(*key, tuple(functions)) for key, functions in found.items()]


def others_for(
    factors: Mapping[Default, float], times: Callable[[Any, float], Any]
) -> list[tuple[Place, Any]]:
    """List places of defaults, and what is to stand there for a while.

    Parameters
    ----------
    factors
        By which defaults are to be multiplied.
    times
        Multiplies a value, and keeps its type.
    """
    names: dict[types.FunctionType, dict[str, float]] = {}
    for default, factor in factors.items():
        for function in default.functions:
            names.setdefault(function, {})[default.name] = factor
    found: list[tuple[Place, Any]] = []
    for function, some in names.items():
        positional = tuple(
            times(value, some[name]) if name in some else value
            for name, value in _positional(function)
        )
        if positional != (function.__defaults__ or ()):
            found.append((attribute_of(function, "__defaults__"), positional))
        named = function.__kwdefaults__ or {}
        found += [
            (item_of(named, name), times(named[name], some[name]))
            for name in some.keys() & named.keys()
        ]
    return found


def _library(space: Mapping[str, Any]) -> str:
    """Name the package whose globals these are; nothing if it is the user's or ours."""
    module = space.get("__name__")
    if not isinstance(module, str) or not is_library(module):
        return ""
    top = module.partition(".")[0]
    return "" if top == "gradlab" else top


def _parameters(code: types.CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _function(
    code: types.CodeType, space: Mapping[str, Any]
) -> types.FunctionType | None:
    """Find the function of a module, or of a class in it, that has this code."""
    first, *rest = code.co_qualname.split(".")
    value: Any = space.get(first)
    for name in rest:
        value = vars(value).get(name) if isinstance(value, type) else None
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    for _ in range(_DECORATORS):
        if type(value) is types.FunctionType and value.__code__ is code:
            return value
        value = getattr(value, "__wrapped__", None)
    return None


def _defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    yield from _positional(function)
    yield from (function.__kwdefaults__ or {}).items()


def _positional(function: types.FunctionType) -> list[tuple[str, Any]]:
    """Pair the last positional parameters with their defaults."""
    code, values = function.__code__, function.__defaults__ or ()
    first = code.co_argcount - len(values)
    return list(zip(code.co_varnames[first : code.co_argcount], values, strict=True))
