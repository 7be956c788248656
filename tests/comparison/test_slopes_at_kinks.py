"""At a kink every slope between both sides is right, and none beside them is.

Truth is algebra.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.comparison.verdict import Verdict

TIED = np.array([1.0, 3.0, 2.0, 3.0])


def verdict(f, x, slope):
    """Check a gradient that is given."""
    return gl.check(f, x, grad=lambda x: slope, diagnose=False).verdict


@pytest.mark.parametrize("slope", [0.0, 1e-6, 0.5, 0.999, 1.0])
def test_slopes_between_both_sides_agree(slope):
    """The maximum of two equals."""
    shared = np.array([0.0, slope, 0.0, 1 - slope])
    assert verdict(np.max, TIED, shared) == Verdict.AGREES


@pytest.mark.parametrize("slope", [1.001, 1.01, -0.001, -0.01])
def test_slopes_beside_them_disagree(slope):
    """A thousandth of the gap beyond it passed, or was left open."""
    shared = np.array([0.0, slope, 0.0, 1 - slope])
    assert verdict(np.max, TIED, shared) == Verdict.DISAGREES


@pytest.mark.parametrize("slope", [0.0, 0.5, 0.9])
def test_slopes_that_are_none_together_disagree(slope):
    """Both maxima moved together move f by as much; a gradient of zero passed."""
    shared = np.array([0.0, slope, 0.0, 0.0])
    report = gl.check(np.max, TIED, grad=lambda x: shared)
    assert not report.ok
    assert "moved together" in report.findings[0].evidence


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("bent", [0.0, 1.0])
def test_sides_that_bend_are_told_as_well(size, bent):
    """|x| e^x at 0 has the slopes -1 and 1, whatever the units."""
    f = lambda x: (np.abs(x / size) * np.exp(bent * x / size)).sum()
    x = np.array([0.0, size])
    beside = np.exp(bent) * (1 + bent) / size
    assert verdict(f, x, np.array([-1 / size, beside])) == Verdict.AGREES
    assert verdict(f, x, np.array([1 / size, beside])) == Verdict.AGREES
    assert verdict(f, x, np.array([1.002 / size, beside])) == Verdict.DISAGREES


def test_single_precision_keeps_its_own_slack():
    """In float32 both slopes are known to some 1e-7, and so is the gradient."""
    x = np.array([0.0, 0.7, -0.3], dtype=np.float32)
    w = np.float32(0.1)
    f = lambda x: np.abs(w * x).sum()
    slope = np.array([w, w, -w], dtype=np.float32)
    assert verdict(f, x, slope) == Verdict.AGREES
