"""What a function returns, as flat rows; and cotangents, in the place of what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.errors import OutputsChangedError, SubjectError
from gradlab.subject.numpy_values import as_numpy
from gradlab.subject.subject import Variable
from gradlab.subject.tree import Tree, flatten, leaves_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Outputs"]


class Outputs:
    """Reads results: finds the outputs once, then turns each result into a row."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.variables: tuple[Variable, ...] = ()
        self.paths: tuple[str, ...] = ()  # within what is returned: "0", "loss.mean"
        self.shapes: tuple[tuple[int, ...], ...] = ()  # unsplit, as the user sees them
        self.dtypes: tuple[np.dtype[Any], ...] = ()
        self.single = True  # not in a container
        self.kept: tuple[int, ...] = ()  # which of them are differentiable
        self.returned = 0  # outputs of any kind
        self._blank: list[Any] = []  # zeros, for outputs that are numbers all the same
        self._nest: Tree | None = None  # what they stand in, if not in a plain tuple
        self._known = False

    def learn(self, result: Any) -> None:
        """Find out what the outputs are, from a first result."""
        leaves = leaves_of(result, self._name)
        self.single = len(leaves) == 1 and leaves[0].value is result
        if _is_nested(result):
            # without the values: a large result is not kept for its form
            self._nest = Tree((), flatten((result,), [self._name]).template)
        names, arrays, kept = [], [], []
        for position, leaf in enumerate(leaves):
            if leaf.value is None or isinstance(leaf.value, str | bool):
                continue
            array = as_numpy(leaf.value, f"output {leaf.name!r}")
            if array.dtype.kind in "fc" or array.dtype.name == "bfloat16":
                names.append(leaf.name)
                arrays.append(array)
                kept.append(position)
        if not kept:
            found = ", ".join(f"{leaf.name}: {_summary(leaf.value)}" for leaf in leaves)
            if [leaf.value for leaf in leaves] == [None]:
                msg = "the function returned None; let it end with return and a number"
                raise SubjectError(msg)
            msg = (
                f"the function returned nothing of floating point "
                f"({found or 'nothing'}); a derivative needs at least one real or "
                "complex output"
            )
            raise SubjectError(msg)
        self.kept, self.returned, self._known = tuple(kept), len(leaves), True
        self._blank = [
            None if position in kept else _zeros_like(leaf.value)
            for position, leaf in enumerate(leaves)
        ]
        self.paths = tuple(name.removeprefix(f"{self._name}.") for name in names)
        self.shapes = tuple(array.shape for array in arrays)
        self.dtypes = tuple(array.dtype for array in arrays)
        self.variables = tuple(
            variable
            for name, array in zip(names, arrays, strict=True)
            for variable in _split(name, array)
        )

    def own_entries(self) -> NDArray[np.bool_]:
        """Tell entries of outputs that have a derivative from those of other numbers.

        Of all outputs behind each other, (entries,).

        Examples
        --------
        >>> reader = Outputs("out")
        >>> reader.learn((np.ones(2), np.array([3, 1]), "words", 1.5))
        >>> reader.own_entries().tolist()
        [True, True, False, False, True]
        """
        shapes = dict(zip(self.kept, self.shapes, strict=True))
        parts = [
            np.full(0 if zeros is None else np.size(zeros), fill_value=False)
            for zeros in self._blank
        ]
        for position, shape in shapes.items():
            parts[position] = np.full(int(np.prod(shape)), fill_value=True)
        return np.concatenate(parts)

    def row(self, result: Any) -> NDArray[np.float64]:
        """Flatten a result into fresh memory, one number per real output row."""
        if not self._known:
            self.learn(result)
        if self.single:
            if isinstance(result, float) and self.shapes[0] == ():
                return np.array([result])
            return self._flat(result, 0)
        leaves = leaves_of(result, self._name)
        if self.kept[-1] >= len(leaves):
            msg = (
                f"the function returned {len(leaves)} outputs at a perturbed point, "
                f"and more before; its outputs must not depend on the values of the "
                "inputs"
            )
            raise OutputsChangedError(msg)
        parts = [self._flat(leaves[p].value, i) for i, p in enumerate(self.kept)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _flat(self, value: Any, which: int) -> NDArray[np.float64]:
        array = value if type(value) is np.ndarray else as_numpy(value, "an output")
        if array.shape != self.shapes[which]:
            msg = (
                f"output {which} has shape {array.shape} at a perturbed point and "
                f"{self.shapes[which]} at the given inputs; shapes must not depend on "
                f"the values of the inputs"
            )
            raise OutputsChangedError(msg)
        if self.dtypes[which].kind == "c":
            flat = array.reshape(-1)
            return np.concatenate([flat.real, flat.imag]).astype(np.float64)
        # astype always copies: the result may alias an input that is about to change
        return array.reshape(-1).astype(np.float64)

    def cotangents(self, row: NDArray[np.float64]) -> list[NDArray[Any]]:
        """Shape one real cotangent row as the user's outputs, complex ones joined."""
        parts, start = [], 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            size = int(np.prod(shape))
            real = row[start : start + size]
            start += size
            if dtype.kind == "c":
                real = real + 1j * row[start : start + size]
                start += size
            parts.append(np.array(real.reshape(shape), dtype=dtype))
        return parts

    def arrangements(self, parts: Sequence[Any]) -> list[Any]:
        """Hand out one part for each output, as the function hands out its outputs.

        Dicts, named tuples and containers in containers are filled anew; what has no
        derivative is None there. So are plain tuples. Where these hold one output
        alone, or some without a derivative, they may be taken otherwise as well: those
        parts only, and zeros in place of None.

        Returns
        -------
        list
            One form, or all that may be meant, the likeliest first.
        """
        plain = parts[0] if len(parts) == 1 else tuple(parts)
        filled = self._filled(parts, [None] * self.returned)
        if self._nest is not None:
            return [self._nest.rebuild(filled)[0]]
        if self.single or (len(parts) == self.returned and len(parts) > 1):
            return [plain]
        whole = _Standing(filled)
        if len(parts) == self.returned:
            return [whole, plain]
        with_zeros = _Standing(self._filled(parts, self._blank))
        if len(parts) == 1:
            return [whole, with_zeros, plain]
        return [whole, plain, with_zeros]

    def _filled(self, parts: Sequence[Any], blank: Sequence[Any]) -> list[Any]:
        values = list(blank)
        for position, part in zip(self.kept, parts, strict=True):
            values[position] = part
        return values


class _Standing(tuple[Any, ...]):
    """Cotangents where the outputs stand; as one array they are of no use.

    Arithmetic with a plain tuple would go on, and mean something else.
    """

    __slots__ = ()
    __array_ufunc__ = None  # an array times this raises

    def __array__(self, *_: Any, **__: Any) -> Any:
        msg = "a tuple with one cotangent for each output is no array"
        raise TypeError(msg)

    def _refuse(self, _: Any) -> Any:
        return NotImplemented

    __add__ = __mul__ = __rmul__ = _refuse


def _zeros_like(value: Any) -> Any:
    """Cotangent of an output without a derivative: zeros for numbers, else None."""
    if value is None or isinstance(value, str):
        return None
    array = as_numpy(value, "an output")
    return np.zeros(array.shape)[()] if array.dtype.kind in "biu" else None


def _is_nested(result: Any) -> bool:
    """Whether a result is more than one output, or a plain row of them."""
    if isinstance(result, tuple | list):
        return hasattr(result, "_fields") or any(map(_is_container, result))
    return _is_container(result)


def _is_container(value: Any) -> bool:
    leaves = leaves_of(value, "")
    return len(leaves) != 1 or leaves[0].value is not value


def _summary(value: object) -> str:
    shape = getattr(value, "shape", None)
    dtype = getattr(value, "dtype", None)
    kind = type(value).__name__
    return kind if shape is None else f"{kind} of {dtype} {tuple(shape)}"


def _split(name: str, array: NDArray[Any]) -> list[Variable]:
    if array.dtype.kind == "c":
        real = array.real.dtype.name
        return [
            Variable(f"{name}.{part}", array.shape, real) for part in ("real", "imag")
        ]
    return [Variable(name, array.shape, array.dtype.name)]
