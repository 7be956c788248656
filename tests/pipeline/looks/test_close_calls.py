"""What agrees for its error bar alone is measured again before it passes."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


@pytest.mark.parametrize(("gain", "offset"), [(0.3, 10), (0.05, 3), (0.02, 1)])
def test_five_percent_in_single_precision(gain, offset):
    """The cheap difference is off by as much as a longer step finds to be wrong."""
    gain = np.float32(gain)
    x = np.array([0.3], np.float32)
    loss = lambda x: np.float32(offset + np.tanh(gain * x).sum())
    slope = lambda x: gain / np.cosh(gain * x) ** 2

    right = gl.check(loss, x, grad=slope)
    wrong = gl.check(loss, x, grad=lambda x: 1.05 * slope(x))

    assert right.verdict == gl.Verdict.AGREES
    assert right.evaluations == 3  # nothing is asked of what lies within its bar
    assert wrong.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("seed", [91, 107])
def test_no_slope_is_read_from_rounding(seed):
    """A bias in front of a batch norm moves nothing, and its gradient is rounding."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    layers = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh()
    model, x = torch.nn.Sequential(*layers), torch.randn(5, 6)
    loss = lambda x: (model(x) - 0.3).square().mean()

    report = gl.check(loss, x, params=model.named_parameters())

    assert report.ok
    assert report.verdict == gl.Verdict.AGREES
