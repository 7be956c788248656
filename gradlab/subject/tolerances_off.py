"""A function whose iterations end at a smaller tolerance, for a while.

Nobody says which number of a program is its tolerance. A program that iterates runs its
lines more often where its tolerance is smaller, and gives nearly the same value; where
any other number of it changes, as the epsilon under a root, it runs the same lines.

References
----------
J. Gilbert, *Automatic differentiation and iterative processes*, Optimization Methods
and Software 1 (1992): derivatives of iterates converge with the iterates.
"""

from __future__ import annotations

import contextlib
import types
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.guarding.library_code import is_library
from gradlab.subject.guarding.reachable import reach
from gradlab.subject.subject import is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gradlab.subject.guarding.reached import Reach

    Spot = tuple[Callable[[], Any], Callable[[Any], None]]  # how to read and to write

__all__ = ["small_numbers", "with_smaller"]

_LARGEST = 2e-2  # nobody calls a larger number a tolerance
_SMALLEST = 1e-14  # nor could one be made smaller, in float64


def small_numbers(subject: Any) -> list[float]:
    """List the small numbers of a function, each once, the largest first.

    Literals in its code, in that of functions that it calls, and numbers that these
    hold: in a closure, a global, a default, an attribute, a container. Not those of
    libraries.

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
    found = reach(_roots(subject))
    values = {float(value) for get, _ in _spots(found) for value in _numbers(get())}
    return sorted(values, reverse=True)


@contextlib.contextmanager
def with_smaller(
    subject: Any, numbers: Sequence[float], factor: float
) -> Iterator[None]:
    """Let some small numbers of a function be smaller, wherever they stand.

    Written where they are, and put back whatever happens.

    Parameters
    ----------
    numbers
        Some of the `small_numbers`.
    factor
        By which they are multiplied.
    """
    others = {number: number * factor for number in numbers}
    changed: list[tuple[Callable[[Any], None], Any]] = []
    try:
        for get, put in _spots(reach(_roots(subject))):
            held = get()
            other = _exchanged(held, others)
            if other is not held:
                changed.append((put, held))
                put(other)
        yield
    finally:
        for put, held in reversed(changed):
            put(held)


def _roots(subject: Any) -> list[object]:
    if not is_torch_subject(subject):
        return [root for root in subject.roots if root is not None]
    program = subject.program
    roots = [getattr(program, name, None) for name in ("fn", "module")]
    return [root for root in (*roots, subject.loss) if root is not None]


def _spots(found: Reach) -> Iterator[Spot]:
    """Go over all places of numbers in what was reached: of the user's, not others'."""
    for cell in found.cells:
        yield _attribute(cell.value, "cell_contents")
    for (space, name), *_ in found.names:
        yield _item(space, name)
    for each in (*found.namespaces, *found.containers):
        space = each.value
        if id(space) in found.foreign:
            continue
        if isinstance(space, dict):
            yield from (_item(space, key) for key in tuple(space))
        elif isinstance(space, list):
            yield from (_item(space, index) for index in range(len(space)))
    for kind in found.classes:
        yield from (_attribute(kind.value, name) for name in tuple(vars(kind.value)))
    for function in found.seen.values():
        if type(function) is types.FunctionType and _is_own(function):
            yield _attribute(function, "__code__")
            yield _attribute(function, "__defaults__")
            if function.__kwdefaults__:
                space = function.__kwdefaults__
                yield from (_item(space, key) for key in tuple(space))


def _is_own(function: types.FunctionType) -> bool:
    # an example in a docstring is a user's code, whosever module it is in
    example = function.__code__.co_filename.startswith("<doctest ")
    return example or not is_library(function.__module__)


def _item(space: Any, key: Any) -> Spot:
    return (lambda: space[key] if _is_there(space, key) else None), (
        lambda value: space.__setitem__(key, value)
    )


def _is_there(space: Any, key: Any) -> bool:
    return key < len(space) if isinstance(space, list) else key in space


def _attribute(owner: Any, name: str) -> Spot:
    def get() -> Any:
        try:
            return (
                vars(owner)[name] if isinstance(owner, type) else getattr(owner, name)
            )
        except (ValueError, KeyError):  # a cell that is not assigned yet
            return None

    return get, lambda value: setattr(owner, name, value)


def _is_small(value: Any) -> bool:
    return type(value) in (float, np.float64) and _SMALLEST <= value <= _LARGEST


def _numbers(held: Any) -> Iterator[float]:
    """Small numbers in what a place holds: itself, a default, a literal in code."""
    if _is_small(held):
        yield held
    elif type(held) is tuple:
        for part in held:
            yield from _numbers(part)
    elif type(held) is types.CodeType:
        for constant in held.co_consts:
            yield from _numbers(constant)


def _exchanged(held: Any, others: dict[float, float]) -> Any:
    """Give what is to stand in a place, the very same if nothing in it changes."""
    if _is_small(held):
        return others.get(held, held)
    if type(held) is tuple:
        parts = tuple(_exchanged(part, others) for part in held)
        same = all(new is old for new, old in zip(parts, held, strict=True))
        return held if same else parts
    if type(held) is types.CodeType:
        constants = _exchanged(held.co_consts, others)
        return (
            held if constants is held.co_consts else held.replace(co_consts=constants)
        )
    return held
