"""A backward that raises for the model as a whole, and for none of its calls."""

from __future__ import annotations

import pytest

import gradlab as gl
from gradlab.errors import InputError
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")


class Overwriting(torch.nn.Module):
    """Squares a column in place, and then overwrites what the square has kept."""

    def __init__(self, after):
        super().__init__()
        self.first, self.last = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
        self.after = after

    def forward(self, x):
        h = self.first(x).clone()
        h[:, 0] = (h[:, 0] if self.after else h[:, 0].clone()) ** 2
        return self.last(h)


def audited(*, after):
    torch.manual_seed(0)
    model, x = Overwriting(after).double(), torch.randn(4, 3, dtype=torch.float64)
    return model, x, gl.blame(model, x, loss=lambda out: out.sigmoid().sum())


class Kept(torch.nn.Module):
    """Changes in place what its sigmoid has kept for the backward, or a copy."""

    def __init__(self, *, copied=False):
        super().__init__()
        self.first, self.act = torch.nn.Linear(4, 4), torch.nn.Sigmoid()
        self.copied = copied

    def forward(self, x):
        y = self.act(self.first(x))
        y = y.clone() if self.copied else y
        y += 1
        return y


# Doubles, with the gradient of something else.
thrice = with_backward(lambda x: 2 * x, lambda _x, grad: 3 * grad)


class Wrong(torch.nn.Module):
    """Calls that Function."""

    def forward(self, x):
        return thrice(x)


class Moody(torch.nn.Module):
    """Has a hook that raises once, and never again."""

    raised = False

    def forward(self, x):
        if x.requires_grad:
            x.register_hook(self.hook)
        return x * 2

    @classmethod
    def hook(cls, _grad):
        if not cls.raised:
            cls.raised = True
            raise RuntimeError("out of sorts")


def around(inner):
    """Put a layer between linear ones."""
    torch.manual_seed(0)
    inner = torch.nn.Sequential(torch.nn.Linear(3, 4), inner, torch.nn.Linear(4, 2))
    model, x = inner.double(), torch.randn(4, 3, dtype=torch.float64)
    return model, x, gl.blame(model, x, loss=lambda out: out.sigmoid().sum())


def refused(model, x):
    """Whether torch refuses the backward, in which words."""
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        model(x).sum().backward()
    model.zero_grad()
    return True


def test_own_code_that_raises_is_named():
    """What raises by itself, for what it hands on, is named in torch's words."""
    model, x, audit = audited(after=True)
    assert refused(model, x)
    assert audit.culprits == ("Overwriting",)
    (found,) = audit.findings
    assert found.kind == gl.BugKind.STALE_CACHE
    assert "in its own code" in found.evidence
    assert "modified by an inplace operation" in found.evidence
    # the layer behind it has its gradient, the one before has none
    assert set(audit.contaminated) == {"first.weight", "first.bias"}
    states = {row.name: row.state for row in audit.rows}
    assert states["last"] == "right"
    assert states["first"] == "contaminated"


def test_what_raises_together_is_named():
    """A layer that overwrites what the one inside it has kept is the innermost."""
    model, x, audit = around(Kept())
    assert refused(model, x)
    assert audit.culprits == ("1",)
    assert "together with its layers" in audit.findings[0].evidence
    assert set(audit.contaminated) == {"0.weight", "0.bias"}


def test_in_place_layer_is_told():
    """Of a plain chain, the layer that writes to what another one has kept."""
    chain = torch.nn.Sequential(torch.nn.Sigmoid(), torch.nn.ReLU(inplace=True))
    model, x, audit = around(chain)
    assert refused(model, x)
    assert audit.culprits == ("1",)
    assert "`1.1` (ReLU) writes to what it is given" in audit.findings[0].evidence


def test_a_copy_is_right():
    """The same with a copy."""
    _, _, audit = around(Kept(copied=True))
    assert audit.culprits == ()
    assert {row.state for row in audit.rows} == {"right"}


def test_others_are_judged_as_usual():
    """Layers before and behind that are wrong themselves are named, in their order."""
    model, x, audit = around(torch.nn.Sequential(Wrong(), Kept(), Wrong()))
    assert refused(model, x)
    assert audit.culprits == ("1.2", "1.1", "1.0")
    kinds = [finding.kind for finding in audit.findings]
    assert kinds == ["scale", "stale_cache", "scale"]


