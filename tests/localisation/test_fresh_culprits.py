"""`gl.check` names the guilty layer first, in networks that it was not tuned on."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import gradlab as gl  # noqa: E402

pytestmark = pytest.mark.untraced


class HalfDetached(nn.Module):
    """x sigmoid(x), with the gate cut off."""

    def forward(self, x):
        """Return the product."""
        return x * torch.sigmoid(x.detach())


class Hooked(nn.Module):
    """tanh with a hook on its output that was forgotten."""

    def forward(self, x):
        """Return tanh; its gradient comes out half as large again."""
        y = torch.tanh(x)
        if y.requires_grad:
            y.register_hook(lambda g: 1.5 * g)
        return y


class ThroughNumpy(nn.Module):
    """x + x**2, the square by NumPy."""

    def forward(self, x):
        """Return the sum, whose second term has no gradient."""
        return x + torch.from_numpy(x.detach().numpy() ** 2)


class Data(nn.Module):
    """A scale whose parameter is read past autograd."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(6) + 0.5)

    def forward(self, x):
        """Return x times the scale."""
        return x * self.scale.data


class Net(nn.Module):
    """Two linear layers around a guilty one, put together in several ways."""

    def __init__(self, bad, way):
        super().__init__()
        self.enter, self.mid = nn.Linear(5, 6), nn.Linear(6, 6)
        self.bad, self.leave = bad(), nn.Linear(6, 3)
        self.way = way
        if way == "tied":
            self.twin = nn.Linear(6, 6)
            self.twin.weight = self.mid.weight
        if way == "hooks":
            self.mid.register_forward_hook(lambda _m, _i, out: 1.1 * out)

    def forward(self, x):
        """Return three numbers for each sample."""
        h = self.enter(x)
        if self.way == "branches":
            h = torch.tanh(self.mid(h)) * self.bad(h) + h
        elif self.way == "shared":
            h = self.bad(0.5 * self.bad(h)) + self.bad(h + 1)
        elif self.way == "recurrent":
            for _ in range(3):
                h = torch.tanh(self.bad(h + self.mid(h)))
        elif self.way == "checkpoint":
            h = checkpoint(lambda z: self.mid(self.bad(z)), h, use_reentrant=False)
        elif self.way == "tied":
            h = self.twin(self.bad(self.mid(h)))
        elif self.way == "in place":
            h = (self.bad(h) + 0).mul_(2)
        else:
            h = self.bad(self.mid(h))
        return {"y": (self.leave(h),)}


WAYS = (
    "branches", "shared", "recurrent", "checkpoint", "tied", "in place", "hooks",
)  # fmt: skip


@pytest.mark.thinned(2)
@pytest.mark.parametrize("bad", [HalfDetached, Hooked, ThroughNumpy, Data])
@pytest.mark.parametrize("way", WAYS)
def test_the_guilty_layer_comes_first(bad, way):
    """Whatever the network around it, the root culprit is the layer itself."""
    torch.manual_seed(7)
    model = Net(bad, way).double()
    x = torch.randn(4, 5, dtype=torch.float64)
    report = gl.check(model, x, loss=lambda out: out["y"][0].pow(2).mean())

    assert report.culprit == "bad"


@pytest.mark.parametrize("way", WAYS)
def test_the_same_networks_without_the_slip_are_right(way):
    """With torch's own activation nobody is accused."""
    torch.manual_seed(7)
    model = Net(nn.SiLU, way).double()
    x = torch.randn(4, 5, dtype=torch.float64)
    report = gl.check(model, x, loss=lambda out: out["y"][0].pow(2).mean())

    assert report.verdict == gl.Verdict.AGREES
    assert gl.blame(model, x, loss=lambda out: out["y"][0].pow(2).mean()).ok
