"""Functions that are no derivative by themselves, and whose model is right."""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")


class Attached(torch.autograd.Function):
    """A value with a gradient that was computed elsewhere, as solvers attach it."""

    @staticmethod
    def forward(ctx, value, gradient, _of):
        ctx.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    def backward(ctx, up):
        return None, None, up * ctx.saved_tensors[0]


class Minimum(torch.nn.Module):
    """The value of min_z (z - x)^2 / 2 + |z|, found without recording, and its slope.

    That is Huber's function of x, whose derivative is clamp(x, -1, 1).
    """

    def __init__(self, slip=1.0):
        super().__init__()
        self.layer, self.slip = torch.nn.Linear(3, 4), slip

    def forward(self, x):
        h = self.layer(x)
        with torch.no_grad():
            z = torch.nn.functional.softshrink(h, 1.0)
            value = ((z - h) ** 2 / 2 + z.abs()).sum()
            slope = self.slip * h.clamp(-1, 1)
        return Attached.apply(value, slope, h)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_gradient_from_elsewhere_is_no_mistake(dtype):
    """POT attaches its transport plans so: `ot.emd2` was accused."""
    torch.manual_seed(0)
    model, x = Minimum().to(dtype), torch.randn(5, 3, dtype=dtype)
    audit = gl.blame(model, x)
    (note,) = audit.findings

    assert audit.verdict == gl.Verdict.AGREES
    assert audit.culprits == audit.contaminated == ()
    assert (note.kind, note.severity) == (gl.BugKind.SURROGATE, "note")
    assert "`Attached` hands on what is no derivative" in note.evidence
    assert {row.name: str(row.state) for row in audit.rows} == {
        "Minimum": "unchecked",
        "layer": "right",
        "Minimum:Attached": "unchecked",
    }


@pytest.mark.parametrize("slip", [1.001, 1.2, -1.0])  # all by no factor of its own
def test_a_wrong_one_is_accused_as_before(slip):
    torch.manual_seed(0)
    model, x = Minimum(slip).double(), torch.randn(5, 3, dtype=torch.float64)
    audit = gl.blame(model, x)

    assert audit.verdict == gl.Verdict.DISAGREES
    assert audit.culprits == ("Minimum",)


class Implicit(torch.autograd.Function):
    """Returns a fixed point as it is; its backward is that of the implicit function."""

    @staticmethod
    def forward(ctx, step, z, slip):
        ctx.step, ctx.slip = step, slip
        ctx.save_for_backward(z)
        return z.clone()

    @staticmethod
    def backward(ctx, up):
        with torch.enable_grad():
            z = ctx.saved_tensors[0].detach().requires_grad_()
            out = ctx.step(z)
        total = up
        for _ in range(40):
            pulled = torch.autograd.grad(out, z, total, retain_graph=True)[0]
            total = up + ctx.slip * pulled
        return None, total, None


class Solver(torch.nn.Module):
    """What deep equilibrium models end in: forty steps unseen, and one more."""

    def __init__(self, slip):
        super().__init__()
        self.slip = slip

    def forward(self, step, z):
        with torch.no_grad():
            for _ in range(40):
                z = step(z)
        return Implicit.apply(step, step(z), self.slip)


class Equilibrium(torch.nn.Module):
    """z = tanh(0.8 W z + W x): the solution of its solver."""

    def __init__(self, slip=1.0):
        super().__init__()
        self.inner, self.solver = torch.nn.Linear(3, 3), Solver(slip)

    def forward(self, x):
        y = self.inner(x)
        return self.solver(
            lambda z: torch.tanh(0.8 * self.inner(z) + y), torch.zeros_like(y)
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_solver_that_is_differentiated_as_a_whole_is_no_mistake(dtype):
    """Its own code, its steps cut out, passes no gradient on to the last of them."""
    torch.manual_seed(0)
    model, x = Equilibrium().to(dtype), torch.randn(2, 3, dtype=dtype)
    audit = gl.blame(model, x, loss=lambda out: (out**2).sum())

    assert audit.verdict == gl.Verdict.AGREES
    assert not audit.culprits
    assert audit.findings[0].kind == gl.BugKind.SURROGATE


def test_a_solver_that_is_differentiated_wrongly_is_accused():
    torch.manual_seed(0)
    model, x = Equilibrium(slip=0.9).double(), torch.randn(2, 3, dtype=torch.float64)
    audit = gl.blame(model, x, loss=lambda out: (out**2).sum())

    assert audit.verdict == gl.Verdict.DISAGREES
    assert "solver" in audit.culprits
