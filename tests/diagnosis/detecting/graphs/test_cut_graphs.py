"""What cuts a graph is named: the operation, the line of code, the new leaf."""

from __future__ import annotations

import warnings

import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")
nn = torch.nn


def as_parameter(x):
    h = nn.Parameter(x.sin())
    return h * x


def as_leaf(x):
    h = x.sin().detach().requires_grad_()
    return h * x


def written_by_data(x):
    h = x.sin()
    h.data.mul_(2.0)
    return h * x


def written_without_grad(x):
    h = x.sin()
    with torch.no_grad():
        h *= x
    return h + x


def one_of_two(x):
    meant = x.new_ones(4).detach() * x.cos().detach().sign()
    return x * x.exp().detach() * meant.abs()


CUTS = {
    as_parameter: "new leaf of shape (4,)",
    as_leaf: "detach (1x, test_cut_graphs.py:",
    written_by_data: "data (1x, test_cut_graphs.py:",
    written_without_grad: "no_grad (1x, test_cut_graphs.py:",
    one_of_two: "detach (1x, test_cut_graphs.py:",
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fn", CUTS)
def test_cut_is_named(fn, seed):
    """A severed graph is called detached, by what severs it, whatever is drawn."""
    torch.manual_seed(seed)
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)

    finding = gl.check(fn, x, seed=seed).findings[0]

    assert finding.kind == "detached"
    assert CUTS[fn] in finding.evidence


def test_guilty_line_of_two():
    """Of several lines with a detach the one that matters is named, and no other."""
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    guilty = one_of_two.__code__.co_firstlineno + 2

    evidence = gl.check(one_of_two, x).findings[0].evidence

    assert f"test_cut_graphs.py:{guilty}" in evidence
    assert f"test_cut_graphs.py:{guilty - 1}" not in evidence


def stepped(x):
    """Two steps of Euler, of a length that depends on x, and not for autograd."""
    with torch.no_grad():
        step = 0.5 + 1e-4 * x.abs().mean()
    half = x + step * x.sin()
    return half + (1 - step) * half.sin()


def test_one_cut_is_one_finding_however_little_it_leaves_out_of_each_input():
    def fn(x, y):
        inner = x**2 + 1e-3 * y
        inner = inner.detach() + 0.5 * (inner - inner.detach())
        return (inner + y).sin().sum()

    x, y = (torch.linspace(0.2, end, 3, dtype=torch.float64) for end in (0.9, 1.2))
    (told,) = gl.check(fn, x, y).findings
    assert told.kind == gl.BugKind.DETACHED
    assert set(told.places) == {"x", "y"}


def test_a_cut_that_leaves_out_little_may_be_allowed_for():
    """Adaptive integrators choose their steps so; how much to allow for is told."""
    torch.manual_seed(0)
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)

    report = gl.check(stepped, x)

    finding = report.findings[0]
    assert finding.kind == "detached"
    assert "atol=" in finding.advice
    off = max(abs(report["x"].analytic - report["x"].numeric).ravel())
    assert f"{off:.1g} at most" in finding.advice
    assert gl.check(stepped, x, atol=2 * float(off)).verdict == gl.Verdict.AGREES


def outside_leaf(x):
    return (x * OUTSIDE).tanh()


OUTSIDE = torch.linspace(0.5, 1.0, 4, dtype=torch.float64, requires_grad=True)


def clean_leaf(x):
    h = nn.Parameter(torch.ones(4, dtype=torch.float64))
    return h * x.sin()


def clean_write(x):
    h = x.sin()
    h *= x
    return h.detach() * 0 + h


@pytest.mark.parametrize("fn", [outside_leaf, clean_leaf, clean_write])
def test_leaves_that_cut_nothing(fn):
    """Leaves made of constants, or given from outside, and recorded writes are fine."""
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)

    assert gl.check(fn, x).findings == ()


def test_new_leaf_is_not_blamed_for_another_slip():
    """A leaf that moves beside a wrong backward does not take the blame for it."""
    doubled = with_backward(lambda x: 1.0 * x, lambda _x, up: 2 * up)

    def call(x):
        nn.Parameter(x.sin())
        return doubled(x) + nn.Parameter(x.sin().sign())

    x = torch.randn(4, dtype=torch.float64, requires_grad=True)

    assert gl.check(call, x).diagnosis == "scale"


