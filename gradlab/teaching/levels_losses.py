"""Levels about losses: the tutorial's network, and the mean that was forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.teaching.level import Level, Size, Trial, named

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DOUBLED", "NO_MEAN"]


def _cross_entropy(scores: Any, y: Any) -> Any:
    """Mean negative log of the probability that each row gives its class."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return -logs[np.arange(len(y)), y].mean()


# ------------------------------------------------------------------- the doubled weight


def _network(inputs: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    hidden = np.maximum(0.0, given["X"] @ inputs["W1"] + inputs["b1"])
    return _cross_entropy(hidden @ inputs["W2"] + inputs["b2"], given["y"])


def _deal_network(rng: np.random.Generator, size: Size) -> Trial:
    rows, features, width, classes = (6, 3, 5, 4) if size == "hidden" else (5, 4, 10, 3)
    inputs = {
        "W1": rng.standard_normal((features, width)),
        "b1": 0.1 * rng.standard_normal(width),
        "W2": rng.standard_normal((width, classes)),
        "b2": 0.1 * rng.standard_normal(classes),
    }
    X = rng.standard_normal((rows, features))
    return Trial(inputs, {"X": X, "y": rng.integers(0, classes, rows)})


def _run_network(student: Any, trial: Trial) -> tuple[Any, Mapping[str, Any]]:
    net = student(*trial.inputs.values())
    loss, gradients = net.loss(trial.given["X"], trial.given["y"])
    return loss, named(gradients, tuple(trial.inputs))


DOUBLED = Level(
    title="The network that learns anyway",
    edit="TwoLayerNet",
    story="A two-layer network with a backward pass by hand. Its loss goes down when "
    "it is trained, and yet one of its four gradients is wrong.",
    source='''\
import numpy as np


class TwoLayerNet:
    """Linear, ReLU, linear, softmax; gradients by hand."""

    def __init__(self, W1, b1, W2, b2):
        self.params = {"W1": W1, "b1": b1, "W2": W2, "b2": b2}

    def loss(self, X, y):
        W1, b1, W2, b2 = self.params.values()
        rows = np.arange(len(X))

        # forward
        hidden = np.maximum(0, X @ W1 + b1)
        scores = hidden @ W2 + b2
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p = p / p.sum(axis=1, keepdims=True)
        loss = -np.log(p[rows, y]).mean()

        # backward
        dscores = p.copy()
        dscores[rows, y] -= 1
        dscores = dscores / len(X)
        dhidden = dscores @ W2.T
        dhidden[hidden <= 0] = 0
        grads = {
            "W1": 2 * X.T @ dhidden,
            "b1": dhidden.sum(axis=0),
            "W2": hidden.T @ dscores,
            "b2": dscores.sum(axis=0),
        }
        return loss, grads
''',
    repair=("2 * X.T @ dhidden", "X.T @ dhidden"),
    wrong=("W1",),
    hints=(
        "Press check. W1 and b1 are made from the same dhidden, and b1 is right.",
        (
            "So the mistake sits in the line of W1 itself. Compare yours with the "
            "number beside it: what is their ratio?"
        ),
        "There is a factor 2 that does not come from the forward pass: remove it.",
    ),
    moral="A wrong gradient can still go downhill: a doubled one only takes longer "
    "steps. That a network learns proves nothing about its gradients.",
    gradients={name: name for name in ("W1", "b1", "W2", "b2")},
    deal=_deal_network,
    forward=_network,
    run=_run_network,
)

# --------------------------------------------------------------------- the missing mean


def _deal_scores(rng: np.random.Generator, size: Size) -> Trial:
    rows, classes = (9, 3) if size == "hidden" else (4, 5)
    scores = rng.standard_normal((rows, classes))
    return Trial({"scores": scores}, {"y": rng.integers(0, classes, rows)})


def _run_loss(student: Any, trial: Trial) -> tuple[Any, Mapping[str, Any]]:
    loss, found = student(trial.inputs["scores"], trial.given["y"])
    return loss, named(found, ("dscores",))


NO_MEAN = Level(
    title="Learning rate and batch size",
    edit="softmax_loss",
    story="The softmax loss, averaged over the rows. Somebody noticed that whenever "
    "the batch becomes twice as large, the best learning rate becomes half as large.",
    source='''\
import numpy as np


def softmax_loss(scores, y):
    """Mean cross-entropy of the rows, and its gradient for the scores."""
    rows = np.arange(len(scores))
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p = p / p.sum(axis=1, keepdims=True)
    loss = -np.log(p[rows, y]).mean()

    dscores = p.copy()
    dscores[rows, y] -= 1
    return loss, dscores
''',
    repair=("return loss, dscores", "return loss, dscores / len(scores)"),
    wrong=("dscores",),
    hints=(
        "Every entry is wrong, and every entry is wrong by the same factor. Which?",
        "The factor is the number of rows. Where does the forward pass use it?",
        "The loss is a mean over rows, so its gradient is divided by `len(scores)`.",
    ),
    moral="The constant factors of a loss belong to its gradient too. A mean that "
    "became a sum looks like a learning rate that depends on the batch size.",
    gradients={"dscores": "scores"},
    deal=_deal_scores,
    forward=lambda inputs, given: _cross_entropy(inputs["scores"], given["y"]),
    run=_run_loss,
)
