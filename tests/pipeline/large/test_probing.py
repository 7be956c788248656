"""Checks by random directions, for what is too large to check entry by entry."""

from __future__ import annotations

import types
from unittest import mock

import numpy as np
import pytest

import gradlab as gl
from gradlab.pipeline.large import probing


def network(rng, sabotage=None):
    """Loss and gradients of a tanh network with 13,000 parameters."""
    params = {
        "w1": rng.normal(size=(60, 100)) / 8,
        "b1": rng.normal(size=100),
        "w2": rng.normal(size=(100, 70)) / 10,
    }
    inputs = rng.normal(size=(20, 60))

    def loss_and_grads(p):
        hidden = np.tanh(inputs @ p["w1"] + p["b1"])
        out = hidden @ p["w2"]
        delta = 2 * out / out.size
        back = (delta @ p["w2"].T) * (1 - hidden**2)
        gradients = {
            "w1": inputs.T @ back, "b1": back.sum(axis=0), "w2": hidden.T @ delta,
        }  # fmt: skip
        if sabotage:
            sabotage(gradients)
        return (out**2).mean(), gradients

    return loss_and_grads, params


def test_a_right_network_costs_little(rng):
    """Every tensor agrees after a few dozen evaluations, with its power stated."""
    fn, params = network(rng)
    report = gl.check(fn, params, coverage="probe")
    assert report.verdict == gl.Verdict.AGREES
    assert report.coverage == "probe"
    assert report.evaluations <= 40
    assert set(report.power) == {"w1", "b1", "w2"}
    assert all(0 < power < 1e-4 for power in report.power.values())


@pytest.mark.parametrize("factor", [1.1, 0.0, -1.0])
def test_one_wrong_entry(rng, factor):
    """One entry of 13,000 is found, named and compared by itself."""

    def sabotage(gradients):
        gradients["w1"][17, 42] *= factor

    fn, params = network(rng, sabotage)
    report = gl.check(fn, params, coverage="probe")
    assert report.culprits == ("w1",)
    assert report["w1"].worst(1).input_index[0] == (17, 42)
    assert report["b1"].verdict == report["w2"].verdict == gl.Verdict.AGREES
    assert report.evaluations < 1000


def test_a_wrong_tensor(rng):
    """A tensor that is wrong throughout is named, and nothing else is."""

    def sabotage(gradients):
        gradients["b1"] *= 2

    fn, params = network(rng, sabotage)
    report = gl.check(fn, params, coverage="probe")
    assert report.culprits == ("b1",)
    assert report.diagnosis == "scale"


def test_large_subjects_are_probed_by_themselves(rng):
    """coverage="auto" says what it did."""
    x = rng.normal(size=200_000)
    report = gl.check(lambda x: np.sin(x).sum(), x, grad=np.cos)
    assert report.coverage == "probe"
    assert report.verdict == gl.Verdict.AGREES
    assert report.table["coverage"].tolist() == ["probe"]


def test_a_step_that_misleads_is_told_as_in_a_full_check():
    """One wrong entry of forty, and a step too long for all the others."""
    x = np.linspace(0.5, 2.0, 40)

    def grad(x):
        slope = np.cos(x)
        slope[7] *= 2
        return slope

    def told(coverage):
        step = gl.Central(step=0.3)
        report = gl.check(
            lambda x: np.sin(x).sum(), x, grad=grad, coverage=coverage, method=step
        )
        assert report.culprits == ("x",)
        assert any("differences at this step" in remark for remark in report.remarks)
        return {finding.kind for finding in report.findings}

    assert "step_size" in told("probe")
    assert told("probe") == told("full")


def test_what_was_raised_beside_the_point_is_told():
    """f = sum(sqrt x), which raises below zero; one coordinate is next to it."""

    def f(x):
        if (x < 0).any():
            raise ValueError("below zero")
        return np.sqrt(x).sum()

    x = np.full(40, 0.5)
    x[3] = 1e-6
    report = gl.check(f, x, grad=lambda x: 0.5 / np.sqrt(x), coverage="probe")

    assert report.verdict != gl.Verdict.DISAGREES
    assert any("below zero" in finding.evidence for finding in report.findings)


def test_one_step_for_all_is_no_ground_for_an_accusation():
    """Entries from 1e-10 to 1e10 need steps of their own, and get them when accused."""
    scales = 10.0 ** np.arange(-10, 11, 4)
    x = scales * np.array([0.3, -1.2, 0.8, 1.7, -0.4, 0.6])

    def f(x):
        return np.sin(x / scales) * scales[::-1]

    def jac(factor):
        return lambda x: factor * np.diag(np.cos(x / scales) * scales[::-1] / scales)

    right = gl.check(f, x, jac=jac(1.0), coverage="probe")
    assert right.verdict == gl.Verdict.AGREES
    assert not right.culprits

    wrong = gl.check(f, x, jac=jac(1.05), coverage="probe")
    assert wrong.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("size", [5, 200])
