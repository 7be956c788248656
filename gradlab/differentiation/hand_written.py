"""The analytic side as people write it: four forms, one reading.

Gradients, a Jacobian, a backward with a cache, and a VJP all become an `Analytic`:
cotangents in, gradients out, in real coordinates.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.differentiation.cotangents import contracted
from gradlab.differentiation.gradients import (
    MISSING,
    match_by_name,
    match_by_position,
    read_gradient,
)
from gradlab.errors import GradlabError, InputError, SubjectError
from gradlab.subject.numpy_values import as_numpy
from gradlab.subject.state_guard import HiddenState
from gradlab.subject.subject import Problem, Pullback, output_rows
from gradlab.subject.tree import flatten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.numpy_subjects import ArraySubject
    from gradlab.subject.numpy_values import Outputs
    from gradlab.subject.subject import Variable
    from gradlab.subject.tree import Tree

__all__ = ["BackwardPass", "Contracted", "UserJacobian", "UserVjp"]


def _assemble(
    gradients: list[Any] | str, inputs: Sequence[Variable]
) -> tuple[list[NDArray[np.float64]], list[Problem]]:
    """Read one gradient per input; a wrong number of them is a problem of all."""
    if isinstance(gradients, str):
        blank = [np.full(v.coordinates, np.nan) for v in inputs]
        return blank, [Problem("wrong_shape", v.name, f"{gradients}.") for v in inputs]
    rows, problems = [], []
    for value, variable in zip(gradients, inputs, strict=True):
        row, found = read_gradient(value, variable)
        rows.append(row)
        problems += found
    return rows, problems


def _unique(problems: list[Problem]) -> tuple[Problem, ...]:
    return tuple(dict.fromkeys(problems))


def match(
    gradients: Any,
    tree: Tree,
    which: Sequence[int],
    inputs: Sequence[Variable],
    *,
    in_place: bool = False,
) -> list[Any] | str:
    """Pick one gradient per input from whatever came back.

    Raises
    ------
    InputError
        If a mapping has no gradient for one of the inputs.
    """
    if hasattr(gradients, "keys") and not hasattr(gradients, "dtype"):
        _require_keys(gradients, tree, which, inputs)
    if in_place and not hasattr(gradients, "keys"):
        # params= is one argument that the function reads by itself
        return match_by_position((gradients,), tree, which, inputs)
    return match_by_position(gradients, tree, which, inputs)


def _require_keys(
    gradients: Any,
    tree: Tree,
    which: Sequence[int],
    inputs: Sequence[Variable],
) -> None:
    paths = [tree.leaves[p].name for p in which]
    found = match_by_name(gradients, inputs, paths)
    absent = [v.name for v, g in zip(inputs, found, strict=True) if g is MISSING]
    if absent:
        msg = (
            f"the gradients have no entry for {', '.join(map(repr, absent))} (they "
            f"have {', '.join(map(repr, map(str, gradients.keys()))) or 'none'}); "
            f"return a gradient for every input, or choose inputs with wrt="
        )
        raise InputError(msg)


@dataclasses.dataclass(slots=True, eq=False)
class Contracted:
    """Gradients of one real output: returned by the function, by `grad`, or given.

    Parameters
    ----------
    fetch
        Returns the gradients, in any of the accepted containers.
    subject
        Supplies names and shapes.
    description
        In words.
    """

    fetch: Callable[[], Any]
    subject: Any  # an ArraySubject, or another one with names and outputs
    description: str
    takes_cotangents: bool = False
    _rows: tuple[list[NDArray[np.float64]], list[Problem]] | None = None

    def pull(self, cotangents: NDArray[np.float64]) -> Pullback:
        """Scale the gradients by the (single) cotangent of each row."""
        if output_rows(self.subject.outputs) != 1:
            shapes = ", ".join(f"{v.name} {v.shape}" for v in self.subject.outputs)
            msg = (
                f"gradients need a function with one real output, a scalar loss; this "
                f"one returns {shapes}; pass jac= or vjp= instead, or reduce the output"
            )
            raise InputError(msg)
        if self._rows is None:
            subject = self.subject
            if subject.reset is not None:
                subject.reset()  # the same random draw as the numeric side
            self._rows = _shielded(
                lambda: _assemble(self._match(self.fetch()), subject.inputs),
                subject.inputs,
                self.description,
            )
        rows, problems = self._rows
        with np.errstate(all="ignore"):
            values = tuple(np.outer(cotangents[:, 0], row) for row in rows)
        return Pullback(values, _unique(problems))

    def _match(self, gradients: Any) -> list[Any] | str:
        subject = self.subject
        if not hasattr(subject, "tree"):  # of another library, with names only
            names = [v.name for v in subject.inputs]
            tree = flatten([None] * len(names), names)
            return match(gradients, tree, range(len(subject.inputs)), subject.inputs)
        return match(
            gradients,
            subject.tree,
            subject.which,
            subject.inputs,
            in_place=subject.live,
        )


@dataclasses.dataclass(slots=True, eq=False)
class UserJacobian:
    """A Jacobian that the user computes: ``jac(x)`` of shape out x in.

    2-D (rows x entries) or of shape ``out.shape + in.shape``; for several inputs a
    tuple with one Jacobian each, for several outputs a tuple of such tuples. For
    complex functions it is the complex derivative (Cauchy-Riemann).
    """

    fetch: Callable[[], Any]
    subject: ArraySubject
    description: str = "jac"
    takes_cotangents: bool = True
    _blocks: tuple[list[NDArray[np.float64]], list[Problem]] | None = None

    def pull(self, cotangents: NDArray[np.float64]) -> Pullback:
        """Multiply the cotangents into the Jacobian."""
        if self._blocks is None:
            if self.subject.reset is not None:
                self.subject.reset()
            self._blocks = _shielded(
                self._read, self.subject.inputs, self.description, self.subject.reader
            )
        blocks, problems = self._blocks
        values = contracted(cotangents, blocks)
        return Pullback(values, _unique(problems))

    def held(self) -> int:
        """Bytes of the matrices that the user's function returned."""
        return sum(b.nbytes for b in self._blocks[0]) if self._blocks else 0

    def _read(self) -> tuple[list[NDArray[np.float64]], list[Problem]]:
        subject, reader = self.subject, self.subject.reader
        result = self.fetch()
        per_output = list(result) if len(reader.shapes) > 1 else [result]
        inputs = subject.inputs
        rows: list[list[NDArray[np.float64]]] = [[] for _ in inputs]
        problems: list[Problem] = []
        if len(per_output) != len(reader.shapes):
            count = f"{len(per_output)} Jacobians came back"
            return _assemble(f"{count} for {len(reader.shapes)} outputs", inputs)
        for part, shape, dtype in zip(
            per_output, reader.shapes, reader.dtypes, strict=True
        ):
            matched = match(
                part, subject.tree, subject.which, inputs, in_place=subject.live
            )
            if isinstance(matched, str):
                return _assemble(matched, inputs)
            for i, (value, variable) in enumerate(zip(matched, inputs, strict=True)):
                block, found = _read_block(value, shape, dtype.kind == "c", variable)
                rows[i].append(block)
                problems += found
        return [p[0] if len(p) == 1 else np.concatenate(p) for p in rows], problems


