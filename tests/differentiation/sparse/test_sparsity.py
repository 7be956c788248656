"""Compressed Jacobians: the same numbers, fewer evaluations, and nothing overlooked."""

from __future__ import annotations

import time

import numpy as np
import pytest

import gradlab as gl
from gradlab.building import Sides, build_subject
from gradlab.differentiation.evaluation import base_row
from gradlab.differentiation.finite_difference import central
from gradlab.differentiation.metering.budget import parse_budget
from gradlab.differentiation.metering.meter import Meter
from gradlab.differentiation.origin import Origin
from gradlab.differentiation.sizes.scales import scales_of, step_sizes
from gradlab.differentiation.sparse.colouring import colouring_of, smallest_period
from gradlab.differentiation.sparse.compression import compressed
from gradlab.localisation.tensors import probe_tensors
from tests.specimens.sparse import SPARSE, built, point, softmax


class TestCompression:
    """What comes back, and what it costs."""

    @pytest.mark.parametrize("name", SPARSE)
    def test_same_numbers_as_one_coordinate_at_a_time(self, rng, name):
        """Values of a dense central difference, bit for bit, from fewer evaluations."""
        fn, shape = SPARSE[name]
        subject, base, meter = built(fn, point(rng, name, shape))
        n = subject.inputs[0].coordinates
        steps = step_sizes(scales_of(subject, 0), subject.epsilon, 2)
        dense = central(Origin(subject, base), 0, np.arange(n), steps, Meter())

        found = compressed(subject, 0, base, meter)

        assert found is not None
        assert meter.evaluations < 1.6 * n
        assert np.array_equal(found.value, dense.value)
        assert np.array_equal(found.step, dense.step)

    def test_elementwise_cost_grows_with_the_bits_of_the_index(self, rng):
        """1000 coordinates: two evaluations for each of ten bits, and a few."""
        subject, base, meter = built(np.sin, rng.normal(size=1000))

        assert compressed(subject, 0, base, meter) is not None
        assert meter.evaluations <= 2 * 10 + 8

    def test_dense_function_is_left_alone(self, rng):
        """A matrix product cannot be compressed, and trying costs little."""
        a = rng.normal(size=(30, 30))
        subject, base, meter = built(lambda x: a @ x, rng.normal(size=30))

        assert compressed(subject, 0, base, meter) is None
        assert meter.evaluations < 30

    def test_subject_is_at_its_point_afterwards(self, rng):
        """Whatever was displaced is put back, bit for bit."""
        subject, base, meter = built(softmax, rng.normal(size=(8, 8)))
        before = subject.point(0)

        compressed(subject, 0, base, meter)

        assert np.array_equal(subject.coordinates(0)[:], before)

    def test_small_budget_is_not_spent_on_guesses(self, rng):
        """Where the dense Jacobian would no longer fit, nothing is tried."""
        subject, base, _ = built(np.sin, rng.normal(size=100))
        meter = Meter(parse_budget(220))

        assert compressed(subject, 0, base, meter) is None
        assert meter.evaluations == 0

    def test_bars_cover_the_true_error(self, rng):
        """Entries and the zeros between them lie within eight bars of the truth."""
        x = rng.normal(size=(9, 8))
        subject, base, meter = built(softmax, x)
        p = softmax(x)
        exact = np.zeros((9, 8, 9, 8))
        for row in range(9):
            exact[row, :, row] = np.diag(p[row]) - np.outer(p[row], p[row])

        found = compressed(subject, 0, base, meter)

        off = np.abs(found.value - exact.reshape(72, 72))
        assert (off <= 8 * found.error).all()
        assert (found.error > 0).all()


