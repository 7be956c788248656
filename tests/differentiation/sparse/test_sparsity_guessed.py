"""Zeros of the analytic side as a guess at the pattern: proved, or dropped."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.differentiation.metering.meter import Meter
from gradlab.differentiation.sparse.compression import compressed
from tests.specimens.sparse import SPARSE, built, point


class TestGuessed:
    """The zeros of the analytic side are taken for a guess, and for no more."""

    @pytest.mark.parametrize("name", SPARSE)
    def test_right_guess_spares_the_masks(self, rng, name):
        """The same numbers, from two evaluations a colour and a few."""
        fn, shape = SPARSE[name]
        subject, base, meter = built(fn, point(rng, name, shape))
        asked = compressed(subject, 0, base, meter)
        few = Meter()

        guessed = compressed(subject, 0, base, few, guess=asked.value)

        assert np.array_equal(guessed.value, asked.value)
        assert few.evaluations < meter.evaluations

    def test_elementwise_costs_six(self, rng):
        """Forth and back, and the direction at two lengths; however many entries."""
        x = rng.uniform(-1, 1, size=3000)
        subject, base, meter = built(np.sin, x)

        assert compressed(subject, 0, base, meter, guess=np.diag(np.cos(x))) is not None
        assert meter.evaluations == 1 + 6

    def test_flat_outputs_are_asked_by_the_bits_of_their_number(self, rng):
        """Beside a slope of nearly zero the others have to be seen standing still.

        From near by and, since that tells too little of it, from afar.
        """
        x = rng.normal(size=3000)
        x[:200] = np.pi / 2 - np.linspace(1e-5, 1e-3, 200)
        subject, base, meter = built(np.sin, x)

        found = compressed(subject, 0, base, meter, guess=np.diag(np.cos(x)))
        assert found is not None
        assert meter.evaluations <= 1 + 6 + 2 * (2 * 9 + 2)
        effects = np.abs(np.cos(x)) * found.pattern.scales
        assert (found.pattern.outside <= 2e-8 * effects)[:200].all()

    @pytest.mark.parametrize("slope", [1e-12, 1e-11, 1e-9])
    def test_what_a_flat_output_hides_from_near_by_is_seen_from_afar(self, rng, slope):
        """Its zeros keep their wide bars, or the guess is given up."""
        x = rng.normal(size=300)
        x[3] = np.pi / 2 - 1e-5

        def fn(x):
            y = np.sin(x)
            y[3] += slope * x[100]
            return y

        subject, base, meter = built(fn, x)
        found = compressed(subject, 0, base, meter, guess=np.diag(np.cos(x)))

        if found is not None:
            held = (found.pattern.support.columns[3] == 100).any()
            assert held or found.error[3, 100] >= slope

    @pytest.mark.parametrize("size", [1e-7, 1e-3])
    def test_flat_output_that_depends_on_another_coordinate(self, rng, size):
        """Beside a slope of 1e-5 a dropped one of 1e-7 is not drowned by rounding."""
        x = rng.normal(size=60)
        x[:20] = np.pi / 2 - 1e-5
        other = rng.permutation(60)

        def fn(x):
            y = np.sin(x)
            y[:20] += size * x[other[:20]]
            return y

        report = gl.check(fn, x, jac=lambda x: np.diag(np.cos(x)), coverage="full")

        wrong = np.argwhere(report.comparisons[0].verdicts == gl.Verdict.DISAGREES)
        assert wrong.tolist() == [[i, other[i]] for i in range(20) if other[i] != i]

    def test_zero_at_the_point_is_no_dependence_overlooked(self):
        """The slope of a product is zero where the other factor is: a right guess."""
        x = np.array([1.0, 0.0, 2.0, 0.0, 0.0, 3.0, 1.5, 0.0, 0.7, 1.0])
        jacobian = np.zeros((5, 10))
        pairs = np.arange(5)
        jacobian[pairs, 2 * pairs] = x[1::2]
        jacobian[pairs, 2 * pairs + 1] = x[0::2]

        report = gl.check(
            lambda x: x[0::2] * x[1::2], x, jac=lambda _: jacobian, coverage="full"
        )

        assert report.ok
        assert not report.findings

    @pytest.mark.parametrize("size", [1e-6, 1e-4, 1.0])
    def test_dropped_entries(self, rng, size):
        """What the gradient leaves out is seen, whatever it leaves."""
        x = rng.normal(size=40)
        coupled = lambda x: np.sin(x) + size * np.roll(x, 11)
        subject, base, meter = built(coupled, x)
        exact = np.diag(np.cos(x)) + size * np.roll(np.eye(40), 11, axis=0)

        found = compressed(subject, 0, base, meter, guess=np.diag(np.cos(x)))

        assert found is None or np.allclose(found.value, exact, atol=1e-9)

    def test_entries_in_the_wrong_place(self, rng):
        """Columns that share a colour change places: both places are told."""
        x = rng.uniform(0.5, 1.0, 40)
        jacobian = np.diag(np.cos(x))
        jacobian[[3, 20]] = jacobian[[20, 3]]

        report = gl.check(np.sin, x, jac=lambda _: jacobian, coverage="full")

        wrong = np.argwhere(report.comparisons[0].verdicts == gl.Verdict.DISAGREES)
        assert wrong.tolist() == [[3, 3], [3, 20], [20, 3], [20, 20]]

    def test_entries_that_cancel_each_other(self, rng):
        """Two dropped entries of opposite sign, of coordinates of one colour."""
        x = rng.normal(size=40)
        fn = lambda x: np.sin(x) + 0.1 * (np.roll(x, 5) - np.roll(x, 9))

        report = gl.check(fn, x, jac=lambda x: np.diag(np.cos(x)), coverage="full")

        wrong = np.argwhere(report.comparisons[0].verdicts == gl.Verdict.DISAGREES)
        rows = np.arange(40)
        missing = {*zip(rows, (rows - 5) % 40, strict=True)}
        missing |= {*zip(rows, (rows - 9) % 40, strict=True)}
        assert {*map(tuple, wrong.tolist())} == missing

    def test_kink_whose_central_difference_is_zero(self):
        """|x| at 0 has a gradient of 0 by convention, and it is said what that is."""
        x = np.array([0.3, -0.4, 0.0, 1.2, -2.0, 0.9, 0.0, -0.1, 0.6, 1.0])
        subject, base, meter = built(np.abs, x)
        guess = np.diag(np.sign(x))

        found = compressed(subject, 0, base, meter, guess=guess)

        bend = np.zeros((10, 10))
        found.pattern.support.put(found.pattern.bend, bend)
        assert np.allclose(np.diag(bend)[x == 0], 2.0)

    def test_dependence_close_by_that_far_moves_do_not_see(self, rng):
        """Of flat outputs far moves are asked; what the direction saw stands."""
        x = rng.normal(size=40)
        x[:6] = np.pi / 2 - 1e-6
        here = x.copy()

        def fn(x):
            y = np.sin(x)
            if np.abs(x - here).max() < 1e-4:  # far moves step further than this
                y[:6] += 0.01 * (x - here)[20:26]
            return y

        subject, base, meter = built(fn, x)

        assert compressed(subject, 0, base, meter, guess=np.diag(np.cos(x))) is None

    @pytest.mark.parametrize("seed", range(12))
    def test_whatever_is_wrong_is_what_a_dense_difference_calls_wrong(self, seed):
        """Random stencils, random slips: the verdicts of one coordinate at a time."""
        rng = np.random.default_rng(seed)
        n, m = rng.integers(12, 50, 2)
        weights = np.where(rng.random((m, n)) < 2.5 / n, rng.normal(size=(m, n)), 0.0)
        bends = rng.normal(size=m)
        fn = lambda x: np.sin(weights @ x) + bends * (weights**2 @ x**2)
        x = rng.normal(size=n)
        exact = np.cos(weights @ x)[:, None] * weights
        exact = exact + 2 * (bends[:, None] * weights**2) * x
        slipped = exact.copy()
        for _ in range(rng.integers(1, 4)):
            i, j = rng.integers(m), rng.integers(n)
            if rng.random() < 0.5:
                slipped[i, j] = 0.0
            else:
                slipped[i, j] += rng.choice([1e-3, 0.1, 1.0])
        right = np.isclose(slipped, exact, rtol=1e-6, atol=1e-9)

        report = gl.check(fn, x, jac=lambda _: slipped, coverage="full")

        verdicts = report.comparisons[0].verdicts
        assert np.array_equal(verdicts == gl.Verdict.AGREES, right)
