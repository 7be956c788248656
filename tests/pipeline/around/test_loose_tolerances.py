"""Solvers whose tolerance shows in their gradient: a smaller one tells.

Truth is algebra: the solution of a linear equation, the eigenvector of an eigenvalue.
"""

from __future__ import annotations

import contextlib
import functools
import threading

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

import gradlab as gl
from gradlab.building import Sides, build_subject
from gradlab.subject.tolerances_off import small_numbers, with_smaller

T = np.array([1.3, 0.7])
LOOSE = 1e-3


def flow(t, end=2.0):
    """End of y' = -a y + b from 1 to a time, by its derivative in a and b."""
    (a, b), left = t, np.exp(-end * t[0])
    return np.array([-end * (1 - b / a) * left - b / a**2 * (1 - left), (1 - left) / a])


def slope(_, y, a, b):
    """Right-hand side."""
    return -a * y + b


def by_literal(t):
    """Its tolerances stand in the code."""
    found = solve_ivp(slope, (0, 2), [1.0], args=tuple(t), rtol=1e-3, atol=1e-3)
    return float(found.y[0, -1])


def by_global(t):
    """Its tolerances stand beside it."""
    found = solve_ivp(slope, (0, 2), [1.0], args=tuple(t), rtol=LOOSE, atol=LOOSE)
    return float(found.y[0, -1])


def by_default(t, *, rtol=1e-3):
    """Its tolerance is a default."""
    found = solve_ivp(slope, (0, 2), [1.0], args=tuple(t), rtol=rtol, atol=1e-3 * rtol)
    return float(found.y[0, -1])


class Held:
    """Its tolerance is an attribute."""

    def __init__(self):
        self.options = {"rtol": 1e-3, "atol": 1e-4}

    def __call__(self, t):
        """Integrate."""
        found = solve_ivp(slope, (0, 2), [1.0], args=tuple(t), **self.options)
        return float(found.y[0, -1])


def in_steps(t):
    """Euler's method, in steps of a thousandth."""
    (a, b), y, h = t.tolist(), 1.0, 1e-3
    for _ in range(round(2 / h)):
        y += h * slope(0, y, a, b)
    return y


def enclosed():
    """Its tolerance is in a closure."""
    tol = 1e-3

    def end(t):
        found = solve_ivp(slope, (0, 2), [1.0], args=tuple(t), rtol=tol, atol=tol)
        return float(found.y[0, -1])

    return end


def _euler(a, b, h):
    y = 1.0
    for _ in range(round(2 / h)):
        y += h * slope(0, y, a, b)
    return y


_kept = functools.cache(_euler)


def remembering():
    """Euler's method, and a dict of all that it gave."""
    known = {}

    def end(t, h=1e-3):
        key = tuple(t)
        if key not in known:
            known[key] = _euler(*t.tolist(), h)
        return known[key]

    return end


def cached(t, h=1e-3):
    """The same by `functools.cache`."""
    return _kept(float(t[0]), float(t[1]), h)


LOOSE_ONES = [by_literal, by_global, by_default, Held(), in_steps, enclosed()]
LOOSE_ONES += [remembering(), cached]
NAMES = ["literal", "global", "default", "attribute", "steps", "closure"]
NAMES += ["dict", "cache"]


@pytest.mark.parametrize("f", LOOSE_ONES, ids=NAMES)
def test_a_right_gradient_of_what_a_loose_solver_stands_for_is_not_accused(f):
    """The report names the number, and by how much it matters."""
    before = f(T)

    report = gl.check(f, T, grad=flow)

    assert report.verdict.name == "UNDECIDED"
    assert any("times smaller" in finding.evidence for finding in report.findings)
    assert f(T) == before  # to the bit: every number is what it was
    assert not gl.sweep(f, T, grad=flow).reading["t"].startswith("wrong")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("f", LOOSE_ONES, ids=NAMES)
@pytest.mark.parametrize(
    "factor", [[1.0, 1.01], [0.99, 1.0], [1.02, 1.02], [1.0, -1.0]]
)
def test_a_slip_does_not_shrink_with_a_tolerance(f, factor):
    """One percent of one entry is told behind an error of a thousandth."""
    report = gl.check(f, T, grad=lambda t: np.array(factor) * flow(t))

    assert report.verdict.name == "DISAGREES"


