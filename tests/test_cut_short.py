"""A check that is cut short accuses nobody whom it had no time to hear."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import gradlab as gl
from gradlab import Verdict
from gradlab.errors import BudgetError
from tests.sizes import drawn
from tests.test_interrupts import Interrupted

X = np.array([0.7, -1.3, 0.2, 1.9])
RECORD = np.array([3e-12, 2e-3, 4e6])
NEAR = np.array([2e-7, -1.3, 0.2, 1.9])


def cancelled(x):
    """Sines of which few digits are left."""
    return (3e9 + np.sin(x)) - 3e9


def naive(x):
    """Variance by the mean of squares: 1e8 less 1e8."""
    y = x + 1e4
    return (y**2).mean() - y.mean() ** 2


def slope_of_naive(x):
    """Its derivative, by that of the variance."""
    return 2 * (x - x.mean()) / x.size


def newton(x):
    """A root of 2 + sin(x), to a tolerance of 1e-6."""
    y, new = np.ones_like(x), np.zeros_like(x)
    for _ in range(99):
        new = (y + (2 + np.sin(x)) / y) / 2
        if np.abs(new - y).max() < 1e-6:
            break
        y = new
    return new


# name: function, its gradient or Jacobian in closed form, point
RIGHT = {
    "mixed scales": (lambda x: np.sin(x / RECORD).sum(),
                     lambda x: np.cos(x / RECORD) / RECORD, RECORD),
    "cancelling": (cancelled, lambda x: np.diag(np.cos(x)), X),
    "variance": (naive, slope_of_naive, X),
    "single inside": (lambda x: float(np.cos(x.astype("f4")).sum()),
                      lambda x: -np.sin(x), X),
    "half inside": (lambda x: np.exp(x.astype("f2").astype("f8")).sum(), np.exp, X),
    "tie of max": (np.max, lambda x: np.eye(4)[0], np.ones(4)),
    "tie in a sort": (lambda x: np.sort(x)[1:3].sum(),
                      lambda x: np.array([0.0, 1.0, 1.0, 0.0]), np.ones(4)),
    "near a pole": (lambda x: (1 / x).sum(), lambda x: -1 / x**2, NEAR),
    "near a kink": (lambda x: np.maximum(x, 0).sum(), lambda x: (x > 0) * 1.0, NEAR),
    "stops early": (newton, lambda x: np.diag(np.cos(x) / 2 / np.sqrt(2 + np.sin(x))),
                    X),
}  # fmt: skip


def wrong_slope(x):
    """Gradient of a sum of cubes, but for one entry."""
    return 3 * x**2 * np.where(np.arange(x.size) == 3, 1.5, 1.0)


def sides(name):
    """Function, options and point of one of `RIGHT`."""
    f, exact, x = RIGHT[name]
    return f, {"grad" if np.ndim(f(x)) == 0 else "jac": exact}, x


@functools.cache
def cost(name, coverage, method):
    """Evaluations of the whole check."""
    f, options, x = sides(name)
    options |= {"coverage": coverage, "method": method}
    return gl.check(f, x, diagnose=False, **options).evaluations


def accused(f, x, **options):
    """Whether a check accuses the gradient; not, where nothing could be compared."""
    try:
        report = gl.check(f, x, **options)
    except BudgetError:
        return False
    return report.verdict == Verdict.DISAGREES or not report.ok or report.culprits


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("coverage", "method"), [("full", "auto"), ("probe", "auto"), ("full", "central")]
)
@pytest.mark.parametrize("name", RIGHT)
def test_no_budget_makes_a_right_gradient_wrong(name, coverage, method):
    """Wherever it ends, from one evaluation to all that a check takes."""
    f, options, x = sides(name)
    options |= {"coverage": coverage, "method": method}
    budgets = np.linspace(1, cost(name, coverage, method), drawn(10, 20)).astype(int)
    found = [b for b in budgets.tolist() if accused(f, x, budget=b, **options)]
    assert found == []


@pytest.mark.parametrize("name", RIGHT)
def test_nor_does_stop(name):
    """Whoever presses it, and when."""
    f, options, x = sides(name)
    for k in (
        np.linspace(2, cost(name, "full", "auto"), drawn(8, 15)).astype(int).tolist()
    ):
        try:
            assert not accused(Interrupted(f, k), x, coverage="full", **options)
        except KeyboardInterrupt:
            assert k < 12  # before the first slice nothing is known


def test_a_mistake_is_told_where_the_budget_allows_a_ladder():
    """A third of what the whole check takes; below, it does not agree."""
    x, told = np.linspace(0.5, 2.0, 10), []
    for budget in range(5, 100, 5):
        report = gl.check(
            lambda x: (x**3).sum(), x, grad=wrong_slope, budget=budget, coverage="full"
        )
        told.append(report.verdict)
        seen = report["x"].numeric.shape[1] > 3
        assert report.verdict == Verdict.DISAGREES or report.partial
        assert report.verdict != Verdict.AGREES or not seen
    assert told[0] == Verdict.UNDECIDED
    assert set(told[9:]) == {Verdict.DISAGREES}


def test_what_nobody_heard_again_is_said():
    """In a remark, and with the numbers at its entry."""
    x = np.linspace(0.5, 2.0, 10)
    report = gl.check(
        lambda x: (x**3).sum(), x, grad=wrong_slope, budget=23, coverage="full"
    )
    assert report.verdict == Verdict.UNDECIDED
    assert any("no other steps were tried" in remark for remark in report.remarks)
    assert report["x"].worst(1).label[0] == "x[3]"


def test_what_is_right_needs_no_part_of_the_budget():
    """What would be kept for a second look is spent where none is needed."""
    x = np.linspace(0.5, 2.0, 300)
    report = gl.check(
        lambda x: (x**3).sum(),
        x,
        grad=lambda x: 3 * x**2,
        budget=200,
        coverage="full",
    )
    assert report.evaluations > 195


@pytest.mark.parametrize("budget", [80, 120, 200, 500])
@pytest.mark.parametrize("factor", [-1.0, 1.3])
def test_directions_name_an_entry_before_they_accuse(budget, factor):
    """Of an input that is wrong as a whole one is found, and looked at closely."""
    x = np.linspace(0.1, 1.0, 300)
    report = gl.check(
        lambda x: (x**3).sum(),
        x,
        grad=lambda x: factor * 3 * x**2,
        budget=budget,
        coverage="probe",
    )
    assert report.verdict == Verdict.DISAGREES
    assert report["x"].worst(1).analytic[0] != report["x"].worst(1).numeric[0]


@pytest.mark.parametrize("budget", [1, 2])
def test_a_budget_too_short_for_a_function_with_a_state_is_told(budget):
    """Two evaluations more put back what it keeps; a signal of ours came out."""
    calls = []

    def f(x):
        calls.append(x.copy())
        return np.sin(x).sum() + 1e-3 * len(calls)

    with pytest.raises(BudgetError, match="before anything was searched"):
        gl.locate(f, X, grad=np.cos, budget=budget)
