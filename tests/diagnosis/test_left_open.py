"""Whatever is undecided says why, with a measurement, and what to do."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import gradlab as gl
from gradlab.diagnosis.left_open import left_open

W = np.linspace(-4.0, 4.0, 12).reshape(4, 3).astype("f4")
X = np.cos(np.arange(200.0)).reshape(50, 4).astype("f4")


def loss(params):
    """Mean of exp, by products in half precision; and its gradient."""
    e = np.exp((X.astype("f2") @ params["W"].astype("f2")).astype("f4"))
    return float(e.mean()), {"W": X.T @ e / e.size}


@pytest.fixture(scope="module")
def hidden():
    """Report of which rounding hides some entries."""
    params = {"W": W.copy()}
    report = gl.check(lambda: loss(params), params=params)
    assert report.verdict == gl.Verdict.UNDECIDED
    return report


def test_undecided_tells_the_measurement(hidden):
    """A warning, with an open entry, both sides and the bar, and how to go on."""
    (warning,) = (f for f in hidden.findings if f.severity == "warning")
    count = hidden["W"].counts[gl.Verdict.UNDECIDED]
    assert warning.kind == "low_precision"
    assert f"{count} of 12 entries of W, such as W[" in warning.evidence
    assert "±" in warning.evidence
    assert "rounds inside f" in warning.advice
    assert "kinks" in warning.advice


def test_undecided_under_autocast_tells_what_to_type():
    """Gradients returned with a loss: module and data in float64, and no autocast."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net, x = torch.nn.Linear(4, 1), torch.randn(5, 4)
    names = [name for name, _ in net.named_parameters()]

    def loss_and_grads():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = net(x).float().square().mean()
        found = torch.autograd.grad(loss, list(net.parameters()))
        return loss.item(), dict(zip(names, found, strict=True))

    report = gl.check(loss_and_grads, params=net)
    (warning,) = (f for f in report.findings if f.severity == "warning")
    assert report.verdict == gl.Verdict.UNDECIDED
    assert "too coarse to tell" in warning.evidence
    assert "torch.autocast" in warning.advice
    assert "model.double()" in warning.advice


def test_slopes_entry_by_entry_are_a_diagonal():
    """Who returns them as a Jacobian reads how to make one of them."""
    report = gl.check(np.sin, np.ones(3), jac=np.cos)
    assert report.diagnosis == "wrong_shape"
    assert "np.diag" in report.findings[0].advice


def test_none_for_an_array_is_no_matter_of_detach():
    """What NumPy does not have is not looked for."""
    report = gl.check(np.sum, np.ones(3), grad=lambda x: None)
    assert report.diagnosis == "detached"
    assert "detach" not in report.findings[0].advice
    assert "return" in report.findings[0].advice


def test_what_no_finding_speaks_of_gets_one(hidden):
    """One for each undecided input, and none for what is told already."""
    (found,) = left_open(hidden.comparisons, [])
    assert (found.where, found.severity) == ("W", "warning")
    assert "too coarse to tell" in found.evidence
    assert list(left_open(hidden.comparisons, [found])) == []
    assert list(left_open(hidden.comparisons, hidden.findings)) == []


def test_what_agrees_needs_no_reason():
    """A right gradient in float64."""
    report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: 2 * x)
    assert list(left_open(report.comparisons, [])) == []


def test_line_for_a_function_that_rounds():
    """It names the input, and runs."""
    buffer = np.zeros(3, "f4")

    def f(x):
        np.multiply(x, x, out=buffer, casting="same_kind")
        return buffer.sum()

    x = np.ones(3, "f4")
    report = gl.check(f, x, grad=lambda x: 2 * x)
    assert "gl.check(f, x.astype(float), ...)" in report.findings[0].advice
    assert gl.check(f, x.astype(float), grad=lambda x: 2 * x).ok


@pytest.mark.parametrize(
    ("f", "at"),
    [(lambda x: np.sqrt(x).sum(), 0.0), (lambda x: np.arcsin(x).sum(), 1.0)],
)
def test_an_infinite_slope_is_no_lack_of_digits(f, at):
    """That of sqrt at 0 and of arcsin at 1; a large number stands for it."""
    slope = lambda x: np.where(x == at, 1e4, 0.5 / np.sqrt(x))
    if at:
        slope = lambda x: np.where(x == at, 1e4, 1 / np.sqrt(np.maximum(1 - x**2, 0.1)))
    report = gl.check(f, np.array([at, 0.5]), grad=slope)
    assert report.verdict is gl.Verdict.UNDECIDED
    (found,) = report.findings
    assert (found.kind, found.where) == (gl.BugKind.NONDIFFERENTIABLE, "x")
    assert "no finite slope at x[0]" in found.evidence
    assert "1e+04" in found.evidence


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (gl.Forward(step=1e-14), "step_size"),
        (gl.Central(step=2e-15), "step_size"),
        (gl.Forward(), None),
    ],
)
def test_a_step_that_is_far_too_short_is_told_as_that(method, kind):
    """A sine does not round: 1e-14 leaves two digits of its difference quotients."""
    x = np.array([0.5, -1.2, 2.0, 0.3])

    report = gl.check(lambda x: np.sin(x).sum(), x, grad=np.cos, method=method)

    assert [f.kind for f in report.findings] == ([] if kind is None else [kind])
    if kind:
        assert f"step asked for, {method.step:g}" in report.findings[0].evidence


def test_directions_that_tell_two_sides_apart_are_not_called_coarse():
    """They are off by a thousand bars; what is open is that no entry shows it."""
    report = gl.check(
        lambda w: float(w.sum()), np.ones(60), grad=np.ones_like, coverage="probe"
    )
    told = report.comparisons[0]
    numeric = told.analytic + 2.0
    open_ = dataclasses.replace(
        told,
        numeric=numeric,
        numeric_error=np.full_like(numeric, 1e-3),
        verdicts=np.full(numeric.shape, gl.Verdict.UNDECIDED, dtype=np.int8),
    )
    (finding,) = left_open([open_], [])
    assert finding.kind == "unknown"
    assert "coarse" not in finding.evidence
    assert "no single entry has borne that out" in finding.evidence
    near = dataclasses.replace(open_, numeric=told.analytic + 2e-3)
    assert next(left_open([near], [])).kind == "low_precision"


def test_a_surrogate_is_no_lack_of_digits():
    """A gamma draw in float32, compared in float64: apart, by bars of 1e-11."""
    torch = pytest.importorskip("torch")

    def draw(a):
        torch.manual_seed(0)
        return torch.distributions.Gamma(a, 1.0).rsample()

    report = gl.check(draw, torch.tensor([0.7, 1.5, 3.0]))
    assert report.verdict == gl.Verdict.UNDECIDED
    kinds = [f.kind for f in report.findings]
    assert "surrogate" in kinds
    assert "low_precision" in kinds
    assert not any("too coarse" in f.evidence for f in report.findings)


def test_bars_over_both_sides_of_a_kink_are_no_lack_of_digits():
    """A grid that lies on the pixels, in float32: kinks wherever it samples."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    image = torch.randn(1, 2, 4, 5)
    theta = torch.eye(2, 3).unsqueeze(0)

    def warped(theta):
        grid = functional.affine_grid(theta, [1, 2, 4, 5], align_corners=False)
        return functional.grid_sample(image, grid, align_corners=False)

    report = gl.check(warped, theta)
    assert report.verdict == gl.Verdict.UNDECIDED
    said = " ".join(finding.evidence for finding in report.findings)
    assert "has a kink" in said
    assert "too coarse" not in said
