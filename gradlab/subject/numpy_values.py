"""Between the user's values and real coordinates: arrays in, flat rows out."""

from __future__ import annotations

import dataclasses
import numbers
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.errors import InputTypeError
from gradlab.subject.guarding.saved_arrays import same_bytes
from gradlab.subject.tree import leaves_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.subject import Coordinates
    from gradlab.subject.tree import Leaf

__all__ = [
    "Working",
    "as_complex",
    "as_numpy",
    "coordinates_of",
    "gather",
    "is_differentiable",
    "is_number",
    "output_converter",
    "scatter",
    "undoing",
    "working_copy",
]


_WATCHED = 1 << 26  # bytes of a copy that is compared with what it was


def is_number(value: object) -> bool:
    """Whether `value` is a real or complex Python or NumPy scalar, and no bool."""
    return isinstance(value, numbers.Complex | np.inexact | np.integer) and not (
        isinstance(value, bool | np.bool_)
    )


def _dtype_kind(value: object) -> str:
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return ""
    if isinstance(dtype, np.dtype):
        return "f" if dtype.name == "bfloat16" else dtype.kind
    name = str(dtype)
    return "c" if "complex" in name else "f" if "float" in name else "i"


def is_differentiable(value: object) -> bool:
    """Whether `value` is an array of floating-point or complex numbers."""
    return hasattr(value, "shape") and _dtype_kind(value) in {"f", "c"}


def as_numpy(value: Any, what: str, remedy: str = "return") -> NDArray[Any]:
    """View or copy an array of any library as a NumPy array.

    Parameters
    ----------
    value
        The array, or a number.
    what
        What it is, for a message.
    remedy
        What to do with an array instead: "return" or "pass" it.

    Raises
    ------
    InputTypeError
        If it cannot be read; the message names `what`.
    """
    if hasattr(value, "detach"):  # a tensor: off its graph and its device
        value = value.detach().cpu()
        value = value.to_dense() if getattr(value, "is_sparse", False) else value
        value = value.resolve_conj().resolve_neg()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
        return np.asarray(value.numpy())
    masked = sys.modules.get("numpy.ma")  # whoever has one has loaded it
    if masked is not None and isinstance(value, masked.MaskedArray):
        value = value.filled(0)  # what is masked is not there
    if hasattr(value, "toarray"):  # scipy's sparse matrices
        value = value.toarray()
    elif hasattr(value, "get") and hasattr(value, "__cuda_array_interface__"):
        value = value.get()
    try:
        array = np.asarray(value)
    except Exception as cause:
        msg = f"{what} is a {type(value).__name__}, which is not an array"
        raise InputTypeError(msg) from cause
    if array.dtype.kind in "OSTUMm":  # objects, words and dates
        kind, other = (
            f"of type {type(value).__name__}",
            "NumPy arrays, tensors or numbers",
        )
        if value is None:
            kind = "None"
        elif isinstance(value, np.ndarray):
            kind, other = f"an array of dtype {array.dtype}", "it with .astype(float)"
        msg = f"{what} is {kind}, which is not an array of numbers; {remedy} {other}"
        raise InputTypeError(msg)
    return array


@dataclasses.dataclass(slots=True, eq=False)
class Working:
    """One differentiable input where it is perturbed, and how the user's code sees it.

    Parameters
    ----------
    array
        The array that is written to: a private copy, or the user's own (`live`).
    present
        What the function is called with: the array itself, or a conversion of it.
    pristine
        The point.
    lent
        The last copy of it that the analytic side was given, if it is not large.
    """

    array: NDArray[Any]
    present: Callable[[NDArray[Any]], Any] | None
    pristine: NDArray[Any]
    lent: NDArray[Any] | None = None

    def value(self) -> Any:
        """Return what the function is called with."""
        return self.array if self.present is None else self.present(self.array)

    def lend(self) -> Any:
        """Return the point as the function takes it, in memory of its own."""
        copy = self.pristine.copy(order="K")
        self.lent = copy if copy.nbytes <= _WATCHED else None
        return copy if self.present is None else self.present(copy)

    @property
    def scribbled(self) -> bool:
        """Whether what was lent last has been written to."""
        return self.lent is not None and not same_bytes(self.lent, self.pristine)


