"""Solvers that stop at a tolerance: smooth from here to there, with jumps in between.

The truth is the implicit function theorem at a solution to the last digit.
"""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import brentq
from scipy.sparse.linalg import cg

import gradlab as gl
from gradlab.pipeline.looks import early_stops, following
from tests.sizes import drawn

COARSE = [1e-3, 1e-4, 1e-5, 1e-6, 1e-8]


def fixed_point(weights, u, tolerance):
    """Solve z = tanh(W z + u) until z moves by less than the tolerance."""
    z = np.zeros(len(u))
    for _ in range(10_000):
        following = np.tanh(weights @ z + u)
        if np.abs(following - z).max() < tolerance:
            return following
        z = following
    raise AssertionError


def equilibrium(tolerance, seed, factor=1.0):
    """Sum of squares of a fixed point, and its gradient times a factor."""
    rng = np.random.default_rng(seed)
    weights, u = 0.25 * rng.normal(size=(5, 5)), rng.normal(size=5)

    def loss(u):
        return float(np.sum(fixed_point(weights, u, tolerance) ** 2))

    def grad(u):
        z = fixed_point(weights, u, 1e-15)
        slope = 1 - z * z
        inner = np.eye(5) - slope[:, None] * weights
        return factor * np.linalg.solve(inner.T, 2 * z) * slope

    return loss, u, grad


def conjugate_gradients(tolerance, seed, factor=1.0):
    """A quadratic form with the inverse of a matrix, iterated."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(8, 8))
    a, b = a @ a.T + np.eye(8), rng.normal(size=8)
    return (
        lambda b: float(0.5 * b @ cg(a, b, rtol=tolerance)[0]),
        b,
        lambda b: factor * np.linalg.solve(a, b),
    )


def root(tolerance, seed, factor=1.0):
    """Sum of the roots of y**3 + y = x."""

    def roots(x, precision):
        low = [brentq(lambda y, a=a: y**3 + y - a, -5, 5, xtol=precision) for a in x]
        return np.array(low)

    x = np.random.default_rng(seed).normal(size=3) * 2
    return (
        lambda x: float(roots(x, tolerance).sum()),
        x,
        lambda x: factor / (3 * roots(x, 1e-14) ** 2 + 1),
    )


# what is left has no jump within reach along the axes that are followed
@pytest.mark.parametrize(
    ("solver", "left"), [(equilibrium, 1), (conjugate_gradients, 0), (root, 1)]
)
def test_slope_between_two_jumps_accuses_hardly_anybody(solver, left):
    """What a tolerance makes of the slope of f is no mistake of the gradient."""
    accused = []
    for tolerance in COARSE:
        for seed in range(drawn(2, 4)):
            f, x, grad = solver(tolerance, seed)
            if gl.check(f, x, grad=grad).verdict == gl.Verdict.DISAGREES:
                accused.append((tolerance, seed))

    assert len(accused) <= left, accused


@pytest.mark.parametrize("seed", range(drawn(2, 4)))
@pytest.mark.parametrize("tolerance", COARSE)
@pytest.mark.parametrize("solver", [equilibrium, conjugate_gradients, root])
def test_five_percent_are_found_through_a_tolerance(solver, tolerance, seed):
    """A jump excuses no more than it explains."""
    f, x, grad = solver(tolerance, seed, factor=1.05)

    assert gl.check(f, x, grad=grad).verdict == gl.Verdict.DISAGREES


class Equilibrium(torch.autograd.Function):
    """z = tanh(W z + u), and the implicit function theorem where that has stopped."""

    @staticmethod
    def forward(ctx, weights, u, tolerance, factor):
        z = torch.zeros_like(u)
        for _ in range(1000):
            following = torch.tanh(weights @ z + u)
            moved, z = (following - z).abs().max(), following
            if moved < tolerance:
                break
        ctx.save_for_backward(weights, z)
        ctx.factor = factor
        return z

    @staticmethod
    def backward(ctx, cotangent):
        weights, z = ctx.saved_tensors
        slope = 1 - z * z
        inner = torch.eye(len(z), dtype=z.dtype) - slope[:, None] * weights
        v = ctx.factor * torch.linalg.solve(inner.T, cotangent) * slope
        return torch.outer(v, z), v, None, None


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("tolerance", "seed"), [(1e-4, 3), (1e-5, 1), (1e-5, 5)])
@pytest.mark.parametrize("coverage", ["full", "probe"])
def test_what_changes_behind_a_jump_is_no_mistake_of_a_formula(
    tolerance, seed, coverage
):
    """Close to a jump, and with respect to an input that jumps far away."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    weights = 0.6 * weights / torch.linalg.matrix_norm(weights, 2)
    u = torch.randn(5, generator=generator, dtype=torch.float64)

    def verdict(factor):
        def solved(weights, u):
            return Equilibrium.apply(weights, u, tolerance, factor)

        return gl.check(solved, weights, u, coverage=coverage, diagnose=False).verdict

    assert verdict(1.0) != gl.Verdict.DISAGREES
    assert verdict(1.01) == gl.Verdict.DISAGREES


