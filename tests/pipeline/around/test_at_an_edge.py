"""At the edge of where f is defined a gradient is a convention, and right inside."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

COVERAGES = ("full", "sample", "probe")
P = np.array([0.3, 1.0, 0.7, 0.0, 0.4])
LABELS = np.array([1.0, 1.0, 0.0, 0.0, 0.0])


def entropy(p):
    """Not a number beyond zero and one."""
    with np.errstate(all="ignore"):
        terms = np.where(LABELS == 1, np.log(p), np.log(1 - p))
        terms = np.where((p < 0) | (p > 1), np.nan, terms)
    return float(-terms.mean())


def slope(p, inside=1.0, edge=0.0):
    """By its formula, times a factor inside and another one at the edge."""
    with np.errstate(all="ignore"):
        right = -np.where(LABELS == 1, 1 / p, -1 / (1 - p)) / len(p)
    return right * np.where((p == 0) | (p == 1), edge, inside)


def test_the_formula_is_right_where_it_is_kept():
    """What the tests below vary agrees as it is."""
    assert gl.check(entropy, P, grad=lambda p: slope(p, edge=1.0)).ok


@pytest.mark.parametrize("edge", [0.0, 1e12])
@pytest.mark.parametrize("coverage", COVERAGES)
def test_another_gradient_at_the_edge_alone_is_undecided(coverage, edge):
    """Zero, as of a clamp, or huge; it was told as wrong."""
    report = gl.check(entropy, P, grad=lambda p: slope(p, edge=edge), coverage=coverage)

    assert report.verdict == gl.Verdict.UNDECIDED
    found = [f for f in report.findings if f.kind == gl.BugKind.NONDIFFERENTIABLE]
    assert len(found) == 1
    assert "p[1]" in found[0].evidence
    assert "2 of 5" in found[0].evidence


@pytest.mark.parametrize("inside", [1.1, -1.0, 0.5])
@pytest.mark.parametrize("coverage", COVERAGES)
def test_a_formula_that_is_wrong_inside_is_told(coverage, inside):
    """And is no matter of the edge."""
    report = gl.check(
        entropy, P, grad=lambda p: slope(p, inside=inside), coverage=coverage
    )

    assert report.verdict == gl.Verdict.DISAGREES


def test_entries_at_the_edge_excuse_no_other():
    """One wrong entry elsewhere is accused beside them."""

    def wrong(p):
        gradient = slope(p)
        gradient[4] *= 1.3
        return gradient

    report = gl.check(entropy, P, grad=wrong)

    verdicts = report["p"].verdicts[0].tolist()
    open_, told = gl.Verdict.UNDECIDED, gl.Verdict.DISAGREES
    assert [verdicts[1], verdicts[3], verdicts[4]] == [open_, open_, told]


def test_a_slip_of_the_edge_that_reaches_inside_is_told():
    """A mask that is off by more than a millionth is a mask, and wrong."""

    def masked(p):
        return np.where(p > 0.99, 0.0, slope(p, edge=1.0))

    assert gl.check(entropy, P, grad=masked).verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("factor", [1.0, 1.1, -1.0])
def test_cross_entropy_of_torch_for_what_is_certain(dtype, factor):
    """Its gradient is zero there, by the clamp of its logarithm."""
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)

    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx, p):
            return p.clone()

        @staticmethod
        def backward(ctx, g):
            return factor * g

    p = torch.tensor(P, dtype=kind, requires_grad=True)
    labels = torch.tensor(LABELS, dtype=kind)
    loss = torch.nn.functional.binary_cross_entropy
    report = gl.check(lambda p: loss(Times.apply(p), labels), p)

    right = factor == 1
    told = gl.Verdict.UNDECIDED if right else gl.Verdict.DISAGREES
    assert report.verdict == told


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("coverage", COVERAGES)
def test_cross_entropy_of_torch_by_every_way_of_adding_up(coverage, reduction):
    """One output or one for each probability: the edge is as open."""
    torch = pytest.importorskip("torch")
    labels = torch.tensor(LABELS)
    loss = torch.nn.BCELoss(reduction=reduction)
    p = torch.tensor(P, requires_grad=True)

    report = gl.check(lambda p: loss(p, labels), p, coverage=coverage)

    assert report.verdict == gl.Verdict.UNDECIDED
    assert gl.BugKind.NONDIFFERENTIABLE in {f.kind for f in report.findings}


def test_as_many_outputs_stand_at_an_edge_as_there_are():
    """270 of 300; more than 256 were told as wrong."""
    torch = pytest.importorskip("torch")
    p = torch.ones(300, dtype=torch.float64)
    p[::10] = torch.linspace(0.1, 0.9, 30, dtype=torch.float64)
    p.requires_grad_()
    labels = torch.ones(300, dtype=torch.float64)
    loss = torch.nn.functional.binary_cross_entropy

    report = gl.check(lambda p: loss(p, labels, reduction="none"), p)

    assert report.verdict == gl.Verdict.UNDECIDED
    assert gl.BugKind.NONDIFFERENTIABLE in {f.kind for f in report.findings}
