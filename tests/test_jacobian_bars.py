"""Bars of Jacobians that stand alone cover the error, of every method.

Truth is algebra. Bars are held to five times themselves, as of noise one look may be
lucky; before the further point was taken, the errors here were between ten and 1e13 of
them.
"""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import ComplexStepError

CHEAP = ["central", "forward", "backward"]


def noise(x, size):
    """Shake deterministically: a wave far too fast for any step."""
    return size * np.sin(x * 7.1e13)


# name: function, point, slope there
HARD = {
    "bends within a step": (lambda x: np.sin(3e8 * x), 1.0, 3e8 * np.cos(3e8)),
    "small ripples": (lambda x: x + np.sin(3e6 * x) / 3e6, 1.0, 1 + np.cos(3e6)),
    "a tenth of a millionth from a pole": (
        lambda x: np.log(np.abs(x - 1)), 1 + 1e-7, 1 / ((1 + 1e-7) - 1)
    ),
    "narrow bump": (
        lambda x: x**2 + np.exp(-(((x - 1) * 1e7) ** 2)),
        1 + 5e-8,
        2 * (1 + 5e-8) - 2e14 * (1 + 5e-8 - 1) * np.exp(-((1 + 5e-8 - 1) * 1e7) ** 2),
    ),
    "noise": (lambda x: np.exp(x) + noise(x, 1e-8), 0.5, np.exp(0.5)),
    "rounded to multiples": (lambda x: np.round(x**3, 9), 0.7, 3 * 0.7**2),
    "float32 inside": (lambda x: np.float64(np.sin(np.float32(x))), 0.7, np.cos(0.7)),
    "cancellation": (lambda x: np.cosh(x) - 1, 1e-5, np.sinh(1e-5)),
    "stationary": (lambda x: (x - 1) ** 2, 1.0, 0.0),
    "centre of symmetry": (lambda x: np.tanh(1e4 * x), 0.0, 1e4),
    "kink beside": (lambda x: x + np.abs(x - 1) / 100, 1 + 4e-9, 1.01),
}  # fmt: skip


@pytest.mark.parametrize("method", CHEAP)
@pytest.mark.parametrize("name", HARD)
def test_cheap_differences_know_what_they_are_worth(name, method):
    """Where f bends or shakes within a step, the bar says so."""
    f, x, exact = HARD[name]

    found = gl.numeric_jacobian(f, np.array(x), method=method)

    assert abs(found.value - exact) <= 5 * found.error


@pytest.mark.parametrize("method", [gl.Central(step=1e-2), gl.Forward(step=1e-3)])
def test_steps_that_were_asked_for_get_an_honest_bar(method):
    """A step far too long for f gives a slope far off, and says by how much."""
    f = lambda x: np.sin(1e5 * x) / 1e5 + x

    found = gl.numeric_jacobian(f, np.array(0.3), method=method)

    assert found.step == pytest.approx(method.step)
    assert abs(found.value - (1 + np.cos(1e5 * 0.3))) <= 5 * found.error


@pytest.mark.parametrize("method", CHEAP)
def test_bars_of_smooth_functions_stay_as_small_as_they_were(method, rng):
    """Half are below 30 times the error, for two lines, or one point per coordinate."""
    a, x = rng.normal(size=(20, 20)) / 5, rng.normal(size=20)
    exact = np.cos(a @ x)[:, None] * a

    found = gl.numeric_jacobian(lambda x: np.sin(a @ x), x, method=method)

    error = np.abs(found.value - exact)
    assert (error <= 5 * found.error).all()
    assert np.median(found.error / error) < 30
    # and four for whether f stops early
    assert found.evaluations == 2 * x.size + (8 if method == "central" else 4)


def one_hard_of_many(hard, rng):
    """Sum of 120 columns in three outputs; of column 17 the function `hard`."""
    b = rng.normal(size=(3, 120))

    def f(v):
        each = np.sin(v)
        each[17] = hard(v[17])
        return b @ each

    return f, b