def circling(p, rtol, sensitivities):
    """Van der Pol's oscillator after a time of 4, or what its parameters do to it."""

    def rhs(_, w):
        u, v = w[:2]
        ahead = [v, p[0] * (1 - u**2) * v - p[1] * u]
        if not sensitivities:
            return ahead
        by_state = [[0, 1], [-2 * p[0] * u * v - p[1], p[0] * (1 - u**2)]]
        by_numbers = [[0, 0], [(1 - u**2) * v, -u]]
        moved = np.array(by_state) @ w[2:].reshape(2, 2) + by_numbers
        return [*ahead, *moved.ravel()]

    start = [1.0, 0.0] + [0.0] * (4 if sensitivities else 0)
    return solve_ivp(rhs, (0, 4), start, rtol=rtol, atol=1e-3 * rtol).y[:, -1]


FAR = [((1.5, 1.0), 1.2), ((1.2, 0.7), 1.2), ((0.5, 1.2), 2.0)]


@pytest.mark.parametrize(("p", "far"), FAR)
def test_a_loose_integrator_may_be_off_by_a_tenth(p, far):
    """Its slope is that far from the equation's, or farther; what is beyond is told."""
    right = circling(np.array(p), 1e-10, True)[2:4]
    f = lambda p: float(circling(p, 1e-3, False)[0])
    verdict = lambda c: gl.check(f, np.array(p), grad=lambda _: c * right).verdict

    assert verdict(1.0) == gl.Verdict.UNDECIDED
    assert verdict(far) == gl.Verdict.DISAGREES
    assert verdict(-1.0) == gl.Verdict.DISAGREES


@pytest.mark.parametrize("least", [1e-3, 1e-5])
@pytest.mark.parametrize("seed", [0, 5])
def test_an_input_that_is_right_is_not_accused_beside_one_that_is_wrong(seed, least):
    """A fixed point: its weights come transposed, its input as it should.

    Beside the other what is wrong with the weights is much, or little.
    """
    weights = 0.25 * np.random.default_rng(0).normal(size=(4, 4))
    x = np.random.default_rng(seed).normal(size=4)

    def fixed(weights, x, tol):
        z = np.zeros_like(x)
        while True:
            z, before = np.tanh(weights @ z + x), z
            if np.linalg.norm(z - before) < tol:
                return z

    def transposed(weights, x):
        z = fixed(weights, x, 1e-14)
        slopes = 1 - z**2
        inner = np.eye(4) - slopes[:, None] * weights
        found = slopes * np.linalg.solve(inner.T, 2 * z)
        return np.outer(z, found), found

    report = gl.check(
        lambda weights, x: float((fixed(weights, x, least) ** 2).sum()),
        weights,
        x,
        grad=transposed,
    )

    assert report.culprits == ("weights",)


def test_an_epsilon_under_a_root_is_no_tolerance():
    """A slip that shrinks with a small number of f, which iterates over nothing."""

    def norm(x):
        return float(np.sqrt(x @ x + 1e-3))

    report = gl.check(norm, T, grad=lambda x: x / np.sqrt(x @ x))

    assert report.verdict.name == "DISAGREES"


def _penalised(x, amount=1e-3):
    total = x @ x
    if amount > 5e-4:
        total = total + amount * np.abs(x).sum()
    return float(total)


def _rounded_off(x, d=1e-2):
    total = 100 * x[1]
    for each in x:
        if abs(each) < d:
            total += each * each / (2 * d) + d / 2
        else:
            here = abs(each)
            total += here
    return float(total)


@pytest.mark.parametrize(
    ("f", "x", "grad"),
    [
        # the penalty is forgotten
        (_penalised, np.array([0.7, 1.3, 2.1]), lambda x: 2 * x),
        # and the slope below d, which is 1/2 at the first entry
        (
            _rounded_off,
            np.array([5e-3, 1.0, -2.0]),
            lambda x: np.sign(x) + 100 * np.eye(3)[1],
        ),
    ],
    ids=["penalty", "Huber"],
)
def test_a_branch_is_no_loop(f, x, grad):
    """A number that decides upon a branch has f run other lines, not the same ones."""
    report = gl.check(f, x, grad=grad)

    assert report.verdict.name == "DISAGREES"
    assert not any("iterates" in finding.evidence for finding in report.findings)


