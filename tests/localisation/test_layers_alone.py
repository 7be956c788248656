"""One layer of an audited model, looked at by itself where the model called it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.specimens.functions import with_backward, with_output

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import gradlab as gl  # noqa: E402
from gradlab.pipeline import local_reports  # noqa: E402
from gradlab.pipeline.local_reports import local_report  # noqa: E402
from tests.localisation.networks import Swish  # noqa: E402


class Net(nn.Module):
    """A shared activation, called once with a keyword, and dropout before it."""

    def __init__(self, slip="twice"):
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.drop = nn.Dropout(0.5)
        self.act = Swish(slip)
        self.gate = Gate()
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        """Return the activation twice over, gated."""
        h = self.act(self.drop(self.fc(x)))
        return self.head(self.gate(self.act(h), scale=h.sigmoid()))


class Gate(nn.Module):
    """Multiplies by a keyword argument."""

    def forward(self, x, *, scale):
        """Return the product."""
        return x * scale


@pytest.fixture
def audit():
    """Of a network whose activation doubles its gradient."""
    torch.manual_seed(0)
    x = torch.randn(5, 3, dtype=torch.float64)
    return gl.blame(Net().double(), x, loss=lambda out: out.pow(2).mean())


def test_local_jacobian_is_that_of_the_layer(audit):
    """Of x sigmoid(x) it is diagonal, s + x s (1 - s), at the inputs it really saw."""
    report = local_report(audit, "act")

    frame = report["x"]
    live = report.live.arguments["inputs"][0].detach()
    gate = torch.sigmoid(live)
    slope = (gate + live * gate * (1 - gate)).numpy().ravel()
    np.testing.assert_allclose(frame.numeric, np.diag(slope), atol=1e-8)
    np.testing.assert_allclose(frame.analytic, 2 * np.diag(slope), atol=1e-12)
    assert report.diagnosis == "scale"


def test_dropout_is_frozen_to_its_draw(audit):
    """The second call of the activation gets what the first made of the dropped."""
    first = local_report(audit, "act", call=0).live.arguments["inputs"][0]
    second = local_report(audit, "act", call=1).live.arguments["inputs"][0]

    assert (first == 0).any()
    torch.testing.assert_close(second, first * torch.sigmoid(first))
    dropped = local_report(audit, "drop")
    kept = (first != 0).double().ravel().numpy()
    np.testing.assert_allclose(dropped["input"].numeric, np.diag(2 * kept), atol=1e-8)


def test_keywords_and_parameters_keep_their_names(audit):
    """A keyword is an input by its name; a layer's parameters are its own."""
    assert set(local_report(audit, "gate").power) == {"x", "scale"}
    assert set(local_report(audit, "fc").power) == {"weight", "bias"}
    assert local_report(audit, "gate").ok


def test_functions_loss_and_root(audit):
    """Custom Functions, the loss and the whole model are rows like any other."""
    function = local_report(audit, "act:SwishFunction")
    assert function.verdict == gl.Verdict.DISAGREES
    assert local_report(audit, "loss").verdict == gl.Verdict.AGREES
    assert "fc.weight" in local_report(audit, "Net").power


def test_large_layers_are_weighted_with_the_real_cotangent():
    """A layer of 90,000 weights is one row: the gradient the model really has."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 300), nn.Tanh()).double()
    x = torch.randn(4, 300, dtype=torch.float64)
    audit = gl.blame(model, x, loss=lambda out: out.pow(2).mean())
    report = local_report(audit, "1")
    assert report.coverage == "full"
    report = local_report(audit, "0")

    assert report.verdict == gl.Verdict.AGREES
    assert any("arrived" in remark for remark in report.remarks)
    model.zero_grad()
    model(x).pow(2).mean().backward()
    block = report["weight"]
    if block.columns is not None:
        expected = model[0].weight.grad.numpy().ravel()[block.columns]
        np.testing.assert_allclose(block.analytic[0], expected, rtol=1e-10)


def test_nothing_is_changed(audit):
    """Parameters, random state and mode are afterwards what they were."""
    model = audit.live.module
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = torch.get_rng_state()

    local_report(audit, "drop")

    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_what_cannot_be_looked_at_says_why(audit, tmp_path):
    """An unknown layer, and an audit from a file, are refused with a sentence."""
    with pytest.raises(gl.GradlabError, match="no layer 'nope'"):
        local_report(audit, "nope")
    x = torch.randn(5, 3, dtype=torch.float64)
    report = gl.check(Net().double(), x)
    report.save(tmp_path / "report.npz")
    loaded = gl.load(tmp_path / "report.npz")
    with pytest.raises(gl.GradlabError, match="loaded from a file"):
        local_report(loaded.layers, "act")


# Saves the input where its backward is written in the output.
stale_tanh = with_backward(torch.tanh, lambda x, g: g * (1 - x**2))


# Multiplies by a square matrix.
product = with_backward(lambda x, w: x @ w, lambda x, w, g: (g @ w, x.T @ g))


class Stale(nn.Module):
    """tanh whose backward saved the wrong array."""

    def forward(self, x):
        """Return tanh(x)."""
        return stale_tanh(x)


class Turned(nn.Module):
    """A matrix product whose backward lacks a transpose."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        """Return x W."""
        return product(x, self.weight)


def test_every_guilty_layer_gets_its_own_cause():
    """Of two wrong layers each is told its mistake, not that of the other."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 4), Stale(), Turned()).double()
    report = gl.check(model, torch.randn(5, 3, dtype=torch.float64))

    kinds = {f.where: f.kind for f in report.findings if f.where in {"1", "2"}}
    assert kinds == {"1": "stale_cache", "2": "transpose"}