class TestNotTrusted:
    """A guess that does not hold is thrown away."""

    def test_dependence_that_hides_from_the_masks(self, rng):
        """An output that looks sideways within the smallest steps only is caught."""
        x = rng.normal(size=40)
        here = x.copy()

        def fn(x):
            y = np.sin(x)
            if np.abs(x - here).max() < 1e-4:  # the masks step further than this
                y = y + 0.5 * np.roll(x - here, 7)
            return y

        subject, base, meter = built(fn, x)

        assert compressed(subject, 0, base, meter) is None

    def test_relu_at_exactly_zero_is_not_called_flat(self):
        """At a kink the masks may step to the quiet side; the direction tells."""
        x = np.array([0.0, 1.0, -1.0, 0.0, 2.0, -3.0, 0.0, 1.0, 0.0, 0.5])
        subject, base, meter = built(lambda x: np.maximum(x, 0), x)
        for seed in range(8):
            assert compressed(subject, 0, base, meter, seed=seed) is None

    def test_outside_of_the_domain(self):
        """Masks that leave the domain claim dependence, and no zero is made up."""
        x = np.linspace(1e-7, 1.0, 30)
        subject, base, meter = built(np.sqrt, x)

        assert compressed(subject, 0, base, meter) is None


class TestPlantedErrors:
    """A check sees every wrong analytic entry, inside the pattern and outside."""

    @pytest.mark.parametrize("name", ["elementwise", "by row", "stencil"])
    def test_wrong_entry_outside_of_the_pattern(self, rng, name):
        """One entry that should be zero is a millionth: it is the one reported."""
        fn, shape = SPARSE[name]
        x = rng.normal(size=shape)
        subject, base, _ = built(fn, x)
        steps = step_sizes(scales_of(subject, 0), subject.epsilon, 2)
        origin, every = Origin(subject, base), np.arange(x.size)
        jacobian = central(origin, 0, every, steps, Meter()).value
        row, column = next(zip(*np.nonzero(jacobian == 0), strict=True))
        jacobian[row, column] = 1e-5

        report = gl.check(fn, x, jac=lambda _: jacobian, coverage="full")

        wrong = np.argwhere(report.comparisons[0].verdicts == gl.Verdict.DISAGREES)
        assert wrong.tolist() == [[row, column]]

    def test_backward_of_torch_that_leaks_into_other_rows(self):
        """Autograd that mixes samples is found though the forward keeps them apart."""
        torch = pytest.importorskip("torch")

        from tests.specimens.functions import with_backward

        leaky = with_backward(
            torch.tanh, lambda x, g: (1 - x.tanh() ** 2) * g + 1e-4 * g.roll(1, 0)
        )
        x = torch.randn(8, 6, dtype=torch.float64)
        report = gl.check(leaky, x, coverage="full")

        wrong = report.comparisons[0].verdicts == gl.Verdict.DISAGREES
        assert wrong.sum() == 48  # each entry leaks into one other row

    def test_wrong_entry_inside_of_the_pattern(self, rng):
        """A factor of 1.001 in one row of an elementwise derivative."""
        x = rng.normal(size=50)
        slope = np.cos(x)
        slope[17] *= 1.001

        report = gl.check(np.sin, x, jac=lambda _: np.diag(slope), coverage="full")

        wrong = np.argwhere(report.comparisons[0].verdicts == gl.Verdict.DISAGREES)
        assert wrong.tolist() == [[17, 17]]

    def test_random_states_are_as_before(self, rng):
        """Verdicts and values do not depend on the user's random state."""
        x = rng.normal(size=30)
        np.random.seed(5)
        before = np.random.get_state()[1].copy()

        gl.check(np.sin, x, jac=lambda x: np.diag(np.cos(x)), coverage="full")

        assert np.array_equal(np.random.get_state()[1], before)


