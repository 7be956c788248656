"""Gradients of a few digits: what is wrong by no more than these is left open."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gradlab as gl

RNG = np.random.default_rng(4)
A = RNG.standard_normal((5, 4))
P, H = RNG.standard_normal(4), 1 + RNG.random(3)
B = RNG.standard_normal((5, 3))
JUNK = RNG.standard_normal((5, 3))
UNEVEN = RNG.standard_normal((5, 4))


def slope(p):
    """Jacobian of ``tanh(A p)``."""
    return (1 - np.tanh(A @ p) ** 2)[:, None] * A


def check(influence, *, off, junk, wrong=0.0):
    """Check two gradients: one off by a share, and one of little influence."""

    def f(p, h):
        return np.tanh(A @ p) + influence * (B @ h)

    def jac(p, h):
        first = slope(p) * (1 + off * UNEVEN)
        return first, (1 + wrong) * influence * B + junk * JUNK

    return gl.check(f, P, H, jac=jac)


def verdicts(report):
    """By input."""
    return [comparison.verdict.name for comparison in report.comparisons]


def test_what_an_iteration_leaves_of_zero_is_no_mistake():
    """A bound that does not bind has a slope of zero, and an iterate says 1e-9."""
    report = check(0.0, off=3e-9, junk=1e-9)
    assert verdicts(report) == ["AGREES", "UNDECIDED"]
    (finding,) = report.findings
    assert finding.kind.value == "low_precision"
    assert finding.where == "h"


@pytest.mark.parametrize("influence", [1e-8, 1e-6, 1e-3])
def test_an_input_of_little_influence_is_not_excused_beside_exact_ones(influence):
    """Where all else is right to the last digits, a wrong sign of little is wrong."""
    assert verdicts(check(influence, off=0.0, junk=0.0)) == ["AGREES", "AGREES"]
    report = check(influence, off=0.0, junk=0.0, wrong=-2.0)
    assert verdicts(report) == ["AGREES", "DISAGREES"]


def test_what_matters_is_not_excused_either():
    """An error that moves the output by more than a ten-millionth is one."""
    report = check(1e-3, off=3e-7, junk=0.0, wrong=0.01)
    assert verdicts(report)[1] == "DISAGREES"


def test_nor_is_what_is_larger_than_the_others_are_off_by():
    """Ten times what agreeing gradients are off by is more than their digits."""
    assert verdicts(check(0.0, off=3e-10, junk=2e-8))[1] == "DISAGREES"


@pytest.mark.parametrize("start", [0, 200, 700])
def test_a_gradient_that_changes_from_call_to_call_is_not_called_inexact(start):
    """What an order without rule does it does at the point too, if not each time.

    A loop that assigns what it should add leaves one of four contributions.
    """
    calls, targets = itertools.count(start), np.array([1.0, -2.0, 3.0, 0.5])
    x = np.linspace(0.5, 2.0, 4)

    def grad(x):
        drawn = (next(calls) * 2654435761 >> 11) % 7
        return 2 * (x - targets[drawn % 4 if drawn < 4 else 0])

    def loss(x):
        return sum(((x - t) ** 2).sum() for t in targets)

    report = gl.check(loss, x, grad=grad)

    assert not report.ok
    assert "low_precision" not in {finding.kind for finding in report.findings}
