"""Planted bugs in torch: custom functions, graphs that are cut, losses and layers."""

from __future__ import annotations

import torch
from torch.nn import functional

from tests.diagnosis.pieces import Program, sizes


def _tensor(rng, *shape):
    return torch.tensor(rng.normal(size=shape), requires_grad=True)


def _function(f, b, name="Custom"):
    """Make a custom function from a forward and a backward(ctx, upstream, *saved)."""

    def forward(ctx, *inputs):
        out = f(*inputs)
        ctx.save_for_backward(*inputs, out)
        return out

    def backward(ctx, up):
        return b(up, *ctx.saved_tensors)

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(name, (torch.autograd.Function,), members).apply


def activation(rng, slip):
    backwards = {
        "": lambda up, x, y: up * (1 - y * y),
        "formula": lambda up, x, y: up * (1 - y),
        "plus": lambda up, x, y: up * (1 + y * y),
        "input": lambda up, x, y: up * (1 - x * x),
        "ignores": lambda up, x, y: 1 - y * y,
        "factor": lambda up, x, y: up * (1 - y * y) * 1.001,
        "negative": lambda up, x, y: -up * (1 - y * y),
        "none": lambda up, x, y: None,
        "float": lambda up, x, y: (up * (1 - y * y)).float(),
        "clamp": lambda up, x, y: (up * (1 - y * y)).clamp(-0.4, 0.4),
        "identity": lambda up, x, y: up,
        "zero": lambda up, x, y: 0 * up,
    }
    x = _tensor(rng, *sizes(rng, 2))
    return Program(_function(torch.tanh, backwards[slip]), (x,))


def rectifier(rng, slip):
    backwards = {
        "": lambda up, x, y: up * (x > 0),
        "no mask": lambda up, x, y: up,
        "mask of upstream": lambda up, x, y: up * (up > 0),
        "flipped": lambda up, x, y: up * (x < 0),
        "shifted": lambda up, x, y: up * (x > 0.5),
    }
    x = _tensor(rng, 4, 5)
    return Program(_function(torch.relu, backwards[slip]), (x,))


def affine(rng, slip):
    n, d, k = sizes(rng, 3, 3, 6)
    if slip == "W for W.T":
        k = d
    backwards = {
        "": lambda up, x, W, b, y: (up @ W, up.T @ x, up.sum(0)),
        "W for W.T": lambda up, x, W, b, y: (up @ W.T, up.T @ x, up.sum(0)),
        "swapped": lambda up, x, W, b, y: (up @ W, x.T @ up, up.sum(0)),
        "db mean": lambda up, x, W, b, y: (up @ W, up.T @ x, up.mean(0)),
        "db first": lambda up, x, W, b, y: (up @ W, up.T @ x, up[0]),
        "dW none": lambda up, x, W, b, y: (up @ W, None, up.sum(0)),
        "dW doubled": lambda up, x, W, b, y: (up @ W, 2 * up.T @ x, up.sum(0)),
        "dW decayed": lambda up, x, W, b, y: (up @ W, up.T @ x + 0.01 * W, up.sum(0)),
        "dx ignores": lambda up, x, W, b, y: (
            torch.ones_like(up) @ W, up.T @ x, up.sum(0)
        ),
        "dW of y": lambda up, x, W, b, y: (up @ W, up.T @ x.abs(), up.sum(0)),
    }  # fmt: skip
    inputs = _tensor(rng, n, d), _tensor(rng, k, d), _tensor(rng, k)
    call = _function(lambda x, W, b: x @ W.T + b, backwards[slip])
    return Program(call, inputs)


def graph(rng, slip):
    x, w = _tensor(rng, 4, 3), _tensor(rng, 3)

    def fn(x, w):
        h = torch.tanh(x * w)
        match slip:
            case "detach":
                return (h * h.detach()).sum(1)
            case "data":
                return h * (x.data**2)
            case "no grad":
                with torch.no_grad():
                    scale = h.norm()
                return h * scale
            case "item":
                return torch.sin(x) * w.sum().item()
            case "numpy":
                return torch.tensor(x.detach().numpy() ** 2) * w
            case "weight detached":
                return h + torch.sin(x * w.detach())
            case "part of output":
                return torch.cat([h[:2], torch.exp(h[2:]).detach()])
        return h * torch.exp(x).sum(1, keepdim=True)

    return Program(fn, (x, w))


def surrogate(rng, slip):
    x = _tensor(rng, 3, 4)
    fn = {
        "": lambda x: x**3,
        "round": lambda x: x + (torch.round(x * 3) / 3 - x).detach(),
        "sign": _function(torch.sign, lambda up, x, y: up * (x.abs() < 1)),
        "step": _function(lambda x: (x > 0) * 1.0, lambda up, x, y: up),
        "reversal": _function(lambda x: x.clone(), lambda up, x, y: -up),
        "scaled reversal": _function(lambda x: x * 1.0, lambda up, x, y: -0.3 * up),
    }[slip]
    return Program(fn, (x,))


def loss_function(rng, slip):
    """A custom loss with one number as output."""
    n, k = sizes(rng, 2, 3, 6)
    target = torch.tensor(rng.normal(size=(n, k)))
    backwards = {
        "": lambda up, x, y: up * 2 * (x - target) / x.numel(),
        "ignores": lambda up, x, y: 2 * (x - target) / x.numel(),
        "sum": lambda up, x, y: up * 2 * (x - target),
        "batch": lambda up, x, y: up * 2 * (x - target) / n,
        "no two": lambda up, x, y: up * (x - target) / x.numel(),
        "reversed": lambda up, x, y: up * 2 * (target - x) / x.numel(),
        "no target": lambda up, x, y: up * 2 * x / x.numel(),
    }
    loss = _function(lambda x: ((x - target) ** 2).mean(), backwards[slip])
    return Program(loss, (_tensor(rng, n, k),))


