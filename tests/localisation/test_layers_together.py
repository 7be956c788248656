"""Mistakes that no layer makes by itself: what is cut belongs to another one."""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")
nn = torch.nn


class Tied(nn.Module):
    """A head that reads the weight of an embedding that is called as well."""

    def __init__(self, cut):
        super().__init__()
        self.cut = cut
        self.embedding, self.body = nn.Embedding(6, 4), nn.Linear(4, 4)

    def forward(self, words):
        hidden = torch.tanh(self.body(self.embedding(words)))
        weight = self.embedding.weight
        return hidden @ (weight.detach() if self.cut else weight).T


class Density(nn.Module):
    """Means and widths, where the loss reads widths that are handed out detached."""

    def __init__(self, cut):
        super().__init__()
        self.cut = cut
        self.mean, self.width = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x):
        width = nn.functional.softplus(self.width(x)) + 0.1
        return self.mean(x), width.detach() if self.cut else width


class Penalty(nn.Module):
    """A gradient with respect to the input, taken with or without its graph."""

    def __init__(self, cut):
        super().__init__()
        self.cut = cut
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 1))

    def forward(self, x):
        start = x.detach().requires_grad_()
        score = self.net(start).sum()
        (slope,) = torch.autograd.grad(score, start, create_graph=not self.cut)
        return self.net(x), slope


class Implicit(nn.Module):
    """A fixed point whose hook solves the adjoint equation, or takes one step of it."""

    def __init__(self, cut):
        super().__init__()
        self.steps = 1 if cut else 50
        self.inner, self.outer = nn.Linear(3, 3, bias=False), nn.Linear(3, 3)
        with torch.no_grad():
            self.inner.weight *= 0.5

    def once(self, z, x):
        return torch.tanh(self.inner(z) + self.outer(x))

    def forward(self, x):
        with torch.no_grad():
            z = torch.zeros_like(x)
            for _ in range(50):
                z = self.once(z, x)
        z = self.once(z, x)
        start = z.detach().requires_grad_()
        again = self.once(start, x)

        def adjoint(gradient):
            solved = gradient
            for _ in range(self.steps):
                pulled = torch.autograd.grad(again, start, solved, retain_graph=True)
                solved = pulled[0] + gradient
            return solved

        if z.requires_grad:
            z.register_hook(adjoint)
        return z


class Nested(nn.Module):
    """A model in which one of two blocks reads a weight of its own layer detached."""

    def __init__(self, cut):
        super().__init__()
        self.first, self.second = Tied(False), Tied(cut)

    def forward(self, words):
        return self.first(words) + self.second(words)


def squares(out):
    return (out**2).mean()


def likelihood(out):
    return ((out[0] - 1) ** 2 / out[1] + out[1].log()).mean()


def penalised(out):
    return out[0].mean() + squares(out[1])


WORDS = torch.arange(6).reshape(2, 3)
POINTS = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(5, 3)
SEEN = {
    Tied: (WORDS, squares),
    Nested: (WORDS, squares),
    Density: (POINTS, likelihood),
    Penalty: (POINTS, penalised),
    Implicit: (POINTS, squares),
}
CULPRITS = {Tied: "Tied", Density: "Density", Penalty: "Penalty", Nested: "second"}


def blamed(network, cut):
    torch.manual_seed(3)
    x, loss = SEEN[network]
    return gl.blame(network(cut).double(), x, loss=loss)


@pytest.mark.parametrize("network", CULPRITS)
def test_cut_between_layers_is_blamed(network):
    """The innermost module that is wrong with its layers is named, and why."""
    audit = blamed(network, cut=True)

    assert audit.culprits == (CULPRITS[network],)
    assert audit.findings[0].kind == "detached"
    assert (
        "together with its layers, each right by itself" in audit.findings[0].evidence
    )


@pytest.mark.parametrize("network", SEEN)
def test_the_same_without_the_cut_is_right(network):
    """Reading a weight elsewhere, or a slope with its graph, is no mistake."""
    audit = blamed(network, cut=False)

    assert audit.culprits == ()
    assert not [f for f in audit.findings if f.severity == "error"]


def test_an_implicit_layer_that_stops_early_is_blamed():
    """A layer whose own code has no backward by itself is checked with its layers."""
    assert blamed(Implicit, cut=True).culprits == ("Implicit",)


