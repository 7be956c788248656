"""A Jacobian as people write it: ``jac(x)``, in one piece or output by output."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.differentiation.analytic.hand_written import match, shielded, unique
from gradlab.errors import InputTypeError
from gradlab.subject.analytic_sides import AnalyticDefaults, Problem, Pullback
from gradlab.subject.numpy_values import as_numpy
from gradlab.subject.subject import output_rows
from gradlab.subject.tree import is_mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.numpy_outputs import Outputs
    from gradlab.subject.numpy_subjects import ArraySubject
    from gradlab.subject.subject import Variable

__all__ = ["UserJacobian"]


@dataclasses.dataclass(slots=True, eq=False)
class UserJacobian(AnalyticDefaults):
    """A Jacobian that the user computes: ``jac(x)`` of shape out x in.

    2-D (rows x entries) or of shape ``out.shape + in.shape``; for several inputs a
    tuple with one Jacobian each, for several outputs a tuple of such tuples, a dict by
    output, or the rows of all outputs under each other, with or without those of others
    (integers have no derivative). For complex functions it is the complex derivative
    (Cauchy-Riemann).
    """

    fetch: Callable[[], Any]
    subject: ArraySubject
    description: str = "jac"
    takes_cotangents: bool = True
    makes_whole: bool = True
    _blocks: tuple[list[NDArray[np.float64]], list[Problem]] | None = None

    def pull(self, cotangents: NDArray[np.float64]) -> Pullback:
        """Multiply the cotangents into the Jacobian."""
        if self._blocks is None:
            if self.subject.reset is not None:
                self.subject.reset()
            self._blocks = shielded(
                self._read, self.subject.inputs, self.description, self.subject.reader
            )
        blocks, problems = self._blocks
        values = _contracted(cotangents, blocks)
        return Pullback(values, unique(problems))

    def raw(self) -> Any:
        """Return the Jacobian of one output as the user's code gives it."""
        result = self.fetch()
        return result if len(self.subject.reader.shapes) == 1 else result[0]

    @property
    def answered(self) -> bool:
        """Whether the matrices were asked for."""
        return self._blocks is not None

    def asked_anew(self) -> UserJacobian:
        """Return the same side without the matrices."""
        return dataclasses.replace(self, _blocks=None)

    def held(self) -> int:
        """Bytes of the matrices that the user's function returned."""
        return sum(b.nbytes for b in self._blocks[0]) if self._blocks else 0

    def _read(self) -> tuple[list[NDArray[np.float64]], list[Problem]]:
        subject, reader = self.subject, self.subject.reader
        inputs, wanted = subject.inputs, len(reader.shapes)
        result = _without_other_rows(self.fetch(), reader, inputs)
        per_output = _beside_others(result, reader, inputs)
        if per_output is None and wanted > 1:
            per_output = _by_output(result, reader, inputs)
        elif per_output is None:
            per_output = [result]
        if len(per_output) != wanted:
            kind = type(result).__name__
            came = f"{len(per_output)} Jacobians" if per_output else f"one {kind}"
            return self._refused(f"{came} came back for {wanted} outputs")
        rows: list[list[NDArray[np.float64]]] = [[] for _ in inputs]
        problems: list[Problem] = []
        for part, shape, dtype in zip(
            per_output, reader.shapes, reader.dtypes, strict=True
        ):
            matched = match(
                part, subject.tree, subject.which, inputs, in_place=subject.live
            )
            if isinstance(matched, str):
                return self._refused(matched)
            for i, (value, variable) in enumerate(zip(matched, inputs, strict=True)):
                block, found = _read_block(value, shape, dtype, variable)
                rows[i].append(block)
                problems += found
        return [p[0] if len(p) == 1 else np.concatenate(p) for p in rows], problems

    def _refused(
        self, sentence: str
    ) -> tuple[list[NDArray[np.float64]], list[Problem]]:
        """Know nothing of any entry, and say why of every input."""
        rows, inputs = output_rows(self.subject.outputs), self.subject.inputs
        blank = [np.full((rows, v.coordinates), np.nan) for v in inputs]
        return blank, [Problem("wrong_shape", v.name, f"{sentence}.") for v in inputs]


