"""A function whose iterations end at a smaller tolerance, for a while.

Nobody says which number of a program is its tolerance. A program that iterates runs its
lines more often where its tolerance is smaller, and gives nearly the same value; where
any other number of it changes, as the epsilon under a root, it runs the same lines.

What library functions have for a tolerance by default is found by the call that runs
them: see `called_defaults`.

What a function has computed before it may give again as it was: see `without_caches`.
Not reached are numbers that no variable holds by itself: in an array of one dimension
or more, a tensor, a set, a deque, a ``MappingProxyType``, a member of an enumeration,
in what a library's object holds, or computed from others (``h = 1 / n``).

References
----------
J. Gilbert, *Automatic differentiation and iterative processes*, Optimization Methods
and Software 1 (1992): derivatives of iterates converge with the iterates.
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.exchanging import Exchanged, places_of
from gradlab.subject.guarding.reachable import reach
from gradlab.subject.library_defaults import Default, defaults_in, others_for
from gradlab.subject.subject import is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

__all__ = [
    "called_defaults",
    "small_numbers",
    "with_smaller",
    "with_times",
    "without_caches",
]

_LARGEST = 2e-2  # nobody calls a larger number a tolerance
_SMALLEST = 1e-14  # nor could one be made smaller, in float64
_CACHED = type(functools.cache(len))


def small_numbers(subject: Any) -> list[float]:
    """List the small numbers of a function, each once, the largest first.

    Literals in its code, in that of functions that it calls, and numbers that these
    hold: in a closure, a global, a default, an attribute, a container, an argument of a
    ``functools.partial``. Not those of libraries, and no inputs.

    Examples
    --------
    >>> from gradlab.building import Sides, build_subject
    >>> slack = 1e-8
    >>> def root(x, tol=1e-3):
    ...     return x + 1e-6 if tol > slack else 0.5 * x
    >>> sides = Sides(grad=lambda x: 1.0)
    >>> small_numbers(build_subject(root, (np.ones(1),), sides))
    [0.001, 1e-06, 1e-08]
    """
    inputs = _inputs(subject)
    places = places_of(reach(_roots(subject)))
    values = {v for place in places for v in _numbers(place.get(), inputs)}
    return sorted(values, reverse=True)


def called_defaults(
    called: Mapping[types.CodeType, dict[str, Any]],
) -> list[Default]:
    """List what library functions that were called have for a tolerance by default.

    Parameters
    ----------
    called
        Code that was run, and the globals of each.
    """
    return defaults_in(called, _is_small)


def with_smaller(
    subject: Any, numbers: Sequence[float | Default], factor: float
) -> Exchanged:
    """Let some small numbers of a function be smaller, wherever they stand.

    Written where they are, and put back whatever happens.

    Parameters
    ----------
    numbers
        Some of the `small_numbers`, and of the `called_defaults`.
    factor
        By which they are multiplied.
    """
    return with_times(subject, dict.fromkeys(numbers, factor))


def with_times(subject: Any, factors: Mapping[float | Default, float]) -> Exchanged:
    """Let small numbers be multiplied, each by a factor of its own; see `with_smaller`.

    Parameters
    ----------
    factors
        By the number, or the default.
    """
    others = {n: n * f for n, f in factors.items() if not isinstance(n, Default)}
    defaults = {n: f for n, f in factors.items() if isinstance(n, Default)}
    inputs = _inputs(subject)

    def other(number: Any) -> Any:
        if id(number) in inputs:
            return number
        smaller = others.get(float(number))
        return number if smaller is None else _like(number, smaller)

    return Exchanged(
        _roots(subject),
        functools.partial(_exchanged, asked=_is_small, other=other),
        others_for(defaults, lambda value, f: _like(value, float(value) * f)),
    )


def without_caches(subject: Any) -> Exchanged:
    """Let a function compute again what ``functools.lru_cache`` would give it back.

    A value of before is one of the tolerance of before; and one of a smaller tolerance,
    once in a cache, would stay there. A dict that the user keeps results in by hand is
    not seen: it gives back what it has for points that were asked before.

    Examples
    --------
    >>> from gradlab.building import Sides, build_subject
    >>> asked = []
    >>> @functools.cache
    ... def halved(x):
    ...     asked.append(x)
    ...     return 0.5 * x
    >>> sides = Sides(grad=lambda x: 0.5)
    >>> subject = build_subject(lambda x: halved(float(x)), (2.0,), sides)
    >>> _ = subject.row(), subject.row()
    >>> with without_caches(subject):
    ...     _ = subject.row()
    >>> asked
    [2.0, 2.0]
    """
    bare: Callable[[Any], Any] = lambda cached: cached.__wrapped__  # noqa: E731
    return Exchanged(
        _roots(subject), functools.partial(_exchanged, asked=_is_cached, other=bare)
    )


def _roots(subject: Any) -> list[object]:
    if not is_torch_subject(subject):
        return [root for root in subject.roots if root is not None]
    program = subject.program
    roots = [getattr(program, name, None) for name in ("fn", "module")]
    return [root for root in (*roots, subject.loss) if root is not None]


def _inputs(subject: Any) -> set[int]:
    """Ids of what is no number of the function, although it holds it: its inputs."""
    if is_torch_subject(subject):
        return set()
    return {id(leaf.value) for leaf in subject.tree.leaves}


def _is_cached(value: Any) -> bool:
    return type(value) is _CACHED


def _is_small(value: Any) -> bool:
    array = type(value) is np.ndarray and value.shape == () and value.dtype.kind == "f"
    if not (type(value) is float or array or isinstance(value, np.floating)):
        return False
    return bool(_SMALLEST <= value <= _LARGEST)


def _like(number: Any, value: float) -> Any:
    """Make of a value what a number is: of its type, and as writeable."""
    if type(number) is float:
        return value
    made = np.array(value, number.dtype)
    if type(number) is not np.ndarray:
        return made[()]
    made.flags.writeable = number.flags.writeable
    return made


def _numbers(held: Any, inputs: Collection[int]) -> Iterator[float]:
    """Small numbers in what a place holds: itself, a default, a literal in code."""
    if _is_small(held):
        if id(held) not in inputs:
            yield float(held)
    elif _is_plain_tuple(held):
        for part in held:
            yield from _numbers(part, inputs)
    elif type(held) is types.CodeType:
        for constant in held.co_consts:
            yield from _numbers(constant, inputs)


def _is_plain_tuple(held: Any) -> bool:
    """Whether it is a tuple, named or not, that holds nothing beside its items."""
    named = isinstance(held, tuple) and hasattr(type(held), "_fields")
    return type(held) is tuple or (named and not hasattr(held, "__dict__"))


def _exchanged(
    held: Any, *, asked: Callable[[Any], bool], other: Callable[[Any], Any]
) -> Any:
    """Give what is to stand in a place, the very same if nothing in it changes."""
    if asked(held):
        return other(held)
    if _is_plain_tuple(held):
        parts = tuple(_exchanged(part, asked=asked, other=other) for part in held)
        same = all(new is old for new, old in zip(parts, held, strict=True))
        return held if same else tuple.__new__(type(held), parts)
    if type(held) is types.CodeType:
        constants = _exchanged(held.co_consts, asked=asked, other=other)
        return (
            held if constants is held.co_consts else held.replace(co_consts=constants)
        )
    return held
