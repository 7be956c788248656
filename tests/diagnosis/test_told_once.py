"""What is one mistake is one finding, however many gradients it spoils."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import gradlab as gl
from tests.specimens.functions import with_backward


def test_exchanged_gradients_are_one_slip():
    """Two gradients that are returned in each other's place are told once."""

    def ratings(users, items):
        error = users[:, None] + items - np.arange(16.0).reshape(4, 4) / 7
        by_user, by_item = error.sum(axis=1), error.sum(axis=0)
        return 0.5 * (error**2).sum(), (by_item, by_user)

    report = gl.check(ratings, np.array([1.0, -2.0, 0.5, 3.0]), np.linspace(-1, 2, 4))

    (found,) = report.findings
    assert (found.kind, set(found.places)) == ("wrong_index", {"users", "items"})
    assert found.evidence == "The gradients of users and items are exchanged."


def test_one_penalty_is_told_once():
    """Forgotten in all weights, a penalty of one strength is one finding."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 3))

    def loss(params):
        hidden = np.tanh(x @ params["U"])
        out = hidden @ params["V"]
        d = out / len(x)
        grads = {"V": hidden.T @ d, "U": x.T @ (d @ params["V"].T * (1 - hidden**2))}
        penalty = 0.35 * sum((w**2).sum() for w in params.values())
        return 0.5 * (out**2).sum() / len(x) + penalty, grads

    report = gl.check(
        loss, {"U": rng.normal(size=(3, 4)), "V": rng.normal(size=(4, 2))}
    )

    (found,) = report.findings
    assert (found.kind, set(found.places)) == ("regularization", {"U", "V"})
    assert "analytic - numeric = -0.7 x the value of each in all" in found.evidence
    assert "Put the penalty on each into both" in found.advice


def test_what_nothing_explains_is_told_once():
    """Of three numbers with errors of no name all are places of one finding."""

    def f(a, b, c):
        value = np.sin(a * b) + np.exp(c) * a + b**3
        return value, (np.cos(a * b) + 0.3 * c, 2 * a + b, np.exp(c) - b)

    report = gl.check(f, np.array(0.7), np.array(1.3), np.array(-0.4))

    (found,) = report.findings
    assert (found.kind, found.places) == ("unknown", ("c", "b", "a"))
    assert "b, a are wrong as well, and nothing explains that either" in (
        found.evidence
    )


# Three times the square, with the slope of something else.
tripled = with_backward(lambda x: 3 * x**2, lambda x, up: 2 * x.cos() * up)


class Layer(nn.Module):
    """Applies it."""

    def forward(self, x):
        return tripled(x)


class Residual(nn.Module):
    """A skip connection around two layers, which may be cut."""

    def __init__(self, inner, *, cut=False):
        super().__init__()
        self.inner, self.cut = inner, cut

    def forward(self, x):
        return self.inner(x) + (x.detach() if self.cut else x)


def block(layer, *, cut=False):
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(3, 4), layer, nn.Linear(4, 3))
    return Residual(inner, cut=cut).double()


def test_an_input_that_a_wrong_layer_spoils_has_no_finding_of_its_own():
    """Where all that leads from the input to a wrong layer is right, so is its path."""
    x = torch.linspace(-1, 2, 6, dtype=torch.float64).reshape(2, 3).requires_grad_()

    report = gl.check(block(Layer()), x, loss=lambda out: (out**2).sum())

    assert report["x"].verdict is gl.Verdict.DISAGREES
    (found,) = report.findings
    assert found.where == "inner.1"
    assert str(report).startswith("✗ disagrees: inner.1 is wrong (")


def test_an_input_whose_own_path_is_cut_is_told():
    """A model that is wrong itself is told, whatever its layers are."""
    x = torch.linspace(-1, 2, 6, dtype=torch.float64).reshape(2, 3).requires_grad_()

    right = gl.check(block(nn.Tanh()), x, loss=lambda out: (out**2).sum())
    cut = gl.check(block(Layer(), cut=True), x, loss=lambda out: (out**2).sum())

    assert not right.findings
    assert any("x" in f.evidence or f.where == "x" for f in cut.findings)
    assert {"inner.1", "Residual"} <= set(cut.culprits)


def test_every_small_wrong_layer_has_its_cause_named():
    """An audit looks at more than the first layer whose cause its slopes leave open."""
    torch.manual_seed(0)

    sine = with_backward(lambda x: x.sin(), lambda x, up: up * x.cosh())

    class Waves(nn.Module):
        def forward(self, x):
            return sine(x)

    model = nn.Sequential(nn.Linear(3, 4), Waves(), nn.Linear(4, 3), Layer()).double()

    audit = gl.blame(model, torch.randn(2, 3, dtype=torch.float64))

    kinds = {f.where: f.kind for f in audit.findings}
    assert kinds == {"3": "wrong_derivative", "1": "wrong_derivative"}
