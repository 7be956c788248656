"""Words for what `properties/` finds: Taylor tests, modes, Hessians, patterns, sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.labels import plural
from gradlab.presentation.screens import printable
from gradlab.presentation.words import brief, tabulate, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradlab.comparison.verdict import Verdict
    from gradlab.properties.remainders import TaylorTest

__all__ = ["property_text", "taylor_text"]


def property_text(
    verdict: Verdict,
    reading: str,
    rows: Sequence[Sequence[str]] = (),
    *,
    right: Sequence[int] = (),
    foot: str = "",
) -> str:
    """Put verdict and reading first, numbers below, what it cost last.

    Examples
    --------
    >>> from gradlab.comparison.verdict import Verdict
    >>> property_text(Verdict.AGREES, "All is well.")
    '✓ agrees: All is well.'
    """
    head = wrapped(f"{verdict.glyph} {verdict.words}: {reading}", "")
    lines = [head[0], *(f"  {line}" for line in head[1:])]
    if rows:
        lines += ["", *(f"  {line}" for line in tabulate(rows, right))]
    if foot:
        lines += ["", *wrapped(foot, "  ")]
    return printable("\n".join(lines))


def taylor_text(test: TaylorTest) -> str:
    """Show a Taylor test with its remainders and rates.

    Examples
    --------
    >>> test = gl.taylor_test(lambda x: (x**3).sum(), np.ones(2), grad=lambda x: x)
    >>> taylor_text(test).splitlines()[0][:45]
    '✗ disagrees: The gradient is wrong (rate 1.00'
    """
    orders = sorted(test.residuals)
    rows = [["step", *(w for k in orders for w in (f"order {k}", "rate"))]]
    rates = test.rates
    for i, step in enumerate(test.steps):
        row = [f"{step:.2e}"]
        for order in orders:
            row.append(brief(float(test.residuals[order][i])))
            rate = rates[order][i - 1] if i else np.nan
            heard = test.residuals[order][i] > test.floors[i]  # else round-off
            row.append(f"{rate:.2f}" if heard and np.isfinite(rate) else "")
        rows.append(row)
    foot = ", ".join((plural(test.evaluations, "evaluation"), *test.remarks))
    right = range(len(rows[0]))
    return property_text(test.verdict, test.reading, rows, right=right, foot=foot)
