"""Levels about what lies between forward and backward: cache, statistics, capsule."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.teaching.level import Level, Size, Trial, named
from gradlab.teaching.levels_layers import call

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BATCH_NORM", "DEAF_CAPSULE", "STALE_CACHE"]

# ---------------------------------------------------------------------- the stale cache


def _deal_batches(rng: np.random.Generator, size: Size) -> Trial:
    rows, into, out = (4, 2, 5) if size == "hidden" else (5, 4, 3)
    inputs = {
        "x": rng.standard_normal((rows, into)),
        "W": rng.standard_normal((into, out)),
        "b": rng.standard_normal(out),
    }
    first = {
        "first x": rng.standard_normal((rows, into)),
        "first dout": rng.standard_normal((rows, out)),
    }
    return Trial(inputs, first, rng.standard_normal((rows, out)))


def _run_batches(student: Any, trial: Trial) -> tuple[Any, Mapping[str, Any]]:
    """Two steps of training, as every layer sees them; the second one is judged."""
    layer = student(trial.inputs["W"], trial.inputs["b"])
    layer.forward(trial.given["first x"])
    layer.backward(trial.given["first dout"])
    out = layer.forward(trial.inputs["x"])
    return out, named(layer.backward(trial.dout), ("dx", "dW", "db"))


STALE_CACHE = Level(
    title="Right the first time",
    edit="Linear",
    story="A linear layer as a class: forward remembers what backward needs. Its "
    "author checked it once, with one batch, and all was well. The game calls forward "
    "and backward with one batch, then with another, and looks at the second.",
    source='''\
import numpy as np


class Linear:
    """out = x @ W + b; forward keeps x for backward."""

    def __init__(self, W, b):
        self.W, self.b = W, b
        self.cache = None

    def forward(self, x):
        if self.cache is None:
            self.cache = x
        return x @ self.W + self.b

    def backward(self, dout):
        x = self.cache
        dx = dout @ self.W.T
        dW = x.T @ dout
        db = dout.sum(axis=0)
        return dx, dW, db
''',
    repair=(
        "        if self.cache is None:\n            self.cache = x\n",
        "        self.cache = x\n",
    ),
    wrong=("dW",),
    hints=(
        (
            "The three formulas are right, and still dW is not. What does dW need "
            "that dx and db do not?"
        ),
        "dW is made from x. Of which batch is the x that backward finds?",
        (
            "forward keeps only the very first x. It has to keep the latest one: "
            "`self.cache = x`, every time."
        ),
    ),
    moral="A formula can be right and its inputs old. Check a layer twice in a row, "
    "with different inputs: state shows itself at the second call only.",
    gradients={"dx": "x", "dW": "W", "db": "b"},
    deal=_deal_batches,
    forward=lambda inputs, _: inputs["x"] @ inputs["W"] + inputs["b"],
    run=_run_batches,
)

# ------------------------------------------------------------------- the forgotten path

_EPS = 1e-5


def _batch_norm(inputs: Mapping[str, Any], _: Mapping[str, Any]) -> Any:
    x = inputs["x"]
    scale = np.sqrt(((x - x.mean(axis=0)) ** 2).mean(axis=0) + _EPS)
    return inputs["gamma"] * (x - x.mean(axis=0)) / scale + inputs["beta"]


def _deal_norm(rng: np.random.Generator, size: Size) -> Trial:
    rows, features = (7, 2) if size == "hidden" else (5, 3)
    inputs = {
        "x": rng.standard_normal((rows, features)),
        "gamma": rng.uniform(0.5, 2.0, features),
        "beta": rng.standard_normal(features),
    }
    return Trial(inputs, dout=rng.standard_normal((rows, features)))


BATCH_NORM = Level(
    title="The forgotten path",
    edit="batchnorm_backward",
    story="Batch normalisation, at training time: each column of x is brought to mean "
    "0 and variance 1. Every entry of x reaches the output on three paths: directly, "
    "through the mean, and through the variance.",
    source='''\
import numpy as np


def batchnorm_backward(dout, x, gamma, beta, eps=1e-5):
    """Gradients of out = gamma * xhat + beta, xhat = (x - mean) / std."""
    std = np.sqrt(x.var(axis=0) + eps)
    xhat = (x - x.mean(axis=0)) / std
    dgamma = (dout * xhat).sum(axis=0)
    dbeta = dout.sum(axis=0)
    dxhat = dout * gamma
    dx = (dxhat - dxhat.mean(axis=0)) / std
    return dx, dgamma, dbeta
''',
    repair=(
        "dx = (dxhat - dxhat.mean(axis=0)) / std",
        "dx = (dxhat - dxhat.mean(axis=0) - xhat * (dxhat * xhat).mean(axis=0)) / std",
    ),
    wrong=("dx",),
    hints=(
        (
            "Only dx is wrong, so dxhat is right. Count the terms of dx: how many "
            "paths lead from x to out?"
        ),
        (
            "One term is the direct path, one is the path through the mean. The path "
            "through the variance is missing."
        ),
        "Subtract `xhat * (dxhat * xhat).mean(axis=0)` before dividing by std.",
    ),
    moral="A variable that reaches the output on several paths has one term for each. "
    "A term that is missing gives a gradient that looks plausible: only a check "
    "tells.",
    gradients={"dx": "x", "dgamma": "gamma", "dbeta": "beta"},
    deal=_deal_norm,
    forward=_batch_norm,
    run=call("dx", "dgamma", "dbeta"),
)

# --------------------------------------------------------------------- the deaf capsule


def _deal_sigmoid(rng: np.random.Generator, size: Size) -> Trial:
    shape = (3, 2) if size == "hidden" else (2, 4)
    inputs = {"x": rng.standard_normal(shape)}
    return Trial(inputs, dout=rng.standard_normal(shape))


def _run_capsule(student: Any, trial: Trial) -> tuple[Any, Mapping[str, Any]]:
    torch: Any = sys.modules["torch"]  # the student's cell has imported it
    with torch.enable_grad():
        x = torch.tensor(trial.inputs["x"], requires_grad=True)
        out = student.apply(x)
        (dx,) = torch.autograd.grad(out, x, torch.tensor(trial.dout))
    return out.detach().numpy(), {"dx": dx.numpy()}


DEAF_CAPSULE = Level(
    title="The deaf capsule",
    edit="Sigmoid",
    story="A sigmoid with a backward of its own, for PyTorch. Summed up right after "
    "the sigmoid, its gradient is exact. Inside a network, everything below it is "
    "wrong.",
    source='''\
import torch


class Sigmoid(torch.autograd.Function):
    """1 / (1 + exp(-x)), with a backward by hand."""

    @staticmethod
    def forward(ctx, x):
        out = 1 / (1 + torch.exp(-x))
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, dout):
        (out,) = ctx.saved_tensors
        return out * (1 - out)
''',
    repair=("return out * (1 - out)", "return dout * out * (1 - out)"),
    wrong=("dx",),
    hints=(
        (
            "`out * (1 - out)` is the derivative of the sigmoid. But backward is not "
            "asked for a derivative."
        ),
        (
            "backward receives dout and returns the gradient of the loss. Who uses "
            "dout here?"
        ),
        "The chain rule multiplies: `dout * out * (1 - out)`.",
    ),
    moral="backward computes a vector-Jacobian product, not a derivative. A capsule "
    "that ignores what arrives is right only where a one arrives.",
    gradients={"dx": "x"},
    deal=_deal_sigmoid,
    forward=lambda inputs, _: 1 / (1 + np.exp(-inputs["x"])),
    run=_run_capsule,
    needs="torch",
)