def test_what_nobody_raises_is_left_open():
    """What raises for the model, and for no call of it when asked again."""
    _, _, audit = around(Moody())
    (root,) = (row for row in audit.rows if row.name == "Sequential")
    assert root.state == "unchecked"
    assert "raised RuntimeError: out of sorts; no call does by itself" in root.reason
    assert [finding.severity for finding in audit.findings] == ["warning"]


class Checkpointed(torch.nn.Module):
    """Repeats a layer in its backward, which does not let itself be asked for parts."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=True)


@pytest.mark.parametrize("wrong", [False, True])
def test_what_only_refuses_to_be_asked_is_judged(wrong):
    """A re-entrant checkpoint does so, and runs in training, as all others do."""
    last = Wrong() if wrong else torch.nn.Tanh()
    model, x, audit = around(torch.nn.Sequential(Checkpointed(), last))
    model(x).sum().backward()  # torch does not refuse that

    assert audit.culprits == (("1.1",) if wrong else ())
    assert all(row.state != "unchecked" for row in audit.rows)


def test_what_does_not_raise_is_right():
    """The same with a copy of the column."""
    _, _, audit = audited(after=False)
    assert {row.state for row in audit.rows} == {"right"}
    assert not audit.findings


class Direct(torch.nn.Module):
    """Calls forward itself, as modules of gpytorch do."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 2)

    def __call__(self, x):
        return self.forward(x)

    def forward(self, x):
        return self.inner(x)


def test_calls_that_nobody_can_listen_to_are_refused_in_words():
    x = torch.ones(4, 3)
    with pytest.raises(InputError, match="__call__ of its own") as refused:
        gl.blame(Direct(), x, loss=lambda out: (out**2).sum())
    assert "gradlab.check" in str(refused.value)
    assert gl.check(Direct(), x, loss=lambda out: (out**2).sum()).ok


class ArcFace(torch.nn.Module):
    """A loss with class centres of its own, which no optimiser of the model has."""

    def __init__(self):
        super().__init__()
        self.centres = torch.nn.Parameter(torch.randn(3, 3))

    def forward(self, embedding):
        near = torch.nn.functional.normalize(embedding) @ self.centres.to(embedding)
        return torch.nn.functional.cross_entropy(near, torch.tensor([0, 1, 2, 0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parameters_of_a_loss_are_no_business_of_the_model(dtype):
    """They cannot be exchanged for copies, and were said to get no gradient."""
    torch.manual_seed(0)
    loss = ArcFace()
    model, x = torch.nn.Linear(3, 3, dtype=dtype), torch.randn(4, 3, dtype=dtype)
    assert gl.blame(model, x, loss=loss).ok
    wrong = torch.nn.Sequential(model, Wrong().to(dtype))
    assert gl.blame(wrong, x, loss=loss).culprits == ("1",)


class Quadrature(torch.autograd.Function):
    """Reads by a closure what it gets as an input, too, as integrators do."""

    @staticmethod
    def forward(ctx, f, phi):
        ctx.f = f
        ctx.save_for_backward(phi)
        return f(1.0) + f(2.0)

    @staticmethod
    def backward(ctx, up):
        (phi,) = ctx.saved_tensors
        with torch.enable_grad():
            area = ctx.f(1.0) + ctx.f(2.0)
        return None, *torch.autograd.grad(area, phi, up, retain_graph=True)


class Integrated(torch.nn.Module):
    """Hands a Function a tensor by a closure and by name."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x):
        phi = self.layer(x).exp()
        return Quadrature.apply(lambda t: (t * phi).sin(), phi)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_backward_that_ran_is_not_accused_of_raising(dtype):
    """Run by itself it got another tensor than its closure: zuko's quadrature."""
    torch.manual_seed(0)
    model, x = Integrated().to(dtype), torch.randn(4, 3, dtype=dtype)
    audit = gl.blame(model, x)

    assert not audit.culprits
    assert audit.verdict == gl.Verdict.UNDECIDED
    assert "not have been used in the graph" in str(audit)
    assert gl.check(model, x).verdict == gl.Verdict.AGREES
