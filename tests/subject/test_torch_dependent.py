"""Inputs that were computed from each other are told."""

from __future__ import annotations

import pytest

import gradlab as gl
from gradlab.subject.tensors.graph import dependent_inputs
from gradlab.subject.tree import Leaf

torch = pytest.importorskip("torch")


def named(**tensors):
    """Leaves by name."""
    return [Leaf(name, value) for name, value in tensors.items()]


def test_histories():
    """Only what really passes through the other tensor counts."""
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    y, z = 2 * x, (3 * x).detach().requires_grad_()
    a, b = x.unbind()
    assert dependent_inputs(named(x=x, y=y)) == ("y from x",)
    assert dependent_inputs(named(x=x, z=z)) == ()
    assert dependent_inputs(named(a=a, b=b)) == ()
    assert dependent_inputs(named(y=y, w=y.exp())) == ("w from y",)


def test_told_by_a_check():
    """Both are differentiated alone, correctly, and the dependence is a finding."""
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    report = gl.check(lambda x, y: (x * y).sum(), x, 2 * x)
    assert report.verdict == gl.Verdict.AGREES
    assert report.ok
    assert "dependent_inputs" in {str(finding.kind) for finding in report.findings}