def undoing(held: Sequence[Working], call: Callable[[], Any]) -> Any:
    """Call what reads arrays where they are, and undo what it writes to them.

    What it left there is remembered as what it was lent.
    """
    watched = [each for each in held if each.array.nbytes <= _WATCHED]
    before = [each.array.copy() for each in watched]
    try:
        return call()
    finally:
        for each, was in zip(watched, before, strict=True):
            if not same_bytes(each.array, was):
                each.lent = each.array.copy()
                each.array[...] = was


def working_copy(leaf: Leaf, *, live: bool) -> Working:
    """Prepare one input for perturbation.

    NumPy arrays keep their memory order; numbers and arrays of other libraries are
    held as NumPy arrays and converted back for every call.
    """
    value = leaf.value
    present: Callable[[NDArray[Any]], Any] | None = None
    if isinstance(value, np.ndarray):
        array = value if live else np.array(value, order="K", copy=True, subok=True)
    elif isinstance(value, np.generic):
        array, present = np.array(value), _as_scalar
    elif is_number(value):
        kind = complex if isinstance(value, complex) else float
        array, present = np.array(value, dtype=kind), _as_python
    elif isinstance(value, list | tuple):
        array = np.array(value, dtype=np.result_type(np.asarray(value), np.float64))
    else:
        array, present = np.array(as_numpy(value, leaf.name)), _converter(value)
        if present is None:
            msg = (
                f"{leaf.name} is of type {type(value).__name__}, which follows no "
                f"array standard; pass np.asarray({leaf.name}), a tensor of torch, "
                f"or an array of another array-API library"
            )
            raise InputTypeError(msg)
    return Working(array, present, array.copy(order="K"))


def _as_scalar(array: NDArray[Any]) -> Any:
    return array[()]


def _as_python(array: NDArray[Any]) -> Any:
    return array.item()


def _converter(value: Any) -> Callable[[NDArray[Any]], Any] | None:
    """Conversion from NumPy to the library of `value`; None if it is of no library."""
    import array_api_compat

    try:
        library = array_api_compat.array_namespace(value)
    except TypeError:
        return None
    device = array_api_compat.device(value)
    # a copy each time: the library may keep what it is given, and we perturb in place
    return lambda array: library.asarray(array.copy(), device=device)


def output_converter(result: Any) -> Callable[[NDArray[Any]], Any] | None:
    """Conversion of cotangents to the library of the outputs; None for NumPy's own."""
    for leaf in leaves_of(result, ""):
        if is_differentiable(leaf.value):
            native = isinstance(leaf.value, np.ndarray | np.generic)
            return None if native else _converter(leaf.value)
    return None


class _Interleaved:
    """Real coordinates of a complex array: re, im, re, im, ... in row-major order."""

    __slots__ = ("_imag", "_real", "_size")

    def __init__(self, array: NDArray[Any]) -> None:
        self._real, self._imag, self._size = (
            array.real.flat,
            array.imag.flat,
            array.size,
        )

    def __len__(self) -> int:
        return 2 * self._size

    def __getitem__(self, position: int) -> float:
        entry, part = divmod(position, 2)
        return float((self._imag if part else self._real)[entry])

    def __setitem__(self, position: int, value: float) -> None:
        entry, part = divmod(position, 2)
        (self._imag if part else self._real)[entry] = value


def coordinates_of(array: NDArray[Any]) -> Coordinates:
    """Flat, writable view on the real coordinates of an array, whatever its strides."""
    array = array.view(np.ndarray)  # a matrix is never flat, a mask hides entries
    if np.iscomplexobj(array):
        return _Interleaved(array)
    if array.flags.c_contiguous:
        return array.reshape(-1)
    return array.flat


def gather(array: NDArray[Any]) -> NDArray[np.float64]:
    """Copy the real coordinates of an array, in row-major order."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if np.iscomplexobj(flat):
        return np.stack([flat.real, flat.imag], axis=1).reshape(-1).astype(np.float64)
    return flat.astype(np.float64)


def as_complex(pairs: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Join the real and imaginary coordinates that alternate along the last axis.

    Not by ``real + 1j * imaginary``: where the imaginary part is infinite, that makes
    nan of the real one.

    Examples
    --------
    >>> as_complex(np.array([1.0, np.inf]))
    array([1.+infj])
    """
    return np.ascontiguousarray(pairs, dtype=np.float64).view(np.complex128)


def scatter(array: NDArray[Any], values: NDArray[np.float64]) -> None:
    """Write real coordinates into an array, in place."""
    array = array.view(np.ndarray)
    if np.iscomplexobj(array):
        array[...] = as_complex(values).reshape(array.shape)
    else:
        array[...] = values.reshape(array.shape)
