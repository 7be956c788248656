"""The Taylor test: rates of its remainders, and what they are worth."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import BudgetError, InputError, SubjectError

X = np.linspace(0.5, 1.5, 5)


def _quartic(x):
    return (x**4).sum()


def _cubed(x):
    return 4 * x**3


def _hvp(x, v):
    return 12 * x**2 * v


def test_remainders_are_those_of_the_polynomial():
    """For x**4 at 1 along 1 they are h**4 + 4 h**3 + 6 h**2 less the terms known."""
    test = gl.taylor_test(
        lambda x: x**4,
        1.0,
        grad=lambda x: 4 * x**3,
        hvp=lambda x, v: 12 * x**2 * v,
        direction=1.0,
        steps=[0.1, 0.05, 0.025],
    )
    h = np.array([0.1, 0.05, 0.025])

    assert np.allclose(test.steps, h)
    assert np.allclose(test.residuals[0], h**4 + 4 * h**3 + 6 * h**2 + 4 * h)
    assert np.allclose(test.residuals[1], h**4 + 4 * h**3 + 6 * h**2)
    assert np.allclose(test.residuals[2], h**4 + 4 * h**3)


def test_rates_of_right_derivatives():
    """A right gradient has rate 2, a right Hessian rate 3."""
    test = gl.taylor_test(_quartic, X, grad=_cubed, hvp=_hvp)

    assert test.order == 2
    assert [round(test.rate[k]) for k in (0, 1, 2)] == [1, 2, 3]
    assert min(test.rates[1]) > 1.9
    assert test.verdict == gl.Verdict.AGREES


def test_rates_are_read_between_remainders_that_are_no_round_off():
    """Of h**2, with round-off in place of the last remainder, or of the first."""
    test = gl.taylor_test(lambda x: np.exp(x).sum(), X, grad=np.exp)
    for lost, noise in ((-1, 5e-5), (0, 2e-4)):
        steps, floors = np.array([1e-1, 1e-2, 1e-3]), np.full(3, 1e-12)
        left = steps**2
        left[lost] = floors[lost] = noise
        found = dataclasses.replace(
            test, steps=steps, residuals={1: left}, floors=floors
        )

        assert found.rate[1] == pytest.approx(2)


def test_rate_of_a_wrong_gradient_is_one():
    """A gradient twice too large leaves a remainder of first order."""
    test = gl.taylor_test(_quartic, X, grad=lambda x: 8 * x**3)

    assert test.rate[1] == pytest.approx(1, abs=0.3)
    assert test.verdict == gl.Verdict.DISAGREES
    assert "gradient is wrong" in test.reading
    found = test.derivatives[1]
    assert found.analytic == pytest.approx(2 * found.numeric, rel=1e-9)


def test_wrong_hessian_beside_a_right_gradient():
    """The rate of order 2 falls to two, and only the second derivative is accused."""
    test = gl.taylor_test(_quartic, X, grad=_cubed, hess=lambda x: np.diag(11 * x**2))

    assert test.rate[1] == pytest.approx(2, abs=0.05)
    assert test.rate[2] == pytest.approx(2, abs=0.05)
    assert test.derivatives[1].verdict == gl.Verdict.AGREES
    assert test.derivatives[2].verdict == gl.Verdict.DISAGREES


def test_a_slip_that_no_rate_shows_is_seen_all_the_same():
    """Off by a hundred-thousandth, the rate is 2 to two digits: peers pass it."""
    test = gl.taylor_test(_quartic, X, grad=lambda x: 4 * x**3 * (1 + 1e-5))

    assert min(test.rates[1]) > 1.9
    assert test.verdict == gl.Verdict.DISAGREES
    assert "too small a slip" in test.reading


def test_linear_functions_have_no_rate():
    """Where the remainder is round-off there is no rate, and that is no failure."""
    test = gl.taylor_test(np.sum, X, grad=np.ones_like)

    assert np.isnan(test.rate[1])
    assert test.verdict == gl.Verdict.AGREES
    assert "below round-off" in test.reading


@pytest.mark.parametrize("inside", [-1.0, 0.0, 0.5])
def test_kink_accepts_every_subgradient(inside):
    """At a kink the rate is 1 with any gradient; one in between is right."""
    test = gl.taylor_test(
        np.abs, np.zeros(()), grad=lambda x: inside + 0 * x, direction=1.0
    )

    assert test.rate[1] <= 1.01 or np.isnan(test.rate[1])
    assert test.verdict == gl.Verdict.AGREES
    assert "kink" in test.reading


def test_kink_refuses_a_slope_outside():
    """Beyond both one-sided slopes a gradient is wrong."""
    test = gl.taylor_test(
        np.abs, np.zeros(()), grad=lambda x: 1.5 + 0 * x, direction=1.0
    )

    assert test.verdict == gl.Verdict.DISAGREES


def test_curvature_is_no_kink():
    """A function that bends within a hundredth of its input is smooth all the same."""
    test = gl.taylor_test(
        lambda x: np.sin(80 * x).sum(), X, grad=lambda x: 80 * np.cos(80 * x)
    )

    assert test.derivatives[1].kink is None
    assert test.verdict == gl.Verdict.AGREES


def test_direction_by_name_leaves_other_inputs_alone():
    """Along w alone, the wrong gradient of x does not show."""

    def grad(x, w):
        return 2 * w * np.ones_like(x), x.sum()

    def product(x, w):
        return x.sum() * w

    along_w = gl.taylor_test(product, X, np.array(2.0), grad=grad, direction={"w": 1.0})
    along_x = gl.taylor_test(product, X, np.array(2.0), grad=grad, direction={"x": X})

    assert along_w.ok
    assert not along_x.ok


def test_the_keys_of_pyadjoint():
    """`to_dict` has the layout of pyadjoint's `taylor_to_dict`."""
    found = gl.taylor_test(_quartic, X, grad=_cubed, hvp=_hvp).to_dict()

    assert sorted(found) == ["R0", "R1", "R2", "eps"]
    assert len(found["R1"]["Residual"]) == len(found["eps"]) == 6
    assert len(found["R2"]["Rate"]) == 5


