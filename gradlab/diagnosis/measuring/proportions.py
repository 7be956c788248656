"""By which factor the analytic side is the numeric one, as nearly as it is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradlab.diagnosis.measuring.measures import Case

__all__ = ["factor"]


def factor(case: Case, *, only_wrong: bool = False) -> float:
    """Least-squares factor c in analytic = c * numeric."""
    a, n = case.alive
    if only_wrong:
        a, n = case.analytic[case.wrong], case.numeric[case.wrong]
    below = float(n @ n)
    return float(a @ n) / below if below > 0 else math.nan
