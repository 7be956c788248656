"""A slight accusation of a Taylor test, heard as a check hears its own.

A check looks for noise, for jumps of rounding and for those of a solver that takes one
step more, before it accuses. Along a line the function has one variable: that is what
is checked here.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from gradlab.checks import check
from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.errors import GradlabError
from gradlab.pipeline.looks.early_stops import SLIGHT

if TYPE_CHECKING:
    from gradlab.properties.lines import Line
    from gradlab.properties.remainders import TaylorTest

__all__ = ["heard"]


def heard(test: TaylorTest, line: Line) -> TaylorTest:
    """Return a test without an accusation that a check would not make.

    Parameters
    ----------
    test
        Of the gradient; nothing is done where that is off by more than a hundredth,
        which is no matter of a solver's tolerance.
    line
        Along which it was made.
    """
    found = test.derivatives[1]
    gap = abs(found.analytic - found.numeric)
    if found.verdict != Verdict.DISAGREES or not gap <= SLIGHT * found.size:
        return test
    meter = line.bench.meter
    try:
        report = check(
            lambda step: line.at(float(step)),
            0.0,
            grad=lambda _: line.slope,
            names=["step"],
            budget=meter.left(),
            progress=False,
        )
        meter.spend(report.evaluations)  # the check has put the meter back as well
    except (GradlabError, BudgetExhausted):
        return test  # nothing is left for it, or the function fails elsewhere
    if report.verdict == Verdict.DISAGREES or report.partial:
        return test
    comparison = report["step"]
    bar = max(float(comparison.numeric_error[0, 0]), gap / SAFETY)
    doubtful = dataclasses.replace(found, error=bar)
    told = tuple(
        finding.evidence
        for finding in report.findings
        if finding.kind == BugKind.LOW_PRECISION
    )
    return dataclasses.replace(
        test,
        derivatives={**test.derivatives, 1: doubtful},
        evaluations=meter.evaluations,
        remarks=(*test.remarks, *told),
    )