def test_a_kink_nearer_than_the_step_accuses_nobody(size):
    """f = relu(x), one entry 1e-9 from the kink; the direction steps across."""
    x = np.linspace(-3.0, 3.0, size)
    x[1] = 1e-9

    def checked(factor):
        def grad(x):
            slope = (x > 0).astype(float)
            slope[-1] *= factor
            return slope

        return gl.check(
            lambda x: np.maximum(x, 0).sum(), x, grad=grad, coverage="probe"
        )

    assert checked(1.0).verdict != gl.Verdict.DISAGREES
    assert checked(1.2).verdict == gl.Verdict.DISAGREES


def test_what_directions_leave_open_is_decided_entry_by_entry():
    """f = log(x): next to 0 no common step is left, but each entry has its own."""
    x = np.array([1e-12, 1e-6, 1.0, 1e6])

    def verdict(factor):
        jac = lambda x: np.diag(factor / x)
        return gl.check(np.log, x, jac=jac, coverage="probe").verdict

    assert verdict(1.0) == gl.Verdict.AGREES
    assert verdict(1.05) == gl.Verdict.DISAGREES


def test_a_search_that_comes_back_to_the_same_entry_ends(monkeypatch):
    """1 / x from 1e-9 to 1e8: one corrected entry seems to explain all that is left."""
    from gradlab.localisation.searching import group_testing

    calls = iter(range(10_000))
    decode = group_testing.decode
    monkeypatch.setattr(
        group_testing, "decode", lambda *at: (next(calls), decode(*at))[1]
    )
    x = np.array([1e-9, -1e-4, 1.0, 1e8])

    report = gl.check(
        lambda x: 1 / x, x, jac=lambda x: np.diag(-1.05 / x**2), coverage="probe"
    )

    assert report.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("seed", range(3))
def test_zero_is_no_gradient_where_f_hardly_resolves_one(seed):
    """A direction next to the edge of arccos has a bar as wide as its slope."""
    rng = np.random.default_rng(seed)
    x, w = 1 - 1e-7 * rng.random(6) - 1e-9, rng.normal(size=6)

    def f(x, w):
        return np.arccos(x) @ w

    def grad(x, w):
        return 0 * x, np.arccos(x)

    report = gl.check(f, x, w, grad=grad, coverage="probe")
    found = gl.locate(f, x, w, grad=grad)

    assert report.verdict == gl.Verdict.DISAGREES
    assert not (found.ok and found.complete)


@pytest.mark.parametrize("seed", range(3))
def test_no_factor_is_told_that_single_entries_do_not_bear_out(seed):
    """Along a direction all entries leave the neighbourhood of their poles."""
    rng = np.random.default_rng(seed)
    x, a = 1 + 1e-6 * rng.normal(size=5), rng.normal(size=5)

    def f(x, a):
        return (a / (x - 1)).sum()

    found = gl.locate(f, x, a, grad=lambda x, a: (-a / (x - 1) ** 2, 1 / (x - 1)))

    assert found.ok


@pytest.mark.parametrize("factor", [1.0, 1.05])
def test_standing_still_behind_a_cast_accuses_nobody(factor):
    """In bfloat16 f does not move over small steps: without the cast it does.

    Both sides are compared so, where a right network agrees and its twin, whose tanh
    has a slope 5 % too large, does not.
    """
    torch = pytest.importorskip("torch")
    from tests.specimens.functions import with_output

    torch.manual_seed(11)

    tanh = with_output(torch.tanh, lambda y, up: factor * up * (1 - y**2))

    class Rounded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(4, 8)
            self.last = torch.nn.Linear(8, 2)

        def forward(self, x):
            weight, bias = self.first.weight.bfloat16(), self.first.bias.bfloat16()
            hidden = torch.nn.functional.linear(x.bfloat16(), weight, bias)
            return self.last(tanh(hidden).to(x.dtype))

    x = torch.randn(3, 4, dtype=torch.float64)
    report = gl.check(Rounded().double(), x, coverage="probe")

    right = factor == 1
    assert report.verdict == (gl.Verdict.AGREES if right else gl.Verdict.DISAGREES)
    assert bool(report.culprits) is not right
    assert any(
        f.kind == "low_precision" and "casts" in f.evidence for f in report.findings
    )


