"""The adaptive ladder: as good as it says, honest about the rest, and frugal."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from gradlab.differentiation.adaptive import adaptive
from gradlab.differentiation.ladder.derivatives import AdaptiveSettings, Rounding
from gradlab.differentiation.smoothness import Smoothness
from tests.differentiation.catalogue_held_out import HELD_OUT
from tests.differentiation.catalogue_table import by_gradlab, summary, truth_of
from tests.differentiation.catalogue_tuned import TUNED

pytestmark = pytest.mark.untraced


def differentiate(f, points, *, scales=None, **options):
    """Differentiate a vectorised f(x, which) -> (P, m) along every coordinate."""
    points = np.asarray(points, float)
    scales = np.ones(points.size) if scales is None else np.asarray(scales, float)

    def sample(which, displacement):
        x = points[which] + displacement
        with np.errstate(all="ignore"):
            return f(x, which), x - points[which]

    with np.errstate(all="ignore"):
        base = np.asarray(options.pop("base"), float)
    return adaptive(sample, points=points, scales=scales, base=base, **options)


def along_one(f, x, scale=1.0, **options):
    """Differentiate a scalar function of one variable."""
    with np.errstate(all="ignore"):
        base = [float(f(np.float64(x)))]
    return differentiate(
        lambda v, _: np.array([[float(f(u))] for u in v]),
        [x],
        scales=[scale],
        base=base,
        **options,
    )


@pytest.fixture(scope="module")
def measured():
    """Both lists, measured once."""
    return {
        "tuned": [by_gradlab(c) for c in TUNED],
        "held out": [by_gradlab(c) for c in HELD_OUT],
    }


def test_catalogue_is_large_and_covers_every_family():
    """Two hundred functions at least, and every difficulty in both lists."""
    assert len(TUNED) >= 200
    assert {case.family for case in TUNED} == {case.family for case in HELD_OUT}
    assert len({case.family for case in TUNED}) == 13
    assert len({case.name for case in TUNED + HELD_OUT}) == len(TUNED + HELD_OUT)


def test_catalogue_truth_agrees_with_a_second_method():
    """mpmath's own differentiation (60 digits) gives the same slopes, where it can."""
    with mpmath.workdps(60):
        second = float(mpmath.diff(lambda x: mpmath.sin(300 * x), 1))
    case = next(c for c in TUNED if c.name == "sin(300x) at 1")
    assert truth_of(case) == pytest.approx(second, rel=1e-15)


@pytest.mark.parametrize("part", ["tuned", "held out"])
def test_bars_can_be_believed(measured, part):
    """True error within ten times the bar in 99 of 100 hard functions."""
    liars = [r.case.name for r in measured[part] if not r.honest]
    assert summary(measured[part])["honest"] >= 0.99, liars


@pytest.mark.parametrize("part", ["tuned", "held out"])
def test_few_derivatives_are_off_by_a_millionth(measured, part):
    """At most 8 % miss 1e-6, most of which float64 does not contain at all."""
    assert summary(measured[part])["wrong"] <= 0.08


@pytest.mark.parametrize("part", ["tuned", "held out"])
def test_typical_derivative_is_nearly_exact(measured, part):
    """The median relative error is at most 1e-11."""
    assert summary(measured[part])["median"] <= 1e-11


@pytest.mark.parametrize("part", ["tuned", "held out"])
def test_twenty_evaluations_are_enough_on_average(measured, part):
    """No more than 20 evaluations for each coordinate, on average."""
    assert summary(measured[part])["evaluations"] <= 20


def test_bars_of_smooth_functions_are_not_wide(measured):
    """A bar that covers everything helps nobody: half are below 1e-11 of the slope."""
    smooth = {"plain", "oscillation", "scale", "pole"}
    rows = [r for part in measured.values() for r in part if r.truth]
    bars = [r.bar / abs(r.truth) for r in rows if r.case.family in smooth]
    assert np.median(bars) < 1e-11
    assert np.quantile(bars, 0.9) < 1e-6


def test_no_evaluation_beyond_the_limit():
    """`most` is kept, even by a function that never gives an answer."""
    rng = np.random.default_rng(5)
    found = along_one(
        lambda x: float(rng.normal()), 1.0, settings=AdaptiveSettings(most=16)
    )
    assert found.evaluations <= 16


def test_many_outputs_and_coordinates_at_once(rng):
    """Each entry of a dense Jacobian is right within its own bar."""
    weights = rng.normal(size=(4, 7))
    points = rng.normal(size=7)

    def f(x, which):
        moved = np.tile(points, (x.size, 1))
        moved[np.arange(x.size), which] = x
        return np.sin(moved @ weights.T)

    base = np.sin(weights @ points)
    found = differentiate(f, points, base=base)

    exact = np.cos(weights @ points)[:, None] * weights
    assert found.value.shape == (4, 7)
    assert (np.abs(found.value - exact) <= found.error).all()
    assert (np.abs(found.value - exact) <= 1e-9 * np.abs(exact)).all()
    assert (found.kind == Smoothness.SMOOTH).all()


def test_coordinates_do_not_disturb_each_other(rng):
    """Chunks and blocks change nothing: each coordinate has its own ladder."""
    points = rng.normal(size=9)
    factor = 10.0 ** rng.integers(-6, 6, size=9)

    def f(x, which):
        return np.tanh(factor[which] * x)[:, None]

    def run(settings=None, pick=slice(None)):
        chosen = np.arange(9)[pick]
        return differentiate(
            lambda x, which: f(x, chosen[which]),
            points[pick],
            base=[0.3],
            settings=settings,
        )

    whole = run()
    pieces = run(AdaptiveSettings(chunk=2, block=1))
    np.testing.assert_array_equal(whole.value, pieces.value)
    np.testing.assert_array_equal(whole.error, pieces.error)
    np.testing.assert_array_equal(whole.value[:, 3:5], run(pick=slice(3, 5)).value)


