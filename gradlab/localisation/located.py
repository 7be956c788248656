"""What a search for wrong entries found, and what it says about the rest."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from gradlab.labels import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from gradlab.subject.analytic_sides import Problem

__all__ = ["Located", "Suspect", "WrongEntry"]


@dataclasses.dataclass(frozen=True, slots=True)
class WrongEntry:
    """One entry of a Jacobian that is wrong, with both values.

    Attributes
    ----------
    input, index
        The input, and the position in it.
    analytic, numeric
        The two values; complex for a complex input, ``d/d Re + i d/d Im``.
    numeric_error
        Error bar of the numeric value.
    output, output_index
        The output that is differentiated, and the position in it.
    """

    input: str
    index: tuple[int, ...]
    analytic: complex
    numeric: complex
    numeric_error: float
    output: str = "out"
    output_index: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """Name of the entry, such as ``W1[3, 2]``."""
        inside = ", ".join(map(str, self.index))
        return f"{self.input}[{inside}]" if self.index else self.input


@dataclasses.dataclass(frozen=True, slots=True)
class Suspect:
    """Entries of an input in which something is left unexplained.

    Attributes
    ----------
    input
        Its name.
    first, last
        Index of the first and the last entry of the range, row-major.
    entries
        How many entries the range has.
    """

    input: str
    first: tuple[int, ...]
    last: tuple[int, ...]
    entries: int

    def __str__(self) -> str:
        if self.entries == 1:
            return f"{self.input}{list(self.first)}"
        return f"{self.input}{list(self.first)} to {list(self.last)}"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Wrong entries, and what the search for them says about the rest.

    Attributes
    ----------
    entries
        Every entry that was found wrong, largest effect first. Each was differentiated
        on its own; at most `limit` of them.
    evaluations
        Evaluations of the function.
    budget_left
        Evaluations (for ``budget=5000``) or seconds (for ``budget="30s"``) that were
        not needed; None without a budget.
    complete
        Whether the search came to its end, so that what is not named here is right up
        to `power`. False if the budget ended it, if there was more to name than the
        limit, or if noise or kinks kept something from being decided.
    suspects
        Where something is left unexplained.
    crowded
        Ranges of entries many of which are wrong.
    wrong_share
        Estimated fraction of wrong entries, for inputs with too many to name.
    factors
        Analytic over numeric, for inputs where one number explains all entries.
    power
        Smallest error of a single entry that would have been seen, by input, in the
        units of the derivative. It is one number for all outputs: next to large ones
        a small output may be wrong as a whole by less.
    problems
        What is odd about the gradients short of their values: shapes, dtypes, None.
    seed
        Of the random directions.
    remarks
        What was met on the way, such as a function that overwrites its inputs.
    stopped
        Why the search did not come to its end; "" if it did.
    """

    entries: tuple[WrongEntry, ...]
    evaluations: int
    budget_left: float | None
    complete: bool
    suspects: tuple[Suspect, ...]
    crowded: tuple[Suspect, ...]
    wrong_share: Mapping[str, float]
    factors: Mapping[str, float]
    power: Mapping[str, float]
    problems: tuple[Problem, ...]
    seed: int
    remarks: tuple[str, ...] = ()
    stopped: str = ""  # why the search did not come to its end, if it did not
    rows: int = 1  # real rows of the Jacobian: more than one, and the table says which

    @property
    def ok(self) -> bool:
        """Whether nothing wrong was found; see `complete` for how far that reaches."""
        return not (self.entries or self.wrong_share or self.factors)

    def __bool__(self) -> bool:
        """Whether a search to the end found nothing wrong: ``assert gl.locate(...)``.

        Examples
        --------
        >>> bool(gl.locate(lambda x: x @ x, np.ones(3), grad=lambda x: x))
        False
        """
        return self.ok and self.complete

    @property
    def table(self) -> pd.DataFrame:
        """Wrong entries, largest effect first.

        Returns
        -------
        pandas.DataFrame
            Columns ``input, index, analytic, numeric, numeric_error``; preceded by
            ``output, output_index`` where the function has more than one output row.
        """
        from gradlab.presentation.tables import located_table

        return located_table(self)

    def __repr__(self) -> str:
        lines = [f"Located: {_headline(self)}"]
        odd = {problem.where for problem in self.problems}
        for entry in self.entries[:8]:
            missing = entry.analytic != entry.analytic and entry.input in odd
            lines.append(
                f"  {_place(entry, self.rows)}: analytic "
                f"{'none' if missing else f'{entry.analytic:.6g}'}, numeric "
                f"{entry.numeric:.6g} ± {entry.numeric_error:.1g}"
            )
        if len(self.entries) > 8:
            lines.append(f"  ... and {len(self.entries) - 8} more, see .table")
        for name, share in self.wrong_share.items():
            factor = self.factors.get(name)
            by = f", analytic = {factor:.6g} x numeric" if factor is not None else ""
            ranges = [str(r) for r in self.crowded if r.input == name]
            near = f", around {', '.join(ranges[:3])}" if ranges and share < 0.5 else ""
            percent = f"{share:.0%}" if share >= 0.01 else f"{share:.1g} of all"
            lines.append(
                f"  {name}: about {percent} of its entries are wrong{by}{near}"
            )
        if self.suspects:
            places = ", ".join(map(str, self.suspects[:6]))
            more = ", ..." if len(self.suspects) > 6 else ""
            lines.append(f"  not decided: {places}{more}")
        lines += [f"  {problem.where}: {problem.detail}" for problem in self.problems]
        lines += [f"  {remark}" for remark in self.remarks]
        return "\n".join(lines)


def _place(entry: WrongEntry, rows: int) -> str:
    """Name an entry, and the output where there are several."""
    row = f"{entry.output}{list(entry.output_index) or ''} / " if rows > 1 else ""
    return row + entry.label


def _headline(located: Located) -> str:
    count = len(located.entries)
    what = plural(count, "wrong entry") if count else "nothing wrong"
    if count and located.wrong_share:  # those of which there are too many come below
        what += " named"
    if not located.complete:
        what += " so far" if located.suspects else ""
    return f"{what}, {plural(located.evaluations, 'evaluation')}"