def _rendered(factor=1.0):
    """Light through a fog of six cells, whose forward adds 1e-10 that backward lacks.

    As renderers do it against a logarithm of zero. `factor` multiplies the slope in
    the density of one cell.
    """
    rng = np.random.default_rng(3)
    thickness, light = 3 * rng.random(6), rng.random((6, 3))

    def weights(s, extra):
        passed = 1 - (1 - np.exp(-0.2 * s)) + extra
        through = np.cumprod(np.concatenate([[1.0], passed]))
        return (1 - np.exp(-0.2 * s)) * through[:-1], through

    def fn(s, c):
        return weights(s, 1e-10)[0] @ c

    def jac(s, c):
        share, through = weights(s, 0.0)
        moved = np.zeros((3, 6))
        for i in range(6):
            moved[:, i] = 0.2 * (through[i + 1] * c[i] - share[i + 1 :] @ c[i + 1 :])
        moved[:, 2] *= factor
        return moved, np.einsum("i,jk->jik", share, np.eye(3)).reshape(3, 18)

    return fn, jac, thickness, light


def test_what_is_forgiven_along_directions_agrees():
    """A small constant in forward alone, far below the tolerance, is told as agreeing.

    Directions see 1e-10 beyond their bars, and nothing that an entry would be accused
    of: it was forgiven, and then the verdict was thrown away with its measurement.
    """
    fn, jac, *point = _rendered()
    report = gl.check(fn, *point, jac=jac, coverage="probe")
    assert report.verdict == gl.Verdict.AGREES
    assert all(0 < power < 1e-4 for power in report.power.values())
    assert all(c.error.size and c.error.max() < 1e-8 for c in report.comparisons)


def test_what_was_forgiven_hides_no_thousandth():
    """Beside such a constant one column that is wrong by a thousandth is accused."""
    fn, jac, *point = _rendered(1.001)
    report = gl.check(fn, *point, jac=jac, coverage="probe")
    assert report.culprits == ("s",)
    assert report["c"].verdict == gl.Verdict.AGREES


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_few_entries_are_looked_at_one_by_one_as_well(factor):
    """A slope of 1.4 beside one of 1e6 is invisible to directions: it passed at 1 %."""

    def slope(x):
        exact = np.diag(1 / x)
        exact[-1, -1] *= factor
        return exact

    x = np.array([1e-6, -2e-6, 0.7])
    report = gl.check(lambda x: np.log(np.abs(x)), x, jac=slope, coverage="probe")
    assert report.verdict == (
        gl.Verdict.AGREES if factor == 1 else gl.Verdict.DISAGREES
    )
    if factor != 1:
        assert report["x"].worst(1).input_index[0] == (2,)


def test_kinks_at_the_point_do_not_add_up_along_directions(rng):
    """Zeros into a relu: each entry has a sub-gradient, and no direction shows one."""
    x, w = rng.normal(size=(6, 5)), rng.normal(size=(5, 6))
    x[::2] = 0

    def forward(x, w):
        return np.maximum(x @ w, 0).sum(axis=1), (x, w)

    def backward(out, cache):
        x, w = cache
        hidden = out[:, None] * (x @ w > 0)
        return hidden @ w.T, x.T @ hidden

    report = gl.check(forward, x, w, backward=backward, coverage="probe")

    assert report.verdict != gl.Verdict.DISAGREES
    assert report.ok


@pytest.mark.parametrize("seed", range(3))
def test_no_gradient_at_all_agrees_with_slopes_that_nobody_knows(seed):
    """Next to a singular matrix bars are half as wide as what f is seen to move by."""
    rng = np.random.default_rng(3)
    left, right = (np.linalg.qr(rng.normal(size=(5, 5)))[0] for _ in range(2))
    matrix = left @ np.diag(np.logspace(0, -9, 5)) @ right

    def f(a):
        return np.log(abs(np.linalg.det(a)))

    told = gl.check(f, matrix, grad=np.zeros_like, coverage="probe", seed=seed)
    assert told.verdict != gl.Verdict.AGREES


@pytest.mark.parametrize(("looked", "cleared"), [(18, False), (60, True)])
def test_entries_clear_what_directions_accuse_only_if_one_wrong_was_among_them(
    looked, cleared
):
    """A third by two of one to four that are left: a sixth, if it was one.

    Eighteen right ones are then met by chance in (5/6)^18 = 4 %, sixty hardly ever.
    """
    name = types.SimpleNamespace(name="w")
    right = types.SimpleNamespace(accepted=None, verdicts=np.zeros((1, looked)))
    located = types.SimpleNamespace(wrong_share={"w": 1 / 3})
    probes = mock.MagicMock(located=located)
    probes.__getitem__.return_value.numeric = np.ones(3)
    assert probing._contradicted(probes, name, [right]) is cleared