class Coupling(nn.Module):
    """Half of a flow: what comes out, and the logarithm of the volume, maybe cut."""

    def __init__(self, cut):
        super().__init__()
        self.cut = cut
        self.net = nn.Linear(1, 2)

    def forward(self, z):
        a, b = z.chunk(2, -1)
        s, t = torch.tanh(self.net(a)).chunk(2, -1)
        volume = s.sum(-1)
        return torch.cat([b * s.exp() + t, a], -1), (
            volume.detach() if self.cut else volume
        )


class Flow(nn.Module):
    """Couplings of which some return their volume cut; `heard`: the loss has it."""

    def __init__(self, cut, *, heard):
        super().__init__()
        self.heard = heard
        self.layers = nn.ModuleList(Coupling(k in cut) for k in range(3))

    def forward(self, x):
        volume = x.new_zeros(len(x))
        for layer in self.layers:
            x, own = layer(x)
            volume = volume + own if self.heard else volume
        return (x**2).sum(-1) - volume


@pytest.mark.parametrize("cut", [(), (1,), (0, 2)])
def test_a_layer_that_returns_something_cut_is_blamed(cut):
    """Of two outputs one has a graph: the other is wrong, of that layer alone."""
    torch.manual_seed(0)
    model, x = Flow(cut, heard=True).double(), POINTS[:, :2]

    audit = gl.blame(model, x, loss=torch.mean)

    assert set(audit.culprits) == {f"layers.{k}" for k in cut}
    assert all(finding.kind == "detached" for finding in audit.findings)
    for finding in audit.findings:
        assert "output 1 is returned without its graph" in finding.evidence


def test_what_is_returned_cut_and_never_used_is_no_mistake():
    """Attention weights to look at, say."""
    torch.manual_seed(0)
    model, x = Flow((0, 2), heard=False).double(), POINTS[:, :2]

    assert gl.blame(model, x, loss=torch.mean).culprits == ()


def test_what_is_cut_and_does_not_matter_is_no_mistake():
    """Statistics that only go into a buffer, and a padding row, leave a model right."""

    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(6, 4, padding_idx=0)
            self.body = nn.Linear(4, 2)
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, words):
            hidden = self.embedding(words)
            self.seen += hidden.detach().mean((0, 1))
            return self.body(hidden)

    torch.manual_seed(0)
    words = torch.tensor([[0, 1, 2], [3, 0, 5]])

    audit = gl.blame(Padded().double(), words, loss=squares)

    assert audit.culprits == ()


def test_the_line_of_a_gradient_without_its_graph_is_named():
    """A check says which call of autograd.grad forward takes for a constant."""
    torch.manual_seed(3)
    model = Penalty(cut=True).double()

    report = gl.check(model, POINTS, loss=penalised)

    finding = report.findings[0]
    assert (finding.where, finding.kind) == ("Penalty", "detached")
    assert "grad without create_graph (1x, test_layers_together.py:" in finding.evidence


def test_a_graph_that_was_freed_by_a_gradient_inside_is_told():
    """Torch refuses to go back through it again: the call that freed it is at fault."""

    class Curved(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

        def forward(self, x):
            x = x.clone().requires_grad_()
            (slope,) = torch.autograd.grad(self.body(x).sum(), x, create_graph=True)
            (curve,) = torch.autograd.grad(slope.sum(), x)
            return slope - curve

    torch.manual_seed(0)
    report = gl.check(Curved().double(), POINTS, loss=lambda out: (out**2).mean())

    finding = report.findings[0]
    assert (finding.where, finding.kind) == ("Curved", "detached")
    assert "grad without create_graph (1x, " in finding.evidence
    assert "create_graph=True" in finding.advice


class Critic(nn.Module):
    """The score of one batch less that of another: the last bias goes away."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 1))

    def forward(self, real, fake):
        spread = real * 0.3 + fake * 0.7
        spread = spread.detach().requires_grad_()
        (slope,) = torch.autograd.grad(
            self.net(spread).sum(), spread, create_graph=True
        )
        penalty = ((slope.norm(dim=1) - 1) ** 2).mean()
        return self.net(fake).mean() - self.net(real).mean() + penalty


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_slope_of_zero_is_not_told_as_the_worst(dtype):
    """The gradient of that bias is zero on both sides, but for what rounding leaves."""
    real, fake = torch.randn(2, 5, 2, generator=torch.Generator().manual_seed(2))
    audit = gl.blame(Critic().to(dtype), real.to(dtype), fake.to(dtype))
    assert not audit.culprits
    assert all(row.error < 1e-6 for row in audit.rows if row.error == row.error)
