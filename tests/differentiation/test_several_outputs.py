"""Several outputs, in whatever the function returns them: cotangents and Jacobians."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import gradlab as gl

X, Y = np.array([0.3, -0.7]), np.array([1.2, 0.4, -0.9])


class Pair(NamedTuple):
    """Two outputs by name."""

    square: Any
    wave: Any


def judged(right, wrong):
    """Verdicts of the two analytic sides of one function."""
    return right.verdict.name, wrong.verdict.name


# --------------------------------------------------------------------- cotangents
RETURNED = {
    "a dict": (
        lambda x: {"square": x**2, "sum": x.sum()},
        lambda d, x: 2 * x * d["square"] + d["sum"],
    ),
    "a dict of one": (
        lambda x: {"wave": np.sin(x)},
        lambda d, x: np.cos(x) * d["wave"],
    ),
    "a named tuple": (
        lambda x: Pair(x**2, np.sin(x)),
        lambda d, x: 2 * x * d.square + np.cos(x) * d.wave,
    ),
    "containers in containers": (
        lambda x: (x**2, [x.sum(), {"wave": np.sin(x)}]),
        lambda d, x: 2 * x * d[0] + d[1][0] + np.cos(x) * d[1][1]["wave"],
    ),
    "a dict with what has no derivative": (
        lambda x: {"count": 2, "square": x**2},
        lambda d, x: 2 * x * d["square"] if d["count"] is None else None,
    ),
    "a row": (lambda x: [x**2, x.sum()], lambda d, x: 2 * x * d[0] + d[1]),
}


@pytest.mark.parametrize("name", RETURNED)
def test_cotangents_stand_where_the_outputs_stand(name):
    """A vjp is given what jax would give it: the outputs' own container, filled."""
    f, vjp = RETURNED[name]

    right = gl.check(f, X, vjp=vjp)
    wrong = gl.check(f, X, vjp=lambda d, x: 1.05 * vjp(d, x))

    assert judged(right, wrong) == ("AGREES", "DISAGREES")


def test_backward_is_given_the_container_that_forward_returned():
    """Also behind a forward that returns its cache beside the outputs."""

    def forward(x):
        return {"square": x**2, "cube": x**3}, x

    def backward(d, x):
        return 2 * x * d["square"] + 3 * x**2 * d["cube"]

    right = gl.check(forward, X, backward=backward)
    wrong = gl.check(forward, X, backward=lambda d, x: backward(d, x) - d["cube"])

    assert judged(right, wrong) == ("AGREES", "DISAGREES")


# ---------------------------------------------------------------------- Jacobians
def numbers(x):
    """Two numbers in a list, as for `scipy.optimize.root`."""
    return [x[0] ** 2, np.sin(x[1])]


def rows(x, factor=1.0):
    """Their Jacobian, with the second row times `factor`."""
    return np.array([[2 * x[0], 0.0], [0.0, np.cos(x[1]) * factor]])


@pytest.mark.parametrize("written", [np.array, np.ndarray.tolist, tuple], ids=str)
def test_rows_of_all_outputs_may_stand_in_one_matrix(written):
    """What a list of numbers is to the function, a matrix is to the Jacobian."""
    right = gl.check(numbers, X, jac=lambda x: written(rows(x)))
    wrong = gl.check(numbers, X, jac=lambda x: written(rows(x, 1.05)))

    assert judged(right, wrong) == ("AGREES", "DISAGREES")


def test_outputs_under_each_other_for_each_of_several_inputs():
    """One matrix for each input, cut where the outputs end."""

    def f(x, y):
        return x * y[:2], y.sum() * x.sum()

    def jac(x, y, factor=1.0):
        by_x = np.vstack([np.diag(y[:2]), np.full(2, y.sum())])
        by_y = np.vstack([np.diag(x) @ np.eye(2, 3), np.full(3, factor * x.sum())])
        return by_x, by_y

    right = gl.check(f, X, Y, jac=jac)
    wrong = gl.check(f, X, Y, jac=lambda x, y: jac(x, y, 1.05))

    assert judged(right, wrong) == ("AGREES", "DISAGREES")
    assert wrong.culprits == ("y",)