def _without_other_rows(
    result: Any, reader: Outputs, inputs: Sequence[Variable]
) -> Any:
    """Leave out rows of outputs without a derivative, where those of all outputs come.

    One matrix, or one for each input; anything else is returned as it is.
    """
    own = reader.own_entries()
    parts = [result] if len(inputs) == 1 else result
    told = isinstance(parts, tuple | list) and len(parts) == len(inputs)
    if own.all() or not told:
        return result
    alone = len(inputs) == 1
    found = [
        _under_each_other(part, own.size, variable, alone=alone)
        for part, variable in zip(parts, inputs, strict=True)
    ]
    matrices = [matrix[own] for matrix in found if matrix is not None]
    if len(matrices) < len(inputs):
        return result
    return matrices[0] if alone else tuple(matrices)


def _beside_others(
    result: Any, reader: Outputs, inputs: Sequence[Variable]
) -> list[Any] | None:
    """Pick Jacobians that stand beside those of outputs without a derivative.

    Of ``y, np.argsort(x)`` there may be one for `y` alone, or one for each, zeros or
    None for the order. None where the result is not told apart by outputs.
    """
    if is_mapping(result):
        keys = set(map(str, result))
        by_input = keys & {variable.name for variable in inputs}
        if by_input or not keys.issuperset(reader.paths):
            return None
        return _by_output(result, reader, inputs)
    others = reader.returned > len(reader.shapes)
    if not (others and isinstance(result, tuple | list)):
        return None
    if len(result) != reader.returned:
        return None
    if len(inputs) > 1:
        told = all(r is None or isinstance(r, tuple | list | dict) for r in result)
    else:  # else rows of one Jacobian, written as a list
        rows = sum(int(np.prod(shape)) for shape in reader.shapes)
        told = _under_each_other(result, rows, inputs[0], alone=True) is None
    return [result[place] for place in reader.kept] if told else None


def _by_output(result: Any, reader: Outputs, inputs: Sequence[Variable]) -> list[Any]:
    """Take the Jacobian of several outputs apart; empty if there is no telling how.

    One for each output, by position or by name; or all outputs under each other, as
    SciPy's solvers have it: one matrix, or one for each input.
    """
    if is_mapping(result):
        named = {str(key): value for key, value in result.items()}
        return [named[path] for path in reader.paths if path in named]
    parts = [result] if len(inputs) == 1 else result
    if isinstance(parts, tuple | list) and len(parts) == len(inputs):
        sizes = [int(np.prod(shape)) for shape in reader.shapes]
        matrices = [
            _under_each_other(part, sum(sizes), variable, alone=len(inputs) == 1)
            for part, variable in zip(parts, inputs, strict=True)
        ]
        found = [np.split(m, np.cumsum(sizes)[:-1]) for m in matrices if m is not None]
        if len(found) == len(inputs):
            return list(zip(*found, strict=True))
    return list(result) if isinstance(result, tuple | list) else []


def _under_each_other(
    value: Any, rows: int, variable: Variable, *, alone: bool
) -> NDArray[Any] | None:
    """Read one matrix for all outputs, (rows, entries); None if it is no such thing.

    Beside other inputs a tuple holds Jacobians of one output, not rows.
    """
    if not (alone or hasattr(value, "shape")):
        return None
    try:
        array = as_numpy(value, "a Jacobian")
    except InputTypeError:  # lists of unequal lengths
        return None
    if array.shape not in ((rows, variable.size), (rows, *variable.shape)):
        return None
    return array.reshape(rows, variable.size)