@pytest.mark.parametrize("power", [1, 4])
def test_what_a_tenth_would_cost_is_told_before(clock, power):
    """Cells of a hundredth: a tenth of it may take ten times as long, or for ever."""
    took = []

    def cells(t, h=1e-2):
        before, n = clock.slept, round(1 / h)
        clock.sleep(0.01 * (n / 100) ** power)
        y = 1.0
        for _ in range(n):
            y += slope(0, y, *t) / n
        took.append(clock.slept - before)
        return y

    report = gl.check(cells, T, grad=lambda t: flow(t, 1.0))

    assert max(took) < 1.0
    assert report.verdict.name == ("UNDECIDED" if power == 1 else "DISAGREES")


@pytest.mark.parametrize("busy", [2, 99])
def test_a_busy_machine_is_asked_again(clock, busy):
    """An evaluation that waited for others, twice, tells nothing of what it costs."""
    waits = iter(range(busy))

    def euler(t, h=1e-2):
        clock.sleep(1e-3)
        if 0.7e-2 < h < 0.9e-2 and next(waits, None) is not None:
            clock.sleep(2e-2)
        return _euler(*t, h)

    report = gl.check(euler, T, grad=flow)

    assert report.verdict.name == ("UNDECIDED" if busy == 2 else "DISAGREES")


def test_power_iteration_in_torch():
    """A custom Function with the gradient of the eigenvalue, stopped at 1e-4."""

    class Largest(torch.autograd.Function):
        factor = 1.0

        @staticmethod
        def forward(ctx, A):
            v, largest = torch.ones(len(A), dtype=A.dtype), A.new_zeros(())
            for _ in range(1000):
                w = A @ v
                v, before, largest = w / w.norm(), largest, v @ w / (v @ v)
                if (largest - before).abs() < 1e-4:
                    break
            ctx.save_for_backward(A)
            return largest

        @staticmethod
        def backward(ctx, grad):
            (A,) = ctx.saved_tensors
            v = torch.linalg.eigh((A + A.T) / 2).eigenvectors[:, -1]
            return Largest.factor * grad * torch.outer(v, v)

    generator = torch.Generator().manual_seed(1)
    root = torch.randn(4, 4, dtype=torch.float64, generator=generator)
    A = (root @ root.T).requires_grad_()

    right = gl.check(Largest.apply, A)
    Largest.factor = 1.05
    wrong = gl.check(Largest.apply, A)

    assert right.verdict.name != "DISAGREES"
    assert wrong.verdict.name == "DISAGREES"


# -------------------------------------------------------------- the numbers themselves
def _interrupted(subject, before):
    with with_smaller(subject, [1e-3], 1e-2):
        assert 1e-5 in small_numbers(subject)
        assert subject.row() != before
        raise ZeroDivisionError


def test_numbers_are_put_back_whatever_happens():
    """Where they stand, in code as well."""
    f = enclosed()
    subjects = [build_subject(each, (T,), Sides(grad=flow)) for each in (f, by_literal)]
    code = by_literal.__code__

    for subject in subjects:
        before = subject.row()
        with contextlib.suppress(ZeroDivisionError):
            _interrupted(subject, before)
        assert subject.row() == before
        assert small_numbers(subject) == [1e-3]
    assert by_literal.__code__ is code


def test_a_tolerance_that_rounding_never_meets_is_given_up():
    """Ten times smaller there is no end to the loop: it is ended, and the slip told."""
    x = np.array([2.0, 3.0, 5.0]) * 1e3

    def fixed_point(x):
        y = x.copy()
        while True:
            before, y = y, x + 100 * np.cos(y / 150)
            if np.abs(y - before).max() < 1e-11:
                return y.sum()

    def grad(x):
        y = x.copy()
        for _ in range(500):
            y = x + 100 * np.cos(y / 150)
        return 1 / (1 + 100 / 150 * np.sin(y / 150))

    report = gl.check(
        fixed_point, x, grad=lambda x: grad(x) * np.array([1.001, 1, 1]), budget="60s"
    )

    assert report.verdict.name == "DISAGREES"


def test_nobody_else_reads_the_smaller_numbers():
    """A check in another thread keeps this one from writing to what both read."""
    begin, end = threading.Event(), threading.Event()

    def other(t):
        begin.set()
        end.wait(60)
        return float(t @ t)

    thread = threading.Thread(target=gl.check, args=(other, T), kwargs={"grad": flow})
    thread.start()
    assert begin.wait(60)
    try:
        report = gl.check(by_literal, T, grad=flow)
    finally:
        end.set()
        thread.join(60)

    assert report.verdict.name == "DISAGREES"
    assert gl.check(by_literal, T, grad=flow).verdict.name == "UNDECIDED"