@pytest.mark.parametrize("factor", [1.0, 1.05])
def test_jumps_far_away_of_a_curved_solver_in_single_precision(factor):
    """Steps that grow see no jump there: equal ones do."""
    rng = np.random.default_rng(1003)
    n = int(rng.integers(2, 6))
    tolerance = 10.0 ** rng.uniform(-5, -2.5)
    weights = rng.normal(size=(n, n))
    weights = (0.4 * weights / np.linalg.norm(weights, 2)).astype(np.float32)
    u = rng.normal(size=n).astype(np.float32)

    def jac(u):
        z = fixed_point(weights, u, tolerance)
        slope = 1 - z * z
        inner = np.eye(n) - slope[:, None] * weights
        return factor * np.linalg.solve(inner, np.diag(slope))

    report = gl.check(lambda u: fixed_point(weights, u, tolerance), u, jac=jac)

    assert (report.verdict == gl.Verdict.DISAGREES) is (factor > 1)


def test_a_smooth_f_is_not_followed_on_in_equal_steps(monkeypatch):
    """A cubic stays on its course as far as steps grow: a slip is upheld there."""

    def never(*_, **__):
        pytest.fail("f was followed on")

    monkeypatch.setattr(early_stops, "next_jump", never)
    x = np.linspace(0.5, 2, 5)
    slips = np.array([1, 1, 1.005, 1, 1])

    report = gl.check(lambda x: (x**3).sum(), x, grad=lambda x: slips * 3 * x**2)

    assert report["x"].verdicts.ravel().tolist() == [0, 0, 2, 0, 0]


def test_an_integrator_that_chooses_its_steps():
    """Sensitivities to the last digit, for a solution to six digits."""

    def flow(_, state, k):
        y, s = state[:2], state[2:].reshape(2, -1)
        slope = np.array(
            [[k[0] - k[1] * y[1], -k[1] * y[0]], [k[1] * y[1], k[1] * y[0] - k[0]]]
        )
        direct = np.array([[y[0], -y[0] * y[1]], [-y[1], y[0] * y[1]]])
        change = [k[0] * y[0] - k[1] * y[0] * y[1], k[1] * y[0] * y[1] - k[0] * y[1]]
        return np.concatenate([change, (slope @ s + direct).ravel()])

    def solution(k, tolerance):
        start = np.array([1.0, 0.5, 0, 0, 0, 0])
        found = solve_ivp(
            flow, (0, 3), start, args=(k,), rtol=tolerance, atol=tolerance
        )
        return found.y[:, -1]

    def jacobian(factors):
        return lambda k: solution(k, 1e-12)[2:].reshape(2, 2) * factors

    for k in np.array([[1.1, 0.4], [0.7, 0.9], [0.9, 0.6]])[: drawn(2, 3)]:
        right = gl.check(lambda k: solution(k, 1e-6)[:2], k, jac=jacobian([1, 1]))
        wrong = gl.check(lambda k: solution(k, 1e-6)[:2], k, jac=jacobian([1, 1.1]))

        assert right.verdict != gl.Verdict.DISAGREES, right
        assert wrong.verdict == gl.Verdict.DISAGREES, wrong


def test_bars_of_a_ladder_over_jumps_are_no_larger_than_the_jumps():
    """Rungs that are off a line by a thousandth make no bar of sixty slopes."""

    def flow(_, y, k):
        return [k[0] * y[0] - k[1] * y[0] * y[1], k[2] * y[0] * y[1] - k[3] * y[1]]

    def end(k):
        found = solve_ivp(flow, (0, 3), [1.0, 0.5], args=(k,), rtol=1e-6, atol=1e-8)
        return found.y[:, -1]

    jacobian = gl.numeric_jacobian(end, np.array([1.1, 0.4, 0.3, 0.8]))

    assert (jacobian.error < 0.1 * np.abs(jacobian.value)).all()


@pytest.mark.parametrize("height", [0.0, 0.1, 1.0])
def test_jumps_of_the_function_itself_excuse_no_slip(height):
    """A tariff jumps by far more than two per mille of its slope add up to."""

    def tariff(x):
        return float(np.sum(x**2) + height * np.sum(x > 0.55))

    report = gl.check(tariff, np.array([0.5, 1.2]), grad=lambda x: 2.004 * x)

    assert report.verdict == gl.Verdict.DISAGREES


def test_the_report_says_where_f_jumps():
    """The note names a solver, and no cast to single precision."""
    f, x, grad = conjugate_gradients(1e-3, 1)

    (finding,) = gl.check(f, x, grad=grad).findings

    assert (finding.kind, finding.severity) == ("low_precision", "note")
    assert "one step more" in finding.evidence


def test_slip_of_a_smooth_function_costs_little():
    """Looking for jumps where there are none ends with the first few columns."""
    x = np.linspace(0.2, 3, 60)
    gradients = (lambda x: 1.002 * np.cos(x), lambda x: 1.2 * np.cos(x))
    slight, much = (
        gl.check(lambda x: np.sin(x).sum(), x, grad=grad, diagnose=False)
        for grad in gradients
    )

    assert slight.verdict == much.verdict == gl.Verdict.DISAGREES
    assert slight.evaluations <= 3 * much.evaluations + 600


