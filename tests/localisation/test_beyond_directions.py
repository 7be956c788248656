"""Searches in which no random direction tells anything: borders, sizes, writes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import gradlab as gl


def both(f, x, grad, factor=1.05):
    """Search the right gradient, and one that is wrong throughout."""
    right = gl.locate(f, x, grad=grad)
    wrong = gl.locate(f, x, grad=lambda x: factor * grad(x))
    return right, wrong


BORDERS = {
    "logarithm": (lambda x: np.log(x).sum(), [1e-8, 2.0], lambda x: 1 / x),
    "root": (lambda x: np.sqrt(x).sum(), [1e-20, 1e-9], lambda x: 0.5 / np.sqrt(x)),
    "arc": (
        lambda x: np.arccos(x).sum(),
        [1 - 1e-10, 0.3],
        lambda x: -1 / np.sqrt((1 - x) * (1 + x)),
    ),
}


@pytest.mark.parametrize("name", BORDERS)
def test_entries_at_a_border_are_looked_at_one_by_one(name):
    """Where every step along a direction leaves the domain, or shows nothing of it."""
    f, x, grad = BORDERS[name]
    with np.errstate(all="ignore"):
        right, wrong = both(f, np.array(x), grad)

    assert right.ok
    assert right.complete
    assert sorted(entry.index for entry in wrong.entries) == [(0,), (1,)]


def test_many_entries_that_nothing_resolves_are_suspects():
    """What no direction tells, and is too much to look at one by one, is told."""
    x = np.full(400, 1e-9)
    x[7] = 2.0

    with np.errstate(all="ignore"):
        found = gl.locate(lambda x: np.log(x).sum(), x, grad=lambda x: 1.05 / x)

    assert not found.complete
    assert [suspect.input for suspect in found.suspects] == ["x"]


SIZES = {
    "values of 1e300": (1e300, 1.0),
    "inputs of 1e300": (1.0, 1e300),
    "inputs of 1e-300": (1.0, 1e-300),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_at_the_end_of_the_range_excuse_nothing(name):
    """Squares of 1e300 are infinite, and no infinite norm forgives an error."""
    size, unit = SIZES[name]
    x = np.array([0.3, -0.7]) * unit

    right, wrong = both(
        lambda x: size * np.sin(x / unit).sum(),
        x,
        lambda x: size / unit * np.cos(x / unit),
        factor=1.001,
    )

    assert right.ok
    assert right.complete
    assert {entry.index for entry in wrong.entries} == {(0,), (1,)}


def test_effects_beyond_all_numbers_excuse_nothing():
    """exp(709.7) times 709.7 is no number, and five percent of it are wrong."""
    x = np.array([709.7])
    with np.errstate(all="ignore"):
        right, wrong = both(lambda x: np.exp(x[0]), x, np.exp, factor=0.95)

    assert right.ok
    assert [entry.index for entry in wrong.entries] == [(0,)]


def test_a_function_that_writes_to_its_input_is_searched_at_the_point():
    """The point is put back before each evaluation, as in a check."""

    def f(x):
        x *= 2
        return (x**2).sum()

    x = np.array([0.4, -1.3, 0.8])

    right, wrong = both(f, x, lambda x: 8 * x)

    assert right.ok
    assert not wrong.ok
    assert x.tolist() == [0.4, -1.3, 0.8]


def test_a_matrix_is_searched_like_an_array():
    """np.matrix is never flat, whatever reshape is asked of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        x = np.matrix([[0.4, -1.3], [0.8, 0.2]])

        right, wrong = both(lambda x: np.trace(x @ x), x, lambda x: 2 * x.T)

    assert right.ok
    assert not wrong.ok


def test_rows_without_a_value_say_nothing_of_an_entry():
    """nan in the Jacobian of an output that is nan itself accuses nobody."""
    x = np.array([1.0, -1.0, 2.0])

    def jac(x, factor=1.0):
        return np.diag(np.array([1, 1, factor]) / 2 / np.sqrt(x))

    with np.errstate(all="ignore"):
        right = gl.locate(np.sqrt, x, jac=jac)
        wrong = gl.locate(np.sqrt, x, jac=lambda x: jac(x, 1.05))

    assert right.ok
    assert [entry.index for entry in wrong.entries] == [(2,)]


def test_what_is_infinite_cannot_be_moved_and_is_told():
    """Neither side of infinity is to be had: that entry stays a suspect."""
    x = np.array([1.0, np.inf])

    found = gl.locate(
        lambda x: np.exp(-x).sum(), x, grad=lambda x: np.array([-np.exp(-x[0]), 7.0])
    )

    assert not found.complete
    assert [(s.input, s.first) for s in found.suspects] == [("x", (1,))]


def test_nothing_is_said_of_a_function_without_a_value():
    """Where the only output is infinite, every gradient stays a suspect."""
    found = gl.locate(lambda x: (x / 0).sum(), np.ones(3), grad=lambda x: x)

    assert not found.complete
    assert not found.power
    assert [s.input for s in found.suspects] == ["x"]
