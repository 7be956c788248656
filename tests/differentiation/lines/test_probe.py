"""Directions that are regenerated, walks that come back, bars that can be trusted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gradlab.differentiation.lines.directions import Direction, unit_of
from gradlab.differentiation.lines.line_slope import line_slope, start_exponent
from gradlab.differentiation.lines.parts import whole
from gradlab.differentiation.lines.probe import ProbeSettings, probe, ripple
from gradlab.differentiation.metering.budget import Budget
from gradlab.differentiation.metering.meter import BudgetExhausted, Meter
from gradlab.differentiation.origin import Origin
from tests.differentiation.lines.test_directions import subject_of

CURVES = {
    "sine": (np.sin, math.cos),
    "exponential": (np.exp, math.exp),
    "logarithm": (np.log, lambda x: 1 / x),
    "fast wave": (lambda x: np.sin(50 * x), lambda x: 50 * math.cos(50 * x)),
    "cubic": (lambda x: x**3, lambda x: 3 * x * x),
    "tiny": (lambda x: 1e-30 * np.sin(x), lambda x: 1e-30 * math.cos(x)),
    "on a pedestal": (lambda x: 1e6 + np.sin(x), math.cos),
}


class TestLineSlope:
    @pytest.mark.parametrize("name", CURVES)
    @pytest.mark.parametrize("x", [0.3, 1.0, 2.7])
    def test_error_bar_covers_the_error(self, name, x):
        """Five error bars cover the true error: that is what verdicts rely on."""
        f, exact = CURVES[name]
        found = line_slope(
            lambda t: float(f(x + t)),
            noise=4 * 2.2e-16 * abs(float(f(x))),
            exponent=10,
            deepest=40,
            enough=lambda value, error: error < 1e-9 * abs(value),
        )

        assert abs(found.value - exact(x)) <= 5 * found.error

    def test_smooth_functions_cost_six_evaluations(self):
        """Three steps, two sides each, where the first position is good enough."""
        found = line_slope(
            lambda t: math.sin(1 + t),
            noise=1e-16,
            exponent=10,
            deepest=40,
            enough=lambda value, error: error < 1e-10,
        )

        assert found.evaluations == 6
        assert found.error < 1e-11

    @pytest.mark.parametrize("distance", [1e-3, 1e-4, 3e-6])
    def test_kink_beside_the_point_is_stepped_over(self, distance):
        """The ladder goes below the distance of a kink and finds the slope there."""
        found = line_slope(
            lambda t: max(t - distance, 0.0) + 0.5 * t,
            noise=1e-18,
            exponent=10,
            deepest=40,
            enough=lambda value, error: error < 1e-8,
        )

        assert abs(found.value - 0.5) <= 5 * found.error < 1e-6

    def test_kink_at_the_point_has_a_bar_as_wide_as_the_doubt(self):
        """At a kink the quotients agree on the middle; the even part is not seen.

        |t| has the symmetric slope 0, which is a sub-gradient: nothing to accuse.
        """
        found = line_slope(
            abs, noise=1e-18, exponent=10, deepest=40, enough=lambda v, e: True
        )

        assert found.value == 0.0

    def test_no_value_anywhere_is_an_infinite_bar(self):
        """A function that is nan around the point has no derivative."""
        found = line_slope(
            lambda t: math.nan,
            noise=0.0,
            exponent=10,
            deepest=40,
            enough=lambda v, e: e < 1,
        )

        assert math.isnan(found.value)
        assert found.error == math.inf

    def test_steps_fit_the_precision(self):
        """Lower precision starts from larger steps."""
        assert (
            start_exponent(2.2e-16) > start_exponent(1.2e-7) > start_exponent(1e-3) - 1
        )


class TestProbe:
    def compare(self, f, gradient, x, seed=1, **options):
        subject = subject_of(f, x)
        meter = options.pop("meter", None) or Meter()
        origin = Origin(subject, subject.row())
        direction = Direction(seed, whole(subject), (unit_of(subject, 0),))
        settings = ProbeSettings(**options)
        found = probe(origin, direction, [gradient], np.ones(1), meter, settings)
        return found, direction, subject

    def test_right_gradient_agrees_within_the_bar(self, rng):
        """Closed form: the gradient of sum(sin) is cos."""
        x = rng.normal(size=5000)
        found, _, _ = self.compare(lambda x: np.sin(x).sum(), np.cos(x), x)

        assert abs(found.defect) <= 5 * found.error

    def test_steps_are_tried_until_a_defect_or_the_resolution_shows(self):
        """From coarse steps a right gradient takes more of them than a wrong one."""
        x = np.linspace(0.1, 1.0, 50)
        options = {"exponent": 2, "resolution": 1e-9}
        right, _, _ = self.compare(lambda x: np.exp(x).sum(), np.exp(x), x, **options)
        wrong, _, _ = self.compare(
            lambda x: np.exp(x).sum(), 2 * np.exp(x), x, **options
        )

        assert right.error <= 1e-9 < wrong.error
        assert right.evaluations > wrong.evaluations

    def test_defect_of_one_wrong_entry_is_its_error_times_the_direction(self, rng):
        """One entry among 5000 shows undiluted: the defect says exactly how wrong."""
        x = rng.normal(size=5000)
        wrong = np.cos(x)
        wrong[1234] += 1e-4
        found, direction, _ = self.compare(lambda x: np.sin(x).sum(), wrong, x)

        assert found.defect == pytest.approx(1e-4 * direction.at(0, 1234), rel=1e-4)
        assert abs(found.defect) > 100 * found.error

    def test_many_small_kinks_are_not_believed(self):
        """Wary, a probe does not take the slope of the rounded-off function for real.

        A sum of 20,000 absolute values crosses dozens of kinks at every step, and looks
        smooth; its own gradient is sign(x).
        """
        x, fooled = np.random.default_rng(0).normal(size=20_000), 0
        for seed in range(1, 7):
            plain, wary = (
                self.compare(
                    lambda x: np.abs(x).sum(),
                    np.sign(x),
                    x,
                    seed=seed,
                    wary=wary,
                    resolution=1e-3,
                )[0]
                for wary in (False, True)
            )
            believed = abs(plain.defect) > 5 * plain.error

            assert abs(wary.defect) <= 5 * wary.error
            assert wary.rough == believed
            fooled += believed

        assert fooled >= 2

    def test_a_defect_that_finer_steps_show_again_is_kept(self):
        """Of a smooth function nothing is taken back, and it is not called rough."""
        x = np.linspace(0.1, 1.0, 500)
        wrong = np.cos(x)
        wrong[123] += 1e-4
        found, direction, _ = self.compare(
            lambda x: np.sin(x).sum(), wrong, x, wary=True
        )

        assert found.defect == pytest.approx(1e-4 * direction.at(0, 123), rel=1e-4)
        assert not found.rough

    def test_interrupt_puts_the_point_back(self, rng):
        """After KeyboardInterrupt at any evaluation the subject is at its point."""
        x, calls = rng.normal(size=100), []

        def f(x):
            calls.append(1)
            if len(calls) == 4:
                raise KeyboardInterrupt
            return np.sin(x).sum()

        subject = subject_of(f, x)
        origin = Origin(subject, subject.row())
        direction = Direction(1, whole(subject), (1.0,))
        with pytest.raises(KeyboardInterrupt):
            probe(origin, direction, [np.cos(x)], np.ones(1), Meter())

        assert np.array_equal(list(subject.coordinates(0)), x)

    def test_budget_ends_the_walk_at_the_point(self, rng):
        """The budget is kept to the evaluation, and nothing stays displaced."""
        x, meter = rng.normal(size=100), Meter(Budget(evaluations=3))
        subject = subject_of(lambda x: np.sin(x).sum(), x)
        origin = Origin(subject, subject.row())
        direction = Direction(1, whole(subject), (1.0,))
        with pytest.raises(BudgetExhausted):
            probe(origin, direction, [np.cos(x)], np.ones(1), meter)

        assert meter.evaluations == 3
        assert np.array_equal(list(subject.coordinates(0)), x)

    def test_function_that_raises_nearby_has_no_slope(self):
        """A function without values around the point gives an infinite bar."""
        x = np.ones(4)

        def f(y):
            if not np.array_equal(y, x):
                msg = "only here"
                raise ValueError(msg)
            return y.sum()

        found, _, _ = self.compare(f, np.ones(4), x)

        assert found.error == math.inf


class TestRipple:
    @pytest.mark.parametrize("noise", [1e-12, 1e-9, 1e-6])
    def test_noise_is_measured_within_a_factor(self, noise, rng):
        """Added noise of a known size is found to a factor of four."""
        x, draws = rng.normal(size=50), np.random.default_rng(7)
        subject = subject_of(lambda x: np.sin(x).sum() + noise * draws.normal(), x)
        origin = Origin(subject, subject.row())
        direction = Direction(1, whole(subject), (1.0,))
        sizes = [
            np.sqrt(np.mean(ripple(origin, direction, Meter()) ** 2)) for _ in range(20)
        ]

        assert noise / 4 < np.median(sizes) < 4 * noise

    def test_cancelling_terms_show_their_round_off(self, rng):
        """Where 1e8 cancels, the round-off is that of 1e8, not that of the result."""
        x = rng.normal(size=50)
        subject = subject_of(lambda x: (1e8 + np.sin(x).sum()) - 1e8, x)
        origin = Origin(subject, subject.row())
        direction = Direction(1, whole(subject), (1.0,))
        size = np.sqrt(np.mean(ripple(origin, direction, Meter()) ** 2))

        assert size == 0 or 1e-9 < size < 1e-7
