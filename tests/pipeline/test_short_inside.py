"""Models in float32 that compute in half precision inside, as under autocast."""

from __future__ import annotations

import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")
nn = torch.nn


class Autocast(nn.Module):
    """A layer under autocast to bfloat16."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        """Compute in bfloat16, return float32."""
        with torch.autocast("cpu", torch.bfloat16):
            return self.inner(x).float()


# The identity, with twice its gradient.
doubling = with_backward(lambda x: x.clone(), lambda _x, upstream: 2 * upstream)


def model():
    """Two layers, of which a unit lies 4e-5 from zero: bfloat16 switches it."""
    torch.manual_seed(1315)
    inner = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    x, labels = torch.randn(8, 6), torch.randint(0, 3, (8,))
    hidden = inner[0](x).abs().min()
    assert hidden < 1e-4
    return inner, x, lambda out: nn.functional.cross_entropy(out, labels)


@pytest.mark.parametrize("coverage", ["full", "probe"])
def test_unit_switched_by_rounding(coverage):
    """A unit that half precision switches is no wrong mask."""
    inner, x, loss = model()

    report = gl.check(Autocast(inner), x, loss=loss, coverage=coverage)

    assert report.ok
    assert report.verdict is gl.Verdict.AGREES


def test_wrong_factor_beside_it():
    """A factor is found there all the same."""
    inner, x, loss = model()

    report = gl.check(Autocast(inner), x, loss=lambda out: loss(doubling(out)))

    assert report.verdict is gl.Verdict.DISAGREES
