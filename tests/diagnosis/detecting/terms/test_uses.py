"""Inputs that are used several times, and get the gradient of some of these alone."""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")


class Recurrent(torch.autograd.Function):
    """Three steps of one weight; the way back adds, or keeps one step."""

    @staticmethod
    def forward(ctx, x, weight, keeps):
        ctx.states, ctx.weight, ctx.keeps = [x], weight, keeps
        for _ in range(3):
            ctx.states.append(torch.tanh(ctx.states[-1] @ weight))
        return ctx.states[-1].clone()

    @staticmethod
    def backward(ctx, grad):
        total = None
        for k in (2, 1, 0):
            delta = grad * (1 - ctx.states[k + 1] ** 2)
            own = ctx.states[k].T @ delta
            first = total is None
            if first or ctx.keeps == "the last to come":
                total = own
            elif ctx.keeps == "all":
                total = total + own
            grad = delta @ ctx.weight.T
        return grad, total, None


class Gated(torch.autograd.Function):
    """Two products with W: of its two parts one may be forgotten."""

    @staticmethod
    def forward(ctx, x, weight, keeps):
        left = torch.tanh(x @ weight)
        right = torch.sigmoid(x.flip(0) @ weight)
        ctx.save_for_backward(x, weight, left, right)
        ctx.keeps = keeps
        return left * right

    @staticmethod
    def backward(ctx, grad):
        x, weight, left, right = ctx.saved_tensors
        one = grad * right * (1 - left**2)
        two = grad * left * right * (1 - right)
        by_weight = x.T @ one
        if ctx.keeps == "all":
            by_weight = by_weight + x.flip(0).T @ two
        return one @ weight.T + (two @ weight.T).flip(0), by_weight, None


@pytest.fixture(params=[torch.float64, torch.float32])
def drawn(request):
    torch.manual_seed(0)
    x = torch.randn(6, 4, dtype=request.param)
    return x, torch.randn(4, 4, dtype=request.param, requires_grad=True)


def loss(function, x, keeps):
    return lambda weight: (function.apply(x, weight, keeps) ** 2).sum()


@pytest.mark.parametrize("function", [Recurrent, Gated])
def test_all_parts_are_right(function, drawn):
    """Nothing is left out."""
    x, weight = drawn

    assert gl.check(loss(function, x, "all"), weight).verdict == gl.Verdict.AGREES


@pytest.mark.parametrize("which", ["first", "last"])
def test_a_loop_that_assigns_is_told_by_the_step_it_keeps(which, drawn):
    """Back-propagation through time comes to the last step first."""
    x, weight = drawn
    keeps = "the first to come" if which == "last" else "the last to come"

    report = gl.check(loss(Recurrent, x, keeps), weight)

    assert report.diagnosis == "lost_accumulation"
    assert "uses weight 3 times" in report.findings[0].evidence
    assert f"that of the {which} use alone" in report.findings[0].evidence


def test_a_part_that_is_forgotten_is_told_by_its_line(drawn):
    """Two lines use it: that of the gate is the one without a gradient."""
    x, weight = drawn

    report = gl.check(loss(Gated, x, "one"), weight)

    line = Gated.forward.__code__.co_firstlineno + 3
    assert report.diagnosis == "missing_term"
    assert f"matmul (test_uses.py:{line})" in report.findings[0].evidence


class Margin(torch.autograd.Function):
    """Two differences with one anchor on one line: no loop, and one of them is lost."""

    @staticmethod
    def forward(ctx, anchor, near, far):
        ctx.save_for_backward(anchor, near, far)
        return ((anchor - near) ** 2).sum(1) - ((anchor - far) ** 2).sum(1)

    @staticmethod
    def backward(ctx, grad):
        anchor, near, far = ctx.saved_tensors
        on = 2 * grad[:, None]
        return on * (anchor - near), -on * (anchor - near), on * (anchor - far)


def test_two_uses_on_one_line_are_no_loop():
    """A term is missing; nothing was to be added up step by step."""
    torch.manual_seed(0)
    points = [torch.randn(5, 3, dtype=torch.float64) for _ in range(3)]

    report = gl.check(Margin.apply, *points)

    assert (report.diagnosis, report.culprits) == ("missing_term", ("anchor",))
