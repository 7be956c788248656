"""Functions that give a value they kept from an earlier call, at another point."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

MATRIX = np.random.default_rng(0).normal(size=(6, 4))
POINT = np.array([0.3, -0.8, 1.1, 0.5])


class Kept:
    """Residuals and slopes, kept under a key made of some entries of the point."""

    def __init__(self, key):
        self.key, self.values = key, {}

    def parts(self, x):
        """Give both, computed anew where the key is new."""
        name = self.key(x).tobytes()
        if name not in self.values:
            self.values[name] = np.sin(MATRIX @ x) - 0.3, np.cos(MATRIX @ x)
        return self.values[name]

    def f(self, x):
        """Half the sum of squares, or the residuals themselves."""
        return 0.5 * self.parts(x)[0] @ self.parts(x)[0]

    def gradient(self, x):
        """Give the right one, of the point that the key was first met with."""
        return MATRIX.T @ np.prod(self.parts(x), axis=0)

    def residuals(self, x):
        """Several outputs."""
        return self.parts(x)[0]

    def jacobian(self, x):
        """Give theirs."""
        return self.parts(x)[1][:, None] * MATRIX


@pytest.mark.parametrize("left_out", [[0], [2, 3], [1, 2, 3]])
@pytest.mark.parametrize("several", [False, True])
def test_a_cache_whose_key_lacks_entries(left_out, several):
    """Along them f stands still, as at a tie, and beside the point as well."""
    kept = Kept(lambda x: np.delete(x, left_out))

    if several:
        report = gl.check(kept.residuals, POINT, jac=kept.jacobian)
    else:
        report = gl.check(kept.f, POINT, grad=kept.gradient)

    assert (report.diagnosis, report.culprit) == ("stateful", "x")
    assert not report.ok
    assert f"moves with x[{left_out[0]}] only where" in report.findings[0].evidence
    assert "they are undecided" in str(report).splitlines()[0]
    undecided = (report["x"].verdicts == gl.Verdict.UNDECIDED).any(axis=0)
    assert np.flatnonzero(undecided).tolist() == left_out


@pytest.mark.parametrize("several", [False, True])
def test_a_cache_with_the_whole_key_is_no_matter(several):
    """Nothing is still where the key is all of the point."""
    kept = Kept(lambda x: x)
    fn, side = (kept.residuals, "jac") if several else (kept.f, "grad")
    given = {side: kept.jacobian if several else kept.gradient}

    report = gl.check(fn, POINT, **given)

    assert report.verdict == gl.Verdict.AGREES
    assert not report.findings


def test_a_wrong_mask_is_no_cache():
    """Where f stands still along an entry it does so whatever else moves."""

    def f(x):
        return np.sort(x)[:2].sum() + x[0] ** 2

    def gradient(x):
        return np.ones(4) + 2 * x * (np.arange(4) == 0)

    report = gl.check(f, POINT, grad=gradient)

    assert report.diagnosis == "wrong_mask"
    assert report.verdict == gl.Verdict.DISAGREES
