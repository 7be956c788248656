"""Conditions that the matrices do not show: modes, memory, None, lost outputs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import gradlab as gl  # noqa: E402


# x * x with a backward that a test makes odd.
def square_backward(x, way, g):
    if way == "view":
        g = g.view(-1).view(x.shape)
    if way == "memory":
        g = torch.as_strided(g, x.shape, x.stride())
    if way == "in place":
        return (g.mul_(2 * x), None)
    return (2 * x * g, None)


square = with_backward(lambda x, way: x * x, square_backward)


class Pair(torch.autograd.Function):
    """(x * x, 3 * x), with a backward that may forget that None can come."""

    @staticmethod
    def forward(ctx, x, way):
        """Promise to handle None."""
        ctx.save_for_backward(x)
        ctx.way = way
        ctx.set_materialize_grads(False)
        return x * x, 3 * x

    @staticmethod
    def backward(ctx, one, two):
        """Add both parts."""
        (x,) = ctx.saved_tensors
        if ctx.way == "raises":
            return 2 * x * one + 3 * two, None
        if ctx.way == "gives up" and (one is None or two is None):
            return None, None
        total = torch.zeros_like(x)
        if one is not None:
            total = total + 2 * x * one
        if two is not None:
            total = total + 3 * two
        return total, None


@pytest.fixture
def x():
    """A small matrix."""
    torch.manual_seed(0)
    return torch.randn(3, 4, dtype=torch.float64, requires_grad=True)


def _errors(report):
    return [(f.kind, f.where) for f in report.findings if f.severity == "error"]


@pytest.mark.parametrize("way", ["view", "memory"])
def test_backward_that_looks_at_memory(x, way):
    """Right for contiguous gradients; wrong for what .sum() and .T send."""
    report = gl.check(lambda x: square(x, way), x)

    assert report["x"].verdict == gl.Verdict.AGREES
    assert report.verdict == gl.Verdict.DISAGREES
    assert _errors(report)[0] == ("aliasing", "x")
    assert report.culprits == ("x",)


def test_right_backward_is_not_accused(x):
    """One that indexes entries is right however they lie."""
    report = gl.check(lambda x: square(x, "right"), x)

    assert report.ok
    assert report.findings == ()


# x * x, whose backward computes in single precision, in an order of its own.
def single_backward(x, g):
    slope = 2 * x.float()
    if g.is_contiguous():
        return (slope * g.float()).double()
    return (slope * (g.float() / 3) * 3).double()


single = with_backward(lambda x: x * x, single_backward)


def test_single_precision_inside_a_backward_is_no_matter_of_memory(x):
    """Kernels of torch sum in another order where entries lie apart: 1e-7 of it."""
    report = gl.check(single, x)

    assert not any(f.kind == gl.BugKind.ALIASING for f in report.findings)


def test_backward_that_writes_to_an_expanded_gradient(x):
    """Writing to the gradient fails where one number stands for all entries."""
    report = gl.check(lambda x: square(x, "in place"), x)

    assert _errors(report)[0] == ("aliasing", "x")


@pytest.mark.parametrize(
    ("way", "kind"), [("raises", "unknown"), ("gives up", "missing_term")]
)
def test_undefined_gradient_of_another_output(x, way, kind):
    """With a loss of one output only, the other's gradient is None."""
    report = gl.check(lambda x: Pair.apply(x, way), x)

    assert not report.ok
    assert (kind, "x") in _errors(report)


def test_undefined_gradients_that_are_handled(x):
    """A backward that asks for None is right."""
    report = gl.check(lambda x: Pair.apply(x, "right"), x)

    assert report.ok


def test_layers_left_in_training_mode():
    """A batch norm and a dropout still training in a module in eval mode are named."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).double()
    x = torch.randn(6, 3, dtype=torch.float64)
    model.eval()
    quiet = gl.check(model, x)
    model[1].train()
    model[2].train()
    report = gl.check(model, x)

    assert quiet.findings == ()
    warned = {(f.kind, f.where) for f in report.findings if f.severity == "warning"}
    assert warned == {("stateful", "1"), ("nondeterministic", "2")}
    assert report.ok


def test_batch_norm_in_training_is_a_note():
    """Where all of it trains, that is meant, and worth a note."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double()
    report = gl.check(model, torch.randn(6, 3, dtype=torch.float64))

    assert report.ok
    assert ("stateful", "note", "1") in {
        (f.kind, f.severity, f.where) for f in report.findings
    }


