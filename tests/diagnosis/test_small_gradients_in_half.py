"""What float16 loses of a small gradient does not double with the incoming one."""

from __future__ import annotations

import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")
nn = torch.nn


class Autocast(nn.Module):
    """An encoder as a training step in mixed precision runs it."""

    def __init__(self):
        super().__init__()
        options = {"dropout": 0.0, "batch_first": True}
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, **options)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.float16):
            return self.layer(x).float()


def energy(out):
    """Nearly the same of all that a layer norm is given: its gradient is as small."""
    return (out**2).mean()


@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("seed", range(3))
def test_small_right_gradients_are_not_accused(seed, coverage):
    """A few steps of 6e-8 are no linear map of what comes in; scaled up they are."""
    torch.manual_seed(seed)
    net, x = Autocast(), torch.randn(2, 3, 4)
    energy(net(x)).backward()
    assert 0 < net.layer.linear1.weight.grad.abs().max() < 1e-4
    net.zero_grad()

    report = gl.check(net, x, loss=energy, coverage=coverage)

    assert report.verdict == gl.Verdict.AGREES, report
    assert report.ok, report


# Right where one comes in, and always as if it were one.
deaf = with_backward(
    lambda x: x.sum(), lambda x, up: torch.ones_like(x) if up else 0 * x
)
deaf_always = with_backward(lambda x: x.sum(), lambda x, up: torch.ones_like(x))
clipped = with_backward(
    lambda x: x.sum(), lambda x, up: torch.ones_like(x) * up.clamp(-1, 1)
)


@pytest.mark.parametrize("backward", [deaf, deaf_always, clipped])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_what_does_not_double_at_any_size_is_told(backward, dtype):
    """A scaled loss, as such models are trained with, does not make it linear."""
    x = torch.linspace(-1, 1, 5).requires_grad_()

    report = gl.check(lambda x: backward(torch.sin(x).to(dtype)).float(), x)

    kinds = {str(f.kind) for f in report.findings if f.severity == "error"}
    assert kinds in ({"ignores_upstream"}, {"surrogate"}), report