def _read_block(
    value: Any,
    shape: tuple[int, ...],
    complex_output: bool,  # noqa: FBT001 - internal
    variable: Variable,
) -> tuple[NDArray[np.float64], list[Problem]]:
    """Read one output's Jacobian with respect to one input, as real rows."""
    m, name = int(np.prod(shape)), variable.name
    real_rows = m * (2 if complex_output else 1)
    if value is None:
        detail = f"the Jacobian with respect to {name} is None; it counts as 0."
        zero = np.zeros((real_rows, variable.coordinates))
        return zero, [Problem("none", name, detail)]
    array = as_numpy(value, f"the Jacobian with respect to {name}")
    wanted = dict.fromkeys([(m, variable.size), (*shape, *variable.shape)])
    if array.shape not in wanted:
        detail = (
            f"the Jacobian with respect to {name} has shape {array.shape}, expected "
            f"{' or '.join(map(str, wanted))}."
        )
        blank = np.full((real_rows, variable.coordinates), np.nan)
        return blank, [Problem("wrong_shape", name, detail)]
    matrix = array.reshape(m, variable.size)
    if not complex_output and not variable.is_complex:
        return np.asarray(matrix, dtype=np.float64), []
    matrix = matrix.astype(np.complex128)
    if not variable.is_complex:  # real input, complex output
        return np.concatenate([matrix.real, matrix.imag]), []
    block = np.empty((real_rows, variable.coordinates))
    # d(u + iv)/dz = D: du/dx = Re D, du/dy = -Im D, dv/dx = Im D, dv/dy = Re D
    block[:m, 0::2], block[:m, 1::2] = matrix.real, -matrix.imag
    if complex_output:
        block[m:, 0::2], block[m:, 1::2] = matrix.imag, matrix.real
    return block, []


