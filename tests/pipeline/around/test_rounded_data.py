"""Gradients that hang on the last digits of data are held against nobody."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch

import gradlab as gl
from gradlab.building import Sides, build_subject
from gradlab.diagnosis.finding import BugKind
from gradlab.subject.constants_off import constants_off
from tests.specimens.functions import with_backward

ROWS = 10
HILBERT = 1.0 / (np.arange(ROWS)[:, None] + np.arange(ROWS) + 1)  # condition 1.6e13
B = np.random.default_rng(1).normal(size=ROWS)


def exact():
    """Return the gradient of the sum of the solution, to the last digit."""
    with mpmath.workdps(60):
        ones = mpmath.matrix([1] * ROWS)
        found = mpmath.lu_solve(mpmath.matrix(HILBERT.T.tolist()), ones)
        return np.array([float(value) for value in found])


def solved(b):
    return float(np.linalg.solve(HILBERT, b).sum())


def by_solving(b):
    return np.linalg.solve(HILBERT.T, np.ones(ROWS))


def told(report):
    """Kinds of warnings and errors."""
    return {f.kind for f in report.findings if f.severity != "note" and f.where}


def nearly_singular(seed):
    """Return a matrix of ten rows with a condition number of 1e13."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.normal(size=(ROWS, ROWS)))[0] for _ in range(2))
    return left @ np.diag(np.logspace(0, -13, ROWS)) @ right


class TestRight:
    """Neither of two right ways to compute a gradient is accused.

    How far they lie apart is a matter of the machine: nothing rests on one of them.
    """

    @pytest.mark.parametrize("grad", [by_solving, lambda b: exact(), exact()])
    def test_data_of_a_global(self, grad):
        report = gl.check(solved, B, grad=grad)
        assert report.verdict != gl.Verdict.DISAGREES
        assert told(report) <= {BugKind.LOW_PRECISION}

    def test_data_of_every_kind(self):
        """Arguments, defaults, attributes and cells; most of them have few digits."""
        said = []
        for seed in range(8):
            matrix = nearly_singular(seed)
            own = Model(matrix)
            reports = [
                gl.check(
                    lambda A, b: float(np.linalg.solve(A, b).sum()),
                    matrix,
                    B,
                    grad=lambda A, b: {"b": np.linalg.solve(A.T, np.ones(ROWS))},
                    wrt=["b"],
                ),
                gl.check(
                    lambda b, A=matrix: float(np.linalg.solve(A, b).sum()),
                    B,
                    grad=lambda b, A=matrix: np.linalg.solve(A.T, np.ones(ROWS)),
                ),
                gl.check(own.loss, B),
            ]
            assert all(r.verdict != gl.Verdict.DISAGREES for r in reports)
            said += ["last digits of data" in str(r) for r in reports]
        assert sum(said) >= len(said) / 2

    def test_whole_jacobian(self):
        with mpmath.workdps(60):
            inverse = mpmath.matrix(HILBERT.tolist()) ** -1
            jac = np.array(inverse.tolist(), dtype=float)
        report = gl.check(lambda b: np.linalg.solve(HILBERT, b), B, jac=lambda b: jac)
        assert report.verdict != gl.Verdict.DISAGREES

    def test_custom_function(self):
        solve = with_backward(
            lambda b: torch.linalg.solve(torch.tensor(HILBERT), b).sum(),
            lambda _b, up: up * torch.tensor(exact()),
        )

        report = gl.check(solve, torch.tensor(B))
        assert report.verdict != gl.Verdict.DISAGREES


class Model:
    """A loss that reads a matrix of its own, and its gradient."""

    def __init__(self, matrix):
        self.A = matrix.copy()

    def loss(self, b):
        slope = np.linalg.solve(self.A.T, np.ones(ROWS))
        return float(np.linalg.solve(self.A, b).sum()), slope


class TestWrong:
    """A mistake that data explains by no roundings is told."""

    @pytest.mark.parametrize("grad", [by_solving, lambda b: exact()])
    def test_of_two_percent(self, grad):
        report = gl.check(solved, B, grad=lambda b: 1.02 * grad(b))
        assert report.verdict == gl.Verdict.DISAGREES
        assert BugKind.LOW_PRECISION not in told(report)

    def test_of_little_beside_good_data(self):
        A = np.eye(ROWS) + 0.1 * HILBERT
        report = gl.check(
            lambda b: float(np.linalg.solve(A, b).sum()),
            B,
            grad=lambda b: (1 + 1e-5) * np.linalg.solve(A.T, np.ones(ROWS)),
        )
        assert report.verdict == gl.Verdict.DISAGREES

    def test_beside_data_that_is_compared(self):
        """Labels that are 1.0 are none after a rounding: that explains nothing."""
        labels = np.arange(ROWS) % 2 * 1.0

        def loss(b):
            return float((b[labels == 1.0] ** 2).sum())

        def grad(b):
            return np.where(labels == 1.0, 2.0 * (1 + 1e-4) * b, 0.0)

        report = gl.check(loss, B, grad=grad)
        assert report.verdict == gl.Verdict.DISAGREES
        assert told(report) == {BugKind.SCALE}


class TestConstantsOff:
    def test_the_users_own_stay(self):
        data, more = HILBERT.copy(), np.array([1.0, 3.0])
        before = data.tobytes(), more.tobytes()

        def fn(x, scale=more):
            return np.linalg.solve(data, x) * scale[1]

        own = fn.__defaults__
        subject = build_subject(fn, (B,), Sides(need_analytic=False, wrt=["x"]))
        here = subject.row()
        with constants_off(subject, 1.0, np.random.default_rng(0)) as other:
            assert not np.array_equal(other.row(), here)
            assert (data.tobytes(), more.tobytes()) == before
            assert fn.__defaults__ is own
        assert np.array_equal(subject.row(), here)

    def test_after_an_exception_too(self):
        data = torch.tensor(HILBERT)

        def fn(x, scale=data):
            if not torch.equal(scale, torch.tensor(HILBERT)):
                raise RuntimeError
            return x @ data

        own = fn.__defaults__
        subject = build_subject(fn, (torch.tensor(B),), Sides())
        with (
            pytest.raises(RuntimeError),
            constants_off(subject, 1.0, np.random.default_rng(0)),
        ):
            subject.row()
        assert fn.__defaults__ is own
        assert torch.equal(data, torch.tensor(HILBERT))

    def test_tensors_among_the_arguments(self):
        data = torch.tensor(HILBERT)
        subject = build_subject(
            lambda A, x: (torch.linalg.solve(A, x) ** 2).sum(),
            (data, torch.tensor(B)),
            Sides(wrt=["x"]),
        )
        here = subject.row()
        with constants_off(subject, 1.0, np.random.default_rng(0)):
            there = subject.row()
        assert np.abs(there / here - 1).max() > 1e-6
        assert np.array_equal(subject.row(), here)

    def test_without_data_there_is_nothing_to_ask(self):
        subject = build_subject(lambda x: x**2, (B,), Sides(need_analytic=False))
        with constants_off(subject, 1.0, np.random.default_rng(0)) as other:
            assert other is None
