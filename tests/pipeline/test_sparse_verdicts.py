"""Sparse matrices judged by their entries: the verdicts of the long way, or none."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.pipeline import comparing


def rows_of(x):
    """Each row by itself, and one that nothing moves."""
    return np.concatenate([np.tanh(x).cumsum(axis=1).reshape(-1), [3.0]])


def slopes(x):
    """Jacobian of `rows_of`."""
    rows, columns = x.shape
    whole = np.zeros((x.size + 1, x.size))
    for i in range(rows):
        for k in range(columns):
            for j in range(k + 1):
                whole[i * columns + k, i * columns + j] = 1 - np.tanh(x[i, j]) ** 2
    return whole


@pytest.fixture(params=[1.0, 1e4], ids=["one scale", "two scales"])
def point(request, rng):
    """Twelve rows of five, one of them of another size."""
    x = rng.normal(size=(12, 5)) / 2
    x[3] /= request.param
    return x


def _both(monkeypatch, x, jac):
    quick = gl.check(rows_of, x, jac=jac)["x"]
    monkeypatch.setattr(comparing, "settled_at_once", lambda *_: False)
    return quick, gl.check(rows_of, x, jac=jac)["x"]


def test_numbers_are_those_of_the_long_way(point, monkeypatch):
    """Verdicts, tolerances, values and bars: bit by bit where nothing is wrong."""
    quick, slow = _both(monkeypatch, point, slopes)

    assert quick.verdict == gl.Verdict.AGREES
    for name in ("verdicts", "numeric", "accepted", "step"):
        assert np.array_equal(getattr(quick, name), getattr(slow, name))
    assert quick.allowed == pytest.approx(slow.allowed, rel=1e-14)
    told = quick.numeric != 0
    assert np.array_equal(quick.numeric_error[told], slow.numeric_error[told])


@pytest.mark.parametrize("place", [(0, 0), (7, 5), (60, 13), (3, 59)])
@pytest.mark.parametrize("error", [1e-4, 1.0, np.nan, np.inf])
def test_errors_inside_and_outside_of_the_pattern_are_found(
    place, error, rng, monkeypatch
):
    """One entry is off; the quick way leaves it to the long one, which finds it."""
    x = rng.normal(size=(12, 5)) / 2

    def jac(x):
        whole = slopes(x)
        whole[place] += error
        return whole

    quick, slow = _both(monkeypatch, x, jac)

    assert quick.ranking(1) == [place]
    assert quick.verdict == gl.Verdict.DISAGREES
    assert np.array_equal(quick.verdicts, slow.verdicts)


@pytest.mark.parametrize("slip", [1.0, 1.5])
def test_a_single_number_beside_a_sparse_input(slip):
    """A slope without axes, as of a leaky relu that learns it, has no pattern."""

    def forward(x, slope):
        return np.where(x > 0, x, slope * x), (x, slope)

    def backward(upstream, cache):
        x, slope = cache
        return upstream * np.where(x > 0, 1, slope), slip * (
            upstream * x * (x < 0)
        ).sum()

    x = np.random.default_rng(2).normal(size=(6, 4))
    report = gl.check(forward, x, np.array(0.25), backward=backward)

    assert report.culprits == (() if slip == 1.0 else ("slope",))


class TestFewInDoubt:
    """Columns in doubt go the long way alone; the verdicts are those of the whole."""

    @staticmethod
    def programs():
        """Elementwise functions of 400 numbers with a few that one step cannot tell."""
        x = np.random.default_rng(3).standard_normal(400)
        corners = x.copy()
        corners[:12] = 0.0

        def flipped(x):
            slope = 3 * x**2
            slope[17] *= -1
            return np.diag(slope)

        yield "small slopes", (lambda x: x**3), x, lambda x: np.diag(3 * x**2), 0
        yield "one sign", (lambda x: x**3), x, flipped, 1
        yield "corners", np.abs, corners, lambda x: np.diag(np.sign(x)), 0

    def test_verdicts_are_those_of_the_whole(self, monkeypatch):
        """With all columns on the long way, and with those in doubt alone."""
        from gradlab.pipeline import sparse_verdicts

        alone, put_back = [], sparse_verdicts.InDoubt.put_back

        def counted(self, *args):
            alone.append(sum(len(block.positions) for block in self.part.blocks))
            return put_back(self, *args)

        monkeypatch.setattr(sparse_verdicts.InDoubt, "put_back", counted)
        for name, f, x, jac, wrong in self.programs():
            found = {}
            for share in (0.0, 0.25):
                monkeypatch.setattr(sparse_verdicts, "_SHARE", share)
                found[share] = gl.check(f, x, jac=jac, coverage="full").comparisons[0]
            one, other = found[0.0], found[0.25]
            assert np.array_equal(one.verdicts, other.verdicts), name
            assert np.allclose(one.numeric, other.numeric, rtol=1e-6, atol=1e-9), name
            assert (np.asarray(other.verdicts) == 2).sum() == wrong, name
        assert alone
        assert max(alone) <= 100


def test_columns_in_doubt_are_not_moved_as_the_whole_was():
    """Stairs that stand still together, of which one step is close to an edge."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-9, 9, 250), rng.uniform(-9, 9, 250)
    y[np.abs(y) < 0.1] = 1.0
    flat = np.zeros((250, 250))
    report = gl.check(lambda x, y: np.floor(x / y), x, y, jac=lambda x, y: (flat, flat))

    assert report.verdict != gl.Verdict.DISAGREES