def test_hook_that_follows_no_factor_is_a_surrogate():
    """A hook is the cause whatever it does, and removing it is the advice."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    model[1].register_full_backward_hook(lambda m, gi, go: (gi[0] ** 3,))
    report = gl.check(model, torch.randn(5, 3, dtype=torch.float64))

    found = next(f for f in report.findings if f.where == "1")
    assert found.kind == "surrogate"
    assert "Remove the hook" in found.advice


def test_a_layer_that_was_exchanged_meanwhile_is_not_taken_for_the_audited_one():
    """A mended layer behind a cross of the audit would look like a contradiction."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh()).double()
    audit = gl.blame(model, torch.ones(1, 3, dtype=torch.float64))
    model[1] = torch.nn.Sigmoid()

    with pytest.raises(
        gl.GradlabError, match="was a Tanh when the model was audited, and"
    ):
        local_report(audit, "1")
    assert local_report(audit, "0").ok


# A tanh whose slope is that of another function, by no constant factor.
steep = with_output(lambda x: x.tanh(), lambda y, upstream: upstream * (1 - y))


class Bend(nn.Module):
    """Applies it."""

    def forward(self, x):
        """Return the wrong tanh."""
        return steep(x)


def test_a_cause_is_told_once():
    """Neither does its row say a number twice, nor its finding what the head says."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), Bend(), nn.Linear(4, 2)).double()
    audit = gl.blame(net, torch.randn(5, 3, dtype=torch.float64))
    row = next(row for row in audit.rows if row.name == "1:Function")
    [finding] = [f for f in audit.findings if f.severity == "error"]

    assert finding.kind == "wrong_derivative"
    assert "contaminated" not in finding.evidence
    slope = row.reason.partition("difference quotient is ")[2].split()[0]
    assert row.reason.count(slope) == 1
    assert row.reason.endswith("(with respect to input 0)")


class Leaning(torch.autograd.Function):
    """Hyperbolic tangent whose backward is a percent too steep left of zero."""

    @staticmethod
    def forward(ctx, x):
        """Keep what the slope is made of."""
        ctx.save_for_backward(x, x.tanh())
        return x.tanh()

    @staticmethod
    def backward(ctx, upstream):
        """Lean."""
        x, value = ctx.saved_tensors
        return upstream * (1 - value**2) * torch.where(x < 0, 1.01, 1.0)


class Lean(nn.Module):
    """Applies it."""

    def forward(self, x):
        """Return the leaning tanh."""
        return Leaning.apply(x)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("door", [gl.blame, gl.check])
@pytest.mark.parametrize(
    ("dtype", "looks"), [(torch.float64, 1), (torch.float32, 2)], ids=str
)
def test_a_slight_mistake_is_looked_at_alone_once(monkeypatch, door, dtype, looks):
    """What confirms it tells its cause, unless it was in another precision."""
    counted = []

    def report(*arguments):
        counted.append(arguments)
        return whole(*arguments)

    whole = local_reports._report
    monkeypatch.setattr(local_reports, "_report", report)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), Lean(), nn.Linear(4, 2)).to(dtype)
    found = door(net, torch.randn(5, 3, dtype=dtype))

    kinds = {f.kind for f in found.findings if f.severity == "error"}
    assert kinds == {gl.BugKind.WRONG_DERIVATIVE}
    assert found.culprits[0] == "1"
    assert len(counted) == looks
