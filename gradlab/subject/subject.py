"""The shape of everything that can be differentiated.

A subject is a function frozen at a point: named inputs, named outputs, one way to
evaluate it nearby, and (usually) the analytic side that is under suspicion. Every
number passes through *real coordinates*: a real array has one per entry, in row-major
order; a complex entry has two neighbours, its real and its imaginary part. A complex
output is observed as two real outputs, ``out.real`` and ``out.imag``. This makes every
Jacobian a real matrix, and the gradient of a real output with respect to a complex
input ``d/d Re + i d/d Im``, which is the convention of torch.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import numpy as np

from gradlab import labels
from gradlab.errors import InputError
from gradlab.subject.analytic_sides import GIVEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.analytic_sides import Analytic
    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = [
    "BEARABLE",
    "DOUBLE",
    "EPSILON",
    "SINGLE",
    "Coordinates",
    "Subject",
    "Variable",
    "analytic_of",
    "block_slices",
    "has_own_code",
    "holds_numbers",
    "input_columns",
    "is_torch_subject",
    "output_rows",
    "side_by_side",
    "unit_vectors",
]

EPSILON = sys.float_info.epsilon  # unit round-off of float64
DOUBLE = 1e-15  # what rounds off more than that is coarser than float64
SINGLE = 1e-6  # the same of float32
# Of a gradient's largest entry: what casts to a precision on the way may round off.
BEARABLE = {"half": 0.1, "single": 1e-3}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """One named array of a subject: an input to perturb or an output to observe."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float64"  # NumPy's word for it; also "bfloat16"
    support: NDArray[np.intp] | None = None  # stored positions, if the array is sparse

    @property
    def size(self) -> int:
        """Number of entries that exist: all, or the stored ones of a sparse array."""
        return math.prod(self.shape) if self.support is None else len(self.support)

    @property
    def is_complex(self) -> bool:
        """Whether every entry has two real coordinates."""
        return self.dtype.startswith("complex")

    @property
    def coordinates(self) -> int:
        """Number of real coordinates."""
        return self.size * (2 if self.is_complex else 1)

    def entry_of(self, coordinate: int) -> int:
        """Entry that a real coordinate belongs to."""
        return coordinate // 2 if self.is_complex else coordinate

    def coordinates_of(self, entries: NDArray[np.intp]) -> NDArray[np.intp]:
        """Real coordinates of some entries, in their order.

        Examples
        --------
        >>> Variable("z", (5,), "complex128").coordinates_of(np.array([0, 3])).tolist()
        [0, 1, 6, 7]
        """
        if not self.is_complex:
            return entries
        pairs = 2 * entries.repeat(2)
        pairs[1::2] += 1
        return pairs

    def index(self, entry: int) -> tuple[int, ...]:
        """Position of an entry in the user's array."""
        flat = entry if self.support is None else int(self.support[entry])
        return labels.unravel(flat, self.shape)

    def entry_at(self, index: tuple[int, ...]) -> int:
        """Entry at a position in the user's array; the inverse of `index`.

        Examples
        --------
        >>> Variable("s", (2, 3), support=np.array([1, 5])).entry_at((1, 2))
        1
        """
        flat = labels.ravel(index, self.shape)
        return flat if self.support is None else int(self.support.searchsorted(flat))

    def label(self, entry: int) -> str:
        """Name of an entry, such as ``W1[3, 2]``."""
        flat = entry if self.support is None else int(self.support[entry])
        return labels.entry_label(self.name, flat, self.shape)


class Coordinates(Protocol):
    """Flat, writable view on the real coordinates of one input, where it lives."""

    def __len__(self) -> int: ...
    def __getitem__(self, position: int, /) -> Any: ...
    def __setitem__(self, position: int, value: float, /) -> None: ...


