"""Numbers that leave torch and come back with fewer digits than they had.

``torch.tensor(float(h.sum()))`` is a constant to autograd, and one of float32 wherever
that is the default dtype. In a function that computes in float64 it is a stair: a step
of a difference that ends on the same one does not see what autograd does not see
either, and the two agree. In a copy whose default dtype is float64 the stair is gone.
"""

from __future__ import annotations

import contextlib
import dataclasses
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.tensors.values import is_differentiable, is_double

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = [
    "EXITS",
    "Returning",
    "displaced",
    "makes_of_numbers",
    "returning_watched",
    "rounded_on_return",
]

EXITS = frozenset({"item", "numpy", "tolist", "__array__", "__float__", "__complex__"})
# Functions of torch that make tensors of numbers, not of tensors or of a shape alone.
_MAKING = frozenset(
    (
        *("tensor", "as_tensor", "asarray", "scalar_tensor", "full"),
        *("linspace", "logspace", "arange", "new_tensor", "new_full", "full_like"),
    )
)
_HALF = 2  # bytes of a number in half precision, be it float16 or bfloat16
_LISTED = 1000  # members of a list that are looked at
_FAR = 1e-3  # of its size: what every number is moved by, to see what follows


def makes_of_numbers(func: Any) -> bool:
    """Whether a function of torch makes a tensor of numbers that Python holds.

    Examples
    --------
    >>> import torch
    >>> makes_of_numbers(torch.tensor), makes_of_numbers(torch.zeros)
    (True, False)
    """
    return getattr(func, "__name__", "") in _MAKING


