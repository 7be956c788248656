"""NaN, infinities and edges of the domain, on either side and in f itself."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import Verdict

X = np.array([0.0, 1.0, 4.0])


def verdicts(f, x, **side):
    """Check with warnings of the programs silenced."""
    with np.errstate(all="ignore"):
        return gl.check(f, x, diagnose=False, **side)


def test_where_f_is_infinite_nobody_is_accused():
    """The logarithm of zero has no slope; that of the others is judged."""
    right = verdicts(np.log, X, jac=lambda x: np.diag(1 / x))
    wrong = verdicts(np.log, X, jac=lambda x: np.diag([np.inf, 2.0, 0.25]))

    assert right.verdict == Verdict.UNDECIDED
    assert wrong.verdict == Verdict.DISAGREES
    assert np.argwhere(wrong["x0"].verdicts == Verdict.DISAGREES).tolist() == [[1, 1]]


def test_nan_in_one_output_leaves_the_others():
    """A nan row is undecided whatever its gradient; a wrong row beside it fails."""

    def f(x):
        return np.array([x[0], np.nan * x[1], x[2] ** 2])

    for row in (np.nan, 0.0, 1.0):
        report = verdicts(f, X, jac=lambda x, r=row: np.array(
            [[1, 0, 0], [0, r, 0], [0, 0, 8.0]]))  # fmt: skip
        assert report.verdict == Verdict.UNDECIDED
    report = verdicts(f, X, jac=lambda x: np.diag([2, np.nan, 8.0]))
    assert report.verdict == Verdict.DISAGREES


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_on_the_analytic_side_alone_is_wrong(bad):
    """Where f is smooth, a gradient that is no number is a wrong one."""
    report = verdicts(
        lambda x: (x**2).sum(), X, grad=lambda x: np.where(x == 0, bad, 2 * x)
    )

    assert report.verdict == Verdict.DISAGREES


def test_zero_times_infinity_of_other_outputs_is_no_statement():
    """torch answers nan for an output that was not asked, where a slope is infinite."""
    torch = pytest.importorskip("torch")
    x = torch.tensor([0.0, 1.0], dtype=torch.float64)

    for function in (torch.sqrt, torch.log, torch.reciprocal):
        assert gl.check(function, x, diagnose=False).verdict == Verdict.UNDECIDED
    assert gl.check(
        lambda x: torch.where(x > 0, torch.sqrt(x), torch.zeros_like(x)).sum(),
        x - 1,
        diagnose=False,
    ).verdict == Verdict.DISAGREES  # fmt: skip


@pytest.mark.parametrize("distance", [0.0, 1e-12, 1e-9, 1e-3])
def test_one_side_is_enough(distance):
    """A function that raises beyond one is judged by the side that exists."""

    def f(x):
        if (x > 1).any():
            raise ValueError("no probability")
        return (x**2).sum()

    x = np.array([1 - distance, 0.5])

    assert verdicts(f, x, grad=lambda x: 2 * x).verdict == Verdict.AGREES
    assert verdicts(f, x, grad=lambda x: 2.02 * x).verdict == Verdict.DISAGREES


def test_an_effect_beyond_all_numbers_excuses_no_difference():
    """exp(709.7) times 709.7 is no number, and one percent of it is wrong."""
    x = np.array([709.7])

    def jac(x, factor=1.0):
        return np.diag(np.exp(x)) * factor

    with np.errstate(all="ignore"):
        right = gl.check(np.exp, x, jac=jac)
        wrong = gl.check(np.exp, x, jac=lambda x: jac(x, 0.99))

    assert right.verdict == Verdict.AGREES
    assert wrong.verdict == Verdict.DISAGREES


def test_an_empty_input_beside_a_wrong_gradient_is_no_crash():
    """There is nothing in it to look at beside the point."""
    x, nothing = np.array([1.0, 2.0]), np.zeros((0, 3))

    report = gl.check(
        lambda x, e: (x**2).sum() + e.sum(),
        x,
        nothing,
        grad=lambda x, e: (2.1 * x, np.ones((0, 3))),
    )

    assert report.culprits == ("x",)
