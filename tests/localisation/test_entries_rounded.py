"""Searches in functions that round to single or half precision on the way.

Truth is algebra; what such a function cannot tell may stay open, and accuses nobody.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

N = 20
W = np.random.default_rng(5).standard_normal((N, N)) / 4
T = np.random.default_rng(6).standard_normal(N)


def loss(kind):
    """A loss that casts its input, and its gradient."""
    return (
        lambda x: float(np.tanh(W.astype(kind) @ x.astype(kind)).sum()),
        lambda x: W.T @ (1 - np.tanh(W @ x) ** 2),
    )


def squares(kind):
    """A mean of squares in short arithmetic, and its gradient."""
    return (
        lambda x: float(((np.sin(x.astype(kind)) - T.astype(kind)) ** 2).mean()),
        lambda x: 2 * (np.sin(x) - T) * np.cos(x) / N,
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("program", [loss, squares])
def test_right_gradient_is_not_accused(program, kind, seed):
    """Steps at which f stands still are no slope of zero."""
    f, grad = program(kind)
    x = np.random.default_rng(seed).standard_normal(N)
    assert gl.locate(f, x, grad=grad).table.empty


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_right_jacobian_is_not_accused(kind, seed):
    """Nor are outputs that are rounded one by one."""
    x = np.random.default_rng(seed).standard_normal(N)
    found = gl.locate(
        lambda x: np.tanh(x).astype(kind).astype(float),
        x,
        jac=lambda x: np.diag(1 - np.tanh(x) ** 2),
    )
    assert found.table.empty


@pytest.mark.parametrize("factor", [2.0, -1.0, 1.05])
def test_wrong_entry_shows_through_single_precision(factor):
    """What is off by five percent is found, and nothing beside it."""
    f, grad = squares(np.float32)
    x = np.random.default_rng(1).standard_normal(N)
    wrong = grad(x)
    worst = int(np.abs(wrong).argmax())
    wrong[worst] *= factor
    found = gl.locate(f, x, grad=lambda x: wrong)
    assert found.table["index"].tolist() == [(worst,)]


@pytest.mark.parametrize("wrong", [0, 1, 2])
@pytest.mark.parametrize("seed", [2, 6])
def test_wrong_sign_shows_through_an_output_of_six_decimals(seed, wrong):
    """A cheap difference across one such step is no measure of what is accused."""
    rng = np.random.default_rng(seed)
    w, x = rng.standard_normal((2, 6))
    signs = np.where(np.arange(6) == wrong, -1.0, 1.0)

    found = gl.locate(
        lambda x: np.round(np.sin(x) @ w, 6), x, grad=lambda x: signs * np.cos(x) * w
    )

    assert [entry.index for entry in found.entries] == [(wrong,)]
