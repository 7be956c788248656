"""Trainable tensors that a module keeps where no optimiser finds them."""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")
nn = torch.nn

X = torch.tensor([[0.3, -0.7, 0.2], [1.1, 0.4, -0.5]], dtype=torch.float64)


class Listed(nn.Module):
    """Layers in a list, or a ModuleList; a scale in an attribute; a teacher."""

    def __init__(self, *, registered):
        super().__init__()
        layers = [nn.Linear(3, 3).double() for _ in range(2)]
        self.layers = nn.ModuleList(layers) if registered else layers
        self.last = nn.Linear(3, 1).double()
        self.teacher = [nn.Linear(3, 1).double()]  # on purpose: it is not trained

    def forward(self, x):
        with torch.no_grad():
            wanted = self.teacher[0](x)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.last(x) - wanted


def said(report):
    """Remarks on what no optimiser sees."""
    return [remark for remark in report.remarks if "optimiser" in remark]


def test_layers_in_a_plain_list_are_told():
    """Their gradients are not checked, nor will they be used: that is said."""
    torch.manual_seed(0)

    report = gl.check(Listed(registered=False), X, loss=lambda out: (out**2).mean())

    assert report.ok
    (remark,) = said(report)
    assert "layers[0].weight, layers[0].bias, layers[1].weight" in remark
    assert "teacher" not in remark
    assert "nn.ModuleList" in remark


def test_layers_that_are_registered_are_not():
    """Nor is what is only read without a gradient."""
    torch.manual_seed(0)

    report = gl.check(Listed(registered=True), X, loss=lambda out: (out**2).mean())

    assert report.ok
    assert said(report) == []


def test_one_tensor_in_an_attribute():
    """Which is no nn.Parameter."""
    net = nn.Linear(3, 3).double()

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net
            self.scale = torch.ones(3, dtype=torch.float64, requires_grad=True)

        def forward(self, x):
            return self.net(x) * self.scale

    model = Scaled()
    report = gl.check(model, X, loss=lambda out: (out**2).mean())

    (remark,) = said(report)
    assert remark.startswith("not compared: scale, which the module does not hold as a")
    assert model.scale.grad is None
