"""Gradients whose squares overflow or vanish have the causes of any others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradlab as gl
from gradlab.diagnosis import diagnose

SIZES = (1e-305, 1e-200, 1e-170, 1e153, 1e200, 1e300)
X = np.arange(1.0, 7.0)


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "STRICT", True)


def _checked(size: float, grad: Any, **options: Any) -> gl.Report:
    return gl.check(lambda x: size * (x**2).sum(), X, grad=grad, **options)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("slip", "kind"),
    [
        (lambda g: g / 2, gl.BugKind.SCALE),
        (lambda g: -g, gl.BugKind.SIGN),
        (lambda g: g[::-1].copy(), gl.BugKind.WRONG_INDEX),
        (lambda g: 0 * g, gl.BugKind.DETACHED),
    ],
)
def test_a_slip_has_one_name_at_any_size(size: float, slip: Any, kind: str) -> None:
    """Which slip was made is a matter of ratios and places, not of the size of f."""
    report = _checked(size, lambda x: slip(2 * size * x))
    assert [finding.kind for finding in report.findings] == [kind]


@pytest.mark.parametrize("size", SIZES)
def test_a_right_gradient_agrees_at_any_size(size: float) -> None:
    """And nothing is said of it."""
    report = _checked(size, lambda x: 2 * size * x)
    assert report.verdict is gl.Verdict.AGREES
    assert not report.findings


def test_numbers_in_a_sentence_have_their_unit() -> None:
    """The largest derivative of 1e200 x**2 at 6 is 1.2e201."""
    told = _checked(1e200, lambda x: 0 * x).findings[0].evidence
    assert "(largest derivative 1.2)" in told
    assert "units of 1e+201" in told


def test_a_gradient_that_is_nothing_beside_the_right_one_is_not_called_zero() -> None:
    """That of x**2 for one of 1e300 x**2 is 12 at most."""
    told = _checked(1e300, lambda x: 2 * x).findings[0].evidence
    assert "zero" not in told
    assert "at most 1e-300" in told


def test_parameters_in_place_are_asked_elsewhere_in_the_same_units() -> None:
    """Gradients that come with the loss are asked for at other points as well."""
    net = {"w": X.copy()}

    def loss() -> tuple[float, dict[str, Any]]:
        w = net["w"]
        return 1e200 * float(np.exp(w).sum()), {"w": 2e200 * np.exp(w)}

    report = gl.check(loss, params=net)
    assert report.diagnosis == gl.BugKind.SCALE


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e300])
def test_what_numpy_is_asked_to_raise_stops_no_check(size: float) -> None:
    """``np.seterr(all="raise")`` is the user's, for the user's arithmetic."""
    with np.errstate(all="raise"):
        report = _checked(size, lambda x: size * x)
        assert np.geterr()["over"] == "raise"
    assert report.diagnosis == gl.BugKind.SCALE


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_programs_of_torch_have_units_too(size: float) -> None:
    """Their outputs are counted in them, however many are evaluated at once."""
    torch = pytest.importorskip("torch")

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return size * x**2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            (x,) = ctx.saved_tensors
            return size * x * gradient

    x = torch.arange(1.0, 7.0, dtype=torch.float64)
    assert gl.check(Square.apply, x).diagnosis == gl.BugKind.SCALE
    cut = gl.check(lambda x: size * (x * x.detach()).sum(), x)
    assert cut.diagnosis == gl.BugKind.DETACHED
    assert "detach" in cut.findings[0].evidence


@pytest.mark.parametrize("size", [1.0, 1e200])
def test_gradients_that_are_let_go_one_by_one_have_units_too(size: float) -> None:
    """Inputs beyond 16 MiB: the slope of w is 2 w, and w without the graph."""
    torch = pytest.importorskip("torch")
    w = torch.arange(1.0, 7.0, dtype=torch.float64, requires_grad=True)
    x = torch.zeros(2_200_000, dtype=torch.float64, requires_grad=True)
    report = gl.check(lambda w, x: size * ((w * w.detach()).sum() + x.mean()), w, x)
    assert report.diagnosis == gl.BugKind.DETACHED
    assert "detach" in report.findings[0].evidence


CUMSUM = np.tril(np.ones((9, 9)))


@pytest.mark.parametrize(
    ("factor", "kind"), [(1e-200, gl.BugKind.DETACHED), (1e200, gl.BugKind.SCALE)]
)
def test_one_side_may_be_nothing_beside_the_other(factor: float, kind: str) -> None:
    """Squares of the smaller one vanish in the units of the larger."""
    x = np.random.default_rng(5).normal(size=(3, 3))
    report = gl.check(np.cumsum, x, jac=lambda _: factor * CUMSUM)
    assert report.diagnosis == kind


def test_what_is_nothing_beside_the_other_side_is_not_called_zero() -> None:
    """The numeric gradient of a sum is 1, whatever the analytic one is."""
    x = np.random.default_rng(5).normal(size=(3, 3))
    odd = 1e200 * np.arange(1, 10) ** 2
    report = gl.check(np.cumsum, x, jac=lambda _: odd * CUMSUM)
    assert "The numeric gradient is nothing beside" in report.findings[0].evidence
