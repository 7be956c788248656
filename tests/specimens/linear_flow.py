"""The end of y' = -a y + b, from 1 to the time 2: its derivative is algebra."""

from __future__ import annotations

import numpy as np

T = np.array([1.3, 0.7])  # a and b


def rate(t):
    """Right-hand side for a solver of initial value problems."""
    return lambda _, y: -t[0] * y + t[1]


def flow(t):
    """Derivative of y(2) in a and b."""
    a, b = t
    left = np.exp(-2 * a)
    return np.array([-2 * (1 - b / a) * left - b / a**2 * (1 - left), (1 - left) / a])
