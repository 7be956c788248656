"""Accusations of little are measured on other steps: of what is wrong all over, few."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.pipeline.looks import other_steps


@pytest.mark.parametrize("outputs", [5, 0])
def test_three_columns_are_heard_of_what_is_wrong_as_a_whole(monkeypatch, outputs):
    """Half a percent in one output, beside a factor of two in others, or by itself."""
    heard = []

    def counted(origin, which, positions, *arguments, **settings):
        heard.extend(positions.tolist())
        return whole(origin, which, positions, *arguments, **settings)

    whole = other_steps.adaptive_columns
    monkeypatch.setattr(other_steps, "adaptive_columns", counted)
    weights = 1.0 + np.sin(np.arange((outputs + 1) * 24)).reshape(-1, 24) / 2
    factors = np.concatenate([[1.005], np.full(outputs, 2.0)])[:, None]
    x = np.linspace(0.1, 1.2, 24)

    report = gl.check(
        lambda x: weights @ np.sin(x), x, jac=lambda x: factors * weights * np.cos(x)
    )

    assert (report["x"].verdicts == gl.Verdict.DISAGREES).all()
    assert len(heard) == len(set(heard)) == 3
