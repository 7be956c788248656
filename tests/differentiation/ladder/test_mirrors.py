"""A function upside down, or seen in a mirror, has the same ladder, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.differentiation.adaptive import adaptive
from gradlab.differentiation.smoothness import Smoothness

FUNCTIONS = {
    "smooth": (np.exp, 0.3),
    "falling": (lambda x: np.exp(-3 * x), 0.7),
    "through zero": (np.sin, np.pi),
    "ripples": (lambda x: np.sin(40 * x), 0.3),
    "beside a pole": (lambda x: 1 / x, 1e-3),
    "under a constant": (lambda x: 1e6 + np.sin(x), 1.0),
    "cancelling": (lambda x: (1 - np.cos(x)) / x**2, 1e-3),
    "kink": (lambda x: np.maximum(2 * x, -x), 0.0),
    "kink nearby": (lambda x: np.abs(x - 1e-4), 0.0),
    "jump": (lambda x: np.where(x > 0, 1.0 + x, x), 0.0),
    "staircase": (lambda x: np.round(1e4 * x) / 1e4, 0.70003),
    "single precision": (lambda x: np.sin(np.float32(x)).astype(float), 0.7),
    "edge": (np.sqrt, 0.0),
    "vertical": (np.cbrt, 0.0),
    "few digits": (lambda x: np.round(np.sin(x), 9), 0.7),
    "far out": (np.sin, 1e9),
    "constant": (lambda x: 0 * x + 3.0, 0.7),
}


def ladder(f, x, upside=1.0, mirror=1.0):
    """Climb at one point; `upside` of f, of the coordinate times `mirror`."""

    def values(points):
        with np.errstate(all="ignore"):
            return upside * np.asarray(f(mirror * points), dtype=float)

    def sample(which, displacement):
        moved = mirror * x + displacement
        return values(moved)[:, None], moved - mirror * x

    start = np.array([mirror * x])
    found = adaptive(sample, points=start, scales=np.ones(1), base=values(start))
    names = ("value", "error", "left", "right", "kind", "step", "noise")
    return {name: getattr(found, name)[0, 0] for name in names}


def equal(one, two):
    """Whether two numbers are the same, nan included; zeros have no sign."""
    return np.array_equal(one, two, equal_nan=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_upside_down(name):
    """-f has minus the slopes of f, and its bars, steps and kind."""
    f, x = FUNCTIONS[name]
    one, two = ladder(f, x), ladder(f, x, upside=-1.0)

    assert all(equal(one[k], two[k]) for k in ("error", "kind", "step", "noise"))
    assert all(equal(one[k], -two[k]) for k in ("value", "left", "right"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_in_a_mirror(name):
    """f(-x) at -x has minus the slopes of f, right for left, and its bars and kind."""
    f, x = FUNCTIONS[name]
    one, two = ladder(f, x), ladder(f, x, mirror=-1.0)

    assert all(equal(one[k], two[k]) for k in ("error", "kind", "step", "noise"))
    assert equal(one["value"], -two["value"])
    assert equal(one["left"], -two["right"])
    assert equal(one["right"], -two["left"])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("power", [-7, 5])
def test_in_other_units(name, power):
    """c f has c times the slopes and bars of f, and its kind, for powers of two."""
    f, x = FUNCTIONS[name]
    c = 2.0**power
    one, two = ladder(f, x), ladder(f, x, upside=c)

    assert all(equal(one[k], two[k]) for k in ("kind", "step"))
    scaled = ("value", "error", "left", "right", "noise")
    assert all(equal(c * one[k], two[k]) for k in scaled)


def test_the_shelf_has_points_of_every_kind():
    """Otherwise the laws above would say little."""
    kinds = {Smoothness(ladder(*one)["kind"]) for one in FUNCTIONS.values()}
    missing = set(Smoothness) - kinds
    assert missing <= {Smoothness.UNDEFINED, Smoothness.UNRESOLVED}
