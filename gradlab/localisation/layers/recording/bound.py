"""``swish = Swish.apply``: what stands for a custom Function that was bound before.

Since torch 2.14 `apply` is written in C. Another one can be put into the class, where
``Swish.apply(x)`` finds it; but what a global, an attribute or a closure has held since
the user's file was imported leads past the class. It is exchanged where it is held.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["exchanged_where_bound"]


class _Apply:
    """A bound `apply` that can be told to do something else."""

    def __init__(self, bound: Any, entry: Callable[..., Any]) -> None:
        self.__self__ = bound.__self__  # the class: who asks for the Function reads it
        self.__name__ = bound.__name__
        self.bound, self._entry = bound, entry
        self.open = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.open:  # a layer is put into the state in which it was recorded
            return self.bound(*args, **kwargs)
        return self._entry(self.__self__, args, kwargs)


@contextlib.contextmanager
def exchanged_where_bound(entry: Callable[..., Any]) -> Iterator[None]:
    """Send calls of every bound ``apply`` to `entry` while the block runs.

    Of those in dicts, lists, attributes, closures, defaults and `functools.partial`.
    One in another tuple, or in a local variable of code that is running, stays what it
    is: such a Function is part of whoever calls it.

    Parameters
    ----------
    entry
        Called with the Function, its positional arguments and those by keyword.
    """
    put_back: list[tuple[Callable[[Any], None], _Apply]] = []
    try:
        with _thawed():
            for holder, bound in _held():
                other = _Apply(bound, entry)
                for put in _places(holder, bound):
                    put_back.append((put, other))
                    put(other)
        yield
    finally:
        for put, other in reversed(put_back):
            other.open = False
            put(other.bound)


@contextlib.contextmanager
def _thawed() -> Iterator[None]:
    """Let the search go through what `gc.freeze` has taken out of every search."""
    if not gc.get_freeze_count():
        yield
        return
    gc.unfreeze()
    try:
        yield
    finally:
        gc.freeze()


def _held() -> list[tuple[Any, Any]]:
    """Find who holds which bound ``apply``."""
    import torch

    found = [
        each
        for each in gc.get_objects()
        if type(each) is types.BuiltinMethodType
        and each.__name__ == "apply"
        and isinstance(each.__self__, type)
        and issubclass(each.__self__, torch.autograd.Function)
    ]
    sought = {id(bound): bound for bound in found}
    return [
        (holder, sought[place])
        for holder in gc.get_referrers(*found)  # all is gone through once
        if holder is not found and holder is not sought
        for place in dict.fromkeys(map(id, gc.get_referents(holder)))
        if place in sought
    ]


def _places(holder: Any, bound: Any) -> Iterator[Callable[[Any], None]]:
    """Yield what writes to the places in a holder that hold something."""
    if isinstance(holder, dict | list):
        yield from _items(holder, bound)
    elif isinstance(holder, tuple):
        yield from _defaults(holder, bound)
    elif isinstance(holder, types.CellType):
        yield functools.partial(setattr, holder, "cell_contents")
    elif isinstance(holder, functools.partial):
        yield functools.partial(_into_partial, holder)
    elif not isinstance(holder, type):
        # attributes, which are kept without a dict until somebody asks for it
        space = getattr(holder, "__dict__", None)
        if isinstance(space, dict):
            yield from _items(space, bound)


def _items(
    space: dict[Any, Any] | list[Any], bound: Any
) -> Iterator[Callable[[Any], None]]:
    if isinstance(space, list):
        for index in [k for k, value in enumerate(space) if value is bound]:
            yield functools.partial(list.__setitem__, space, index)
        return
    for key in [key for key, value in dict.items(space) if value is bound]:
        # a class remembers what was looked up in it: nothing is done behind its back
        for each in gc.get_referrers(space):
            if isinstance(each, type) and each.__dict__.get(key) is bound:
                yield functools.partial(setattr, each, key)
                break
        else:
            yield functools.partial(dict.__setitem__, space, key)


def _defaults(values: tuple[Any, ...], bound: Any) -> Iterator[Callable[[Any], None]]:
    for each in gc.get_referrers(values):
        if isinstance(each, types.FunctionType) and each.__defaults__ is values:
            yield functools.partial(_into_defaults, each, values.index(bound))


def _into_partial(holder: functools.partial[Any], value: Any) -> None:
    state = value, holder.args, holder.keywords, holder.__dict__
    holder.__setstate__(state)  # type: ignore[attr-defined] # as pickle does


def _into_defaults(function: types.FunctionType, index: int, value: Any) -> None:
    before = function.__defaults__ or ()
    function.__defaults__ = (*before[:index], value, *before[index + 1 :])
