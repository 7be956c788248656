"""Matrices that are made when somebody asks for them.

Of a Jacobian that is mostly zeros all that was measured fits into a few columns. Whole
matrices of values, error bars and tolerances are for looking at, and for the checks
that have to look at everything.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Maker = Callable[[], NDArray[Any]]

__all__ = ["Late", "is_made", "unmade"]

_LOCK = threading.Lock()


class Late:
    """A field of a dataclass that may be set to a function, which makes it.

    The function is called when the field is first read, and then forgotten. The class
    must not have slots.

    Examples
    --------
    >>> import dataclasses
    >>> @dataclasses.dataclass
    ... class Held:
    ...     matrix: Late = Late()
    >>> held = Held(lambda: np.eye(2))
    >>> is_made(held, "matrix"), held.matrix.sum(), is_made(held, "matrix")
    (False, np.float64(2.0), True)
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Late: ...

    @overload
    def __get__(self, instance: object, owner: type) -> NDArray[Any]: ...

    def __get__(self, instance: object | None, owner: type) -> Any:
        if instance is None:  # so that dataclasses sees no default
            raise AttributeError(self._name)
        held = vars(instance)
        maker = held[self._name]
        if callable(maker):
            made = maker()
            # of threads that read at once, all get what the first has made
            with _LOCK:
                if held[self._name] is maker:
                    held[self._name] = made
        return held[self._name]

    def __set__(self, instance: object, value: NDArray[Any] | Maker) -> None:
        vars(instance)[self._name] = value


def is_made(instance: object, name: str) -> bool:
    """Whether a late field holds its matrix already."""
    return not callable(vars(instance)[name])


def unmade(instance: object, name: str) -> NDArray[Any] | Maker:
    """Give what a late field holds, without making it."""
    held: NDArray[Any] | Maker = vars(instance)[name]
    return held
