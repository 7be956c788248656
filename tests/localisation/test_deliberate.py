"""Gradients that torch changes on purpose are no errors, in a check and in an audit."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import gradlab as gl  # noqa: E402
from tests.specimens.functions import with_backward  # noqa: E402

IDS = torch.tensor([[0, 2, 4], [1, 1, 0]])


class Tied(nn.Module):
    """An embedding with a padding row whose weight is the output layer's as well."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(6, 4, padding_idx=0)
        self.out = nn.Linear(4, 6, bias=False)
        self.out.weight = self.emb.weight

    def forward(self, ids):
        """Return logits."""
        return self.out(torch.tanh(self.emb(ids)))


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Embedding(5, 3, padding_idx=0),
        lambda: nn.Sequential(nn.Embedding(5, 3, padding_idx=-5), nn.Linear(3, 2)),
        Tied,
    ],
)
def test_padding_row_is_a_constant(make, coverage, double):
    """A padding row that gets no gradient is right, and the others are compared."""
    torch.manual_seed(0)
    model = make()
    model = model.double() if double else model
    report = gl.check(model, IDS, loss=lambda o: o.pow(3).mean(), coverage=coverage)

    assert report.verdict == gl.Verdict.AGREES
    told = {f.kind: f.severity for f in report.findings}
    assert told["surrogate"] == "note"


def test_tied_padding_row_that_is_wrong_is_seen():
    """The output layer's part of a padding row is compared: doubled, it is wrong."""
    torch.manual_seed(0)
    model = Tied().double()
    model.emb.weight.register_hook(
        lambda g: torch.cat([2 * g[:1], g[1:]])  # only the padding row
    )
    report = gl.check(model, IDS)

    assert "emb.weight" in report.culprits


def test_functional_bags_scaled_by_frequency_are_told_too():
    """F.embedding_bag divides gradients as the layer does: undecided, not wrong."""
    weight = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    report = gl.check(
        lambda w: F.embedding_bag(IDS, w, scale_grad_by_freq=True), weight
    )

    assert report.verdict == gl.Verdict.UNDECIDED
    assert report.findings[0].kind == "surrogate"


def test_functional_padding_is_told_too():
    """F.embedding(..., padding_idx=0) in a function of one's own."""
    weight = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    report = gl.check(lambda w: F.embedding(IDS, w, padding_idx=0), weight)

    assert report.verdict == gl.Verdict.AGREES
    assert [(f.kind, f.severity) for f in report.findings] == [("surrogate", "note")]


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Embedding(5, 3, scale_grad_by_freq=True),
        lambda: nn.Embedding(5, 3, max_norm=0.5),
        lambda: nn.Sequential(
            nn.Embedding(5, 3),
            nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)),
        ),
    ],
)
@pytest.mark.parametrize("coverage", ["full", "probe"])
def test_what_cannot_be_compared_is_undecided(make, coverage):
    """An option of torch that changes a gradient is a warning with its name."""
    torch.manual_seed(0)
    model = make().double()
    report = gl.check(model, IDS, coverage=coverage)

    assert report.ok
    assert report.verdict == gl.Verdict.UNDECIDED
    assert "surrogate" in {f.kind for f in report.findings if f.severity == "warning"}
    assert gl.blame(model, IDS).ok


def test_ctc_loss_on_its_own():
    """Its gradient belongs to log_softmax and loss together; alone it is undecided."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.LogSoftmax(-1)).double()
    x = torch.randn(6, 2, 4, dtype=torch.float64)

    def loss(logs):
        goal, lengths = torch.tensor([[1, 2, 3], [2, 4, 1]]), torch.tensor([3, 2])
        return F.ctc_loss(logs, goal, torch.tensor([6, 6]), lengths)

    assert gl.blame(model, x, loss=loss).ok
    assert gl.check(model, x, loss=loss).verdict == gl.Verdict.AGREES
    logs = model(x).detach().requires_grad_()
    alone = gl.check(loss, logs)
    assert alone.ok
    assert alone.verdict == gl.Verdict.UNDECIDED


class Shares(nn.Module):
    """Layers with a draw of a Dirichlet distribution between them."""

    def __init__(self):
        """Two layers."""
        super().__init__()
        self.before, self.after = nn.Linear(4, 3), nn.Linear(3, 4)

    def forward(self, x):
        """Encode, draw and decode."""
        shapes = F.softplus(self.before(x)) + 0.1
        drawn = torch.distributions.Dirichlet(shapes).rsample()
        return ((self.after(drawn) - x) ** 2).mean()


@pytest.mark.parametrize("coverage", ["full", "probe"])
def test_a_draw_that_is_not_moved_by_its_gradient(coverage):
    """What stands behind it cannot be compared, and the rest is right."""
    torch.manual_seed(0)
    model, x = Shares().double(), torch.randn(5, 4, dtype=torch.float64)

    report = gl.check(model, x, coverage=coverage)

    assert report.ok, report
    names = {c.input.name: c.verdict.name for c in report.comparisons}
    assert names["after.weight"] == names["after.bias"] == "AGREES"
    assert names["before.weight"] == "UNDECIDED"
    assert gl.blame(model, x).ok


def test_reentrant_checkpoint_is_checked_by_backward():
    """It cannot be asked for chosen gradients, so they are taken as training does."""
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    report = gl.check(lambda x: checkpoint(torch.sin, x, use_reentrant=True), x)
    assert report.verdict == gl.Verdict.AGREES
    assert x.grad is None


class _Refusing(torch.autograd.Function):
    """Refuses grad(), as reversible layers do that make their input again."""

    @staticmethod
    def forward(ctx, x, slip):
        ctx.save_for_backward(x)
        ctx.slip = slip
        return torch.sin(x)

    @staticmethod
    def backward(ctx, up):
        if not torch.autograd._is_checkpoint_valid():
            raise RuntimeError("InvertibleCheckpointFunction does not go with .grad()")
        return ctx.slip * up * torch.cos(*ctx.saved_tensors), None


@pytest.mark.parametrize("slip", [1.0, 1.2])
@pytest.mark.parametrize("own", [True, False])
def test_what_refuses_chosen_gradients_is_audited_by_backward(own, slip):
    """A re-entrant checkpoint of torch, or a Function that refuses in its words."""
    from torch.utils.checkpoint import checkpoint

    slipping = with_backward(torch.sin, lambda x, up: slip * up * torch.cos(x))

    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3).double()

        def forward(self, x):
            if own:
                held = lambda z: slipping(self.inner(z))
                return checkpoint(held, x, use_reentrant=True)
            return _Refusing.apply(self.inner(x), slip)

    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    audit = gl.blame(Wrapper(), x, loss=lambda y: (y**2).sum())

    assert audit.culprits == (() if slip == 1.0 else ("Wrapper",))
    assert all(row.state != "unchecked" for row in audit.rows)
    assert x.grad is None


def test_rows_that_are_renormalised_are_left_open_for_that():
    """Whatever keeps the differences from an answer: max_norm overwrites the weight."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 4, max_norm=1.0), nn.Flatten())
    audit = gl.blame(model, torch.randint(10, (5, 4)), loss=lambda y: (y**3).mean())

    assert not audit.culprits
    assert "max_norm" in audit.table.set_index("name").loc["0"]["reason"]
