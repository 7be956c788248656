"""Inputs so small that f does not notice them: wrong gradients of theirs are told."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

SIZES = [1e-8, 1e-12, 1e-20, 1e-100]
POINT = np.array([1.3, -0.4, 0.0, 0.7, -2.1, 0.9])
WEIGHTS = np.array([0.3, -1.2, 0.8, 0.5, 0.2, -0.7])
# by name: f, its gradient, and the size of the point that both are asked at
ORDINARY = {
    "softplus": (
        lambda x: np.log1p(np.exp(x + WEIGHTS)).mean(),
        lambda x: 1 / (1 + np.exp(-x - WEIGHTS)) / x.size,
    ),
    "distance": (lambda x: ((x - WEIGHTS) ** 2).sum(), lambda x: 2 * (x - WEIGHTS)),
    "beside a constant": (
        lambda x: 1e3 + np.sin(x @ WEIGHTS),
        lambda x: np.cos(x @ WEIGHTS) * WEIGHTS,
    ),
}
WRONG = {
    "zero": lambda g: 0 * g,
    "twice": lambda g: 2 * g,
    "sign": lambda g: -g,
    "one percent": lambda g: 1.01 * g,
    "one entry": lambda g: g * (np.arange(g.size) != 3),
}


@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ORDINARY)
def test_a_right_gradient_agrees(name, size, coverage):
    """Longer steps say what short ones cannot, and at hardly any cost."""
    f, grad = ORDINARY[name]
    report = gl.check(f, size * POINT, grad=grad, coverage=coverage)
    assert report.verdict == gl.Verdict.AGREES
    assert not report.findings
    assert coverage == "probe" or report.evaluations <= 2 * POINT.size + 12


@pytest.mark.thinned(3)
@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("slip", WRONG)
@pytest.mark.parametrize("name", ORDINARY)
def test_a_wrong_gradient_is_told(name, slip, size, coverage):
    """What f does not notice at the size of the input it does over a longer step."""
    f, grad = ORDINARY[name]
    report = gl.check(
        f, size * POINT, grad=lambda x: WRONG[slip](grad(x)), coverage=coverage
    )
    assert report.verdict == gl.Verdict.DISAGREES
    assert len([f for f in report.findings if f.severity == "error"]) == 1


@pytest.mark.parametrize("size", SIZES)
def test_a_search_names_the_wrong_entry(size):
    """So do directions that pool all entries."""
    f, grad = ORDINARY["softplus"]
    found = gl.locate(f, size * POINT, grad=lambda x: WRONG["one entry"](grad(x)))
    assert [entry.index for entry in found.entries] == [(3,)]
    assert not gl.locate(f, size * POINT, grad=grad).entries


TINY = {
    "inverse": (lambda x: (1 / x).sum(), lambda x: -1 / x**2),
    "logarithm": (lambda x: np.log(x).sum(), lambda x: 1 / x),
    "root": (lambda x: 1 + np.sqrt(x / 1e-12).sum(), lambda x: 0.5e6 / np.sqrt(x)),
    "wave": (
        lambda x: 3 + np.sin(x / 1e-12).sum(),
        lambda x: np.cos(x / 1e-12) / 1e-12,
    ),
    "ripple": (
        lambda x: 1 + 1e-9 * np.sin(x / 1e-12).sum(),
        lambda x: 1e3 * np.cos(x / 1e-12),
    ),
}


@pytest.mark.parametrize("slip", [None, "zero", "twice", "one entry"])
@pytest.mark.parametrize("name", TINY)
def test_a_scale_as_small_as_the_input_is_kept(name, slip):
    """What lives on a scale of 1e-12 is asked there, or at least not accused."""
    f, grad = TINY[name]
    x = 1e-12 * (0.5 + np.abs(POINT))
    right = gl.check(f, x, grad=grad)
    assert right.verdict == gl.Verdict.AGREES
    if slip and name != "ripple":  # which moves f by less than counts
        wrong = gl.check(f, x, grad=lambda x: WRONG[slip](grad(x)))
        assert wrong.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("size", [1e-8, 1e-12, 1e-20])
@pytest.mark.parametrize("slip", [None, *WRONG])
def test_a_faint_tensor_among_ordinary_ones_counts(slip, size, rng):
    """A layer that begins at 1e-8 has a gradient like any other."""
    hidden, start = rng.normal(size=(5, 4)), size * rng.normal(size=(4, 3))

    def loss_and_grads(p):
        out = np.tanh(hidden @ p["w"]) @ p["v"] + p["b"]
        error = out - 1.0
        back = (2 * error @ p["v"].T) * (1 - np.tanh(hidden @ p["w"]) ** 2)
        grads = {
            "w": hidden.T @ back,
            "v": np.tanh(hidden @ p["w"]).T @ (2 * error),
            "b": 2 * error.sum(axis=0),
        }
        if slip:
            grads["v"] = WRONG[slip](grads["v"].ravel()).reshape(grads["v"].shape)
        return (error**2).sum(), grads

    params = {"w": rng.normal(size=(4, 4)), "v": start, "b": rng.normal(size=3)}
    report = gl.check(loss_and_grads, params)
    assert report.culprits == (("v",) if slip else ())


def test_one_side_of_a_kink_that_no_digit_shows_is_right():
    """The hinge of x at 1e-20 has the slope of either side, and no other."""
    x = 1e-20 * POINT

    def f(x):
        return 1 + np.maximum(x, 0).sum()

    for slope, verdict in ((1.0, "AGREES"), (0.0, "AGREES"), (2.0, "DISAGREES")):
        report = gl.check(f, x, grad=lambda x, slope=slope: slope * (x > -1))
        assert report.verdict == gl.Verdict[verdict]


@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("size", [1e-9, 2e-9])
def test_a_kink_that_f_tells_from_the_point_excuses_nothing(size, coverage):
    """Numbers of 1e-9 of either sign are none of them at the kink of a hinge."""
    x = size * np.array([-0.67, 2.3, -0.83, 0.16, -0.7, -0.45])

    def f(x):
        return 1 + np.maximum(x, 0) @ WEIGHTS

    right = gl.check(f, x, grad=lambda x: WEIGHTS * (x > 0), coverage=coverage)
    assert right.verdict != gl.Verdict.DISAGREES
    wrong = gl.check(f, x, grad=lambda x: 0 * x, coverage=coverage)
    assert wrong.verdict == gl.Verdict.DISAGREES


FOLDED = {
    "distance": (np.abs, np.sign),
    "leaky": (lambda x: np.where(x > 0, x, 0.2 * x), lambda x: 1 - 0.8 * (x < 0)),
}


@pytest.mark.parametrize("size", [1e-8, 1e-9, 1e-10])
@pytest.mark.parametrize("name", FOLDED)
def test_a_search_knows_no_slope_of_a_kink_within_its_step(name, size):
    """Steps that f notices meet the kinks of all entries, and name none of them."""
    rng = np.random.default_rng(5)
    x, w = size * rng.normal(size=6), rng.normal(size=6)
    value, slope = FOLDED[name]

    def f(x):
        return 4 + value(x) @ w

    assert not gl.locate(f, x, grad=lambda x: slope(x) * w).entries
    told = gl.check(f, x, grad=lambda x: 0 * x, coverage="probe")
    assert told.verdict == gl.Verdict.DISAGREES


KINKED = {
    "hinge": (lambda x, w: np.maximum(x, 0) @ w, lambda x, w: w * (x > 0)),
    "distance": (lambda x, w: np.abs(x) @ w, lambda x, w: w * np.sign(x)),
    "hidden units": (
        lambda x, w: np.maximum(w[:40].reshape(8, 5) @ x[:5], 0).sum() + w[5:] @ x[5:],
        lambda x, w: np.concatenate(
            [
                w[:40].reshape(8, 5).T @ (w[:40].reshape(8, 5) @ x[:5] > 0),
                w[5:],
            ]
        ),
    ),
}


def accuses(door, f, x, grad):
    """Whether a door says that the gradient is wrong."""
    if door == "locate":
        return not gl.locate(f, x, grad=grad).ok
    report = gl.check(f, x, grad=grad, coverage=door)
    return report.verdict == gl.Verdict.DISAGREES


@pytest.mark.thinned(2)
@pytest.mark.parametrize("door", ["full", "probe", "locate"])
@pytest.mark.parametrize("size", [1e-12, 1e-9])
@pytest.mark.parametrize("name", KINKED)
def test_kinks_beyond_the_size_of_the_input_accuse_nobody(name, size, door):
    """Over steps that f notices all entries cross their kinks; over short ones none."""
    rng = np.random.default_rng(8)
    x, w = size * rng.normal(size=60), rng.normal(size=60)
    value, slope = KINKED[name]

    def f(x):
        return 1 + value(x, w)

    assert not accuses(door, f, x, lambda x: slope(x, w))
    for factor in (0.0, 2.0, -1.0):
        assert accuses(door, f, x, lambda x, factor=factor: factor * slope(x, w))


@pytest.mark.parametrize("seed", range(3))
def test_ties_within_the_size_of_the_input_accuse_nobody(seed):
    """The largest of six numbers of 1e-8 is another one over every longer step."""
    x = 2e-8 * np.random.default_rng(seed).normal(size=6)

    def f(x):
        return 1 + np.cumsum(x).max()

    def grad(x):
        return (np.arange(6) <= np.argmax(np.cumsum(x))).astype(float)

    assert gl.check(f, x, grad=grad).ok


def test_a_sweep_goes_to_steps_that_f_notices():
    """Its curves are those of an input of ordinary size."""
    f, grad = ORDINARY["softplus"]
    sweep = gl.sweep(f, 1e-12 * POINT, grad=lambda x: 1.5 * grad(x))
    assert sweep.steps.max() == 1.0
    assert sweep.verdicts["x"] == gl.Verdict.DISAGREES


@pytest.mark.parametrize("factor", [0, 1, 2])
def test_entries_that_show_nothing_do_not_clear_what_directions_accuse(factor):
    """A gradient 1e-10 of another's shows along all of its entries, in none alone."""
    rng = np.random.default_rng(0)
    inputs = 1e-10 * rng.normal(size=6), rng.normal(size=6), rng.normal(size=6)

    def f(x, g, b):
        return float(np.log1p(np.exp(b)).sum() + x @ np.sin(g))

    def grad(x, g, b):
        return np.sin(g), factor * x * np.cos(g), 1 / (1 + np.exp(-b))

    report = gl.check(f, *inputs, grad=grad, coverage="probe", diagnose=False)

    assert (report.verdict == gl.Verdict.AGREES) == (factor == 1)
