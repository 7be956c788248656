"""Declared sparsity against the Jacobian itself."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.building import Sides, build_subject
from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.adaptive_columns import adaptive_columns
from gradlab.differentiation.metering.budget import parse_budget
from gradlab.differentiation.metering.meter import BudgetExhausted, Meter
from gradlab.differentiation.method import Auto
from gradlab.differentiation.origin import Origin
from gradlab.errors import BudgetError
from gradlab.keywords import spelt
from gradlab.labels import plural
from gradlab.localisation.conditions import first_evaluation
from gradlab.pipeline.sides.measuring import numeric_side
from gradlab.properties.curvature import refuse_complex
from gradlab.properties.declared import read_pattern
from gradlab.properties.results import PropertyResult
from gradlab.subject.state_guard import StateGuard
from gradlab.subject.subject import block_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from gradlab.properties.declared import Blocks
    from gradlab.subject.subject import Subject

__all__ = ["Entry", "SparsityCheck", "check_sparsity"]

_DUST = 1e-10  # of the largest entry of a row: less is round-off of f
_CLEAR = 1e3  # times its bar: no round-off, however small beside other rows
_SHOWN = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the Jacobian that is not as declared.

    Parameters
    ----------
    output, input
        Names.
    output_index, input_index
        Positions in the user's arrays.
    label
        Both together, such as ``out[1] / x[3]``.
    numeric, error
        Value by differences and its error bar.
    """

    output: str
    input: str
    output_index: tuple[int, ...]
    input_index: tuple[int, ...]
    label: str
    numeric: float
    error: float


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparsityCheck(PropertyResult):
    """Result of `gradlab.check_sparsity`.

    Parameters
    ----------
    uncovered
        Entries that are not zero and not declared, largest first: the declaration is
        wrong, and compressed differences or a sparse solver would be wrong with it.
    unknown
        Undeclared entries that could not be told from zero nor held to be zero.
    idle
        Number of declared entries that are zero at this point, by block. Harmless
        unless it is a whole block.
    declared, entries
        Number of entries declared, and of all entries judged.
    evaluations
        How often the function was evaluated.

    Examples
    --------
    >>> found = gl.check_sparsity(
    ...     lambda x: np.diff(x) ** 2, np.arange(4.0), pattern=np.eye(3, 4)
    ... )
    >>> [entry.label for entry in found.uncovered]
    ['out[0] / x[1]', 'out[1] / x[2]', 'out[2] / x[3]']
    """

    uncovered: tuple[Entry, ...]
    unknown: tuple[Entry, ...]
    idle: dict[str, int]
    declared: int
    entries: int
    evaluations: int

    @property
    def verdict(self) -> Verdict:
        """DISAGREES if an undeclared entry is not zero."""
        if self.uncovered:
            return Verdict.DISAGREES
        return Verdict.UNDECIDED if self.unknown else Verdict.AGREES

    @property
    def reading(self) -> str:
        """What was found, in sentences."""
        told = []
        if self.uncovered:
            shown = ", ".join(e.label for e in self.uncovered[:_SHOWN])
            more = len(self.uncovered) - _SHOWN
            verb = "is" if len(self.uncovered) == 1 else "are"
            told.append(
                f"{plural(len(self.uncovered), 'entry')} {verb} not zero and not "
                f"declared: {shown}" + (f" and {more} more." if more > 0 else ".")
            )
        elif self.unknown:
            told.append(
                f"{plural(len(self.unknown), 'undeclared entry')} cannot be told from "
                f"zero, such as {self.unknown[0].label}."
            )
        else:
            told.append(
                f"No entry outside of the {self.declared} declared ones, of "
                f"{self.entries}, differs from zero at this point."
            )
        told += [
            f"{plural(count, 'declared entry')} of {name} "
            f"{'is' if count == 1 else 'are'} zero here."
            for name, count in self.idle.items()
            if count
        ]
        return " ".join(told)

    @property
    def table(self) -> pd.DataFrame:
        """One row per uncovered entry, largest first."""
        from gradlab.presentation.tables import fields_table

        columns = [field.name for field in dataclasses.fields(Entry)]
        return fields_table(self.uncovered, columns)

    def __repr__(self) -> str:
        from gradlab.presentation.property_text import property_text

        foot = plural(self.evaluations, "evaluation")
        return property_text(self.verdict, self.reading, foot=foot)


