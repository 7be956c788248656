"""Levels about single layers: bias, mask, transpose, softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.teaching.level import Level, Size, Trial, named

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["LAZY_BIAS", "SOFTMAX_AXIS", "TRANSPOSED", "WRONG_MASK", "call"]


def call(*names: str) -> Callable[[Any, Trial], tuple[None, Mapping[str, Any]]]:
    """Run a student's ``backward(dout, *inputs)`` that returns gradients in order."""

    def run(student: Any, trial: Trial) -> tuple[None, Mapping[str, Any]]:
        return None, named(student(trial.dout, *trial.inputs.values()), names)

    return run


# ------------------------------------------------------------------------ the lazy bias


def _deal_linear(rng: np.random.Generator, size: Size) -> Trial:
    rows, into, out = (3, 6, 2) if size == "hidden" else (5, 4, 3)
    inputs = {
        "x": rng.standard_normal((rows, into)),
        "W": rng.standard_normal((into, out)),
        "b": rng.standard_normal(out),
    }
    return Trial(inputs, dout=rng.standard_normal((rows, out)))


LAZY_BIAS = Level(
    title="The lazy bias",
    edit="linear_backward",
    story="A linear layer, `out = x @ W + b`, for a whole batch of rows at once. "
    "`dout` is what arrives from the layer above: the gradient of the loss with "
    "respect to `out`. With a batch of one row this code is right.",
    source='''\
import numpy as np


def linear_backward(dout, x, W, b):
    """Gradients of out = x @ W + b."""
    dx = dout @ W.T
    dW = x.T @ dout
    db = dout
    return dx, dW, db
''',
    repair=("db = dout\n", "db = dout.sum(axis=0)\n"),
    wrong=("db",),
    hints=(
        "A gradient has the shape of what it belongs to. Which of the three does not?",
        (
            "In the forward pass one b is added to every row. So every row has a "
            "say in the gradient of `b`."
        ),
        "A value that is used many times collects the sum: `db = dout.sum(axis=0)`.",
    ),
    moral="What the forward pass broadcasts, the backward pass sums. And a gradient "
    "has the shape of its parameter: look at shapes first.",
    gradients={"dx": "x", "dW": "W", "db": "b"},
    deal=_deal_linear,
    forward=lambda inputs, _: inputs["x"] @ inputs["W"] + inputs["b"],
    run=call("dx", "dW", "db"),
)

# ----------------------------------------------------------------------- the wrong mask

WRONG_MASK = Level(
    title="The wrong mask",
    edit="relu_layer_backward",
    story="A linear layer and a ReLU, `out = max(0, x @ W + b)`. All shapes are right, "
    "many entries are right, and a network with this layer even learns something.",
    source='''\
import numpy as np


def relu_layer_backward(dout, x, W, b):
    """Gradients of out = np.maximum(0, x @ W + b)."""
    z = x @ W + b
    dz = dout * (dout > 0)
    dx = dz @ W.T
    dW = x.T @ dz
    db = dz.sum(axis=0)
    return dx, dW, db
''',
    repair=("dout * (dout > 0)", "dout * (z > 0)"),
    wrong=("dx", "dW", "db"),
    hints=(
        "All three gradients are wrong. What do they have in common?",
        "A ReLU lets the gradient through where it let its input through.",
        "`z` is computed and never used. The mask is `(z > 0)`.",
    ),
    moral="When everything is wrong, look at what everything is made from. The mask of "
    "the backward pass is the mask of the forward pass.",
    gradients={"dx": "x", "dW": "W", "db": "b"},
    deal=_deal_linear,
    forward=lambda inputs, _: np.maximum(0.0, inputs["x"] @ inputs["W"] + inputs["b"]),
    run=call("dx", "dW", "db"),
)

# -------------------------------------------------------------------- the square matrix


def _deal_two_layers(rng: np.random.Generator, size: Size) -> Trial:
    rows, into, between, out = (2, 5, 4, 3) if size == "hidden" else (6, 3, 3, 3)
    inputs = {
        "x": rng.standard_normal((rows, into)),
        "A": 0.5 * rng.standard_normal((into, between)),
        "B": rng.standard_normal((between, out)),
    }
    return Trial(inputs, dout=rng.standard_normal((rows, out)))


TRANSPOSED = Level(
    title="The square matrix",
    edit="two_layers_backward",
    story="Two layers with a tanh between them, `out = tanh(x @ A) @ B`. Every matrix "
    "in the test of its author was square, so no shape ever complained.",
    source='''\
import numpy as np


def two_layers_backward(dout, x, A, B):
    """Gradients of out = np.tanh(x @ A) @ B."""
    h = np.tanh(x @ A)
    dB = h.T @ dout
    dh = dout @ B
    dz = dh * (1 - h**2)
    dA = x.T @ dz
    dx = dz @ A.T
    return dx, dA, dB
''',
    repair=("dh = dout @ B\n", "dh = dout @ B.T\n"),
    wrong=("dx", "dA"),
    hints=(
        (
            "The gradient flows from out to B, then to h, A and x. Who is the first "
            "to be wrong on that way?"
        ),
        "dB is right, so dout and h are. dA and dx both come through dh.",
        "Going backward through `y = h @ B` multiplies by the transpose: `dout @ B.T`.",
    ),
    moral="The backward of a matrix is its transpose. Test with sizes that all differ: "
    "then a missing transpose cannot hide.",
    gradients={"dx": "x", "dA": "A", "dB": "B"},
    deal=_deal_two_layers,
    forward=lambda inputs, _: np.tanh(inputs["x"] @ inputs["A"]) @ inputs["B"],
    run=call("dx", "dA", "dB"),
)

# --------------------------------------------------------------------- along which axis


def _softmax(inputs: Mapping[str, Any], _: Mapping[str, Any]) -> Any:
    e = np.exp(inputs["x"] - inputs["x"].max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _deal_softmax(rng: np.random.Generator, size: Size) -> Trial:
    shape = (2, 6) if size == "hidden" else (4, 4)
    inputs = {"x": rng.standard_normal(shape)}
    return Trial(inputs, dout=rng.standard_normal(shape))


SOFTMAX_AXIS = Level(
    title="Along which axis",
    edit="softmax_backward",
    story="A softmax along each row, as in attention: every row of p sums to one. Its "
    "backward pass fits on a line, and that line runs for every shape.",
    source='''\
import numpy as np


def softmax_backward(dout, x):
    """Gradient of p = softmax(x), each row for itself."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    dx = p * (dout - (p * dout).sum(axis=0, keepdims=True))
    return dx
''',
    repair=("(p * dout).sum(axis=0,", "(p * dout).sum(axis=1,"),
    wrong=("dx",),
    hints=(
        (
            "Adding a constant to a row of x does not change p. So what must each "
            "row of dx sum to? Print `dx.sum(axis=1)`."
        ),
        "Rows do not know each other in the forward pass. Where do they meet here?",
        "The sum runs over columns in the forward pass, so it does here: `axis=1`.",
    ),
    moral="What is normalised along an axis has a backward that sums along the same "
    "axis. Invariants find bugs: each row of this gradient sums to zero.",
    gradients={"dx": "x"},
    deal=_deal_softmax,
    forward=_softmax,
    run=call("dx"),
)
