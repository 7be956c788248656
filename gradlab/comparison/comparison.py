"""One block of two Jacobians, compared entry by entry."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.ranking import candidates, scores
from gradlab.comparison.relative_errors import (
    RELATIVE_FLOOR,
    relative_error,
    told_error,
)
from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.errors import InputError
from gradlab.late import Late

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from gradlab.comparison.tally import Tally
    from gradlab.subject.subject import Variable

__all__ = ["Comparison"]

_MATRICES = ("analytic", "numeric", "numeric_error", "allowed")


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Comparison:
    """Analytic against numeric Jacobian of one output with respect to one input.

    All matrices have one row per entry of the output and one column per entry of the
    input that was looked at (all of them, unless `columns` says otherwise).

    Parameters
    ----------
    output, input
        The two variables; their `label` names rows and columns.
    analytic, numeric
        The two Jacobians, shape (m, n); complex for a complex input.
    numeric_error
        Error bar of each numeric entry: estimated absolute error, same units.
    allowed
        What the tolerance forgives at each entry, same units.
    verdicts
        `Verdict` of each entry, int8.
    step
        Step size behind each numeric entry, in the units of the input.
    method
        Name of the numeric method, such as "central".
    coverage
        "full", "sample" or "probe".
    columns
        Entries of the input behind the columns; None for all. In probe coverage the
        columns are random directions and have no entry.
    accepted
        Entries at a kink whose analytic value lies between the one-sided slopes.
    escalated
        Number of columns that were looked at a second time, with more care.
    stated_power
        `power` where it does not follow from the matrices (random directions).
    tally
        Counts, extremes and tiles of all entries, where a block was too large to keep
        (``gl.check(..., memory=)``): its worst columns are, and a spread of others.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> comparison = report["x"]
    >>> comparison.analytic, comparison.error.round(6), comparison.verdict.words
    (array([[1., 1., 1.]]), array([[1., 1., 1.]]), 'disagrees')
    """

    output: Variable
    input: Variable
    analytic: Late = Late()
    numeric: Late = Late()
    numeric_error: Late = Late()
    allowed: Late = Late()
    verdicts: NDArray[np.int8]
    step: NDArray[np.float64]
    method: str = "central"
    coverage: str = "full"
    columns: NDArray[np.intp] | None = None
    accepted: NDArray[np.bool_] | None = None
    escalated: int = 0
    stated_power: float | None = None
    tally: Tally | None = None

    def __post_init__(self) -> None:
        """Keep what was compared from being written over; copies can be."""
        held = vars(self)
        for name in (*_MATRICES, "verdicts", "step"):
            held[name] = _still(held[name])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns that were looked at."""
        return (int(self.verdicts.shape[0]), int(self.verdicts.shape[1]))

    @property
    def error(self) -> NDArray[np.float64]:
        """Absolute error ``|a - n|``, (m, n), in the units of the derivative.

        nan where either side is not a number.
        """
        with np.errstate(all="ignore"):
            return np.asarray(np.abs(self.analytic - self.numeric), dtype=np.float64)

    @property
    def scale(self) -> float:
        """Largest finite numeric entry of the block, by size; 0 if there is none."""
        size = np.abs(self.numeric)
        return float(np.max(size[np.isfinite(size)], initial=0.0))

    @property
    def relative_error(self) -> NDArray[np.float64]:
        """Symmetric relative error ``|a - n| / (|a| + |n|)``, (m, n), from 0 to 1.

        The denominator is never below 1e-8 times `scale`, so that structural zeros
        do not shout.

        Examples
        --------
        >>> report = gl.check(lambda x: (x**2).sum(), np.ones(2), grad=lambda x: x)
        >>> report["x"].relative_error.round(3)
        array([[0.333, 0.333]])
        """
        return relative_error(self.analytic, self.numeric, RELATIVE_FLOOR * self.scale)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of any entry; an empty block agrees.

        Undecided at best where no error, however large, would have been caught: a
        budget may end before the first direction.
        """
        # where all of a block agreed at once, one number stands for it
        strides = self.verdicts.strides
        kept = self.verdicts[tuple(slice(None if step else 1) for step in strides)]
        worst = Verdict(int(kept.max(initial=0)))
        worst = worst if self.tally is None else max(worst, self.tally.verdict)
        blind = self.stated_power is not None and np.isinf(self.stated_power)
        return max(worst, Verdict.UNDECIDED) if blind and self.input.size else worst

    def __bool__(self) -> bool:
        """Whether every entry agrees, for ``assert report["x"]``; undecided is not.

        Examples
        --------
        >>> report = gl.check(lambda x: x @ x, np.ones(3), grad=lambda x: x)
        >>> bool(report["x"])
        False
        """
        return self.verdict == Verdict.AGREES

    @property
    def excess(self) -> NDArray[np.float64]:
        """Error over what is forgiven, at each entry, shape (m, n); no unit.

        Forgiven is the larger of `allowed` and five error bars, beyond which an entry
        disagrees; inf where the error is not finite, but 0 where that is accepted.

        Examples
        --------
        >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
        >>> bool((report["x"].excess > 1).all())
        True
        """
        with np.errstate(all="ignore"):
            bound = np.maximum(self.allowed, SAFETY * self.numeric_error)
            ratio = self.error / bound
        ratio = np.where(self.error == 0, 0.0, ratio)
        blank = np.where(self.verdicts == Verdict.AGREES, 0.0, np.inf)
        return np.where(np.isnan(ratio), blank, ratio)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Entries that agree, are undecided, disagree; of all, kept or not.

        Examples
        --------
        >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
        >>> report["x"].counts
        (0, 0, 3)
        """
        if self.tally is not None:
            return self.tally.counts
        undecided = int(np.count_nonzero(self.verdicts == Verdict.UNDECIDED.value))
        wrong = int(np.count_nonzero(self.verdicts == Verdict.DISAGREES.value))
        return self.verdicts.size - undecided - wrong, undecided, wrong

    @property
    def max_abs_error(self) -> float:
        """Largest absolute error, in the units of the derivative; 0 without entries.

        nan if any entry is nan: that is worse than inf.

        Examples
        --------
        >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
        >>> round(report["x"].max_abs_error, 6)
        1.0
        """
        if self.tally is not None:
            return self.tally.max_abs_error
        return float(np.max(self.error, initial=0.0))

    @property
    def max_rel_error(self) -> float:
        """Largest relative error of any entry, where it tells something.

        Not so of entries within their error bar of zero. What agrees because `atol` is
        larger than the entry counts by its error beside the largest entry.

        Examples
        --------
        >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
        >>> round(report["x"].max_rel_error, 6)
        0.333333
        """
        if self.tally is not None:
            return self.tally.max_rel_error
        return float(np.max(self.told_error, initial=0.0))

    @property
    def told_error(self) -> NDArray[np.float64]:
        """Like `relative_error`, 0 where that tells nothing; see `max_rel_error`."""
        sides = self.analytic, self.numeric
        forgiven = self.numeric_error, self.allowed
        return told_error(*sides, *forgiven, self.verdicts, self.scale)

    @property
    def power(self) -> float:
        """Smallest error of any single entry that this comparison would have caught.

        The largest over the entries of the bound that an error must exceed, with
        the difference already present on top where it was let pass; in the units of
        the derivative. inf if some entry is undecided: there, anything could hide.

        Examples
        --------
        >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: 3 * x)
        >>> 0 < report["x"].power < 1e-4
        True
        """
        if self.stated_power is not None:
            return self.stated_power
        if self.tally is not None:
            return self.tally.power
        if self.verdicts.size == 0:
            return 0.0
        if (self.verdicts == Verdict.UNDECIDED.value).any():
            return float("inf")
        with np.errstate(all="ignore"):
            bound = np.maximum(2 * self.allowed, SAFETY * self.numeric_error)
            passed = self.verdicts == Verdict.AGREES.value
            bound = bound + np.where(passed, self.error, 0.0)
        # an entry that is not a number was caught, and has no bound to add
        known = bound[np.isfinite(bound)]
        return float(np.max(known)) if known.size else float("inf")

    def entry(self, column: int) -> int | None:
        """Entry of the input behind a column; None if it is a random direction."""
        self._refuse_outside(0, column)
        if self.coverage == "probe":
            return None
        return column if self.columns is None else int(self.columns[column])

    def label(self, row: int, column: int) -> str:
        """Name a matrix entry: ``W1[1, 2]``, or ``out[3] / W1[1, 2]``.

        Parameters
        ----------
        row, column
            Of the matrices, from 0. The output is named where it has several entries.

        Examples
        --------
        >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
        >>> report["x"].label(0, 2)
        'x[2]'
        """
        self._refuse_outside(row, column)
        entry = self.entry(column)
        name = (
            f"{self.input.name} along probe {column}"
            if entry is None
            else self.input.label(entry)
        )
        return name if self.shape[0] == 1 else f"{self.output.label(row)} / {name}"

    def indices(self, row: int, column: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Index tuples into the output and into the input."""
        self._refuse_outside(row, column)
        entry = self.entry(column)
        return (
            self.output.index(row),
            (column,) if entry is None else self.input.index(entry),
        )

    def _refuse_outside(self, row: int, column: int) -> None:
        """Refuse what would wrap around, or be the name of nothing."""
        places = zip(("row", "column"), (row, column), self.shape, strict=True)
        for what, number, count in places:
            if not 0 <= number < count:
                raise InputError(f"there is no {what} {number}; there are {count}")

    def ranking(self, k: int) -> list[tuple[int, int]]:
        """Return the `k` worst entries as (row, column), worst first.

        Ordered by verdict, then by `excess`; of the clearest, those within a factor of
        ten of the largest excess, the one with the largest relative error comes first,
        and of equal ones the one with the largest error.

        Parameters
        ----------
        k
            How many at most.

        Raises
        ------
        InputError
            If `k` is negative, or no whole number.

        Examples
        --------
        >>> wrong = np.array([2.0, 2.5, 2.0])
        >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: wrong)
        >>> report["x"].ranking(1)
        [(0, 1)]
        """
        if not isinstance(k, int | np.integer) or k < 0:
            raise InputError(f"k must be a whole number >= 0, got {k!r}")
        verdicts = self.verdicts.ravel()
        score = scores(self).ravel()
        near = candidates(verdicts, score, k)
        # order: verdict, then score, then size of the error; first index on ties
        size = np.nan_to_num(self.error.ravel()[near], nan=np.inf, posinf=np.inf)
        order = near[np.lexsort((-size, -score[near], -verdicts[near]))]
        width = self.shape[1]
        return [(int(i) // width, int(i) % width) for i in order[:k]]

    def worst(self, k: int = 5) -> pd.DataFrame:
        """Tabulate the `k` worst entries, worst first.

        Parameters
        ----------
        k
            Number of rows at most; default 5, as many as one reads.

        Returns
        -------
        pandas.DataFrame
            Columns ``label, output_index, input_index, analytic, numeric,
            numeric_error, error, relative_error, verdict``; indices are tuples.

        Examples
        --------
        >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
        >>> report["x"].worst(1).label[0]
        'x[0]'
        """
        from gradlab.presentation.tables import entries_table

        return entries_table(self, k)

    def __getstate__(self) -> dict[str, Any]:
        """Hand on every matrix, not what would have made it."""
        for name in _MATRICES:
            getattr(self, name)
        return vars(self).copy()

    def __repr__(self) -> str:
        names = f"{self.output.name} / {self.input.name}"
        head = f"Comparison({names}, {self.shape[0]} x {self.shape[1]}"
        if not self.verdicts.size:
            return f"{head}, empty)"
        count = self.counts[self.verdict]
        place = self.ranking(1)[0]
        return (
            f"{head}: {self.verdict.words} in {count:,} of {sum(self.counts):,} "
            f"entries; worst {self.label(*place)}: "
            f"analytic {self.analytic[place]:.6g}, "
            f"numeric {self.numeric[place]:.6g} ± {self.numeric_error[place]:.1e})"
        )


def _still(matrix: Any) -> Any:
    """Give a view of a matrix that cannot be written to; of a maker, one that does."""
    if callable(matrix):
        return lambda: _still(matrix())
    view = matrix.view()
    view.setflags(write=False)
    return view
