"""Reports of checks that were cut short: what is said, and what is not accused."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.metering.meter import why_stopped

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.report import Report

__all__ = ["accusing_nobody", "cut_short"]


def cut_short(report: Report, stop: BaseException | None, missing: str) -> Report:
    """Mark a report as partial, and say why and what it lacks.

    `stop` is what ended the work; None: it was not even begun.
    """
    remarks = (*report.remarks, f"{why_stopped(stop)}: {missing}")
    return dataclasses.replace(report, partial=True, remarks=remarks)


def accusing_nobody(report: Report, stop: BaseException, missing: str) -> Report:
    """Accuse nobody whom a second check was to hear, and say what cut it short.

    Parameters
    ----------
    report
        Of the first check, which came to its end.
    stop
        What ended the second one.
    missing
        What that was for, in words.
    """
    comparisons = tuple(
        c if c.tally else dataclasses.replace(c, verdicts=_open(c.verdicts))
        for c in report.comparisons
    )
    spared = dataclasses.replace(
        report,
        comparisons=comparisons,
        findings=tuple(f for f in report.findings if f.severity != "error"),
        culprits=(),
    )
    return cut_short(spared, stop, missing)


def _open(verdicts: NDArray[np.int8]) -> NDArray[np.int8]:
    accused = verdicts == Verdict.DISAGREES
    return np.where(accused, Verdict.UNDECIDED, verdicts).astype(verdicts.dtype)
