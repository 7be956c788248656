"""Several sparse inputs in one batch: the same numbers, and no guess is believed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gradlab as gl
from gradlab.building import Sides, build_subject
from gradlab.differentiation.evaluation import base_row
from gradlab.differentiation.metering.meter import Meter
from gradlab.differentiation.sparse.compression import compressed, compressed_together


def _affine(x, w, b):
    """Rows of x are independent; w scales columns, b moves them."""
    return np.sin(x) * w + b


def _jacobians(x, w, b):
    rows, n = x.shape
    each = np.eye(rows * n)
    columns = np.tile(np.eye(n), (rows, 1))
    return each * (np.cos(x) * w).ravel(), columns * np.sin(x).reshape(-1, 1), columns


@pytest.fixture
def point(rng):
    """Inputs of 24 by 10, 10 and 10."""
    shapes = ((24, 10), 10, 10)
    return tuple(rng.uniform(0.5, 1.5, size=shape) for shape in shapes)


def _measured(fn, point, guesses, **budget):
    subject = build_subject(fn, point, Sides(jac=_jacobians))
    meter = Meter(**budget)
    base = base_row(subject, meter)
    found = compressed_together(subject, dict(enumerate(guesses)), base, meter)
    return subject, base, meter, found


class TestRightGuesses:
    """All guesses hold."""

    def test_every_entry_is_that_of_the_algebra(self, point):
        """Each input gets its own matrix, with bars that cover the error."""
        truth = _jacobians(*point)

        *_, found = _measured(_affine, point, truth)

        assert sorted(found) == [0, 1, 2]
        for which, exact in enumerate(truth):
            error = np.abs(found[which].value - exact)
            assert (error <= 10 * found[which].error + 1e-15).all()

    def test_it_costs_what_one_after_the_other_costs(self, point):
        """Two evaluations for each colour and four for each direction; f is one."""
        truth = _jacobians(*point)
        subject, base, meter, found = _measured(_affine, point, truth)
        apart = Meter()

        one_by_one = [
            compressed(subject, which, base, apart, guess=guess)
            for which, guess in enumerate(truth)
        ]

        assert meter.evaluations == 1 + apart.evaluations == 1 + 3 * (2 + 4)
        for which, alone in enumerate(one_by_one):
            assert np.array_equal(found[which].value, alone.value)

    def test_torch_makes_one_batch_of_them(self, rng):
        """A layer with three inputs of which all displacements go through one call."""
        calls = []

        def layer(x, w, b):
            calls.append(type(x))
            return torch.tanh(x @ w.T + b) * 1.0

        inputs = [
            torch.tensor(rng.normal(size=shape), requires_grad=True)
            for shape in ((6, 12), (12, 12), (12,))
        ]
        report = gl.check(layer, *inputs, coverage="full")

        assert report.ok
        assert report.evaluations > 60 > len(calls)


class TestWrongGuesses:
    """One guess lacks an entry that the function has."""

    @pytest.mark.parametrize("size", [1e-4, 1.0])
    @pytest.mark.parametrize("strong", [1.0, 1e6])
    def test_dropped_dependence_is_found_beside_strong_inputs(
        self, point, size, strong
    ):
        """An output that sees one more entry of b, a little, says so in the verdict."""
        x, w, b = point

        def fn(x, w, b):
            y = strong * np.sin(x) * w + b
            y[3, 4] += size * b[7]
            return y

        def jac(x, w, b):
            to_x, to_w, to_b = _jacobians(x, w, b)
            return strong * to_x, strong * to_w, to_b

        report = gl.check(fn, x, w, b, jac=jac, coverage="full")

        verdicts = {c.input.name: c for c in report.comparisons}
        wrong = np.argwhere(verdicts["b"].verdicts == gl.Verdict.DISAGREES)
        assert wrong.tolist() == [[34, 7]]
        assert (verdicts["x"].verdicts == 0).all()
        assert (verdicts["w"].verdicts == 0).all()

    def test_a_guess_that_does_not_hold_spoils_no_other(self, point):
        """Of a wrong one nothing is kept; the others are told all the same."""
        truth = list(_jacobians(*point))
        truth[1] = truth[1].copy()
        truth[1][5] = 0.0

        *_, found = _measured(_affine, point, truth)

        assert found[1] is None
        assert np.allclose(found[0].value, truth[0], atol=1e-9)
        assert np.allclose(found[2].value, truth[2], atol=1e-9)

    def test_coupling_of_two_inputs_is_no_reason_for_doubt(self, point):
        """A product of inputs bends along both together, which nobody displaced."""
        *_, found = _measured(_affine, point, _jacobians(*point))

        assert len(found) == 3


def test_slow_functions_are_not_kept_waiting(point):
    """What an interruption would lose is measured input by input."""
    subject = build_subject(_affine, point, Sides(jac=_jacobians))
    meter = Meter()
    base = base_row(subject, meter)
    meter.each = 0.2

    guesses = dict(enumerate(_jacobians(*point)))

    assert compressed_together(subject, guesses, base, meter) == {}
    assert meter.evaluations == 1


def test_an_empty_input_beside_sparse_ones_is_no_obstacle(rng):
    """What has no coordinates has nothing to colour: the others are measured."""
    x = torch.tensor(rng.normal(size=(3, 4)), requires_grad=True)
    w = torch.tensor(rng.normal(size=4), requires_grad=True)
    empty = torch.zeros((0, 3), dtype=torch.float64, requires_grad=True)

    report = gl.check(lambda x, empty, w: torch.sin(x) * w, x, empty, w)

    assert report.verdict == gl.Verdict.AGREES
