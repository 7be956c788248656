"""Values that a backward needs, overwritten: seen by autograd, or not."""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")


def by_data(x):
    """The product keeps y, which is doubled before the way back."""
    y = x.exp()
    out = (y * x).sum()
    y.data.mul_(2)
    return out


def under_no_grad(x):
    y = x.exp()
    out = (y * x).sum()
    with torch.no_grad():
        y.mul_(2)
    return out


def before_it_is_used(x):
    """The softmax keeps what it returns; what comes after gets another value."""
    weights = x.softmax(0)
    weights.data.mul_(1.5)
    return (weights * torch.arange(4.0)).sum()


def in_the_open(x):
    y = x.exp()
    out = (y * x).sum()
    y.mul_(2)
    return out


X = torch.tensor([0.3, -1.2, 0.8, 2.0], dtype=torch.float64)


@pytest.mark.parametrize("f", [by_data, before_it_is_used])
def test_a_write_that_autograd_does_not_see(f):
    """It is one factor, or a formula, by its numbers; torch itself knows better."""
    report = gl.check(f, X.clone().requires_grad_())

    assert report.diagnosis == "stale_cache"
    assert "to write where autograd does not see it" in report.findings[0].evidence


@pytest.mark.parametrize("f", [in_the_open, under_no_grad])
def test_a_write_that_autograd_sees(f):
    """It raises, and says what was overwritten; hints at debugging are left out."""
    report = gl.check(f, X.clone().requires_grad_())

    assert report.diagnosis == "stale_cache"
    assert "expected version 0 instead." in report.findings[0].evidence
    assert "Hint" not in report.findings[0].evidence
    assert " none " in str(report)


def test_a_write_that_no_backward_needs_is_no_mistake():
    """A sum keeps nothing of what it adds."""

    def f(x):
        y = x * 3.0
        out = y.sum()
        y.data.mul_(2)
        return out

    assert gl.check(f, X.clone().requires_grad_()).verdict == gl.Verdict.AGREES
