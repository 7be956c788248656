"""Entries that a search looked at in vain: how much it must be deaf to from then on.

Where every entry is off by a little (a solver that stops at a tolerance, a gradient
that is right up to what is forgiven) groups look wrong, and no entry in them is. Then
defects count from what such entries add up to, and no sooner: a larger error in another
entry is still seen.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradlab.differentiation.lines.parts import Part
    from gradlab.localisation.searching.columns import Column

__all__ = ["Patience"]

_LOOKS = 4  # entries that are looked at in vain before defects count for less
_RISES = 3  # times that they do, before an input is given up


@dataclasses.dataclass(slots=True, eq=False)
class Patience:
    """What entries are off by, of which nothing wrong is said, by input.

    Attributes
    ----------
    slips
        What the derivative of any entry may be off by.
    """

    slips: dict[int, float] = dataclasses.field(default_factory=dict)
    _vain: Counter[int] = dataclasses.field(default_factory=Counter)
    _tolerated: Counter[int] = dataclasses.field(default_factory=Counter)
    _most: dict[int, float] = dataclasses.field(default_factory=dict)

    def looked(self, which: int, column: Column) -> None:
        """Take down an entry that does not stand accused."""
        gap = float(np.nan_to_num(abs(column.analytic - column.expected), posinf=0.0))
        self._vain[which] += 1
        self._tolerated[which] += column.differs
        self._most[which] = max(gap, self._most.get(which, 0.0))
        if self._vain[which] % _LOOKS == 0:
            twice = 2 * self.slips.get(which, 0.0)
            self.allow(which, max(twice, self._most[which]))

    def allow(self, which: int, slip: float) -> None:
        """Let entries of an input be off by so much."""
        self.slips[which] = max(slip, self.slips.get(which, 0.0))

    def over(self, which: int) -> bool:
        """Whether defects have counted for less often enough."""
        return self._vain[which] >= _LOOKS * _RISES

    def forgive(self, which: int) -> None:
        """Take an input to differ by no more than is forgiven."""
        self._tolerated[which] = max(self._tolerated[which], _LOOKS)

    def tolerated(self, which: int) -> bool:
        """Whether entries of an input differ, but by no more than is forgiven."""
        return self._tolerated[which] >= _LOOKS

    def slip(self, parts: Sequence[Part], units: Sequence[float], thin: int) -> float:
        """Return what a derivative along random signs may be off by.

        Parameters
        ----------
        parts
            What is moved, of which one coordinate in ``2**thin`` is meant.
        units
            By how much, for every input.
        """
        squares = (
            part.size / 2**thin * (self.slips[part.which] * units[part.which]) ** 2
            for part in parts
            if part.which in self.slips
        )
        return float(np.sqrt(sum(squares)))
