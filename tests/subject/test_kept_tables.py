"""A table that a model keeps, and the length up to which it was made."""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")


class Rotary(torch.nn.Module):
    """Tables grow with the input, one in an attribute and one in a buffer."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
        self.cos, self.cos_length, self.sin_length = None, 0, 0
        self._keep(0)

    def _keep(self, length):
        table = torch.arange(4.0 * length, dtype=torch.float64).view(length, 4)
        self.register_buffer("sin", table.sin(), persistent=False)
        self.sin_length = length

    def forward(self, x):
        length = x.shape[1]
        if length > self.cos_length:
            self.cos_length = length
            self.cos = torch.arange(4.0 * length).view(length, 4).cos().to(x)
        if length > self.sin_length:
            self._keep(length)
        return x * self.cos[:length] * self.weight + self.sin[:length]


ASKED = {
    "check": gl.check,
    "probe": lambda model, x: gl.check(model, x, coverage="probe"),
    "closure": lambda model, x: gl.check(lambda x: 2 * model(x), x),
    "sweep": gl.sweep,
    "locate": gl.locate,
    "blame": gl.blame,
    "numeric": gl.numeric_jacobian,
    "analytic": gl.analytic_jacobian,
    "gradcheck": lambda model, x: gl.compat.torch.gradcheck(model, (x,)),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED.keys())
def test_a_table_and_its_length_go_together(ask):
    """The length was kept, for an integer that grew, and its table taken away.

    A check raised then, and left a model that raised ever after.
    """
    model = Rotary()
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).view(1, 3, 4).requires_grad_()
    result = ask(model, x)

    assert getattr(result, "verdict", gl.Verdict.AGREES) == gl.Verdict.AGREES
    assert (model.cos_length, model.sin_length, model.cos) == (0, 0, None)
    assert model.sin.shape == (0, 4)
    assert model(x).shape == x.shape
