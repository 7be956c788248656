"""Many outputs and many coordinates at once: what is read, and how often.

Counted are evaluations of f and entries that are read, never seconds.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import gradlab as gl
from gradlab.differentiation.ladder import creeping, reading, second_thoughts
from gradlab.differentiation.ladder.derivatives import AdaptiveSettings, Rounding
from gradlab.differentiation.ladder.rungs import Samples
from gradlab.differentiation.ladder.tableau import Tableau, layout
from gradlab.differentiation.noise.noise import FEW


@pytest.fixture
def read_entries(monkeypatch):
    """List how many entries each reading of central slopes looks at."""
    sizes = []
    extrapolate = reading.extrapolate_central

    def counted(ladder, *args):
        sizes.append(ladder.right[0].size)
        return extrapolate(ladder, *args)

    monkeypatch.setattr(reading, "extrapolate_central", counted)
    return sizes


def dense(rows, columns, seed):
    """Make the function sin(A x), a point and the Jacobian there."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(rows, columns)) / np.sqrt(columns)
    x = rng.normal(size=columns)
    return (
        lambda v: np.sin(matrix @ v),
        x,
        np.cos(matrix @ x)[:, None] * matrix,
    )


def lagrange(nodes, values, at):
    """Interpolate in exact fractions."""
    total = Fraction(0)
    for i, (node, value) in enumerate(zip(nodes, values, strict=True)):
        term = Fraction(value)
        for j, other in enumerate(nodes):
            if j != i:
                term *= (Fraction(at) - Fraction(other)) / (
                    Fraction(node) - Fraction(other)
                )
        total += term
    return float(total)


@pytest.mark.parametrize("only", [None, ((1, 1), (2, 4), (0, 3))])
def test_every_run_extrapolates_its_own_rungs(rng, only):
    """Slopes and what they foretell are Lagrange's, for all runs and for some."""
    nodes = 4.0 ** np.arange(6)
    slopes = rng.normal(size=(6, 1, 2))
    where = layout(6, 4, only)
    gains = np.ones((6, 1, 1))
    table = Tableau.of(slopes, nodes[:, None, None], gains, gains, where)

    judged = table.slopes[where.judged]
    for value, low, top in zip(judged, where.bottom, where.top, strict=True):
        run = slice(low, top + 1)
        for output in range(2):
            exact = lagrange(nodes[run], slopes[run, 0, output], 0)
            assert value[0, output] == pytest.approx(exact, rel=1e-9)
    for value, rung, run in zip(table.foretold(), where.rung, where.run, strict=True):
        assert rung < where.bottom[run]
        rungs = slice(where.bottom[run], where.top[run] + 1)
        exact = lagrange(nodes[rungs], slopes[rungs, 0, 1], nodes[rung])
        assert value[0, 1] == pytest.approx(exact, rel=1e-9)
    assert where.run.size == where.bottom.sum()


def test_dense_jacobian_takes_few_evaluations_and_one_reading(read_entries):
    """Outputs that are not watched are read once; bars hold, and so do 11 digits."""
    f, x, exact = dense(300, 40, 1)
    calls = []

    found = gl.numeric_jacobian(lambda v: calls.append(0) or f(v), x)

    assert (np.abs(found.value - exact) <= 10 * found.error).all()
    assert np.abs(found.value - exact).max() <= 1e-11
    assert len(calls) <= 17 * x.size
    assert sum(read_entries) <= 2.5 * exact.size


def test_settled_outputs_are_not_read_again(read_entries):
    """One hard output among five hundred costs rungs, but no reading of the others."""
    f, x, exact = dense(500, 12, 2)
    plain = gl.numeric_jacobian(f, x)
    before = sum(read_entries)
    read_entries.clear()

    def hard(v):
        values = f(v)
        values[77] = np.sin(3e3 * v).sum()
        return values

    found = gl.numeric_jacobian(hard, x)

    assert found.evaluations > plain.evaluations + 2 * x.size  # it did cost rungs
    assert sum(read_entries) - before <= 0.1 * exact.size
    assert (np.abs(found.value[77] - 3e3 * np.cos(3e3 * x)) <= 1e-8 * 3e3).all()
    others = np.arange(500) != 77
    errors = np.abs(found.value - exact)[others]
    assert (errors <= 10 * found.error[others]).all()


def test_outputs_that_cancel_are_no_more_certain_than_others():
    """Where f is nearly zero its own size hides the rounding of its terms.

    One ladder may see little of it by luck; all together they know. One entry of this
    matrix was wrong by 5e-10 with a bar of 4e-11.
    """
    f, x, exact = dense(100, 100, 100)

    found = gl.numeric_jacobian(f, x)

    assert (np.abs(found.value - exact) <= 10 * found.error).all()
    assert np.abs(found.value - exact).max() <= 1e-12


def test_kinks_are_found_in_outputs_that_are_not_watched():
    """Each of forty outputs has a kink at the point along one coordinate, and tells."""
    x = np.zeros(40)
    found = gl.numeric_jacobian(lambda v: np.abs(v) + np.sin(v.sum()), x)

    np.testing.assert_allclose(found.value, np.ones((40, 40)), rtol=1e-9)
    diagonal = np.eye(40, dtype=bool)
    assert (found.error[diagonal] >= 1).all()  # slopes 0 and 2
    assert (found.error[~diagonal] <= 1e-9).all()


def test_sparse_rows_are_served_though_few_outputs_move():
    """Each coordinate moves two of two hundred outputs, and those are right."""
    n = 200
    x = np.linspace(0.5, 2.0, n)

    found = gl.numeric_jacobian(lambda v: np.exp(v) + np.roll(v, 1) ** 3, x)

    exact = np.diag(np.exp(x)) + np.roll(np.diag(3 * x**2), 1, axis=0)
    assert (np.abs(found.value - exact) <= 1e-9 * np.abs(exact)).all()


