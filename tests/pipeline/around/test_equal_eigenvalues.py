"""Eigenvalues and singular values that are equal: a gradient is one of the many."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

torch = pytest.importorskip("torch")


def twice(count):
    """Give a symmetric matrix with all eigenvalues equal but one."""
    rng = np.random.default_rng(0)
    q = np.linalg.qr(rng.normal(size=(count, count)))[0]
    matrix = q @ np.diag([2.0] * (count - 1) + [1.0]) @ q.T
    return (matrix + matrix.T) / 2


POINTS = {
    "identity": np.eye(3),
    "its multiple": 2 * np.eye(5),
    "one apart": twice(3),
    "one of four apart": twice(4),
}


def singular_values(a):
    """All of them, the largest first."""
    return np.linalg.svd(a, compute_uv=False)


def of_eigenvalues(a):
    """Outer squares of eigenvectors, as the textbook has it for simple eigenvalues."""
    vectors = np.linalg.eigh(a)[1].T
    return np.stack([np.outer(v, v) for v in vectors])


def of_singular_values(a):
    """Outer products of singular vectors."""
    left, _, right = np.linalg.svd(a)
    return np.stack([np.outer(u, v) for u, v in zip(left.T, right, strict=True)])


PAIRS = {
    "eigenvalues": (np.linalg.eigvalsh, of_eigenvalues),
    "singular values": (singular_values, of_singular_values),
}


@pytest.mark.parametrize("which", PAIRS)
@pytest.mark.parametrize("point", POINTS)
def test_textbook_gradients_at_equal_values(which, point):
    """Those of the values in the middle stand along no axis: all were accused."""
    f, jac = PAIRS[which]

    assert gl.check(f, POINTS[point], jac=jac).verdict == gl.Verdict.AGREES


@pytest.mark.thinned(2)
@pytest.mark.parametrize("slip", [0.5, 1.01, -1.0])
@pytest.mark.parametrize("which", PAIRS)
@pytest.mark.parametrize("point", POINTS)
def test_slips_at_equal_values(which, point, slip):
    """Of a gradient that is a little larger no eigenvector is the reason."""
    f, jac = PAIRS[which]

    report = gl.check(f, POINTS[point], jac=lambda a: slip * jac(a))

    assert report.verdict == gl.Verdict.DISAGREES


def test_singular_values_of_nothing():
    """At zero they come apart from the first to the last."""
    report = gl.check(singular_values, np.zeros((3, 3)), jac=of_singular_values)

    assert report.verdict == gl.Verdict.AGREES


@pytest.mark.parametrize("values", [torch.linalg.eigvalsh, torch.linalg.svdvals])
def test_a_value_in_the_middle_alone(values):
    """Torch is right beside the point, along changes that keep a matrix symmetric."""
    point = torch.eye(3, dtype=torch.float64, requires_grad=True)

    def more(a):
        return values(a)[1] + 0.1 * (a.sum() - a.sum().detach())

    right, wrong = gl.check(lambda a: values(a)[1], point), gl.check(more, point)

    assert (right.verdict, right.ok) == (gl.Verdict.UNDECIDED, True)
    assert wrong.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_points_beside_where_the_gradient_happens_to_be_the_same(seed):
    """Two such points were all that was asked: one draw in five was accused."""
    point = torch.eye(3, dtype=torch.float64, requires_grad=True)
    values = torch.linalg.eigvalsh if seed > 1 else torch.linalg.svdvals

    report = gl.check(lambda a: values(a)[1], point, seed=seed)

    assert report.verdict == gl.Verdict.UNDECIDED
