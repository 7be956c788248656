"""A factor that is not the same everywhere is one number in a check and a sweep."""

from __future__ import annotations

import re
from typing import Any

import gradlab as gl


def test_check_and_sweep_tell_the_same_factor(rng: Any) -> None:
    """Ten gradients were added up while the point moved: about ten times the last."""
    x = rng.normal(size=40)
    given = 2 * x * (10 + 0.1 * rng.normal(size=40))
    report = gl.check(lambda x: (x**2).sum(), x, grad={"x": given})
    told = re.search(
        r"analytic = (\S+) x numeric \(within", report.findings[0].evidence
    )
    assert told is not None
    reading = report.sweep().reading["x"]
    assert f"analytic = {told[1]} x numeric, within " in reading


def test_a_factor_that_is_the_same_everywhere_has_no_spread(rng: Any) -> None:
    """Three, to as many digits as are shown."""
    x = rng.normal(size=40)
    sweep = gl.sweep(lambda x: (x**2).sum(), x, grad=lambda x: 6 * x)
    assert "(analytic = 3.000 x numeric)" in sweep.reading["x"]