@pytest.mark.parametrize("name", [name for name in HARD if name != "stationary"])
def test_one_column_that_contradicts_its_group_is_found(name, rng):
    """What 119 smooth columns are asked together with has a bar of its own."""
    hard, at, exact = HARD[name]
    x = rng.normal(size=120)
    x[17] = at
    f, b = one_hard_of_many(hard, rng)

    found = gl.numeric_jacobian(f, x, method="central")

    slopes = np.cos(x)
    slopes[17] = exact
    assert (np.abs(found.value - b * slopes) <= 5 * found.error).all()
    # three for each, and the ladder, before
    assert found.evaluations < 3 * 120


def test_kink_at_the_point_is_heard_in_no_group_and_still_told(rng):
    """Its odd part is that of a line: the bar reaches to both slopes all the same."""
    x = rng.normal(size=120)
    at = x[17]
    f, b = one_hard_of_many(lambda t: t + 1e-3 * np.abs(t - at), rng)

    found = gl.numeric_jacobian(f, x, method="central")

    for slope in (1 - 1e-3, 1 + 1e-3):
        assert (
            np.abs(found.value[:, 17] - b[:, 17] * slope) <= found.error[:, 17]
        ).all()
    assert found.evaluations < 3 * 120


def test_output_that_stands_still_for_all_columns_is_asked_farther():
    """Rounded to five digits it moves within two steps, and not within one."""
    x = np.full(20, 0.3)
    f = lambda v: np.array([np.round((v[0] - 0.3) * 1e5 + 0.2) / 1e5, v @ v])

    found = gl.numeric_jacobian(f, x, method="central")

    assert found.value[0, 0] == 0
    assert found.error[0, 0] > 0.2  # the slope of the whole is 1


def test_constant_and_quantised_are_told_apart():
    """What stands still over a step is zero; to how much, a longer step says."""
    constant = gl.numeric_jacobian(lambda x: 7 + 0 * x, np.array(1.3), method="central")
    stepped = gl.numeric_jacobian(
        lambda x: np.round(np.exp(x), 4), np.array(1.3), method="central"
    )
    assert constant.value == 0
    assert constant.error < 1e-9
    assert abs(stepped.value - np.exp(1.3)) <= 5 * stepped.error


def test_bar_is_infinite_where_there_is_no_value():
    """Central differences across the edge of the domain: no slope, no finite bar."""
    with np.errstate(invalid="ignore"):
        found = gl.numeric_jacobian(np.sqrt, np.zeros(2), method="central")
    assert np.isnan(np.diag(found.value)).all()
    assert np.isinf(np.diag(found.error)).all()


# name: f of float64 that goes through float32, and its Jacobian
ROUNDED = {
    "rounded at the end": (
        lambda x: np.sin(x).astype(np.float32).astype(float),
        lambda x: np.diag(np.cos(x)),
    ),
    "rounded at the beginning": (
        lambda x: np.tanh(x.astype(np.float32)).astype(float),
        lambda x: np.diag(1 - np.tanh(x) ** 2),
    ),
    "larger far away": (
        lambda x: (x.astype(np.float32) ** 2).astype(float),
        lambda x: np.diag(2 * x),
    ),
    "one number": (
        lambda x: float(np.tanh(x.astype(np.float32)).sum()),
        lambda x: 1 - np.tanh(x) ** 2,
    ),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ROUNDED)
def test_bars_of_what_is_rounded_inside_cover_the_error(name, seed):
    """Half of the bars were too small by more than twenty: steps of a staircase."""
    f, exact = ROUNDED[name]
    x = np.random.default_rng(seed).standard_normal(20)

    found = gl.numeric_jacobian(f, x)

    error = np.abs(found.value - exact(x))
    assert (error <= 5 * found.error).all()
    assert (error <= 0.02 * np.abs(exact(x)).max()).all()


def test_outputs_that_stand_still_in_single_precision_have_a_bar():
    """A tanh of 7.6 in float32 moves by less than its last digit, and that is told."""
    f = lambda x: np.tanh((x + np.array([7.6, 0, 1, -1, 0.5])).astype(np.float32)) + 0.0
    x = np.random.default_rng(0).uniform(-1, 1, 5) / 10

    found = gl.numeric_jacobian(lambda x: f(x).astype(float), x)

    exact = 1 / np.cosh(x[0] + 7.6) ** 2
    assert abs(found.value[0, 0] - exact) <= 5 * found.error[0, 0]


