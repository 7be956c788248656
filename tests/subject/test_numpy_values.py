"""Arrays of rarer kinds: matrices, masks, long doubles."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("slip", [False, True])
def test_matrices_are_never_flat(slip):
    """``np.matrix`` stays two-dimensional whatever is done: entries are found."""
    m = np.matrix([[1.0, 2.0], [3.0, 4.0]])

    def vjp(g, m):
        g = np.matrix(g)
        return g * (m if slip else m.T) + m.T * g

    report = gl.check(lambda m: m * m, m, vjp=vjp)

    assert report.verdict.name == ("DISAGREES" if slip else "AGREES")


@pytest.mark.parametrize("factor", [2.0, 3.0])
def test_masked_entries_are_not_there(factor):
    """Nothing depends on them, and a gradient that masks them says so."""
    x = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])

    report = gl.check(lambda x: (x**2).sum(), x, grad=lambda x: factor * x)

    assert report["x"].numeric[0] == pytest.approx([2.0, 0.0, 6.0])
    assert report.verdict.name == ("AGREES" if factor == 2.0 else "DISAGREES")


@pytest.mark.parametrize("dtype", [np.longdouble, np.clongdouble])
def test_long_doubles_are_not_written_to(dtype):
    """Six of their sixteen bytes are filled by chance: that is no change."""
    x = np.arange(1, 4).astype(dtype)

    report = gl.check(lambda x: x**2, x, jac=lambda x: np.diag(2 * x))

    assert report.verdict is gl.Verdict.AGREES
    assert report.findings == ()
