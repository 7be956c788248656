"""The analytic side as people write it: four forms, one reading.

Gradients, a backward with a cache, and a VJP all become an `Analytic`: cotangents in,
gradients out, in real coordinates. The fourth, a Jacobian, is in `written_jacobian`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.differentiation.analytic.cotangent_forms import Upstream
from gradlab.differentiation.analytic.gradients import (
    MISSING,
    match_by_name,
    match_by_position,
    others_of,
    read_gradient,
)
from gradlab.errors import GradlabError, InputError, SubjectError
from gradlab.subject.analytic_sides import AnalyticDefaults, Problem, Pullback
from gradlab.subject.callables import needed_arguments
from gradlab.subject.ending import ended, side_ended
from gradlab.subject.state_guard import HiddenState
from gradlab.subject.subject import is_torch_subject, output_rows
from gradlab.subject.tree import flatten, is_mapping
from gradlab.tracebacks import stopped_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.numpy_outputs import Outputs
    from gradlab.subject.numpy_subjects import ArraySubject
    from gradlab.subject.subject import Variable
    from gradlab.subject.tree import Tree

__all__ = [
    "BackwardPass",
    "Contracted",
    "UserVjp",
    "match",
    "shielded",
    "split_cache",
    "unique",
]


def _assemble(
    gradients: list[Any] | str, inputs: Sequence[Variable]
) -> tuple[list[NDArray[np.float64]], list[Problem]]:
    """Read one gradient per input; a wrong number of them is a problem of all."""
    if isinstance(gradients, str):
        blank = [np.full(v.coordinates, np.nan) for v in inputs]
        return blank, [Problem("wrong_shape", v.name, f"{gradients}.") for v in inputs]
    rows, problems = [], []
    for value, variable in zip(gradients, inputs, strict=True):
        row, found = read_gradient(value, variable, inputs)
        rows.append(row)
        problems += found
    return rows, problems


def _is_complex_number(outputs: Sequence[Variable]) -> bool:
    """Whether this is all of one complex number: itself, or both its parts."""
    parts = [variable.name.rpartition(".")[2] for variable in outputs]
    single = all(variable.shape == () for variable in outputs)
    return single and (len(outputs) == 1 or parts == ["real", "imag"])


def unique(problems: list[Problem]) -> tuple[Problem, ...]:
    """Leave out what has been said already, for another row."""
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
    if is_mapping(gradients):
        _require_keys(gradients, tree, which, inputs)
    if in_place and not is_mapping(gradients):
        # params= is one argument that the function reads by itself
        found = match_by_position((gradients,), tree, which, inputs)
        listed = isinstance(gradients, tuple | list) and isinstance(found, list)
        if not (listed and all(gradient is MISSING for gradient in found)):
            return found  # else a list for a dict of parameters: by position
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
        if len(absent) == len(found):
            msg += "; parameters that the function reads where they are go to params="
        raise InputError(msg)


@dataclasses.dataclass(slots=True, eq=False)
class Contracted(AnalyticDefaults):
    """Gradients of one real output: returned by the function, by `grad`, or given.

    Parameters
    ----------
    fetch
        Returns the gradients, in any of the accepted containers.
    subject
        Supplies names and shapes.
    description
        In words.
    unread
        Names in the mapping that came back which are no input's, once it has come.
    """

    fetch: Callable[[], Any]
    subject: Any  # an ArraySubject, or another one with names and outputs
    description: str
    takes_cotangents: bool = False
    unread: tuple[str, ...] = ()
    _rows: tuple[list[NDArray[np.float64]], list[Problem]] | None = None

    def pull(self, cotangents: NDArray[np.float64]) -> Pullback:
        """Scale the gradients by the (single) cotangent of each row."""
        if output_rows(self.subject.outputs) != 1:
            several = self.subject.outputs
            shapes = ", ".join(f"of shape {v.shape}" for v in several[:3])
            returned = f"{'values' if len(several) > 1 else 'an array'} {shapes}"
            remedy = "reduce it (.sum())"
            if _is_complex_number(several):
                returned, remedy = "a complex number", "make it real (abs(), .real)"
            msg = (
                f"a gradient belongs to one real number, a loss; this function returns "
                f"{returned}; {remedy}, or pass jac= or vjp= in place of the gradient"
            )
            raise InputError(msg)
        if self._rows is None:
            subject = self.subject
            if subject.reset is not None:
                subject.reset()  # the same random draw as the numeric side
            self._rows = shielded(
                lambda: _assemble(self._match(self.raw()), subject.inputs),
                subject.inputs,
                self.description,
            )
        rows, problems = self._rows
        with np.errstate(all="ignore"):
            values = tuple(np.outer(cotangents[:, 0], row) for row in rows)
        return Pullback(values, unique(problems))

    def raw(self) -> Any:
        """Return the gradients as the user's code gives them."""
        if is_torch_subject(self.subject):
            return self.fetch()
        return self.subject.undoing(self.fetch)

    @property
    def answered(self) -> bool:
        """Whether the gradients were asked for."""
        return self._rows is not None

    def asked_anew(self) -> Contracted:
        """Return the same side without what it keeps of its last answer."""
        return dataclasses.replace(self, _rows=None)

    def _match(self, gradients: Any) -> list[Any] | str:
        subject = self.subject
        names = [v.name for v in subject.inputs]
        if is_torch_subject(subject):  # with names only
            tree = flatten([None] * len(names), names)
            return match(gradients, tree, range(len(subject.inputs)), subject.inputs)
        if is_mapping(gradients):
            leaves = (leaf.name for leaf in subject.tree.leaves)
            known = {*names, *leaves, *subject.beside}
            self.unread = tuple(others_of(gradients, known))
        return match(
            gradients,
            subject.tree,
            subject.which,
            subject.inputs,
            in_place=subject.live,
        )


