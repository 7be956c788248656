"""What is left of 1 - 1 is a few units of the last digit: no gradient is wrong by them.

The truth is the closed form of the derivative, in which nothing cancels.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import erf, ndtr

import gradlab as gl
from gradlab.pipeline.looks import last_digits
from tests.specimens.activations import sigmoid

METHODS = ("auto", "adaptive", "central")


def density(x):
    """The normal density."""
    return np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


def steep(x):
    """The slope of tanh."""
    return 1 / np.cosh(x) ** 2


# f as it is often written, f' without cancellation, points: the first is harmless
CANCELLING = {
    "gelu": (
        lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
        lambda x: ndtr(x) + x * density(x),
        (-3.0, -5.0, -7.5, -8.0, -8.2, -8.3, -8.4, -8.5),
    ),
    "normal": (
        lambda x: 0.5 * (1 + erf(x / np.sqrt(2))),
        density,
        (-3.0, -7.0, -8.2, -8.5),
    ),
    "sigmoid": (
        lambda x: 1 / (1 + np.exp(-x)) - 1,
        lambda x: sigmoid(x) * sigmoid(-x),
        (5.0, 34.0, 36.0, 36.5, 37.0, 40.0),
    ),
    "softplus": (
        lambda x: np.log(1 + np.exp(x)),
        sigmoid,
        (-5.0, -33.0, -35.0, -36.5, -37.0, -40.0),
    ),
    "x softplus": (
        lambda x: x * np.log(1 + np.exp(x)),
        lambda x: np.log1p(np.exp(x)) + x * sigmoid(x),
        (-5.0, -30.0, -35.5, -36.0, -36.7, -40.0),
    ),
    "1 - tanh": (
        lambda x: 1 - np.tanh(x),
        lambda x: -steep(x),
        (3.0, 10.0, 17.0, 18.5, 19.0, 20.0),
    ),
    "curved": (
        lambda x: np.exp(-x) * (1 - 1 / (1 + np.exp(-x))),
        lambda x: -np.exp(-x) * sigmoid(-x) * (1 + sigmoid(x)),
        (5.0, 30.0, 35.0, 36.0, 36.5),
    ),
    "divided": (
        lambda x: (1 - np.cos(x)) / x,
        lambda x: 0.5 - x**2 / 8 + x**4 / 144,
        (1e-2, 3e-8, 1.2e-8, 1e-9),
    ),
    "divided twice": (
        lambda x: (1 - np.cos(x)) / x**2,
        lambda x: -x / 12 + x**3 / 180 - x**5 / 6720,
        (1e-1, 7.12605019e-08, 9.54846036e-08, 6e-8, 4.3e-8, 3e-8),
    ),
    "exp without its line": (
        lambda x: (np.exp(x) - 1 - x) / x**2,
        lambda x: 1 / 6 + x / 12 + x**2 / 40 + x**3 / 180 + x**4 / 1008,
        (1e-2, 1e-5, 3e-7, 9e-8, 6e-8, 3.7e-8, 2e-8),
    ),
}


@pytest.mark.thinned(3)
@pytest.mark.untraced
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", CANCELLING)
def test_right_gradient_is_not_accused_where_f_cancels(name, method):
    """Alone and beside a harmless entry, by every method."""
    f, slopes, points = CANCELLING[name]
    for point in points:
        for x in (np.array([point]), np.array([point, points[0]])):
            report = gl.check(f, x, jac=lambda x: np.diag(slopes(x)), method=method)
            assert report.verdict != gl.Verdict.DISAGREES, (x, report)


@pytest.mark.thinned(3)
@pytest.mark.untraced
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", CANCELLING)
def test_wrong_entry_beside_one_that_cancels_is_found(name, method):
    """Five percent too much in the harmless entry, and only there."""
    f, slopes, points = CANCELLING[name]
    for point in points[1:]:
        x = np.array([point, points[0]])
        report = gl.check(
            f, x, jac=lambda x: np.diag(slopes(x) * [1, 1.05]), method=method
        )
        verdicts = report["x"].verdicts
        assert verdicts[1, 1] == gl.Verdict.DISAGREES, (x, report)
        assert verdicts[0, 0] != gl.Verdict.DISAGREES, (x, report)


def test_wrong_entry_is_found_where_f_cancels_if_it_is_far_off():
    """A gradient of 1e-10 at -8.5, where no more than 1e-13 can be hidden."""
    f, slopes, _ = CANCELLING["gelu"]

    def jac(x):
        return np.diag(slopes(x) + np.array([1e-10, 0]))

    report = gl.check(f, np.array([-8.5, -3.0]), jac=jac)
    assert report["x"].verdicts[0, 0] == gl.Verdict.DISAGREES, report


@pytest.mark.parametrize("x", [3e-8, 8e-8, 5e-7])
def test_jump_at_zero_is_no_last_digit_of_what_stands_beside_it(x):
    """A step of a third at 0 excuses no slope of its branch."""
    report = gl.check(
        lambda x: np.where(x > 0, x + 0.3, 0.0),
        np.array([x]),
        jac=lambda x: np.array([[1.5]]),
    )
    assert report.verdict == gl.Verdict.DISAGREES, report


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("unit", [1e-14, 1e-17, 1e-30])
def test_small_units_hide_no_mistake(unit, method):
    """A sine in small units has all its digits, and no jumps."""
    x = np.array([0.3, 1.1, -2.0])
    factors = np.array([1.0, 1.01, 1.0])
    report = gl.check(
        lambda x: unit * np.sin(x),
        x,
        jac=lambda x: np.diag(unit * factors * np.cos(x)),
        method=method,
    )
    wrong = np.argwhere(report["x"].verdicts == gl.Verdict.DISAGREES)
    assert wrong.tolist() == [[1, 1]], report


def test_accusation_by_more_than_last_digits_costs_nothing(monkeypatch):
    """No jump is looked for where none of its size could explain anything."""

    def never(*_):
        pytest.fail("a jump was looked for")

    monkeypatch.setattr(last_digits, "nearest_jump", never)
    report = gl.check(np.sin, np.linspace(0.1, 2, 5), jac=lambda x: -np.diag(np.cos(x)))
    assert report.verdict == gl.Verdict.DISAGREES


TORCH = {
    "gelu": (
        lambda torch: torch.nn.functional.gelu,
        [-5.0, -5.4, -7.5, -8.0, -8.2, -8.3, -8.5],
    ),
    "mish": (lambda torch: torch.nn.functional.mish, [-10.0, -16.5, -36.5]),
    "x (1 - tanh)": (
        lambda torch: lambda x: x * (1 - torch.tanh(x)),
        [7.0, 8.0, 8.5, 18.0, 18.7, 20.0],
    ),
    "sigmoid - 1": (
        lambda torch: lambda x: torch.sigmoid(x) - 1,
        [10.0, 16.0, 17.0, 36.0, 40.0],
    ),
    "x log(1 + exp)": (
        lambda torch: lambda x: x * torch.log(1 + torch.exp(x)),
        [-10.0, -16.5, -30.0, -36.0],
    ),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", TORCH)
def test_gradients_of_torch_itself_are_not_accused_far_out(name, dtype, method):
    """Torch is right to within rounding, in both precisions."""
    torch = pytest.importorskip("torch")
    make, points = TORCH[name]
    f = make(torch)
    for values in [*([point] for point in points), points]:
        x = torch.tensor(values, dtype=getattr(torch, dtype)).requires_grad_()
        report = gl.check(f, x, method=method)
        assert report.verdict != gl.Verdict.DISAGREES, (values, report)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("points", [[1.541, -0.2934, -2.1788], [1.1474, -0.1417, 0.5]])
def test_single_precision_inside_accuses_nobody_by_any_method(points, method):
    """The sine of float32 moves in steps of 6e-8; a gradient of float64 is right."""

    def f(x):
        return np.sin(x.astype(np.float32)).astype(float)

    x = np.array(points)
    right = gl.check(f, x, jac=lambda x: np.diag(np.cos(x)), method=method)
    assert right.verdict != gl.Verdict.DISAGREES, right
    if method != "central":  # at its own step it cannot tell
        wrong = gl.check(f, x, jac=lambda x: -np.diag(np.cos(x)), method=method)
        assert (wrong["x"].verdicts.diagonal() == gl.Verdict.DISAGREES).all(), wrong
