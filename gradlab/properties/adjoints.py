"""What comparing forward with reverse mode found, block by block."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.properties.results import PropertyResult

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ModeRow", "ModesCheck"]


@dataclasses.dataclass(frozen=True, slots=True)
class ModeRow:
    """One block: an output against an input, both modes contracted at random.

    Parameters
    ----------
    output, input
        Names.
    forward, reverse
        ``<w, J v>`` and ``<J.T w, v>`` where they differ most.
    numeric
        The same by differences, where the modes differ by more than a difference
        quotient is off; else nan.
    allowed
        Round-off that is forgiven.
    """

    output: str
    input: str
    forward: float
    reverse: float
    numeric: float
    allowed: float

    @property
    def verdict(self) -> Verdict:
        """Whether the modes agree."""
        if np.isnan(self.forward) and np.isnan(self.reverse):
            return Verdict.UNDECIDED
        apart = not abs(self.forward - self.reverse) <= self.allowed
        return Verdict.DISAGREES if apart else Verdict.AGREES

    @property
    def wrong(self) -> str:
        """Which mode differences speak against; "" if the modes agree."""
        if self.verdict != Verdict.DISAGREES:
            return ""
        if np.isnan(self.numeric):
            return "one of them"
        gaps = [abs(self.forward - self.numeric), abs(self.reverse - self.numeric)]
        gaps = [np.inf if np.isnan(gap) else gap for gap in gaps]
        if max(gaps) < 10 * min(gaps):
            return "both"
        return "forward" if not gaps[0] <= gaps[1] else "reverse"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class ModesCheck(PropertyResult):
    """Result of `gradlab.compare_modes`.

    Parameters
    ----------
    rows
        One for each (output, input) block.
    values
        Largest difference of the value of f under each kind of evaluation ("reverse
        mode", "forward mode", "no_grad") from that of a plain call.
    value_allowed
        Round-off forgiven to these.
    probes
        Random pairs tried for each block.
    remarks
        What is odd about the gradients short of their values: shapes, dtypes, None.

    Examples
    --------
    >>> A = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> found = gl.compare_modes(
    ...     lambda x: A @ x, np.ones(2), jvp=lambda x, v: A @ v, vjp=lambda w, x: A @ w
    ... )
    >>> found.verdict.name, found.rows[0].wrong
    ('DISAGREES', 'reverse')
    """

    rows: tuple[ModeRow, ...]
    values: dict[str, float]
    value_allowed: float
    probes: int
    remarks: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of all blocks and values."""
        wrong = any(not gap <= self.value_allowed for gap in self.values.values())
        values = Verdict.DISAGREES if wrong else Verdict.AGREES
        return max(values, *(row.verdict for row in self.rows))

    @property
    def reading(self) -> str:
        """What was found, in sentences."""
        told = [
            f"The value under {kind} differs by {gap:.2g}."
            for kind, gap in self.values.items()
            if not gap <= self.value_allowed
        ]
        told += [_told(row) for row in self.rows if row.verdict == Verdict.DISAGREES]
        if told:
            return " ".join((*told, *self.remarks))
        if self.verdict == Verdict.UNDECIDED:
            return "Both modes give nan."
        same = ", and so do the values" if self.values else ""
        return f"Forward and reverse agree along {self.probes} random pairs{same}."

    @property
    def table(self) -> pd.DataFrame:
        """One row per block: both numbers, by differences, allowed, which is wrong."""
        from gradlab.presentation.tables import fields_table

        columns = ["output", "input", "forward", "reverse", "numeric", "allowed"]
        columns += ["verdict", "wrong"]
        return fields_table(self.rows, columns)


def _told(row: ModeRow) -> str:
    words = {
        "one of them": "differences cannot tell which of them is wrong",
        "both": "by differences both are wrong",
    }
    wrong = words.get(row.wrong, f"by differences {row.wrong} is wrong")
    return (
        f"d {row.output} / d {row.input}: <w, J v> = {row.forward:.8g}, "
        f"<J.T w, v> = {row.reverse:.8g}, {abs(row.forward - row.reverse):.2g} apart "
        f"where {row.allowed:.2g} is allowed; {wrong}."
    )