@pytest.mark.parametrize("outputs", [FEW, FEW + 1])
def test_undefined_outputs_stay_undefined(outputs):
    """nan and infinite outputs are reported so; the others are not disturbed."""
    x = np.array([0.3, 0.7])

    def f(v):
        values = np.full(outputs, np.exp(v[0]) * v[1])
        values[3], values[5] = np.nan, np.inf
        return values

    found = gl.numeric_jacobian(f, x)

    gone = np.isin(np.arange(outputs), (3, 5))
    assert np.isnan(found.value[gone]).all()
    assert np.isinf(found.error[gone]).all()
    exact = np.exp(0.3) * np.array([0.7, 1.0])
    np.testing.assert_allclose(found.value[~gone], np.tile(exact, (outputs - 2, 1)))


def test_outputs_that_move_on_either_side_of_the_largest_rung_are_known():
    """Of many outputs those are watched; one that moves at large steps alone counts."""

    def sample(which, step):
        first = np.stack([step, np.maximum(step, 0), 0 * step], axis=1)
        far = np.where(np.abs(step) > 0.3, step, 0)
        second = np.stack([0 * step, np.minimum(step, 0), far], axis=1)
        return np.where(which[:, None] == 0, first, second), step

    samples = Samples(base=np.zeros(3), points=np.zeros(2))
    samples.extend(sample, np.ones(2), np.array([[3.0, 3.0], [1.0, 1.0]]))

    assert samples.moved().tolist() == [[True, True, False], [False, True, True]]


def laddered(depths, outputs, seed):
    """Values of x Phi(x) far to the left, on ladders of several depths.

    Its factor 1 + erf cancels there: f is linear between two jumps of its rounding.
    """
    rng = np.random.default_rng(seed)
    points = rng.uniform(-8.1, -6.5, len(depths))
    weights = rng.uniform(0.5, 2, (len(depths), outputs))

    def f(x):
        return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))

    base = np.zeros(outputs)

    def sample(which, taken):
        moved = [
            f(points[c] + h) - f(points[c]) for c, h in zip(which, taken, strict=True)
        ]
        return base + np.array(moved)[:, None] * weights[which], taken

    base += f(points[0])
    samples = Samples(base, points)
    first = np.arange(max(depths), dtype=float)
    wish = [np.where(first < depth, 14 + 2 * first, np.nan) for depth in depths]
    samples.extend(sample, np.ones(len(depths)), np.transpose(wish))
    return samples


def read_as_arrays(samples, which):
    """Read all outputs of some coordinates; list what is said, field by field."""
    rounding = Rounding.over(samples.base.size)
    found = reading.read(samples, which, slice(None), rounding, AdaptiveSettings())
    return {
        name: getattr(record, name)
        for record in (found.estimate, found.doubt)
        for name in record.__slots__
    }


@pytest.mark.parametrize("seed", range(8))
def test_a_bar_does_not_depend_on_what_is_read_beside_it(seed):
    """Bars of ledges were lost beside a ladder with more rungs.

    The other reading is of each coordinate alone.
    """
    depths = np.array([6, 7, 8, 9, 10, 11, 14])
    samples = laddered(depths, 3, seed)
    together = read_as_arrays(samples, np.arange(depths.size))
    assert (together["ledge"] > 0).any()
    for c in range(depths.size):
        alone = read_as_arrays(samples, np.array([c]))
        for name, array in alone.items():
            np.testing.assert_array_equal(together[name][[c]], array, err_msg=name)


def test_short_ladders_are_not_padded_to_a_deep_one(monkeypatch):
    """One of twenty rungs beside sixty of seven; in whatever order they come."""
    depths = np.array([7] * 30 + [20] + [7] * 30)
    samples = laddered(depths, 8, 0)
    every, sizes = np.arange(depths.size), []
    extrapolate = reading.extrapolate_central

    def counted(ladder, *args):
        sizes.append(ladder.right.shape)
        return extrapolate(ladder, *args)

    monkeypatch.setattr(reading, "extrapolate_central", counted)
    cut = read_as_arrays(samples, every)
    assert sorted(sizes) == [(7, 60, 8), (20, 1, 8)]
    monkeypatch.setattr(reading, "_PIECE", math.inf)
    whole = read_as_arrays(samples, every)
    for name, array in whole.items():
        np.testing.assert_array_equal(cut[name], array, err_msg=name)


def test_powers_are_taken_only_where_something_asks_for_them(monkeypatch):
    """Terms of a series, and how changes die out: of few entries, not of all read."""
    f, x, exact = dense(200, 20, seed=0)
    asked = {"terms": 0, "changes": 0, "read": 0}
    terms, ends = second_thoughts._stay, creeping._ends
    extrapolate = reading.extrapolate_central

    def counted_terms(table, some):
        asked["terms"] += int(some.sum())
        return terms(table, some)

    def counted_ends(changes, otherwise):
        asked["changes"] += changes[0].shape[1]
        return ends(changes, otherwise)

    def counted(ladder, *args):
        asked["read"] += ladder.right[0].size
        return extrapolate(ladder, *args)

    monkeypatch.setattr(second_thoughts, "_stay", counted_terms)
    monkeypatch.setattr(creeping, "_ends", counted_ends)
    monkeypatch.setattr(reading, "extrapolate_central", counted)
    found = gl.numeric_jacobian(f, x)
    assert (np.abs(found.value - exact) <= 5 * found.error).all()
    assert 0 < asked["terms"] < asked["read"] / 2
    assert asked["changes"] < asked["read"] / 20
