"""Steps far beyond the scale: rounding inside f grows there, and is no oddity of f."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.differentiation.smoothness import Smoothness
from tests.differentiation.test_adaptive import along_one, differentiate


def cancelling(rng, outputs=6, terms=5):
    """Return a function that does not depend on x, by logits that cancel after all."""
    weights, values = rng.normal(size=(2, outputs, terms))
    slopes, shift = rng.normal(size=(2, outputs, 1))

    def f(x):
        logits = weights + slopes * x
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.tanh((odds * values).sum(axis=1) / odds.sum(axis=1) + shift[:, 0])

    return f


def test_rounding_that_grows_with_the_step_is_neither_kink_nor_noise():
    """What a bias of all keys does to attention: nothing, and rounding at far steps."""
    odd = outside = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        f, x = cancelling(rng), rng.normal()
        found = differentiate(
            lambda v, _, f=f: np.array([f(u) for u in v]),
            [x],
            scales=[0.5],
            base=f(x),
        )
        odd += int((found.kind != Smoothness.SMOOTH).sum())
        outside += int((np.abs(found.value) > found.error).sum())
        assert (found.error < 1e-14).all()
    assert odd <= 4  # of 240
    assert outside <= 2


@pytest.mark.parametrize(
    ("f", "slope"),
    [
        (lambda x: 1 + x**2, 2e-9),
        (lambda x: 5 + np.sin(x) * 1e-6, 1e-6),
        (lambda x: np.exp(-(x**2)), -2e-9),
    ],
    ids=["square", "faint sine", "bell"],
)
def test_a_slope_that_only_far_steps_show_is_kept(f, slope):
    """At a coordinate that happens to be tiny no step within its scale moves f."""
    found = along_one(f, 1e-9, scale=1e-9)
    assert found.kind.item() == Smoothness.SMOOTH
    assert abs(found.value.item() - slope) <= found.error.item() < 0.01 * abs(slope)


def test_a_kink_that_far_steps_show_leaves_room_for_both_sides():
    """Its slopes are lost in the rounding of every step within the scale."""
    found = along_one(lambda x: 1 + 1e-20 * max(x, 0.0), 0.0)
    assert abs(found.value.item() - 5e-21) + 5e-21 <= found.error.item() < 1e-14