@dataclasses.dataclass(slots=True, eq=False)
class BackwardPass:
    """``out, cache = forward(*inputs)``; ``backward(dout, cache) -> gradients``.

    The cache of one forward serves all cotangents, unless the backward writes to it:
    that is watched for once, and then every cotangent gets a forward of its own.
    """

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    subject: ArraySubject
    description: str = "backward"
    takes_cotangents: bool = True
    fresh_cache: bool | None = None  # None until it is known

    def _run(self) -> Any:
        if self.subject.reset is not None:
            self.subject.reset()
        return split_cache(self.forward(*self.subject.fresh_arguments()))[1]

    def pull(self, cotangents: NDArray[np.float64]) -> Pullback:
        """Call `backward` once for each cotangent."""
        cache = self._run()
        if self.fresh_cache is None and len(cotangents):
            watch = HiddenState(cache)
            self._pull_one(cotangents[0], cache)
            self.fresh_cache = bool(watch.changes())
            cache = self._run() if self.fresh_cache else cache
        rows: list[list[NDArray[np.float64]]] = []
        problems: list[Problem] = []
        for i, cotangent in enumerate(cotangents):
            if self.fresh_cache and i:
                cache = self._run()
            row, found = self._pull_one(cotangent, cache)
            rows.append(row)
            problems += found
        return Pullback(_stack(rows, self.subject.inputs), _unique(problems))

    def _pull_one(
        self,
        cotangent: NDArray[np.float64],
        cache: Any,
    ) -> tuple[list[NDArray[np.float64]], list[Problem]]:
        subject = self.subject
        shaped = subject.reader.cotangents(cotangent)
        upstream = _as_outputs(shaped, subject)

        def pull() -> tuple[list[NDArray[np.float64]], list[Problem]]:
            gradients = self.backward(upstream, cache)
            matched = match(gradients, subject.tree, subject.which, subject.inputs)
            return _assemble(matched, subject.inputs)

        return _shielded(pull, subject.inputs, self.description)


@dataclasses.dataclass(slots=True, eq=False)
class UserVjp:
    """``vjp(cotangents, *inputs) -> gradients``, for any framework."""

    vjp: Callable[..., Any]
    subject: ArraySubject
    description: str = "vjp"
    takes_cotangents: bool = True

    def pull(self, cotangents: NDArray[np.float64]) -> Pullback:
        """Call `vjp` once for each cotangent."""
        subject = self.subject
        rows: list[list[NDArray[np.float64]]] = []
        problems: list[Problem] = []
        for cotangent in cotangents:
            if subject.reset is not None:
                subject.reset()
            shaped = subject.reader.cotangents(cotangent)
            upstream = _as_outputs(shaped, subject)
            row, found = _shielded(
                functools.partial(self._pull_one, upstream),
                subject.inputs,
                self.description,
            )
            rows.append(row)
            problems += found
        return Pullback(_stack(rows, subject.inputs), _unique(problems))

    def _pull_one(
        self,
        upstream: Any,
    ) -> tuple[list[NDArray[np.float64]], list[Problem]]:
        subject = self.subject
        gradients = self.vjp(upstream, *subject.fresh_arguments())
        matched = match(gradients, subject.tree, subject.which, subject.inputs)
        return _assemble(matched, subject.inputs)


def _shielded(
    work: Callable[[], tuple[list[NDArray[np.float64]], list[Problem]]],
    inputs: Sequence[Variable],
    description: str,
    reader: Outputs | None = None,
) -> tuple[list[NDArray[np.float64]], list[Problem]]:
    """Run the user's analytic side; one that raises is a finding, not a crash."""
    try:
        return work()
    except GradlabError:
        raise
    except Exception as cause:  # noqa: BLE001 - whatever the user's code raises
        told = f"{description} raised {type(cause).__name__}: {cause}."
        rows = () if reader is None else (output_rows(reader.variables),)
        blank = [np.full((*rows, v.coordinates), np.nan) for v in inputs]
        return blank, [Problem("raised", v.name, told) for v in inputs]


def _as_outputs(shaped: list[NDArray[Any]], subject: ArraySubject) -> Any:
    """One cotangent for one output, a tuple for several; scalars stay scalars."""
    values = [array[()] if array.ndim == 0 else array for array in shaped]
    converted = [subject.present_output(v) for v in values]
    return converted[0] if len(converted) == 1 else tuple(converted)


def _stack(
    rows: list[list[NDArray[np.float64]]], inputs: Sequence[Variable]
) -> tuple[NDArray[np.float64], ...]:
    return tuple(
        np.array([row[i] for row in rows]).reshape(len(rows), variable.coordinates)
        for i, variable in enumerate(inputs)
    )


def split_cache(result: Any) -> tuple[Any, Any]:
    """Split what ``forward`` returned into output and cache.

    Raises
    ------
    SubjectError
        If it is not a pair.
    """
    if not isinstance(result, tuple) or len(result) < 2:
        msg = (
            f"with backward=, the function must return (out, cache), got "
            f"{type(result).__name__}; return `out, cache`"
        )
        raise SubjectError(msg)
    *outputs, cache = result
    return (outputs[0] if len(outputs) == 1 else tuple(outputs)), cache


__all__ += ["match", "match_by_name", "split_cache"]
