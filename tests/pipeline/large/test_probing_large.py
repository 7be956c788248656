"""Checks by random directions of what is dear: few evaluations, verdicts of tensors."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

pytestmark = pytest.mark.untraced

SHAPES = {"w1": (700, 1000), "b1": (1000,), "w2": (1000, 1400), "b2": (1400,)}


def network(sabotage=None, act="tanh"):
    """Loss and gradients of a network of 2.1 million parameters, biases faint."""
    rng = np.random.default_rng(5)
    params = {
        name: rng.normal(size=shape) / (np.sqrt(shape[0]) if len(shape) == 2 else 10)
        for name, shape in SHAPES.items()
    }
    inputs = rng.normal(size=(4, 700))

    def loss_and_grads(p):
        before = inputs @ p["w1"] + p["b1"]
        hidden = np.tanh(before) if act == "tanh" else np.maximum(before, 0)
        slope = 1 - hidden**2 if act == "tanh" else (before > 0).astype(float)
        out = hidden @ p["w2"] + 1e-3 * p["b2"]
        delta = 2 * out / out.size
        back = (delta @ p["w2"].T) * slope
        grads = {
            "w1": inputs.T @ back,
            "b1": back.sum(axis=0),
            "w2": hidden.T @ delta,
            "b2": 1e-3 * delta.sum(axis=0),
        }
        if sabotage:
            sabotage(grads)
        return (out**2).mean(), grads

    return loss_and_grads, params


def norm_of(name):
    """Norm of the right gradient of one tensor, from its formula."""
    fn, params = network()
    return float(np.linalg.norm(fn(params)[1][name]))


@pytest.mark.parametrize("act", ["tanh", "relu"])
def test_two_million_parameters_in_five_evaluations(act):
    """Two evaluations for each of two directions, however many kinks there are."""
    fn, params = network(act=act)
    report = gl.check(fn, params, coverage="probe")

    assert report.verdict == gl.Verdict.AGREES
    assert report.evaluations == 5
    for name, power in report.power.items():
        assert power <= 1e-3 * norm_of(name)


@pytest.mark.parametrize(
    "name", ["b1", "b2", pytest.param("w1", marks=pytest.mark.slow)]
)
def test_an_error_of_a_tensor_shows_in_that_tensor(name):
    """Noise of 0.3 % of the norm of its gradient, spread over all entries."""
    noise = np.random.default_rng(1).normal(size=SHAPES[name])
    noise /= np.linalg.norm(noise)

    def sabotage(grads):
        grads[name] += 3e-3 * np.linalg.norm(grads[name]) * noise

    fn, params = network(sabotage)
    report = gl.check(fn, params, coverage="probe", diagnose=False)

    wrong = {c.input.name for c in report.comparisons if c.verdict == 2}
    assert wrong == {name}


@pytest.mark.parametrize("seed", [1])
def test_one_entry_that_carries_the_stated_power_is_seen(seed):
    """An error of one entry, twice as large as the report says would be seen."""
    fn, params = network()
    power = gl.check(fn, params, coverage="probe", seed=seed).power["w1"]

    def sabotage(grads):
        grads["w1"][seed, 17 * seed] += 2 * power

    wrong, params = network(sabotage)
    report = gl.check(wrong, params, coverage="probe", seed=seed)

    assert report.culprits == ("w1",)


def test_a_short_budget_means_directions_and_misses_nothing():
    """One entry of 200,000, wrong by a factor, is no longer missed by a sample."""
    x = np.random.default_rng(0).normal(size=200_000)

    def grad(x):
        g = np.cos(x)
        g[123_456] += 0.5
        return g

    report = gl.check(lambda x: np.sin(x).sum(), x, grad=grad, budget=2_000)

    assert report.coverage == "probe"
    assert report["x"].worst(1).input_index[0] == (123_456,)


@pytest.mark.parametrize("budget", [75, 80, 85])
def test_what_the_search_found_is_shown_when_the_budget_ends(budget):
    """An entry that was measured to be wrong, with its values, before a second look."""
    x = np.random.default_rng(0).normal(size=200_000)

    def grad(x):
        g = np.cos(x)
        g[123_456] += 0.5
        return g

    report = gl.check(
        lambda x: np.sin(x).sum(), x, grad=grad, coverage="probe", budget=budget
    )
    worst = report["x"].worst(1)

    assert report.partial
    assert report.culprits == ("x",)
    assert worst.input_index[0] == (123_456,)
    assert worst.numeric[0] == pytest.approx(np.cos(x[123_456]), abs=1e-6)
    assert any("one by one" in remark for remark in report.remarks)


def test_a_budget_that_ends_midway_is_partial_and_undecided():
    """Nothing that was not looked at is said to agree."""
    fn, params = network()
    report = gl.check(fn, params, coverage="probe", budget=4)

    assert report.partial
    assert report.verdict == gl.Verdict.UNDECIDED
    assert any("budget" in remark for remark in report.remarks)


def test_what_is_dear_is_never_sampled():
    """A few entries of every tensor would take longer than directions do."""
    fn, params = network()

    assert gl.check(fn, params, budget=4).coverage == "probe"


@pytest.mark.parametrize("coverage", ["full", "probe"])
def test_a_loss_that_is_nan_is_undecided_and_says_so(coverage):
    """The log of a negative number: no derivative, no accusation, one reason."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 4).double()
    x = torch.randn(2, 3, dtype=torch.float64)
    report = gl.check(
        model, x, loss=lambda out: (out - 100).log().sum(), coverage=coverage
    )

    assert report.verdict == gl.Verdict.UNDECIDED
    assert report.ok
    assert report.diagnosis == "nonfinite"
