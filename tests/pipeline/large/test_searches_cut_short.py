"""A search that a budget ends says of one input what it has measured, and only that."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gradlab as gl


@pytest.mark.parametrize("budget", [20, 50, 80])
def test_entries_that_were_measured_are_shown(budget: int) -> None:
    """Of ``x @ x`` at ones the slope is 2, and 3 was returned."""
    report = gl.check(
        lambda x: (x**2).sum(), np.ones(100), grad=lambda x: 3 * x, budget=budget
    )
    assert report.verdict is gl.Verdict.UNDECIDED
    (row,) = report.table.to_dict("records")
    assert row["max_abs_error"] == pytest.approx(1.0, rel=1e-6)
    assert (row["analytic"], row["coverage"]) == (3.0, "sample")
    told = " ".join(report.remarks)
    looked = report["x"].shape[1]
    assert f"x: {looked} of its 100 entries one by one" in told
    assert "judged" not in told
    assert "1 entry disagrees" in told or f"{looked} entries disagree" in told


def test_what_nobody_looked_at_has_no_error_of_zero() -> None:
    """An unknown error is nan in the table."""
    report = gl.check(
        lambda x: np.sin(x).sum(),
        np.linspace(0.1, 3.0, 100),
        grad=np.cos,
        budget=9,
        coverage="probe",
    )
    assert report.verdict is gl.Verdict.UNDECIDED
    assert not report["x"].shape[1]
    (row,) = report.table.to_dict("records")
    assert math.isnan(row["max_abs_error"])
    assert math.isnan(row["max_rel_error"])