def test_torch_brings_its_own_second_derivative():
    """`order=2` needs nothing for a torch function, several outputs included."""
    torch = pytest.importorskip("torch")
    x = torch.linspace(0.5, 1.5, 4, dtype=torch.float64)
    test = gl.taylor_test(lambda x: torch.sin(x) * x.sum(), x, order=2)

    assert test.rate[2] == pytest.approx(3, abs=0.1)
    assert test.verdict == gl.Verdict.AGREES
    assert any("random weights" in remark for remark in test.remarks)


def test_detached_second_derivative_is_found():
    """A backward that treats its own factor as constant fails at order 2 only."""
    torch = pytest.importorskip("torch")

    from tests.specimens.squares import squared

    square = squared(lambda x, g: 2 * x.detach() * g)
    x = torch.linspace(0.5, 1.5, 4, dtype=torch.float64)
    test = gl.taylor_test(lambda x: (square(x) * x).sum(), x, order=2)

    assert test.derivatives[1].verdict == gl.Verdict.AGREES
    assert test.derivatives[2].verdict == gl.Verdict.DISAGREES


def test_module_in_single_precision():
    """A float32 network is walked in float64: its rates are clean."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)
    )
    before = [p.detach().clone() for p in net.parameters()]
    test = gl.taylor_test(net, torch.randn(4, 3), loss=lambda y: (y**2).sum())

    assert test.rate[1] == pytest.approx(2, abs=0.05)
    assert test.ok
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    assert all(p.grad is None for p in net.parameters())


def test_parameters_in_place_are_put_back():
    """`params=` is walked where it lives and is bitwise what it was."""
    params = {"w": X.copy()}
    test = gl.taylor_test(
        lambda: (_quartic(params["w"]), {"w": _cubed(params["w"])}), params=params
    )

    assert test.ok
    assert np.array_equal(params["w"], X)


def test_table_and_plot_show_every_remainder():
    """A row per order and step; a line per order, and the slope expected."""
    test = gl.taylor_test(_quartic, X, grad=_cubed, hvp=_hvp)
    drawn = test.plot()

    assert list(test.table.columns) == ["order", "step", "residual", "rate", "floor"]
    assert len(test.table) == 18
    assert np.array_equal(drawn.lines_[1].get_ydata(), test.residuals[1])
    assert np.array_equal(drawn.floor_.get_ydata(), test.floors)
    first = int(test.heard[2].argmax())
    assert drawn.theory_[2].get_ydata()[first] == test.residuals[2][first]
    slope = np.diff(np.log(drawn.theory_[1].get_ydata())) / np.diff(np.log(test.steps))
    assert np.allclose(slope, 2)
    assert drawn.ax_.get_yscale() == "log"
    assert "rate 2.00" in drawn.lines_[1].get_label()


def test_text_begins_with_the_verdict():
    """Verdict, reading, then the numbers."""
    lines = str(gl.taylor_test(_quartic, X, grad=lambda x: x)).splitlines()

    assert lines[0].startswith("✗ disagrees: The gradient is wrong (rate ")
    assert any(line.split()[:3] == ["step", "order", "0"] for line in lines)


def test_wrong_shape_of_the_gradient_is_told():
    """A slip in what came back is a disagreement with its reason beside it."""
    test = gl.taylor_test(_quartic, X, grad=lambda x: x[:2])

    assert test.verdict == gl.Verdict.DISAGREES
    assert any("shape" in remark for remark in test.remarks)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": 3}, "order must be 1 or 2, got 3"),
        ({"steps": [0.1]}, "steps must be two or more different positive numbers"),
        ({"steps": [0.1, -0.1]}, "positive"),
        ({"direction": np.ones(2)}, r"direction for x must be .* shape \(5,\)"),
        ({"direction": {"y": X}}, "direction names 'y'; the inputs are 'x'"),
        ({"order": 2}, "need hvp= .* or hess="),
        ({"hvp": _hvp, "hess": _hvp}, "one of hvp= and hess="),
        ({"hess": lambda x: np.ones(3)}, r"shape \(3,\), expected \(5, 5\)"),
        ({"hvp": lambda x, v: v[:2]}, r"hvp= returned \(2,\); expected .* \(5,\)"),
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
    ],
)
def test_bad_arguments_are_refused(options, words):
    """The message names the value and what was expected."""
    with pytest.raises(InputError, match=words):
        gl.taylor_test(_quartic, X, grad=_cubed, **options)


def test_failures_of_the_function_are_told():
    """A function that raises at the point is an error, a spent budget too."""

    def broken(x):
        raise ZeroDivisionError

    with pytest.raises(SubjectError, match="ZeroDivisionError"):
        gl.taylor_test(broken, X, grad=_cubed)
    with pytest.raises(BudgetError, match="Taylor"):
        gl.taylor_test(_quartic, X, grad=_cubed, budget=3)


def test_function_that_is_nan_is_undecided():
    """Nothing can be said about a gradient where the function is not a number."""
    for value in (np.nan, np.inf):
        test = gl.taylor_test(lambda x, v=value: v * x.sum(), X, grad=np.zeros_like)

        assert test.verdict == gl.Verdict.UNDECIDED
        assert any("not finite" in remark for remark in test.remarks)


@pytest.mark.parametrize("seed", range(6))
def test_single_precision_inside_is_no_wrong_gradient(seed):
    """Rounding hidden in a float64 function is heard, and not held against it."""
    test = gl.taylor_test(
        lambda x: float(np.float32((x**2).sum())), X, grad=lambda x: 2 * x, seed=seed
    )

    assert test.ok


def test_input_of_no_weight_is_named():
    """Beside 1e12, the wrong gradient of a small input cannot be seen: it is told."""
    test = gl.taylor_test(
        lambda a, b: (a**2).sum() + np.sin(b).sum(),
        np.array([1e6]),
        np.array([1e-6]),
        grad=lambda a, b: (2 * a, 3 * np.cos(b)),
    )

    assert any("not judged" in r and r.endswith(": b") for r in test.remarks)


def test_jump_is_undecided():
    """At a jump no gradient is right or wrong."""
    test = gl.taylor_test(
        lambda x: np.floor(x).sum(), np.array([1.0]), grad=np.zeros_like
    )

    assert test.verdict == gl.Verdict.UNDECIDED


@pytest.mark.parametrize("width", [1e-5, 1e-7, 1e-9])
def test_a_sharp_bend_is_no_kink(width):
    """sqrt(x^2 + w^2) has a derivative, and a wrong gradient is wrong there."""
    x = width * np.array([0.3, 0.3])

    def f(x):
        return np.sqrt(x @ x + width**2) + x[0]

    def grad(x, factor=1.0):
        return factor * (x / np.sqrt(x @ x + width**2) + np.array([1.0, 0.0]))

    options = {"direction": np.array([1.0, 0.5])}

    right = gl.taylor_test(f, x, grad=grad, **options)
    wrong = gl.taylor_test(f, x, grad=lambda x: grad(x, 1.01), **options)

    assert right.verdict is gl.Verdict.AGREES
    assert wrong.verdict is gl.Verdict.DISAGREES


@pytest.mark.parametrize(("size", "unit"), [(1e300, 1.0), (1.0, 1e-300)])
def test_sizes_at_the_end_of_the_range_excuse_nothing(size, unit):
    """Squares of 1e300 are infinite, and no infinite round-off forgives an error."""
    x = unit * np.array([0.3, -0.7])

    def tested(factor):
        return gl.taylor_test(
            lambda x: size * np.sin(x / unit).sum(),
            x,
            grad=lambda x: factor * (size / unit) * np.cos(x / unit),
        )

    assert tested(1.0).verdict is gl.Verdict.AGREES
    assert tested(1.001).verdict is gl.Verdict.DISAGREES


@pytest.mark.parametrize("factor", [1.0, 1.01, -1.0])
def test_inputs_that_span_many_scales_move_by_their_own(factor):
    """A coordinate of 1e-12 moved by 1e12, and a right gradient was accused."""
    s = 10.0 ** np.arange(-12, 13, 4)
    x = s * np.random.default_rng(0).uniform(0.5, 1.0, 7)

    report = gl.taylor_test(
        lambda x: np.sin(x / s).sum(), x, grad=lambda x: factor * np.cos(x / s) / s
    )

    expected = "AGREES" if factor == 1 else "DISAGREES"
    assert report.verdict == gl.Verdict[expected]


@pytest.mark.parametrize(
    ("dtype", "verdict"),
    [
        (np.float16, gl.Verdict.UNDECIDED),
        (np.float32, gl.Verdict.DISAGREES),
    ],
)
def test_terms_that_cancel_excuse_no_slope_that_is_half_wrong(dtype, verdict):
    """1 - 0.9 along the direction, and 1.05 - 0.9: a tenth of 1 is half of the sum."""
    x = np.ones(2, dtype)
    weights = np.array([1.0, -0.9])

    def tested(first):
        return gl.taylor_test(
            lambda x: (x * weights).sum(),
            x,
            grad=lambda x: np.array([first, -0.9], dtype),
            direction=np.ones(2),
        )

    assert tested(1.0).verdict == gl.Verdict.AGREES
    assert tested(1.05).verdict == verdict
    assert "is right" not in tested(1.05).reading