class Net(nn.Module):
    """A layer, and code of its own that may cut the way to it."""

    def __init__(self, how):
        super().__init__()
        self.enter, self.leave, self.how = nn.Linear(3, 4), nn.Linear(4, 2), how
        self.register_buffer("level", torch.zeros(4))
        self.double()

    def forward(self, x):
        h = self.enter(x)
        if self.how == "parameter":
            h = h + nn.Parameter(h * h)
        elif self.how == "data":
            h.data.mul_(1.7)
        elif self.how == "buffer":
            self.level.data.copy_(h.mean(0))
            h = h * self.level
        elif self.how == "detach":
            h = h * h.detach()
        return self.leave(torch.tanh(h))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("parameter", "new leaf of shape (5, 4)"),
        ("data", "data (1x, test_cut_graphs.py:"),
        ("buffer", "data (1x, test_cut_graphs.py:"),
        ("detach", "detach (1x, test_cut_graphs.py:"),
    ],
)
def test_module_that_cuts(how, named, seed):
    """What a module's own code cuts is named at the module, in place of a factor."""
    torch.manual_seed(seed)
    net, x = Net(how), torch.randn(5, 3, dtype=torch.float64)

    report = gl.check(net, x, loss=lambda out: (out**2).mean(), seed=seed)

    finding = report.findings[0]
    assert (finding.kind, finding.where) == ("detached", "Net")
    assert named in finding.evidence
    assert not net.level.requires_grad
    assert not net.level.any()


@pytest.mark.parametrize("door", ["check", "blame"])
def test_a_reentrant_checkpoint_is_called_by_its_name(door):
    """Nothing that it is given requires grad: nothing inside gets a gradient."""
    from torch.utils.checkpoint import checkpoint

    class Saving(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(3, 4).double(), nn.Linear(4, 2).double()
            self.reentrant = True

        def forward(self, x):
            hidden = checkpoint(self.first, x, use_reentrant=self.reentrant)
            return self.last(torch.tanh(hidden))

    torch.manual_seed(0)
    net, x = Saving(), torch.randn(5, 3, dtype=torch.float64)
    ask = getattr(gl, door)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says so, too
        finding = ask(net, x, loss=lambda out: (out**2).mean()).findings[0]

    assert (finding.kind, finding.where) == ("detached", "Saving")
    assert "uses re-entrant checkpoint (" in finding.evidence
    assert finding.advice.startswith("Pass use_reentrant=False")
    net.reentrant = False
    assert not ask(net, x, loss=lambda out: (out**2).mean()).findings


def test_a_cut_beside_a_parameter_of_its_own_module_is_one_finding():
    """What the module is told of says the same of its one wrong parameter."""

    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.W = nn.Parameter(torch.randn(3, 4, dtype=torch.float64))
            self.V = nn.Parameter(torch.randn(4, 4, dtype=torch.float64))

        def forward(self, x):
            x = torch.tanh(x @ self.W)
            return x.detach() + torch.tanh(x @ self.V)

    torch.manual_seed(0)
    net, x = Skip(), torch.randn(5, 3, dtype=torch.float64)
    (finding,) = gl.check(net, x, loss=lambda out: (out**2).mean()).findings

    assert (finding.kind, finding.where) == ("detached", "Skip")
    assert "the gradient of W is right" in finding.evidence


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("how", ["data", "buffer", "detach"])
def test_audit_names_what_cuts(how, seed):
    """An audit names what its forward cuts with, and the line, as the next step."""
    torch.manual_seed(seed)
    net, x = Net(how), torch.randn(5, 3, dtype=torch.float64)
    name = "detach" if how == "detach" else "data"

    audit = gl.blame(net, x, loss=lambda out: (out**2).mean(), seed=seed)

    assert audit.culprits == ("Net",)
    assert f"{name} (1x, test_cut_graphs.py:" in audit.findings[0].advice


def test_module_that_cuts_nothing():
    """The same module without a cut has no finding."""
    net, x = Net(""), torch.randn(5, 3, dtype=torch.float64)

    assert gl.blame(net, x, loss=lambda out: (out**2).mean()).findings == ()
    assert gl.check(net, x, loss=lambda out: (out**2).mean()).findings == ()


@pytest.mark.parametrize(
    ("hook", "kind"),
    [
        (lambda g: g / 4, "scale"),
        (torch.zeros_like, "detached"),
        (lambda g: g * (g > 0), "surrogate"),
    ],
)
def test_hook_on_a_parameter(hook, kind):
    """A hook on a parameter is the one finding: no mean, mask or cut is guessed at."""
    torch.manual_seed(0)
    net, x = Net(""), torch.randn(5, 3, dtype=torch.float64)
    net.enter.bias.register_hook(hook)

    findings = gl.check(net, x, loss=lambda out: (out**2).mean()).findings

    assert [(f.where, f.kind) for f in findings] == [("enter", kind)]
    assert "on its parameter bias" in findings[0].evidence
    assert "Remove the hook" in findings[0].advice


def test_straight_through_in_a_module():
    """Where an input gets a gradient out of nothing, the detach is a surrogate."""

    class Rounded(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 4)

        def forward(self, x):
            h = torch.tanh(self.a(x))
            z = self.b(h)
            return h + z + ((4 * z).round() / 4 - z).detach()

    torch.manual_seed(1)
    net, x = Rounded().double(), torch.randn(5, 3, dtype=torch.float64)

    report = gl.check(net, x, loss=lambda out: (out**2).mean())

    assert {str(f.kind) for f in report.findings} == {"surrogate"}


@pytest.mark.parametrize("seed", range(3))
def test_a_mean_under_no_grad_is_no_staircase(seed):
    """A bias before it moves nothing, near or far: its gradient is the cut's fault."""

    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 1)

        def forward(self, x):
            h = self.a(x)
            with torch.no_grad():
                mean, var = h.mean(0), h.var(0, unbiased=False)
            return self.b(torch.tanh((h - mean) / (var + 1e-5).sqrt()))

    torch.manual_seed(seed)
    net, x = Normed().double(), torch.randn(6, 3, dtype=torch.float64)

    report = gl.check(net, x, loss=lambda out: (out**2).mean())

    assert [(str(f.kind), f.where) for f in report.findings] == [("detached", "Normed")]
    assert "straight through" not in report.findings[0].evidence