class Returning:
    """What came back in less than double precision, after something had left.

    Attributes
    ----------
    met
        What did, or may have, in order; evaluations at two points tell constants apart,
        and what is short by chance: a number that is an input of float32.
    narrowed
        "single" and "half" where a function of torch made something in that precision
        of what had more and depends on the inputs; "constant" where it does not.
    """

    def __init__(self) -> None:
        self.narrowed: set[str] = set()
        self._left = False
        self._known: dict[int, Any] = {}  # short tensors by identity, kept alive
        self.met: list[_Met] = []

    def meet(
        self, name: str, args: Any, result: Any, kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """Take notice of a function of torch that was called."""
        # what is written into, x[i] = y, is no result
        made = args[0] if result is None and args else result
        if short := _is_short(made):
            half = _is_half(made)
            longer = [each for each in args if _is_longer(each, half)]
            if longer:
                depends = any(each.requires_grad for each in longer)
                word = "half" if half else "single"
                self.narrowed.add(word if depends else "constant")
        if name in EXITS:
            self._left |= bool(args) and is_double(args[0])
        elif self._left:
            given = list(_members(chain(args, (kwargs or {}).values())))
            for value in given:
                self._take(name, value)
            if any(map(_is_number, given)):
                self._note(name, made)  # a number may have left: torch does not know
            elif name in _MAKING:
                self._take(name, made)
            if short:  # torch made it of what it had
                self._known[id(made)] = made

    def _take(self, name: str, value: Any) -> None:
        """Note what is short, and what no function of torch was seen to compute."""
        if id(value) not in self._known:
            self._note(name, value)

    def _note(self, name: str, value: Any) -> None:
        if _is_short(value):
            self._known[id(value)] = value
            self.met.append(_Met(name, value.detach().clone(), tensor=True))
        elif _is_number(value) or (name in _MAKING and is_double(value)):
            self.met.append(_Met(name, _as_short(value), tensor=False))

    @property
    def names(self) -> list[str]:
        """Functions of torch that made what is short, or met what Python had made."""
        return [each.name for each in self.met if each.value is not None]

    @property
    def tensors(self) -> list[str]:
        """The same of tensors that are short by their dtype."""
        return [each.name for each in self.met if each.tensor]

    @property
    def epsilon(self) -> float:
        """Unit round-off of the coarsest of them."""
        import torch

        values = [each.value for each in self.met if each.value is not None]
        return max(float(torch.finfo(value.dtype).eps) for value in values)

    def moved_by(self, other: Returning) -> list[str]:
        """Name those that hold something else in an evaluation at another point."""
        if [each.name for each in self.met] != [each.name for each in other.met]:
            return self.names
        both = zip(self.met, other.met, strict=True)
        return [one.name for one, two in both if one.other_than(two)]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Met:
    """What a function met: short, or None for a number that has all its digits."""

    name: str
    value: Any
    tensor: bool

    def other_than(self, there: _Met) -> bool:
        """Whether both are short, and not the same."""
        import torch

        one, two = self.value, there.value
        return one is not None and two is not None and not torch.equal(one, two)


def _is_short(value: Any) -> bool:
    return is_differentiable(value) and not is_double(value)


def _is_half(value: Any) -> bool:
    return bool(value.dtype.itemsize == _HALF)


def _is_longer(value: Any, half: bool) -> bool:  # noqa: FBT001 - only here
    """Whether it has more digits than single precision, or than half."""
    if half:
        return is_differentiable(value) and not _is_half(value)
    return is_double(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (float, np.floating))


def _as_short(value: Any) -> Any:
    """Return a number, or a tensor, in float32 if that holds it too; else None.

    Whole numbers count something: they are none.
    """
    import torch

    if _is_number(value):
        value = torch.tensor(float(value), dtype=torch.float64)
    wide = torch.view_as_real(value.detach()) if value.is_complex() else value.detach()
    short = wide.to(torch.float32)
    exact = torch.equal(short.to(wide.dtype), wide)
    return None if not exact or torch.equal(wide.round(), wide) else short


def _members(values: Any) -> Iterator[Any]:
    """Go through values, and through those of short lists."""
    for value in values:
        if isinstance(value, (list, tuple)) and len(value) <= _LISTED:
            yield from _members(value)
        else:
            yield value


@contextlib.contextmanager
def returning_watched() -> Iterator[Returning]:
    """Collect what comes back shorter than it left.

    Examples
    --------
    >>> import torch
    >>> with returning_watched() as seen:
    ...     y = torch.tensor(float(torch.ones(2, dtype=torch.float64).sum()))
    >>> seen.names
    ['tensor']
    """
    import torch

    from gradlab.subject.tensors.incremental.standing_in import watching

    seen = Returning()

    def answer(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - others may watch as well
            seen.meet(getattr(func, "__name__", ""), args, result, kwargs)
        return result

    with watching(answer):
        yield seen


def rounded_on_return(subject: TorchSubject, seen: Returning) -> list[str]:
    """Name what comes back shorter than it left, and depends on the inputs.

    Parameters
    ----------
    subject
        Evaluated once more, at another point, where there is anything to tell apart;
        it is where it was afterwards.
    seen
        What an evaluation at its point met.
    """
    if not seen.names:
        return []
    try:
        with displaced(subject), returning_watched() as there:
            subject.row()
    except Exception:  # noqa: BLE001 - outside its domain: no constant for certain
        return seen.names
    return seen.moved_by(there)


@contextlib.contextmanager
def displaced(*subjects: TorchSubject) -> Iterator[None]:
    """Move all inputs a little meanwhile, the same way for subjects at one point.

    Examples
    --------
    >>> import torch
    >>> from gradlab.subject.tensors.subjects import torch_subject
    >>> subject = torch_subject(torch.exp, (torch.zeros(2, dtype=torch.float64),))
    >>> with displaced(subject):
    ...     print(subject.row().round(4))
    [0.999 1.001]
    >>> subject.row()
    array([1., 1.])
    """
    each = [(subject, k) for subject in subjects for k in range(len(subject.inputs))]
    try:
        for subject, which in each:
            point = subject.point(which)
            signs = np.where(np.arange(point.size) % 3, 1.0, -1.0)
            scale = np.maximum(np.abs(point), np.abs(point).max(initial=0.0) or 1.0)
            subject.place(which, point + _FAR * signs * scale)
        yield
    finally:
        for subject, which in each:
            subject.place(which, None)
