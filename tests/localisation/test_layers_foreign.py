"""Calls that are handed history inside objects, or what a run before has left."""

from __future__ import annotations

import pytest

import gradlab as gl
from gradlab.localisation.layers.audited import LayerState
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")

nn = torch.nn
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def sines(slip=1.0):
    """A Function with a factor too many in its backward."""
    return with_backward(torch.sin, lambda x, up: up * torch.cos(x) * slip)


class Policy(nn.Module):
    """What a policy of reinforcement learning returns is no tensor."""

    def __init__(self):
        super().__init__()
        self.mean, self.log_scale = nn.Linear(3, 2), nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return torch.distributions.Normal(self.mean(x), self.log_scale.exp())


class Draw(nn.Module):
    def __init__(self, slip=1.0):
        super().__init__()
        self.weight, self.sine = nn.Parameter(torch.tensor(1.5)), sines(slip)

    def forward(self, drawn_from):
        return self.weight * self.sine(drawn_from.rsample())


class Density(nn.Module):
    def forward(self, drawn_from):
        return drawn_from.log_prob(torch.tensor(0.3)).sum(-1)


class Agent(nn.Module):
    def __init__(self, slip=1.0):
        super().__init__()
        self.policy, self.draw, self.density = Policy(), Draw(slip), Density()

    def forward(self, x):
        told = self.policy(x)
        return self.draw(told).sum() + self.density(told).sum()


class State:
    def __init__(self, h):
        self.h = h


class Cell(nn.Module):
    def __init__(self, slip=1.0):
        super().__init__()
        self.inner, self.weight = nn.Linear(3, 4), nn.Parameter(torch.eye(4) / 2)
        self.sine = sines(slip)

    def forward(self, x, state):
        h = self.sine(self.inner(x) + state.h @ self.weight)
        return h, State(h)


class Recurrent(nn.Module):
    """The state travels in a class of its own, with the history of calls before."""

    def __init__(self, slip=1.0):
        super().__init__()
        self.cell = Cell(slip)

    def forward(self, x):
        state = State(torch.zeros(x.shape[0], 4, dtype=x.dtype))
        for step in x.unbind(1):
            h, state = self.cell(step, state)
        return h


def point(dtype, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5)).to(dtype)


@DTYPES
@pytest.mark.parametrize(("model", "shape"), [(Agent, (4, 3)), (Recurrent, (2, 3, 3))])
def test_history_inside_an_object_accuses_nobody(model, shape, dtype):
    """It stays as it is when the call runs again: no gradient is asked of it."""
    torch.manual_seed(0)
    audit = gl.blame(model().to(dtype), point(dtype, *shape))

    assert audit.culprits == ()
    assert audit.verdict == gl.Verdict.AGREES
    assert {row.state for row in audit.rows if row.name != "density"} == {
        LayerState.RIGHT
    }


@DTYPES
@pytest.mark.parametrize(
    ("model", "shape", "culprit"),
    [(Agent, (4, 3), "draw"), (Recurrent, (2, 3, 3), "cell")],
)
def test_what_is_wrong_behind_an_object_is_told(model, shape, culprit, dtype):
    torch.manual_seed(0)
    audit = gl.blame(model(1.1).to(dtype), point(dtype, *shape))

    assert audit.culprits == (culprit,)


class Kernel(nn.Module):
    """A symmetric matrix, made once and kept, as a Gaussian process keeps its own."""

    def __init__(self):
        super().__init__()
        self.size, self.kept = nn.Parameter(torch.tensor([0.7, 1.3])), None

    def matrix(self, points):
        if self.kept is None:
            near = (points / self.size).unsqueeze(0) - (points / self.size).unsqueeze(1)
            self.kept = (-near.square().sum(-1)).exp() + torch.eye(len(points)).to(near)
        return self.kept


def inverse(slip=1.0):
    """Of symmetric matrices: the gradient is shared out between both halves."""

    def backward(matrix, up):
        found = torch.linalg.inv(matrix)
        return -slip * found @ (up + up.mT) / 2 @ found

    return with_backward(torch.linalg.inv, backward)


class Predicts(nn.Module):
    def __init__(self, slip=1.0, *, detach=False):
        super().__init__()
        self.kernel, self.inverse, self.detach = Kernel(), inverse(slip), detach

    def forward(self, x):
        found = self.inverse(
            self.kernel.matrix(torch.linspace(0, 1, 6).view(3, 2).to(x))
        )
        return x @ (found.detach() if self.detach else found)


@DTYPES
def test_every_run_of_a_model_makes_its_caches_anew(dtype):
    """Else nothing moved with the model, and half a matrix was called wrong."""
    assert gl.blame(Predicts().to(dtype), point(dtype, 2, 3)).culprits == ()
    assert gl.blame(Predicts(1.1).to(dtype), point(dtype, 2, 3)).culprits == (
        "Predicts",
    )


@DTYPES
@pytest.mark.parametrize("ask", [gl.blame, gl.check])
def test_what_gets_no_gradient_is_moved_as_the_model_moves_it(ask, dtype):
    """The cache of a Gaussian process is detached; its solver is none the worse.

    A check has run the model before, and begins where that found it.
    """
    model = Predicts(detach=True).to(dtype)
    found = ask(model, point(dtype, 2, 3).requires_grad_())
    (finding,) = (f for f in found.findings if f.severity == "error")

    assert found.culprits[0] == "Predicts"
    assert finding.kind == gl.BugKind.DETACHED
