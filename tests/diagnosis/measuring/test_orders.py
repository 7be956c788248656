"""Orders of slices: a few of their numbers are those of the whole."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import gradlab as gl
from gradlab.diagnosis.measuring.orders import Order


@st.composite
def _orders(draw):
    before, length, after = (draw(st.integers(1, 4)) for _ in range(3))
    first, last, columns = draw(st.integers(0, 3)), draw(st.integers(0, 3)), after
    rows = before * length  # the last axis of the part is that of the columns
    order = draw(
        st.lists(st.integers(-1, length - 1), min_size=length, max_size=length)
    )
    part = slice(first, first + rows)
    matrix = np.arange(1.0, 1 + (first + rows + last) * columns)
    return (
        Order(part, (before, length, after), np.array(order)),
        matrix.reshape(-1, columns),
    )


@given(_orders())
@settings(max_examples=200, deadline=None)
def test_numbers_of_an_order_are_those_of_the_slices_it_takes(given_order):
    """By a loop over slices; and each place that is asked for tells the same."""
    order, matrix = given_order
    expected = matrix.copy()
    part = matrix[order.part].reshape(order.shape)
    into = expected[order.part].reshape(order.shape)
    for here, there in enumerate(order.order):
        into[:, here] = part[:, there] if there >= 0 else 0.0
    assert np.array_equal(order.whole(matrix), expected)
    places = np.arange(matrix.size)
    assert np.array_equal(order.at(matrix, places), expected.reshape(-1))


def test_a_reshape_where_a_transpose_belongs(rng):
    """Of rows (n, h, w, c) a batch norm hands back (n, w, h, c), as they were read.

    The sum over axes 0, 2 and 3 of x stays what it was: it is the places that are not.
    """
    x, gain = rng.normal(size=(2, 3, 4, 2)), rng.normal(size=(2, 3, 4, 2))

    def loss(x):
        mean, var = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
        hat = (x - mean[:, None, None]) / np.sqrt(var + 1e-5)[:, None, None]
        return (hat * gain).sum()

    def grad(x):
        rows, d = (side.transpose(0, 2, 3, 1).reshape(-1, 3) for side in (x, gain))
        s = np.sqrt(rows.var(axis=0) + 1e-5)
        hat = (rows - rows.mean(axis=0)) / s
        back = (d - d.mean(axis=0) - hat * (d * hat).mean(axis=0)) / s
        return back.reshape(2, 2, 4, 3).transpose(0, 3, 2, 1)

    finding = gl.check(loss, x, grad=grad).findings[0]

    assert finding.kind == "wrong_index"
    assert "axes 2 and 3 of x in the order of a reshape" in finding.evidence