def test_constant_has_derivative_zero_with_a_tiny_bar():
    """A large function that never moves: 0, to the resolution of the largest step."""
    found = along_one(lambda x: 3e7, 2.0, scale=2.0)
    assert found.value[0, 0] == 0
    assert 0 < found.error[0, 0] <= 2.3e-16 * 3e7
    assert found.kind[0, 0] == Smoothness.SMOOTH


def test_signal_below_a_huge_constant_is_resolved_by_large_steps():
    """3e12 + 1e-3 x does not move at steps below 0.2, and is linear."""
    found = along_one(lambda x: 3e12 + 1e-3 * x, 1.0)
    assert abs(found.value[0, 0] - 1e-3) <= found.error[0, 0] < 1e-9


def test_saturated_signal_below_a_huge_constant_is_honest():
    """tanh on 1e12 has four digits at best, and the bar says so."""
    found = along_one(lambda x: 1e12 + np.tanh(x), 0.5)
    error = abs(found.value[0, 0] - (1 - np.tanh(0.5) ** 2))
    assert error <= 10 * found.error[0, 0]
    assert found.error[0, 0] > 1e-7


def test_single_precision_inside_is_found_as_noise():
    """The noise of a float32 sine is a few 1e-8, and the slope is good all the same."""
    found = along_one(lambda x: float(np.sin(np.float32(x))), 1.0)
    assert 5e-9 < found.noise[0, 0] < 3e-7
    assert abs(found.value[0, 0] - np.cos(1)) <= 10 * found.error[0, 0]
    assert found.error[0, 0] < 1e-4


def test_rounding_unit_of_the_arithmetic_is_respected():
    """Evaluated in float32 with its floor given, the bar is that of float32."""

    def f(x, which):
        return np.exp(np.float32(x))[:, None].astype(float)

    def sample(which, displacement):
        x = np.float32(1.0 + displacement).astype(float)
        return f(x, which), x - 1.0

    found = adaptive(
        sample,
        points=np.ones(1),
        scales=np.ones(1),
        base=np.array([float(np.exp(np.float32(1)))]),
        rounding=Rounding.over(1, float(np.finfo(np.float32).eps)),
    )
    assert abs(found.value[0, 0] - np.e) <= 10 * found.error[0, 0]
    assert 1e-8 < found.error[0, 0] < 1e-2


def test_uniform_error_of_one_in_a_hundred_thousand_would_show(rng):
    """Smooth functions leave bars far below 1e-5, so such an error cannot hide."""
    for _ in range(20):
        a, b, x = rng.normal(size=3)
        found = along_one(
            lambda v, a=a, b=b: np.exp(a * v) + np.sin(b * v), x, scale=max(abs(x), 0.1)
        )
        exact = a * np.exp(a * x) + b * np.cos(b * x)
        assert abs(found.value[0, 0] - exact) <= found.error[0, 0]
        assert found.error[0, 0] < 1e-7 * abs(exact)


def test_nan_at_the_point_is_undefined_and_costs_nothing():
    """Without a value there is no derivative; no evaluation is wasted."""
    found = along_one(lambda x: np.nan, 1.0)
    assert found.kind[0, 0] == Smoothness.UNDEFINED
    assert np.isnan(found.value[0, 0])
    assert np.isinf(found.error[0, 0])
    assert found.evaluations == 0


def test_nan_in_one_output_does_not_spoil_the_other():
    """Outputs are judged one by one."""
    found = differentiate(
        lambda x, _: np.stack([np.sin(x), np.full(x.size, np.nan)], axis=1),
        [1.0],
        base=[np.sin(1.0), np.nan],
    )
    assert abs(found.value[0, 0] - np.cos(1)) < 1e-10
    assert found.kind[1, 0] == Smoothness.UNDEFINED


def test_no_coordinates_at_all():
    """An empty input has an empty Jacobian."""
    found = adaptive(
        lambda which, d: (np.empty((0, 2)), d),
        points=np.empty(0),
        scales=np.empty(0),
        base=np.zeros(2),
    )
    assert found.value.shape == (2, 0)
    assert found.evaluations == 0


@pytest.mark.parametrize("x", [1e-300, 1e300, 1e307])
def test_extreme_coordinates_raise_no_warning(x):
    """The ladder stays finite at the ends of the number range."""
    found = along_one(lambda v: 3 * (v / x), x, scale=x)
    assert found.value[0, 0] * x == pytest.approx(3, rel=1e-9)


def test_random_compositions_are_honest(rng):
    """Sixty functions nobody chose: random scales, offsets and arguments."""
    pieces = [
        (np.sin, np.cos),
        (np.exp, np.exp),
        (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
        (lambda z: 1 / (1 + z * z), lambda z: -2 * z / (1 + z * z) ** 2),
        (lambda z: np.log1p(z * z), lambda z: 2 * z / (1 + z * z)),
    ]
    honest = []
    for index in range(60):
        f, slope = pieces[index % len(pieces)]
        rate, size = 10.0 ** rng.uniform(-8, 8, size=2)
        offset = size * 10.0 ** rng.uniform(-3, 6)
        z = rng.normal() * 10.0 ** rng.uniform(-2, 0.5)
        x = z / rate
        found = along_one(
            lambda v, f=f, a=size, k=rate, b=offset: a * f(k * v) + b, x, scale=abs(x)
        )
        error = abs(found.value[0, 0] - size * rate * slope(rate * x))
        honest.append(error <= 10 * found.error[0, 0])
    assert np.mean(honest) >= 0.98