def test_a_curve_is_told_from_a_jump_by_a_few_values(monkeypatch):
    """What is left of a departure from a quartic is no slope: of exp a hundred do."""
    spent = []

    def counted(lanes, **settings):
        before = lanes.meter.evaluations
        found = following.nearest_jump(lanes, **settings)
        spent.append((lanes.meter.evaluations - before) / len(lanes.columns))
        return found

    monkeypatch.setattr(early_stops, "nearest_jump", counted)
    x = np.linspace(0.3, 1.2, 6)

    report = gl.check(
        lambda x: np.exp(2 * x).sum(), x, grad=lambda x: 1.002 * 2 * np.exp(2 * x)
    )

    assert report.verdict == gl.Verdict.DISAGREES
    assert spent
    assert max(spent) <= 100


@pytest.mark.parametrize("tolerance", [1e-3, 1e-4])
@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_as_many_steps_along_every_axis_are_seen_on_other_lines(tolerance, factor):
    """A mean that is iterated does not jump within reach along what is followed."""
    x = np.random.default_rng([0, 14]).uniform(0.2, 3, 2)

    def mean(x):
        a, g = x
        while abs(a - g) >= tolerance:
            a, g = (a + g) / 2, np.sqrt(a * g)
        return a

    def grad(x):
        with mp.workdps(30):
            a, g = map(float, x)
            parts = (
                mp.diff(lambda a: mp.agm(a, g), a),
                mp.diff(lambda g: mp.agm(a, g), g),
            )
        return factor * np.array(parts, float)

    report = gl.check(mean, x, grad=grad)

    assert (report.verdict == gl.Verdict.DISAGREES) is (factor > 1)


def predators(rates):
    """Let hares and lynxes live for a while, by the rules of Bogacki and Shampine."""
    assert np.isfinite(rates).all(), "no user asked for a value there"
    birth, hunt, death = rates
    y, t, h = np.array([1.0, 0.5]), 0.0, 0.1

    def flow(y):
        return np.array([birth - hunt * y[1], hunt * y[0] - death]) * y

    while 2.5 - t > 1e-12:
        h = min(h, 2.5 - t)
        one = flow(y)
        two = flow(y + h / 2 * one)
        three = flow(y + 0.75 * h * two)
        new = y + h * (2 * one + 3 * two + 4 * three) / 9
        off = h * (-5 * one / 72 + two / 12 + three / 9 - flow(new) / 8)
        share = np.abs(off).max() / 1e-3
        if share <= 1:
            t, y = t + h, new
        h *= min(5, max(0.2, 0.9 * (share + 1e-30) ** (-1 / 3)))
    return y


@pytest.mark.parametrize("seed", range(4))
def test_a_solver_is_not_asked_at_nan(seed):
    """Where one axis jumps and another does not; a loop of its own never ends there."""
    rates = np.random.default_rng(seed).uniform(0.4, 1.2, 3)
    exact = gl.numeric_jacobian(predators, rates, method="central").value
    asked = []

    def followed(rates):
        asked.append(rates.copy())
        return predators(rates)

    gl.check(followed, rates, jac=lambda _: exact * 1.003)

    assert np.isfinite(asked).all()


# ---------------------------------------------- an implicit layer in torch
def deep_equilibrium(tol, factor=1.0):
    """Iterate z = tanh(z W' + x) until it moves by less than `tol`; adjoint in full."""

    class Equilibrium(torch.autograd.Function):
        @staticmethod
        def forward(ctx, W, x):
            z = torch.zeros_like(x)
            for _ in range(500):
                before, z = z, torch.tanh(z @ W.T + x)
                if (z - before).abs().max() < tol:
                    break
            ctx.save_for_backward(W, z)
            return z

        @staticmethod
        def backward(ctx, grad):
            W, z = ctx.saved_tensors
            slope, u = 1 - z * z, grad
            for _ in range(500):
                u = grad + (u * slope) @ W
            return factor * (u * slope).T @ z, u * slope

    return Equilibrium.apply


@pytest.mark.thinned(2)
@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("tol", [1e-4, 1e-6, 1e-8])
def test_a_fixed_point_that_stops_early_accuses_no_right_gradient(tol, coverage):
    """Along x it takes as many steps as far as anybody looks, along W one more.

    The implicit function theorem gives the gradient of the limit, which f is not.
    """
    generator = torch.Generator().manual_seed(4)

    def drawn(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    W, x = (drawn(6, 6) * 0.15).requires_grad_(), (drawn(3, 6) * 0.3).requires_grad_()

    right = gl.check(deep_equilibrium(tol), W, x, coverage=coverage)
    wrong = gl.check(deep_equilibrium(tol, 1.05), W, x, coverage=coverage)
    exact = gl.check(deep_equilibrium(1e-13), W, x, coverage=coverage)

    assert right.verdict.name != "DISAGREES"
    assert wrong.verdict.name == "DISAGREES"
    assert exact.verdict.name == "AGREES"