def conjugate(rng, slip):
    n = 4
    z = torch.tensor(rng.normal(size=n) + 1j * rng.normal(size=n), requires_grad=True)
    backwards = {
        "": lambda up, z, y: up * (3 * z**2).conj(),
        "lost": lambda up, z, y: up * 3 * z**2,
        "all": lambda up, z, y: (up * (3 * z**2).conj()).conj(),
    }
    return Program(_function(lambda z: z**3, backwards[slip]), (z,))


class Bent(torch.nn.Module):
    """An activation whose backward may be wrong."""

    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, x):
        return self.call(x)


def module(rng, slip):
    torch.manual_seed(int(rng.integers(1 << 30)))
    backwards = {
        "": lambda up, x, y: up * (1 - y * y),
        "factor": lambda up, x, y: 1.001 * up * (1 - y * y),
        "formula": lambda up, x, y: up * (1 - y),
        "sign": lambda up, x, y: -up * (1 - y * y),
        "ignores": lambda up, x, y: 1 - y * y,
    }
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 6),
        torch.nn.Tanh(),
        torch.nn.Linear(6, 6),
        Bent(_function(torch.tanh, backwards[slip])),
        torch.nn.Linear(6, 3),
    ).double()
    labels = torch.tensor([0, 1, 2, 0, 1])
    x = torch.tensor(rng.normal(size=(5, 4)))
    loss = lambda out: functional.cross_entropy(out, labels)
    return Program(net, (x,), {"loss": loss})


SLIPS = {
    (activation, "formula"): ("wrong_derivative", (), ("x0", "x")),
    (activation, "plus"): ("wrong_derivative", (), ("x0", "x")),
    (activation, "input"): ("stale_cache", (), ("x0", "x")),
    (activation, "ignores"): ("ignores_upstream", (), ("x0", "x")),
    (activation, "factor"): ("scale", (), ("x0", "x")),
    (activation, "negative"): ("sign", (), ("x0", "x")),
    (activation, "none"): ("detached", (), ("x0", "x")),
    (activation, "zero"): ("detached", (), ("x0", "x")),
    (activation, "float"): ("dtype", (), ("x0", "x")),
    (activation, "clamp"): ("surrogate", (), ("x0", "x")),
    (activation, "identity"): (
        "wrong_derivative", ("surrogate", "missing_term"), ("x",),
    ),
    (rectifier, "no mask"): ("wrong_mask", (), ("x",)),
    (rectifier, "mask of upstream"): ("wrong_mask", ("ignores_upstream",), ("x",)),
    (rectifier, "flipped"): ("wrong_mask", (), ("x",)),
    (rectifier, "shifted"): ("wrong_mask", (), ("x",)),
    (affine, "W for W.T"): ("transpose", (), ("x",)),
    (affine, "swapped"): ("transpose", ("wrong_shape",), ("W",)),
    (affine, "db mean"): ("missing_reduction", (), ("b",)),
    (affine, "db first"): ("broadcast_reduction", (), ("b",)),
    (affine, "dW none"): ("detached", (), ("W",)),
    (affine, "dW doubled"): ("scale", (), ("W",)),
    (affine, "dW decayed"): ("regularization", (), ("W",)),
    (affine, "dx ignores"): ("ignores_upstream", (), ("x",)),
    (affine, "dW of y"): ("stale_cache", ("sign", "wrong_derivative"), ("W",)),
    (graph, "detach"): ("detached", (), ("x", "w")),
    (graph, "data"): ("detached", (), ("x", "w")),
    (graph, "no grad"): ("detached", (), ("x", "w")),
    (graph, "item"): ("detached", (), ("w",)),
    (graph, "numpy"): ("detached", (), ("x",)),
    (graph, "weight detached"): ("detached", (), ("w",)),
    (graph, "part of output"): ("detached", (), ("x", "w")),
    (surrogate, "round"): ("surrogate", (), ("x",)),
    (surrogate, "sign"): ("surrogate", (), ("x",)),
    (surrogate, "step"): ("surrogate", (), ("x",)),
    (surrogate, "reversal"): ("surrogate", ("sign",), ("x",)),
    (surrogate, "scaled reversal"): ("surrogate", ("scale",), ("x",)),
    (loss_function, "ignores"): ("ignores_upstream", (), ("x",)),
    (loss_function, "sum"): ("missing_reduction", (), ("x",)),
    (loss_function, "batch"): ("missing_reduction", (), ("x",)),
    (loss_function, "no two"): ("scale", (), ("x",)),
    (loss_function, "reversed"): ("sign", (), ("x",)),
    (loss_function, "no target"): ("missing_term", (), ("x",)),
    (conjugate, "lost"): ("conjugate", (), ("z",)),
    (conjugate, "all"): ("conjugate", (), ("z",)),
    (module, "factor"): ("scale", (), ("3",)),
    (module, "formula"): ("wrong_derivative", (), ("3",)),
    (module, "sign"): ("sign", (), ("3",)),
    (module, "ignores"): ("ignores_upstream", (), ("3",)),
}  # fmt: skip

# a custom function has no argument names: its inputs are called after the forward
SLIPS = {
    key: (kind, also, (*roots, "inputs.0", "inputs.1", "inputs.2"))
    if key[0] not in {graph, module}
    else (kind, also, roots)
    for key, (kind, also, roots) in SLIPS.items()
}

CONTROLS = (
    activation, rectifier, affine, graph, surrogate, loss_function, conjugate, module,
)  # fmt: skip