def test_detached_output_that_moves_is_told(x):
    """Beside an output with a gradient, one without it is a warning if it moves."""
    report = gl.check(lambda x: (x.sin(), {"norm": x.detach().pow(2).sum()}), x)

    (finding,) = report.findings
    assert (finding.kind, finding.severity) == ("detached", "warning")
    assert finding.where == "out.1.norm"
    assert report.ok


def test_constant_output_is_not_told(x):
    """An output that does not move with the inputs lacks nothing."""
    report = gl.check(lambda x: (x.sin(), torch.ones(2, dtype=torch.float64)), x)

    assert report.findings == ()


@pytest.mark.parametrize(
    ("f", "at"),
    [
        (lambda x: (x**2).sum(), [0.0, 0.0]),
        (lambda x: (x**4).sum(), [0.0, 0.0]),
        (lambda x: torch.cos(x).sum(), [0.0, 0.0]),
        (lambda x: x.prod(), [0.0, 0.0, 3.0]),
    ],
    ids=["squares", "fourth powers", "cosine", "product"],
)
def test_a_stationary_point_is_no_flat_one(f, at):
    """All slopes are zero, and f is smooth: nothing is said of kinks or casts."""
    report = gl.check(f, torch.tensor(at, dtype=torch.float64))
    assert report.verdict == gl.Verdict.AGREES
    assert not report.findings


@pytest.mark.parametrize(
    "f",
    [
        lambda x: torch.relu(x - 0.003).sum(),
        lambda x: (100 * x).round().pow(2).sum(),
        lambda x: (
            (x - x.detach() + (x.detach() * 256).trunc() / 256).sum().detach()
            + 0 * x.sum()
        ),
    ],
    ids=["dead units", "rounding", "a cast and a cut"],
)
def test_a_flat_point_is_still_told_of(f):
    """Units that are dead, or stairs, whatever power they follow from further off."""
    report = gl.check(f, torch.tensor([0.0, 0.0], dtype=torch.float64))
    assert [f.kind for f in report.findings] == [gl.BugKind.NONDIFFERENTIABLE]


def test_a_flat_point_of_numpy_is_told_of():
    """A cast to half precision is stairs; its gradient may as well have been cut."""
    report = gl.check(
        lambda x: np.tanh(x).astype(np.float16).astype(float).sum(),
        np.array([0.3, -1.2]),
        grad=np.zeros_like,
    )
    assert [str(f.kind) for f in report.findings] == ["nondifferentiable"]
    assert "Every slope of f by x is zero here" in report.findings[0].evidence


@pytest.mark.parametrize("norm", [np.linalg.norm, lambda x: np.abs(x).sum()])
def test_a_kink_is_no_flat_point(norm):
    """Between two slopes zero is one of many: that it is a kink is all there is."""
    report = gl.check(norm, np.zeros(3), grad=np.zeros_like)
    assert [f.severity for f in report.findings] == ["note"]

    report = gl.check(torch.linalg.vector_norm, torch.zeros(3, dtype=torch.float64))
    assert not any("Every slope" in f.evidence for f in report.findings)


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_added_and_taken_away_is_no_flat_point(seed, dtype):
    """A critic's bias, in the mean of one batch less that of another: w.(x - y)."""
    torch.manual_seed(seed)
    net = torch.nn.Linear(3, 1)
    one, two = torch.randn(2, 6, 3)

    class Critic(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, one, two):
            apart = self.net(one).mean() - self.net(two).mean()
            return apart + (self.net.weight**2).sum()

    report = gl.check(Critic().to(dtype), one.to(dtype), two.to(dtype))
    assert report.verdict == gl.Verdict.AGREES
    assert all(finding.severity == "note" for finding in report.findings)


def test_what_was_not_looked_at_is_not_called_flat():
    """Rows of a table that no index names are idle, and were all that was looked at."""
    rows = [700, 1900]

    def loss_and_grads(params):
        table, bias = params["table"], params["bias"]
        grads = {"table": np.zeros_like(table), "bias": 2 * bias}
        grads["table"][rows] = np.cos(table[rows])
        return np.sin(table[rows]).sum() + (bias**2).sum(), grads

    table = np.linspace(-1, 1, 8000).reshape(2000, 4)
    params = {"bias": np.linspace(0.1, 1, 40), "table": table}
    report = gl.check(loss_and_grads, params, coverage="sample")

    assert not any("Every slope" in finding.evidence for finding in report.findings)