class TestBatches:
    """Torch evaluates many sets in one call, with the same numbers as a loop."""

    def test_batch_equals_loop(self):
        """Rows of a batch agree with single evaluations up to round-off."""
        torch = pytest.importorskip("torch")
        x = torch.randn(16, 32, dtype=torch.float64)
        w = torch.randn(32, 32, dtype=torch.float64)
        subject = build_subject(torch.nn.functional.linear, (x, w), Sides())
        base = base_row(subject, Meter())
        moves = 1e-3 * np.random.default_rng(0).normal(size=(100, x.numel()))

        values = subject.sets((0,), moves)

        exact = (x.numpy().reshape(-1) + moves).reshape(100, 16, 32) @ w.numpy().T
        assert np.allclose(values, exact.reshape(100, -1), rtol=1e-12, atol=1e-12)
        assert np.array_equal(subject.row(), base)

    def test_function_that_cannot_be_batched(self):
        """A trip through NumPy is evaluated one set at a time."""
        torch = pytest.importorskip("torch")
        subject = build_subject(
            lambda x: torch.from_numpy(np.sin(x.detach().numpy())) + 0 * x,
            (torch.randn(50, 40, dtype=torch.float64),),
            Sides(),
        )
        base_row(subject, Meter())
        moves = np.full((80, 2000), 1e-3)

        values = subject.sets((0,), moves)

        assert np.allclose(values, np.sin(subject.point(0) + 1e-3), atol=1e-15)

    @pytest.mark.parametrize("layout", ["contiguous", "strided", "complex"])
    def test_walk_of_large_inputs(self, rng, layout):
        """Verdicts of random directions are right in every layout of memory."""
        torch = pytest.importorskip("torch")
        x = torch.from_numpy(rng.normal(size=(60, 40)))
        x = {"strided": x.T, "complex": torch.complex(x, x + 1)}.get(layout, x)
        subject = build_subject(lambda x: (x.abs() ** 3).sum(), (x,), Sides())

        assert probe_tensors(subject).verdict == gl.Verdict.AGREES
        assert np.array_equal(subject.coordinates(0)[7], subject.point(0)[7])


class TestColouring:
    """Columns of one colour are never seen by one row."""

    def test_no_row_sees_a_colour_twice(self, rng):
        """For random product patterns, counted entry by entry."""
        for _ in range(50):
            sizes = rng.integers(2, 9, 2)
            touched = [rng.random((size, 30)) < 0.25 for size in sizes]
            axes = [a.reshape(-1) for a in np.indices(sizes)]
            found = colouring_of(touched, axes)
            for row in found.rows(slice(None)):
                seen = found.colours[row]
                assert len(set(seen)) == len(seen)

    @pytest.mark.parametrize(("reach", "period"), [(0, 1), (1, 3), (2, 5)])
    def test_stencils_get_their_own_width(self, reach, period):
        """A stencil of width w needs w colours along its axis."""
        near = np.abs(np.subtract.outer(np.arange(40), np.arange(40))) <= reach

        assert smallest_period(near) == period


class TestBudget:
    """Guesses are not paid for with what the dense Jacobian would need."""

    def test_running_sum_wastes_little(self, rng):
        """A triangular Jacobian of 300 columns is soon given up."""
        subject, base, meter = built(np.cumsum, rng.normal(size=300))

        assert compressed(subject, 0, base, meter) is None
        assert meter.evaluations <= 40

    @pytest.mark.parametrize("coverage", ["auto", "full"])
    def test_number_of_evaluations_is_kept(self, rng, coverage):
        """A budget of 300 is never exceeded, whatever the structure."""
        x = rng.normal(size=400)
        exact = np.tril(np.ones((400, 400)))

        report = gl.check(
            np.cumsum, x, jac=lambda _: exact, coverage=coverage, budget=300
        )

        assert report.evaluations <= 300

    def test_time_is_kept_and_something_is_said(self, rng, clock):
        """Half a second of a function of a millisecond, to within twenty percent."""
        x = rng.normal(size=1000)

        def slow(x):
            time.sleep(1e-3)
            return np.cumsum(x[:50] ** 2) + x.sum()

        def jac(x):
            exact = np.ones((50, 1000))
            exact[:, :50] += np.tril(np.ones((50, 50))) * 2 * x[:50]
            return exact

        report = gl.check(slow, x, jac=jac, coverage="full", budget="0.5s")

        assert report.partial
        assert report.seconds == pytest.approx(clock.slept)
        assert 0.4 <= report.seconds <= 0.6