def test_hook_does_not_call_itself():
    """An implicit layer whose cut is undone does not pull back through its own hook."""
    depth, deepest = 0, 0

    def implicit(x):
        z = torch.tanh(x).requires_grad_()
        start = z.detach().requires_grad_()
        again = torch.tanh(0.5 * start + x.detach())

        def hook(gradient):
            nonlocal depth, deepest
            depth += 1
            deepest = max(deepest, depth)
            try:
                if depth > 3:
                    message = "the hook has called itself"
                    raise RuntimeError(message)
                pull = torch.autograd.grad
                return gradient + pull(again, start, gradient, retain_graph=True)[0]
            finally:
                depth -= 1

        if z.grad_fn is not None:
            z.register_hook(hook)
        return z * x

    x = torch.tensor([0.3, -0.7], dtype=torch.float64, requires_grad=True)

    report = gl.check(implicit, x)

    assert report.verdict.name == "DISAGREES"
    assert deepest == 1


def test_a_cut_is_undone_once_for_all_inputs(monkeypatch):
    """What is pulled back without it speaks of every input: no pass for each."""
    from gradlab.diagnosis.measuring import undoing

    calls = []
    plain = undoing._pulled
    monkeypatch.setattr(
        undoing, "_pulled", lambda *args: calls.append(None) or plain(*args)
    )

    def fn(**inputs):
        return sum(x.sin().detach() * x for x in inputs.values())

    torch.manual_seed(0)
    x = {
        f"x{k}": torch.randn(4, dtype=torch.float64, requires_grad=True)
        for k in range(6)
    }
    report = gl.check(lambda x: fn(**x), x)

    assert report.diagnosis == "detached"
    assert len(report.culprits) == 6
    assert len(calls) == 2  # without cuts, and without hooks
