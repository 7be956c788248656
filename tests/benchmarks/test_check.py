"""How long whole checks take, subject included, after import."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


@pytest.fixture
def network(rng):
    """Give the two-layer network of the course (4 - 10 - 3, five rows), W1 doubled."""
    inputs = 10 * rng.normal(size=(5, 4))
    labels = np.array([0, 1, 2, 2, 1])
    params = {
        "W1": 1e-1 * rng.normal(size=(4, 10)),
        "b1": np.zeros(10),
        "W2": 1e-1 * rng.normal(size=(10, 3)),
        "b2": np.zeros(3),
    }

    def loss_and_grads(params):
        hidden = np.maximum(0, inputs @ params["W1"] + params["b1"])
        scores = hidden @ params["W2"] + params["b2"]
        scores = scores - scores.max(axis=1, keepdims=True)
        probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = -np.log(probabilities[rows, labels]).mean()
        back = probabilities.copy()
        back[rows, labels] -= 1
        back /= len(labels)
        into_hidden = (back @ params["W2"].T) * (hidden > 0)
        return loss, {
            "W1": 2 * inputs.T @ into_hidden,  # the bug
            "b1": into_hidden.sum(axis=0),
            "W2": hidden.T @ back,
            "b2": back.sum(axis=0),
        }

    return loss_and_grads, params


def test_course_network(benchmark, network):
    """83 parameters, one of four gradients doubled, diagnosis included.

    The aim is below 0.1 s: a student should not notice that the check was run.
    """
    report = benchmark(gl.check, *network)

    assert report.culprits == ("W1",)


def test_course_network_without_diagnosis(benchmark, network):
    """The same without asking why; the difference is the price of a diagnosis."""
    benchmark(gl.check, *network, diagnose=False)


def test_elementwise_function(benchmark):
    """Sine, n = 100, full Jacobian: the function is free, so this times gradlab."""
    x = np.linspace(0, 1, 100)

    report = benchmark(gl.check, np.sin, x, jac=lambda x: np.diag(np.cos(x)))

    assert report.verdict == gl.Verdict.AGREES
