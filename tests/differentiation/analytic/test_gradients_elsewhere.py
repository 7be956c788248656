"""The analytic side asked elsewhere, or once more: truth is what its code says now."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.building import Sides, build_subject
from gradlab.differentiation.analytic.gradients_elsewhere import gradients_at

X, ONE = np.array([2.0, 3.0]), np.ones((1, 1))


def _side(kind, factor):
    """Return a gradient of x1 x2 in one of its forms, times what a list holds."""
    if kind == "jac":
        return {"jac": lambda x: factor[0] * x[None, ::-1]}
    return {"grad": lambda x: factor[0] * x[::-1]}


@pytest.mark.parametrize("kind", ["grad", "jac"])
def test_a_side_is_asked_anew_where_it_is(kind):
    """What it answered before is not what it would answer now."""
    factor = [1.0]
    subject = build_subject(np.prod, (X,), Sides(**_side(kind, factor)))
    subject.row()

    first = subject.analytic.pull(ONE).values[0]
    factor[0] = 2.0
    (again,) = gradients_at(subject, {}, ONE)

    assert first.tolist() == [[3.0, 2.0]]
    assert again.tolist() == [[6.0, 4.0]]


def test_a_side_is_asked_anew_beside_parameters_in_place():
    """They stay where they are."""
    net, factor = {"x": X.copy()}, [1.0]
    sides = Sides(params=net, grad=lambda: {"x": factor[0] * net["x"][::-1]})
    subject = build_subject(lambda: float(net["x"].prod()), (), sides)
    subject.row()

    first = subject.analytic.pull(ONE).values[0]
    factor[0] = 2.0
    (again,) = gradients_at(subject, {}, ONE)

    assert (first.tolist(), again.tolist()) == ([[3.0, 2.0]], [[6.0, 4.0]])
    assert net["x"].tolist() == X.tolist()


def test_numbers_cannot_be_asked():
    """They are of one point."""
    subject = build_subject(np.prod, (X,), Sides(grad=X[::-1]))
    subject.row()

    assert gradients_at(subject, {}, ONE) is None