def turned(w, sqrt=np.sqrt, cos=np.cos, sin=np.sin):
    """Rotation by a vector: Rodrigues' formula, in the arithmetic of the functions."""
    t = sqrt(w @ w)
    k = np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])
    return np.eye(3, dtype=int) + sin(t) / t * k + (1 - cos(t)) / t**2 * (k @ k)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("size", [1e-4, 1e-3, 2.5e-3])
@pytest.mark.parametrize("seed", range(8, 28))
def test_bars_of_small_outputs_know_the_rounding_of_what_they_are_made_of(seed, size):
    """The cosine of a small angle stands still over 1e-13: no slope is told there."""
    w = np.random.default_rng(seed).standard_normal(3)
    w *= size / np.linalg.norm(w)

    found = gl.numeric_jacobian(turned, w)

    with mp.workdps(50):
        h, exact = mp.mpf(10) ** -20, np.array([mp.mpf(float(x)) for x in w])
        for k in range(3):
            ahead, behind = (
                turned(
                    exact + sign * h * np.eye(3, dtype=int)[k], mp.sqrt, mp.cos, mp.sin
                )
                for sign in (1, -1)
            )
            slope = (ahead - behind) / (2 * h)
            error = np.abs(found.value[:, :, k] - slope.astype(float))
            assert (error <= 5 * found.error[:, :, k] + 1e-12).all()


def test_pole_beside_a_large_output_keeps_its_digits():
    """What is finer than the usual steps, and louder than rounding, is a slope of f."""
    x = 1 + 1e-7

    found = gl.numeric_jacobian(
        lambda x: np.array([1e3 * x, np.log(np.abs(x - 1)) / 1e3]), np.array(x)
    )

    exact = 1e-3 / (x - 1)
    assert abs(found.value[1] - exact) <= 5 * found.error[1] <= 1e-4 * exact


# ------------------------------------------------------------------ the complex step


def test_complex_step_knows_cancellation(rng):
    """A derivative whose terms cancel has lost digits, which three looks show."""
    x = rng.normal(size=30) + 1e6
    f = lambda x: (x**2).sum() - x.size * x.mean() ** 2
    exact = 2 * (x - 1e6 - (x - 1e6).mean())

    found = gl.numeric_jacobian(f, x, method="complex-step")

    assert (np.abs(found.value - exact) <= 5 * found.error + 1e-9).all()
    assert found.error.max() > 1e-11  # 4e-16 |value| before, where 1e-10 is lost


def test_complex_step_knows_a_long_step():
    """Truncation of ``h^2 f''' / 6`` shows in a shorter step."""
    found = gl.numeric_jacobian(np.exp, np.array(1.0), method=gl.ComplexStep(step=1e-2))
    assert 1e-5 < abs(found.value - np.e) <= found.error < 1e-3


def test_complex_step_knows_single_precision():
    """A float32 input is differentiated in complex64."""
    x = np.array([0.7, 1.3, 2.6], np.float32)
    found = gl.numeric_jacobian(np.exp, x, method="complex-step")
    error = np.abs(np.diag(found.value) - np.exp(x.astype(float)))
    assert error.max() > 1e-9
    assert (error <= np.diag(found.error)).all()


def test_complex_step_knows_a_solver():
    """A fixed point that stops when its value has converged: its slope has not."""

    def solve(x):
        value = x
        for _ in range(200):
            after = x + 0.3 * np.sin(value)
            if abs(after - value) < 1e-6:
                return after
            value = after
        return value

    root = 1.0
    for _ in range(200):
        root = 1.0 + 0.3 * np.sin(root)
    exact = 1 / (1 - 0.3 * np.cos(root))

    found = gl.numeric_jacobian(solve, np.array(1.0), method="complex-step")

    assert 1e-8 < abs(found.value - exact) <= found.error


@pytest.mark.parametrize(
    ("dtype", "slope"), [(np.float64, 6e-307), (np.float32, 1e-16)]
)
def test_complex_step_knows_what_underflows(dtype, slope):
    """A slope that its tiny step loses is within the bar, and no f with kinks."""
    found = gl.numeric_jacobian(
        lambda x: dtype(slope) * x, np.ones(1, dtype), method="complex-step"
    )
    assert abs(found.value - slope) <= found.error
    assert found.error < (1e-277 if dtype is np.float64 else 1e-7)