def _read_block(
    value: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    variable: Variable,
) -> tuple[NDArray[np.float64], list[Problem]]:
    """Read one output's Jacobian with respect to one input, as real rows."""
    m, name = int(np.prod(shape)), variable.name
    complex_output = dtype.kind == "c"
    real_rows = m * (2 if complex_output else 1)
    if value is None:
        detail = f"the Jacobian with respect to {name} is None; it counts as 0."
        zero = np.zeros((real_rows, variable.coordinates))
        return zero, [Problem("none", name, detail)]
    blank = np.full((real_rows, variable.coordinates), np.nan)
    try:
        array = as_numpy(value, f"the Jacobian with respect to {name}")
    except InputTypeError as cause:
        return blank, [Problem("dtype", name, f"{cause}.")]
    wanted = dict.fromkeys([(m, variable.size), (*shape, *variable.shape)])
    if array.shape not in wanted:
        detail = (
            f"the Jacobian with respect to {name} has shape {array.shape}, expected "
            f"{' or '.join(map(str, wanted))}."
        )
        return blank, [Problem("wrong_shape", name, detail, array.shape, m)]
    matrix = array.reshape(m, variable.size)
    problems = _slips_of_dtype(matrix, dtype, variable)
    if not complex_output and not variable.is_complex:
        return np.asarray(matrix.real, dtype=np.float64), problems
    matrix = matrix.astype(np.complex128)
    if not variable.is_complex:  # real input, complex output
        return np.concatenate([matrix.real, matrix.imag]), problems
    block = np.empty((real_rows, variable.coordinates))
    # d(u + iv)/dz = D: du/dx = Re D, du/dy = -Im D, dv/dx = Im D, dv/dy = Re D
    block[:m, 0::2], block[:m, 1::2] = matrix.real, -matrix.imag
    if complex_output:
        block[m:, 0::2], block[m:, 1::2] = matrix.imag, matrix.real
    return block, problems


def _slips_of_dtype(
    matrix: NDArray[Any], output: np.dtype[Any], variable: Variable
) -> list[Problem]:
    """Say what the type of a Jacobian cannot hold of the derivative."""
    name, dtype = variable.name, matrix.dtype
    told = f"the Jacobian with respect to {name} has dtype {dtype}"
    if dtype.kind in "biu":
        return [Problem("dtype", name, f"{told}, which holds no fractions.")]
    if dtype.kind == "c" and output.kind != "c" and not variable.is_complex:
        if not matrix.imag.any():
            return []
        detail = f"{told}, but {name} and the output are real."
        return [Problem("dtype", name, detail)]
    coarsest = max(_digit(output), _digit(np.dtype(variable.dtype)))
    if _digit(dtype) > coarsest:
        detail = f"{told}, but {name} is {variable.dtype}: digits were lost on the way."
        return [Problem("dtype", name, detail)]
    return []


def _digit(dtype: np.dtype[Any]) -> float:
    """Size of the last digit of a number around one."""
    if dtype.kind not in "fc":  # bfloat16, which NumPy knows nothing of
        return 2.0**-7
    return float(np.finfo(dtype).eps)


def _contracted(
    cotangents: NDArray[np.float64], blocks: Sequence[NDArray[np.float64]]
) -> tuple[NDArray[np.float64], ...]:
    """Multiply cotangents into the blocks of a Jacobian, one per input.

    Rows that are picked are copied: a product with the identity would turn one nan into
    a row of them. Rows that nobody asks for are left out for the same reason.
    """
    where, rows = np.nonzero(cotangents)
    single = np.array_equal(where, np.arange(len(cotangents)))
    if single and (cotangents[where, rows] == 1).all():
        return tuple(np.asarray(block[rows]) for block in blocks)
    asked = cotangents.any(axis=0)
    with np.errstate(all="ignore"):
        if asked.all():
            return tuple(np.asarray(cotangents @ block) for block in blocks)
        return tuple(np.asarray(cotangents[:, asked] @ b[asked]) for b in blocks)
