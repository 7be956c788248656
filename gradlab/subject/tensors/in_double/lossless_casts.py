"""Casts that lose nothing, left out of a copy in float64.

``logits.float()`` in a bfloat16 model widens; in a float32 model it does nothing. Taken
literally in a copy of the model in float64 it would narrow. A cast to a type that holds
every number of every input is no statement about precision, and the copy goes on in
float64. A cast to less is one, and stays.

The same goes for room that is made for results, ``torch.zeros(n, dtype=torch.float)``.

Neither is the dtype of what a function holds, the W of ``lambda x: W @ x``: it was the
one that W could be multiplied in. Where it meets float64 it is widened, and its numbers
are the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from typing import TYPE_CHECKING, Any

from gradlab.subject.tensors.calling.uncompiled import uncompiled
from gradlab.subject.tensors.in_double.returning import makes_of_numbers
from gradlab.subject.tensors.values import is_double

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gradlab.subject.tensors.calling.programs import Program
    from gradlab.subject.tensors.values import Cell

    Around = Callable[[], contextlib.AbstractContextManager[None]]

__all__ = ["AnalyticWithin", "Casts", "Within", "loss_within"]

# Functions of torch that make what results are written to, x[i] = y: in float32 that
# rounds them as a cast does.
_ROOM = frozenset(
    f"{new}{name}{like}"
    for name in ("zeros", "ones", "empty")
    for new, like in (("", ""), ("new_", ""), ("", "_like"))
)
_PLAIN = (int, float, bool, str, slice, type(None))


@dataclasses.dataclass(frozen=True, slots=True)
class Casts:
    """The casts to leave out.

    Attributes
    ----------
    wide
        Dtypes that hold every input of the subject, each with its float64 counterpart.
    same
        Whether such a cast returns its own argument, as ``x.float()`` does of float32.
    """

    wide: Mapping[Any, Any]
    same: bool

    @classmethod
    def harmless(cls, dtypes: Iterable[Any]) -> Casts:
        """Find the dtypes that lose nothing of any input, by the dtypes of inputs.

        Examples
        --------
        >>> import torch
        >>> casts = Casts.harmless([torch.bfloat16])
        >>> sorted(map(str, casts.wide))
        ['torch.bfloat16', 'torch.complex64', 'torch.float32']
        """
        import torch

        came = set(dtypes)
        if not came:
            return cls({}, same=False)
        limits = [torch.finfo(dtype) for dtype in came]
        fine = min(limit.eps for limit in limits)
        large = max(limit.max for limit in limits)
        wide = {
            dtype: torch.complex128 if dtype.is_complex else torch.float64
            for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.complex64)
            if torch.finfo(dtype).eps <= fine and torch.finfo(dtype).max >= large
        }
        return cls(wide, same=came <= {torch.float32, torch.complex64})

    @classmethod
    def halves(cls) -> Casts:
        """Choose the two types of sixteen bits, which lose all but three digits."""
        import torch

        wide = dict.fromkeys((torch.float16, torch.bfloat16), torch.float64)
        return cls(wide, same=False)

    @classmethod
    def singles(cls) -> Casts:
        """Choose single precision, real and complex."""
        import torch

        wide = {torch.float32: torch.float64, torch.complex64: torch.complex128}
        return cls(wide, same=False)

    @classmethod
    def shorter(cls) -> Casts:
        """Choose those and single precision, which such numbers are widened to."""
        return cls({**cls.halves().wide, **cls.singles().wide}, same=False)

    @contextlib.contextmanager
    def left_out(self) -> Iterator[None]:
        """Leave them out of whatever torch functions are called meanwhile."""
        import torch
        from torch.overrides import TorchFunctionMode

        methods = {
            torch.Tensor.float: torch.float32,
            torch.Tensor.half: torch.float16,
            torch.Tensor.bfloat16: torch.bfloat16,
        }
        casting = (torch.Tensor.to, torch.Tensor.type)
        special = {*methods, *casting}
        casts = self

        class LeaveOut(TorchFunctionMode):
            def __torch_function__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                kwargs = kwargs or {}
                given = (*args, *kwargs.values())
                if func not in special and not any(map(_may_be_short, given)):
                    return func(*args, **kwargs)  # most calls: there is nothing to do
                if _makes(func) and kwargs.get("dtype") in casts.wide:
                    kwargs = {**kwargs, "dtype": casts.wide[kwargs["dtype"]]}
                if not any(map(_is_wide, given)):
                    return func(*args, **kwargs)
                if methods.get(func) in casts.wide:
                    func, args = torch.Tensor.to, (args[0], methods[func])
                into = args[0] if _writes(func) else kwargs.get("out")
                args = tuple(a if a is into else casts.widened(a) for a in args)
                kwargs = {
                    key: value if value is into else casts.widened(value)
                    for key, value in kwargs.items()
                }
                result = func(*args, **kwargs)
                if casts.same or not args or result is not args[0]:
                    return result
                # the user's cast returned memory of its own
                return result.clone() if func in casting else result

        with uncompiled(), LeaveOut():
            yield

    def widened(self, value: Any) -> Any:
        """Return the float64 counterpart of such a dtype, or of any short tensor.

        What a function holds may be shorter than its inputs: half precision data
        beside a parameter in float32. Anything else comes back as it is.
        """
        import torch

        if type(value) in (list, tuple):
            return type(value)(map(self.widened, value))
        if isinstance(value, torch.Tensor):
            if value.is_complex():
                return value.to(torch.complex128)
            return value.double() if value.is_floating_point() else value
        return self.wide.get(value, value) if isinstance(value, torch.dtype) else value


def _is_wide(value: Any) -> bool:
    """Whether `value` is a tensor in double precision, or holds one."""
    if type(value) in (list, tuple):
        return any(map(is_double, value))
    return is_double(value)


def _may_be_short(value: Any) -> bool:
    """Whether `value` is a tensor of less than double precision, holds one, or a dtype.

    Examples
    --------
    >>> import torch
    >>> values = 2, torch.ones(2), [torch.ones(2)], torch.ones(2).double(), torch.half
    >>> [_may_be_short(value) for value in values]
    [False, True, True, False, True]
    """
    if type(value) in _PLAIN:
        return False
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        dtype = value.dtype
        known = dtype is torch.float64 or dtype is torch.complex128
        return not known and (dtype.is_floating_point or dtype.is_complex)
    if type(value) in (list, tuple):
        return any(map(_may_be_short, value))
    return isinstance(value, torch.dtype)


def _makes(func: Any) -> bool:
    """Whether a torch function makes a tensor of numbers, or room for some."""
    return makes_of_numbers(func) or getattr(func, "__name__", "") in _ROOM


def _writes(func: Any) -> bool:
    """Whether a torch function writes into its first argument."""
    name = getattr(func, "__name__", "")
    if name.endswith("__"):
        return name == "__setitem__" or name.startswith("__i")  # x[i] = y, x += y
    return bool(name.endswith("_"))


class Within:
    """A program in float64 that runs within a context, such as casts left out.

    Parameters
    ----------
    program
        What runs.
    around
        Makes the context of each call.
    changes_defaults
        Whether that is one of the whole process: no two threads at a time.
    """

    def __init__(
        self, program: Program, around: Around, *, changes_defaults: bool = False
    ) -> None:
        self._program = program
        self._around = around
        self.kind = program.kind
        inside = getattr(program, "changes_defaults", False)
        self.changes_defaults = changes_defaults or inside

    @property
    def module(self) -> Any:
        """The module, if it is one; None for a function."""
        return getattr(self._program, "module", None)

    @property
    def swap(self) -> Any:
        """Where its tensors stand in a module; None for a function."""
        return getattr(self._program, "swap", None)

    @property
    def buffers(self) -> dict[str, Any]:
        """Private buffers of a module; empty for a function."""
        return self._program.buffers

    def call(
        self, values: Sequence[Any], buffers: Mapping[str, Any] | None = None
    ) -> object:
        """Return the user's result."""
        with self._around():
            return self._program.call(values, buffers)

    def standing(
        self, values: Sequence[Any], buffers: Mapping[str, Any] | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Let a module's private tensors stand in it, for a loss that reads them."""
        return self._program.standing(values, buffers)

    def widened(self, cells: Sequence[Cell], *, copied: bool) -> Program | None:
        """Return the same program in float64: it is."""
        return self._program.widened(cells, copied=copied)


class AnalyticWithin:
    """Autograd on such a program: a backward casts as a forward does.

    On the processor only: other devices run their part of a backward in threads of
    their own, which no mode of this one reaches.
    """

    def __init__(self, analytic: Any, around: Around) -> None:
        self._analytic = analytic
        self._around = around

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._analytic, name)
        if name not in ("pull", "stream"):
            return value

        def under(*arguments: Any) -> Any:
            with self._around():
                return value(*arguments)

        return under

    def on(self, subject: Any) -> AnalyticWithin:
        """Return the same for another subject."""
        return AnalyticWithin(self._analytic.on(subject), self._around)


def loss_within(
    loss: Callable[..., Any] | None, around: Around
) -> Callable[..., Any] | None:
    """Return a loss that is computed within a context."""
    if loss is None:
        return None

    def within(*arguments: Any) -> Any:
        with around():
            return loss(*arguments)

    return within