def test_tuples_of_tuples_are_still_output_by_output():
    """Two numbers of two inputs of equal length: rows are outputs, columns inputs."""

    def f(x, y):
        return x @ y, x.sum()

    def jac(x, y):
        return (y, x), (np.ones(2), np.zeros(2))

    right = gl.check(f, X, Y[:2], jac=jac)
    wrong = gl.check(f, X, Y[:2], jac=lambda x, y: jac(y, x))

    assert judged(right, wrong) == ("AGREES", "DISAGREES")


def test_jacobians_are_found_by_the_name_of_their_output():
    """A dict of outputs has a dict of Jacobians, in any order."""

    def jac(x, factor=1.0):
        return {"sum": np.ones((1, 2)) * factor, "square": np.diag(2 * x)}

    f = RETURNED["a dict"][0]

    right = gl.check(f, X, jac=jac)
    wrong = gl.check(f, X, jac=lambda x: jac(x, 1.05))

    assert judged(right, wrong) == ("AGREES", "DISAGREES")


# ------------------------------------------------ beside what has no derivative
def ranked(x):
    """Values, and the order in which they are."""
    return x**2, np.argsort(x)


def three(x):
    """An order between two outputs."""
    return x**2, np.argsort(x), np.sin(x)


def first_of_two(first, second):
    """Take two arguments, neither more nor less."""
    return first


# of each: the function, and vjps by the two readings of "where the outputs stand"
TAKEN = {
    "first of two": (ranked, lambda d, x: 2 * x * d[0], lambda d, x: 2 * x * d),
    "unpacked": (ranked, lambda d, x: 2 * x * first_of_two(*d), None),
    "with zeros": (ranked, lambda d, x: 2 * x * d[0] + 0 * d[1], None),
    "alone, by entries": (
        ranked,
        None,
        lambda d, x: np.array([2 * x[0] * d[0], 2 * x[1] * d[1]]),
    ),
    "a row of one": (
        lambda x: (x**2,),
        lambda d, x: (2 * x * d[0],),
        lambda d, x: (2 * x * d,),
    ),
    "a number in a row": (
        lambda x: (x @ x, "loss", None, True),
        lambda d, x: 2 * x * d[0],
        lambda d, x: 2 * x * d,
    ),
    "between two": (
        three,
        lambda d, x: 2 * x * d[0] + np.cos(x) * d[2],
        lambda d, x: 2 * x * d[0] + np.cos(x) * d[1],
    ),
    "between two, with zeros": (
        three,
        lambda d, x: 2 * x * d[0] + np.cos(x) * d[2] + 0 * d[1],
        None,
    ),
}


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("reading", [1, 2], ids=["whole", "those that count"])
def test_outputs_without_a_derivative_are_taken_out_or_left(name, reading):
    """The vjp says by running which it takes; a slip in it is told either way."""
    f, vjp = TAKEN[name][0], TAKEN[name][reading]
    if vjp is None:
        pytest.skip("said in one way only")

    right = gl.check(f, X, vjp=vjp)
    wrong = gl.check(f, X, vjp=lambda d, x: 1.05 * np.asarray(vjp(d, x)))

    assert judged(right, wrong) == ("AGREES", "DISAGREES")


@pytest.mark.parametrize(
    "backward",
    [
        lambda d, order, x: 2 * x * d,
        lambda d, x: 2 * x * d[0],
        lambda d, x: 2 * x * d,
    ],
    ids=["one by one", "as they stand", "alone"],
)
def test_a_backward_beside_an_order(backward):
    """As a vjp, and one argument for each output as well."""

    def forward(x):
        return x**2, np.argsort(x), x

    one_by_one = backward.__code__.co_argcount == 3
    slipped = (
        (lambda d, order, x: -backward(d, order, x))
        if one_by_one
        else (lambda d, x: -backward(d, x))
    )

    right = gl.check(forward, X, backward=backward)
    wrong = gl.check(forward, X, backward=slipped)

    assert judged(right, wrong) == ("AGREES", "DISAGREES")


