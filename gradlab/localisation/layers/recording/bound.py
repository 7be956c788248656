"""``swish = Swish.apply``: what stands for a custom Function that was bound before.

Since torch 2.14 `apply` is written in C. Another one can be put into the class, where
``Swish.apply(x)`` finds it; but what a global, an attribute or a closure has held since
the user's file was imported leads past the class. It is exchanged where it is held.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import operator
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["exchanged_where_bound"]

_BOUND = types.BuiltinMethodType  # what torch's `apply` is once it is bound


class _Apply:
    """A bound `apply` that can be told to do something else.

    It has no dict: one of an earlier block, in what an audit has kept, is no place
    where a user holds something.
    """

    __slots__ = ("__name__", "__self__", "_entry", "bound", "open")

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
            _exchange(entry, put_back)
        yield
    finally:
        for put, other in reversed(put_back):
            other.open = False
            put(other.bound)


def _exchange(
    entry: Callable[..., Any], put_back: list[tuple[Callable[[Any], None], _Apply]]
) -> None:
    """Exchange each where it is held; note how to put it back before that is done."""
    held = _held()
    owners = _owners([holder for holder, _ in held])
    for holder, bound in held:
        other = _Apply(bound, entry)
        for put in _places(holder, bound, owners.get(id(holder), ())):
            put_back.append((put, other))
            put(other)


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
    found = _all_bound()
    if not found:
        return []
    sought = {id(bound): bound for bound in found}
    return [
        (holder, sought[place])
        for holder in gc.get_referrers(*found)  # all is gone through once
        if holder is not found and holder is not sought
        for place in dict.fromkeys(map(id, gc.get_referents(holder)))
        if place in sought
    ]


def _all_bound() -> list[Any]:
    """Find every bound ``apply``: a few among a million objects."""
    import torch

    everything = gc.get_objects()
    kinds = map(operator.is_, map(type, everything), itertools.repeat(_BOUND))
    return [
        each
        for each in itertools.compress(everything, kinds)
        if each.__name__ == "apply"
        and isinstance(each.__self__, type)
        and issubclass(each.__self__, torch.autograd.Function)
    ]


def _owners(holders: list[Any]) -> dict[int, list[Any]]:
    """Find classes whose namespaces, and functions whose defaults, some holders are."""
    spaces = [each for each in holders if isinstance(each, dict | tuple)]
    owners: dict[int, list[Any]] = {id(space): [] for space in spaces}
    # all is gone through once, for all of them: that takes longer than most audits
    for each in gc.get_referrers(*spaces) if spaces else ():
        if isinstance(each, types.FunctionType):
            inside = [id(each.__defaults__)]
        elif isinstance(each, type):
            inside = [id(space) for space in gc.get_referents(each)]
        else:
            continue
        for place in owners.keys() & inside:
            owners[place].append(each)
    return owners


def _places(
    holder: Any, bound: Any, owners: Sequence[Any]
) -> Iterator[Callable[[Any], None]]:
    """Yield what writes to the places in a holder that hold something."""
    if isinstance(holder, list):
        for index in _indices(holder, bound):
            yield functools.partial(list.__setitem__, holder, index)
    elif isinstance(holder, dict):
        yield from _items(holder, bound, owners)
    elif isinstance(holder, tuple):
        for function, index in itertools.product(owners, _indices(holder, bound)):
            yield functools.partial(_into_defaults, function, index)
    elif isinstance(holder, types.CellType):
        yield functools.partial(setattr, holder, "cell_contents")
    elif isinstance(holder, functools.partial):
        yield functools.partial(_into_partial, holder)
    elif not isinstance(holder, type):
        # attributes, which are kept without a dict until somebody asks for it
        space = getattr(holder, "__dict__", None)
        if isinstance(space, dict):
            yield from _items(space, bound, ())


def _indices(values: list[Any] | tuple[Any, ...], bound: Any) -> list[int]:
    return [index for index, value in enumerate(values) if value is bound]


def _items(
    space: dict[Any, Any], bound: Any, owners: Sequence[Any]
) -> Iterator[Callable[[Any], None]]:
    for key in [key for key, value in dict.items(space) if value is bound]:
        # a class remembers what was looked up in it: nothing is done behind its back
        for each in owners:
            if isinstance(each, type) and each.__dict__.get(key) is bound:
                yield functools.partial(setattr, each, key)
                break
        else:
            yield functools.partial(dict.__setitem__, space, key)


def _into_partial(holder: functools.partial[Any], value: Any) -> None:
    state = value, holder.args, holder.keywords, holder.__dict__
    holder.__setstate__(state)  # type: ignore[attr-defined] # as pickle does


def _into_defaults(function: types.FunctionType, index: int, value: Any) -> None:
    before = function.__defaults__ or ()
    function.__defaults__ = (*before[:index], value, *before[index + 1 :])