class Subject(Protocol):
    """A function at a point. See the module docstring for real coordinates.

    What only programs of torch can do (batches, cells, products) is asked of those:
    see `is_torch_subject`.
    """

    live: bool  # whether it reads the user's own arrays where they are
    reset: Callable[[], None] | None  # before every evaluation: puts state back
    draws: bool  # whether it draws random numbers that nothing puts back
    dependent: tuple[str, ...]  # inputs that were computed from others: "y from x"

    @property
    def kind(self) -> str:
        """What it is, for people: "NumPy function", "torch module MLP"."""

    @property
    def inputs(self) -> tuple[Variable, ...]:
        """The inputs with respect to which derivatives are taken."""

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The outputs, complex ones split; known once `row` has been called."""

    @property
    def analytic(self) -> Analytic | None:
        """The side under suspicion, or None where only numbers are wanted."""

    @property
    def epsilon(self) -> float:
        """Unit round-off of the arithmetic in which `row` evaluates."""

    @property
    def mutated(self) -> tuple[str, ...]:
        """Names of inputs that the function was seen to write to."""

    @property
    def least_scales(self) -> dict[int, float]:
        """By how much inputs are moved whose own size is nothing to f.

        By number of the input; see `gradlab.differentiation.lines.least_scales`.
        """

    def batches(self, which: int, count: int) -> bool:
        """Whether `rows` is the way to so many perturbed points of an input."""

    def point(self, which: int) -> NDArray[np.float64]:
        """Real coordinates of input `which` at the point; a copy."""

    def row(self) -> NDArray[np.float64]:
        """Evaluate at what the coordinates hold now: one number per real output row.

        The result is fresh memory. Exceptions of the user's function propagate.
        """

    def coordinates(self, which: int) -> Coordinates:
        """View on the coordinates of input `which`, for perturbing one at a time."""

    def place(self, which: int, values: NDArray[np.float64] | None) -> None:
        """Overwrite all coordinates of an input; None puts the point back."""

    def displace(
        self, which: int, start: int, moves: NDArray[np.float64], factor: float = 1.0
    ) -> None:
        """Write ``point + factor * moves`` from coordinate `start` of an input on."""

    def rows(
        self,
        which: int,
        positions: NDArray[np.intp],
        displacements: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Evaluate with one coordinate displaced at a time, all in one batch.

        Returns
        -------
        values
            Shape (count, rows).
        taken
            The displacements really made, ``(x + d) - x``; shape (count,).
        """

    def in_double(self) -> Subject | None:
        """Return the same function on float64 copies, for a reference, or None."""


def holds_numbers(subject: Subject) -> bool:
    """Whether the analytic side is numbers, which nothing gives at another point."""
    return subject.analytic is not None and subject.analytic.description == GIVEN


def analytic_of(subject: Subject) -> Analytic:
    """Return the side under suspicion.

    Raises
    ------
    InputError
        If there is none; a front door has asked for one before.
    """
    if subject.analytic is None:
        msg = (
            f"there is nothing to check against: the {subject.kind} has no analytic "
            f"side; pass grad=, jac=, backward= or vjp="
        )
        raise InputError(msg)
    return subject.analytic


def is_torch_subject(subject: object) -> TypeGuard[TorchSubject]:
    """Whether a subject runs a program of torch; never imports torch."""
    return hasattr(subject, "program")


def has_own_code(subject: Subject) -> bool:
    """Whether any of the gradient was written by somebody else than torch."""
    if not is_torch_subject(subject):
        return True
    return subject.analytic is None or subject.analytic.own_code is not False


def output_rows(outputs: Sequence[Variable]) -> int:
    """Count the real rows of the Jacobian: entries of all outputs together."""
    return sum(output.size for output in outputs)


def input_columns(inputs: Sequence[Variable]) -> int:
    """Count the real columns of the Jacobian: coordinates of all inputs together."""
    return sum(variable.coordinates for variable in inputs)


def block_slices(outputs: Sequence[Variable]) -> list[slice]:
    """Rows that belong to each output, in order."""
    return side_by_side(output.size for output in outputs)


def side_by_side(sizes: Iterable[int]) -> list[slice]:
    """Slices of parts of these sizes that lie one behind the other.

    Examples
    --------
    >>> side_by_side([2, 3])
    [slice(0, 2, None), slice(2, 5, None)]
    """
    ends = itertools.accumulate(sizes, initial=0)
    return [slice(start, stop) for start, stop in itertools.pairwise(ends)]


def unit_vectors(
    size: int, chosen: Sequence[int] | NDArray[np.intp]
) -> NDArray[np.float64]:
    """Rows of an identity matrix: all of it would fill the memory.

    Examples
    --------
    >>> unit_vectors(3, [2])
    array([[0., 0., 1.]])
    """
    vectors = np.zeros((len(chosen), size))
    vectors[np.arange(len(chosen)), chosen] = 1.0
    return vectors
