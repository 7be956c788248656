"""A backward that raises for the model as a whole, and for none of its calls."""

from __future__ import annotations

import pytest

import gradlab as gl

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


def test_what_raises_is_not_right():
    """Torch refuses the whole backward, so the model is left open with its words."""
    model, x, audit = audited(after=True)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        model(x).sum().backward()

    (root,) = (row for row in audit.rows if row.name == "Overwriting")
    assert root.state == "unchecked"
    assert "raised RuntimeError: one of the variables needed" in root.reason
    assert [finding.severity for finding in audit.findings] == ["warning"]


def test_what_does_not_raise_is_right():
    """The same with a copy of the column."""
    _, _, audit = audited(after=False)
    assert {row.state for row in audit.rows} == {"right"}
    assert not audit.findings