@dataclasses.dataclass(slots=True, eq=False)
class BackwardPass(AnalyticDefaults):
    """``out, cache = forward(*inputs)``; ``backward(dout, cache) -> gradients``.

    Of several outputs the cotangents come as a tuple, or one by one where `backward`
    takes one argument more than there are outputs.

    The cache of one forward serves all cotangents, unless the backward writes to it:
    that is watched for once, with a cotangent that leaves no output out, and then every
    cotangent gets a forward of its own.
    """

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    subject: ArraySubject
    description: str = "backward"
    takes_cotangents: bool = True
    fresh_cache: bool | None = None  # None until it is known
    upstream: Upstream = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.upstream = Upstream(self.subject)

    def _run(self) -> Any:
        if self.subject.reset is not None:
            self.subject.reset()
        return split_cache(ended(self.forward, *self.subject.fresh_arguments()))[1]

    def pull(self, cotangents: NDArray[np.float64]) -> Pullback:
        """Call `backward` once for each cotangent."""
        cache = self._run()
        if self.fresh_cache is None and len(cotangents):
            watch = HiddenState(cache)
            rng = np.random.default_rng([cotangents.shape[1], 31])
            self._pull_one(rng.normal(size=cotangents[0].shape), cache)
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
        return Pullback(_stack(rows, self.subject.inputs), unique(problems))

    def raw(self) -> Any:
        """Return the gradients as the user's code gives them, for one cotangent."""
        ones = np.ones(output_rows(self.subject.outputs))
        return self.upstream.first(ones, lambda form: self._called(form, self._run()))

    def _called(self, upstream: Any, cache: Any) -> Any:
        """Call `backward`, with one argument for each output if it asks for as many."""
        several = isinstance(upstream, tuple) and len(upstream) > 1
        if several and len(needed_arguments(self.backward)) == len(upstream) + 1:
            return self.backward(*upstream, cache)  # (dh, dc, cache), as of an LSTM
        return self.backward(upstream, cache)

    def _pull_one(
        self,
        cotangent: NDArray[np.float64],
        cache: Any,
    ) -> tuple[list[NDArray[np.float64]], list[Problem]]:
        return self.upstream.pull(
            cotangent,
            lambda form: _read(
                lambda: self._called(form, cache), self.subject, self.description
            ),
        )


@dataclasses.dataclass(slots=True, eq=False)
class UserVjp(AnalyticDefaults):
    """``vjp(cotangents, *inputs) -> gradients``, for any framework."""

    vjp: Callable[..., Any]
    subject: ArraySubject
    description: str = "vjp"
    takes_cotangents: bool = True
    upstream: Upstream = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.upstream = Upstream(self.subject)

    def pull(self, cotangents: NDArray[np.float64]) -> Pullback:
        """Call `vjp` once for each cotangent."""
        rows: list[list[NDArray[np.float64]]] = []
        problems: list[Problem] = []
        for cotangent in cotangents:
            row, found = self.upstream.pull(
                cotangent,
                lambda form: _read(
                    lambda: self._called(form), self.subject, self.description
                ),
            )
            rows.append(row)
            problems += found
        return Pullback(_stack(rows, self.subject.inputs), unique(problems))

    def raw(self) -> Any:
        """Return the gradients as the user's code gives them, for one cotangent."""
        ones = np.ones(output_rows(self.subject.outputs))
        return self.upstream.first(ones, self._called)

    def _called(self, upstream: Any) -> Any:
        if self.subject.reset is not None:
            self.subject.reset()
        return self.vjp(upstream, *self.subject.fresh_arguments())


def _read(
    call: Callable[[], Any], subject: ArraySubject, description: str
) -> tuple[list[NDArray[np.float64]], list[Problem]]:
    """Read the gradients that a call returns; one that raises is a finding."""

    def work() -> tuple[list[NDArray[np.float64]], list[Problem]]:
        matched = match(call(), subject.tree, subject.which, subject.inputs)
        return _assemble(matched, subject.inputs)

    return shielded(work, subject.inputs, description)


def shielded(
    work: Callable[[], tuple[list[NDArray[np.float64]], list[Problem]]],
    inputs: Sequence[Variable],
    description: str,
    reader: Outputs | None = None,
) -> tuple[list[NDArray[np.float64]], list[Problem]]:
    """Run the user's analytic side; one that raises is a finding, not a crash."""
    try:
        return side_ended(work)
    except GradlabError:
        raise
    except Exception as cause:  # noqa: BLE001 - whatever the user's code raises
        what = f"{type(cause).__name__}: {cause}{stopped_at(cause)}"
        told = f"{description} raised {what}."
        rows = () if reader is None else (output_rows(reader.variables),)
        blank = [np.full((*rows, v.coordinates), np.nan) for v in inputs]
        return blank, [Problem("raised", v.name, told) for v in inputs]


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