@spelt
def check_sparsity(
    fn: Callable[..., Any],
    *inputs: Any,
    pattern: Any,
    params: Any = None,
    loss: Callable[..., Any] | None = None,
    wrt: Sequence[str] | str | None = None,
    names: Sequence[str] | Mapping[str, str] | None = None,
    budget: float | str | None = None,
) -> SparsityCheck:
    """Compare a declared sparsity pattern with where the Jacobian is not zero.

    No gradient is needed: the Jacobian is made by differences, two evaluations for each
    coordinate, and what stands outside of the pattern is looked at again with care. It
    speaks for this point only; an entry that is zero here may differ elsewhere.

    Parameters
    ----------
    fn, *inputs, params, loss, wrt, names
        As in `gradlab.check`.
    pattern
        Where the Jacobian may differ from zero: an array, outputs x inputs or of shape
        output + input, whose entries that are not 0 are declared; a SciPy sparse
        matrix; or a pair ``(rows, columns)`` of index sequences as OpenMDAO has them.
        For several inputs a dict by input name, for several outputs by ``(output,
        input)``. Blocks that are not named are not judged; 0 declares a zero block.
    budget
        Bound on the evaluations (5000) or the time ("30s").

    Returns
    -------
    SparsityCheck
        ``verdict``, ``reading``, ``uncovered``, ``idle``, ``table``.

    Raises
    ------
    InputError, SubjectError
        As `gradlab.check`, and if `pattern` does not fit the Jacobian.
    BudgetError
        If `budget` ends first.

    Examples
    --------
    >>> gl.check_sparsity(np.cumsum, np.ones(3), pattern=np.tril(np.ones((3, 3)))).ok
    True
    """
    sides = Sides(params=params, loss=loss, wrt=wrt, names=names, need_analytic=False)
    roots = sides.roots(fn, inputs)
    meter = Meter(parse_budget(budget))
    try:
        with StateGuard(*roots) as guard, meter.watching():
            subject = build_subject(fn, inputs, sides)
            base, _ = first_evaluation(subject, roots, meter, guard)
            refuse_complex("patterns go", subject.inputs)
            return _compared(
                Origin(subject, base), read_pattern(pattern, subject), meter
            )
    except BudgetExhausted as cause:
        msg = f"the budget ended before the pattern was compared ({cause})"
        raise BudgetError(msg) from cause


def _compared(origin: Origin, blocks: Blocks, meter: Meter) -> SparsityCheck:
    subject = origin.subject
    slices = block_slices(subject.outputs)
    uncovered: list[Entry] = []
    unknown: list[Entry] = []
    idle: dict[str, int] = {}
    for which in sorted({n for _, n in blocks}):
        every = np.arange(subject.inputs[which].coordinates)
        found = numeric_side(origin, which, every, Auto(), meter)
        value, error = found.value.copy(), found.error.copy()
        outside = np.zeros(value.shape, dtype=bool)
        for (k, n), declared in blocks.items():
            if n == which:
                outside[slices[k]] = ~declared
        alive = _stands_out(value, error, slices)
        suspects = np.flatnonzero((outside & alive).any(axis=0))
        if suspects.size:  # a ladder of steps, before anything is said
            again = adaptive_columns(origin, which, suspects, meter)
            surer = np.isfinite(again.error)
            value[:, suspects] = np.where(surer, again.value, value[:, suspects])
            error[:, suspects] = np.where(surer, again.error, error[:, suspects])
            alive = _stands_out(value, error, slices)
        with np.errstate(all="ignore"):
            lost = outside & ~np.isfinite(value + error)
        uncovered += _entries(subject, which, outside & alive & ~lost, value, error)
        unknown += _entries(subject, which, lost, value, error)
        for (k, n), declared in blocks.items():
            if n == which:
                pair = f"{subject.outputs[k].name} / {subject.inputs[n].name}"
                idle[pair] = int((declared & ~alive[slices[k]]).sum())
    uncovered.sort(key=lambda entry: -abs(entry.numeric))
    return SparsityCheck(
        tuple(uncovered),
        tuple(unknown),
        idle,
        sum(int(declared.sum()) for declared in blocks.values()),
        sum(declared.size for declared in blocks.values()),
        meter.evaluations,
    )


def _stands_out(
    value: NDArray[np.float64], error: NDArray[np.float64], blocks: Sequence[slice]
) -> NDArray[np.bool_]:
    """Entries that are not zero by more than their bars and the dust of their block."""
    found = np.zeros(value.shape, dtype=bool)
    with np.errstate(all="ignore"):
        size = np.abs(value)
        for rows in blocks:
            part, told = size[rows], np.isfinite(size[rows])
            own = part.max(axis=1, initial=0.0, where=told, keepdims=True)
            seen = part > np.maximum(SAFETY * error[rows], _DUST * own)
            # outputs may differ in unit; what is dust beside others must be clear
            clear = part > _CLEAR * error[rows]
            found[rows] = seen & (clear | (part > _DUST * own.max(initial=0.0)))
    return found


def _entries(
    subject: Subject,
    which: int,
    mask: NDArray[np.bool_],
    value: NDArray[np.float64],
    error: NDArray[np.float64],
) -> list[Entry]:
    found = []
    variable = subject.inputs[which]
    for output, part in zip(
        subject.outputs, block_slices(subject.outputs), strict=True
    ):
        for row, column in np.argwhere(mask[part]).tolist():
            found.append(
                Entry(
                    output.name,
                    variable.name,
                    output.index(row),
                    variable.index(column),
                    f"{output.label(row)} / {variable.label(column)}",
                    float(value[part][row, column]),
                    float(error[part][row, column]),
                )
            )
    return found