def test_complex_step_is_refused_beside_a_kink():
    """``abs`` drops the imaginary part, which a kink within 1e-5 hid before."""
    f = lambda x: x + np.abs(x - 1) / 100
    with pytest.raises(ComplexStepError, match="not analytic"):
        gl.numeric_jacobian(f, np.array(1 + 1e-6), method="complex-step")


def test_complex_step_keeps_its_digits_where_f_is_analytic(rng):
    """Bars stay near 1e-15 of the slope, and cost does not grow with the columns."""
    x = rng.uniform(0.5, 2, 100)
    found = gl.numeric_jacobian(lambda x: np.log(x).sum(), x, method="complex-step")
    assert (np.abs(found.value - 1 / x) <= found.error).all()
    assert np.median(found.error * x) < 1e-13
    assert found.evaluations < 100 + 40


@pytest.mark.parametrize("method", ["adaptive", *CHEAP])
@pytest.mark.parametrize("kind", [np.float16, "four digits"])
def test_zero_slope_between_two_roundings_is_not_certain(method, kind):
    """Half precision inside f is flat close by: 0, or the slope of the whole."""
    round_ = np.float16 if kind is np.float16 else lambda y: np.round(y, 3)
    f = lambda x: np.asarray(round_(np.exp(x)), float)

    found = gl.numeric_jacobian(f, np.array(1.3), method=method)

    assert found.value == 0
    assert abs(found.value - np.exp(1.3)) <= 5 * found.error


@pytest.mark.parametrize("method", ["adaptive", *CHEAP])
def test_zero_slope_of_a_wide_stair_or_beside_a_kink_stays_certain(method):
    """Whole numbers, and a unit that is off: nothing moves on both sides."""
    for f, x in ((np.round, 1.3), (lambda x: np.maximum(x - 1, 0), 0.995)):
        found = gl.numeric_jacobian(f, np.array(x), method=method)
        assert found.value == 0
        assert found.error < 1e-7


@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8])
def test_bar_of_the_complex_step_is_some_round_off_of_the_slope(size):
    """Nothing is subtracted: of slopes of any size the same share is in doubt."""
    found = gl.numeric_jacobian(
        lambda x: size * np.exp(x), np.ones(2), method="complex-step"
    )
    share = np.diag(found.error) / (size * np.e)

    assert (share > 2e-16).all()
    assert (share < 1e-13).all()
    assert (np.abs(np.diag(found.value) - size * np.e) <= np.diag(found.error)).all()


def test_bars_of_outputs_that_are_small_by_themselves():
    """Outputs from 1e-10 to 1e10 that share nothing inherit no rounding either."""
    scales = 10.0 ** np.arange(-10, 11, 4)
    x = scales * np.array([0.3, -1.2, 0.8, 1.7, -0.4, 0.6])

    found = gl.numeric_jacobian(lambda x: np.sin(x / scales) * scales[::-1], x)

    truth = np.cos(x / scales) * scales[::-1] / scales
    error, bar = np.abs(np.diag(found.value) - truth), np.diag(found.error)
    assert (error <= bar).all()
    assert (bar <= 1e-9 * np.abs(truth)).all()


def test_sum_that_cancels_to_nothing_is_no_staircase():
    """The rounding of large terms moves a sum of zero in steps: no slope is lost."""
    x = np.linspace(-1, 1, 500)

    found = gl.numeric_jacobian(lambda x: np.sin(x).sum(), x)

    assert np.abs(np.sin(x).sum()) < 1e-12
    assert (np.abs(found.value - np.cos(x)) <= 5 * found.error).all()
    assert (found.error < 0.01 * np.cos(x)).all()


@pytest.mark.parametrize(
    ("far", "slope", "x"),
    [
        (-13556003.17664825, 0.050807582170453176, -0.011001329187734984),
        (11980106.366893658, -0.2715736769779852, -0.00031707475083967075),
    ],
)
def test_slope_close_to_the_edge_of_a_rounding_inside(far, slope, x):
    """One side takes its first step at once, the other one much later."""
    found = gl.numeric_jacobian(lambda x: np.cos(far + slope * x), np.array(x))
    with mp.workdps(40):
        exact = -slope * float(mp.sin(far + mp.mpf(slope) * x))

    assert abs(found.value - exact) <= 5 * found.error
    assert found.error < 0.1 * abs(exact)