def test_a_vjp_that_raises_says_why_in_its_own_words():
    """Whatever form it was tried with."""

    def vjp(d, x):
        msg = "no such table"
        raise LookupError(msg)

    report = gl.check(ranked, X, vjp=vjp)

    assert report.verdict.name == "DISAGREES"
    assert "LookupError: no such table" in report.findings[0].evidence


@pytest.mark.parametrize(
    "written",
    [
        lambda J, x: [J, np.zeros((x.size, x.size))],
        lambda J, x: (J, None),
        lambda J, x: [J],
        lambda J, x: J,
        lambda J, x: J.tolist(),
        lambda J, x: {"0": J, "1": None},
        lambda J, x: np.vstack([J, np.zeros((x.size, x.size))]),
    ],
    ids=["zeros", "None", "in a row", "alone", "rows", "by place", "one matrix"],
)
def test_jacobians_beside_an_order(written):
    """One for each output, or for the one that has a derivative."""
    right = gl.check(ranked, X, jac=lambda x: written(np.diag(2 * x), x))
    wrong = gl.check(ranked, X, jac=lambda x: written(np.diag(3 * x), x))

    assert judged(right, wrong) == ("AGREES", "DISAGREES")


def test_jacobians_of_several_inputs_beside_an_order():
    """A row for each output, of which each holds one for each input."""

    def f(x, y):
        return x @ y, np.argmax(x)

    right = gl.check(f, X, Y[:2], jac=lambda x, y: ((y, x), (None, None)))
    nothing = gl.check(f, X, Y[:2], jac=lambda x, y: ((y, x), None))
    alone = gl.check(f, X, Y[:2], jac=lambda x, y: (y, x))
    wrong = gl.check(f, X, Y[:2], jac=lambda x, y: ((x, x), None))

    assert judged(right, nothing) == ("AGREES", "AGREES")
    assert judged(alone, wrong) == ("AGREES", "DISAGREES")
    assert wrong.culprits == ("x",)


def test_rows_of_zeros_may_stand_between_those_of_other_outputs():
    """One matrix for all that is returned, an order in its middle and a count of it."""

    def f(x):
        return x**2, np.argsort(x), np.sin(x), x.size

    def jac(x, factor=1.0):
        none, count = np.zeros((x.size, x.size)), np.zeros((1, x.size))
        own = np.diag(2 * x), factor * np.diag(np.cos(x))
        return np.vstack([own[0], none, own[1], count])

    right = gl.check(f, X, jac=jac)
    wrong = gl.check(f, X, jac=lambda x: jac(x, 1.05))

    assert judged(right, wrong) == ("AGREES", "DISAGREES")


def test_rows_of_zeros_for_each_of_several_inputs():
    """A matrix for each of them, with a row for the place of the largest."""

    def f(x, y):
        return x @ y, np.argmax(x)

    def jac(x, y, factor=1.0):
        return tuple(np.vstack([each, 0 * each]) for each in (factor * y, x))

    right = gl.check(f, X, Y[:2], jac=jac)
    wrong = gl.check(f, X, Y[:2], jac=lambda x, y: jac(x, y, 1.05))

    assert judged(right, wrong) == ("AGREES", "DISAGREES")
    assert wrong.culprits == ("x",)


def test_a_matrix_with_rows_too_many_is_still_refused():
    """Where no output is without a derivative there are no such rows."""
    report = gl.check(
        lambda x: x**2, X, jac=lambda x: np.vstack([np.diag(2 * x), np.zeros(x.size)])
    )

    assert report.diagnosis == "wrong_shape"
