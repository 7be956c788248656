"""Next to a pole f is steep, not noisy: a right slope is told, and so is a wrong one.

Truth is algebra, of the numbers as they are rounded.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import Verdict

STEEP = {
    "logarithm": (lambda x: np.log(np.abs(x - 1)), lambda x: 1 / (x - 1)),
    "hyperbola": (lambda x: 1 / (x - 1), lambda x: -1 / (x - 1) ** 2),
    "root": (lambda x: np.sqrt(np.abs(x - 1)), lambda x: 0.5 / np.sqrt(x - 1)),
}


@pytest.mark.parametrize("away", [1e-4, 1e-5, 1e-6, 3e-7, 1e-7])
@pytest.mark.parametrize("name", STEEP)
def test_slope_beside_a_pole_is_told(name, away):
    """Between a millionth and a ten-millionth from it everything was left open."""
    f, slope = STEEP[name]
    x = np.array(1 + away)
    for factor, verdict in ((1, "AGREES"), (1.01, "DISAGREES"), (-1, "DISAGREES")):
        report = gl.check(f, x, grad=lambda x, k=factor: k * slope(x), diagnose=False)
        assert report.verdict == Verdict[verdict]
