"""Matrices of sparse Jacobians are made when somebody looks, and are the same then."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gradlab as gl
from gradlab.late import Late, is_made, unmade

WIDTH = 24
MATRICES = ("numeric", "numeric_error", "allowed")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holder:
    """One late field and an ordinary one."""

    matrix: Late = Late()
    name: str


def test_a_maker_is_called_once_and_late():
    """Not before the field is read, and not again after that."""
    calls = []

    def make():
        calls.append(1)
        return np.eye(2)

    held = Holder(matrix=make, name="held")

    assert not is_made(held, "matrix")
    assert unmade(held, "matrix") is make
    assert calls == []
    assert held.matrix is held.matrix
    assert calls == [1]
    assert is_made(held, "matrix")


def test_threads_that_read_at_once_get_one_matrix():
    """Both find it missing; what is made second is forgotten."""
    both = threading.Barrier(2, timeout=600)  # seconds, for one that never comes

    def make():
        both.wait()
        return np.eye(2)

    held = Holder(matrix=make, name="held")
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: held.matrix, range(2))

    assert one is other is held.matrix


def test_a_maker_that_fails_is_asked_again():
    """An interruption leaves the field as it was."""
    answers = iter([KeyboardInterrupt, np.eye(2)])

    def make():
        answer = next(answers)
        if answer is KeyboardInterrupt:
            raise answer
        return answer

    held = Holder(matrix=make, name="held")
    with pytest.raises(KeyboardInterrupt):
        held.matrix

    assert held.matrix.sum() == 2


def test_a_field_takes_matrices_as_well():
    """What is given is what is read; fields and replace know the name."""
    matrix = np.eye(3)
    held = dataclasses.replace(Holder(matrix=np.zeros(1), name="held"), matrix=matrix)

    assert held.matrix is matrix
    assert [field.name for field in dataclasses.fields(held)] == ["matrix", "name"]
    with pytest.raises(TypeError, match="matrix"):
        Holder(name="without")


def _rows(slope):
    """A softmax of each row: blocks along the diagonal, and its Jacobian."""

    def fn(x):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def jac(x):
        y = fn(x)
        n, width = y.shape
        whole = np.zeros((n, width, n, width))
        for i, row in enumerate(y):
            whole[i, :, i, :] = slope * (np.diag(row) - np.outer(row, row))
        return whole.reshape(n * width, n * width)

    return fn, jac


@pytest.fixture
def x(rng):
    """Eight rows of a few entries."""
    return rng.normal(size=(8, WIDTH // 8))


def test_a_check_that_agrees_makes_no_matrix(x):
    """Of 24 x 24 entries three in a row are measured, and no more is in memory."""
    fn, jac = _rows(1.0)

    report = gl.check(fn, x, jac=jac)

    assert report.ok
    comparison = report["x"]
    assert not any(is_made(comparison, name) for name in MATRICES)


def test_matrices_are_those_of_an_ordinary_check(x):
    """Values, bars of what is not zero, and tolerances, entry by entry."""
    fn, jac = _rows(1.0)
    late = gl.check(fn, x, jac=jac)["x"]
    plain = gl.check(fn, x, jac=jac, method="central")["x"]
    inside = plain.analytic != 0

    assert not is_made(late, "numeric")
    assert is_made(plain, "numeric")
    assert late.numeric == pytest.approx(plain.numeric, abs=1e-9)
    assert late.numeric == pytest.approx(jac(x), abs=1e-8)
    assert (late.numeric_error[inside] < 1e-8).all()
    assert (late.numeric_error[~inside] < 1e-8).all()
    assert late.allowed == pytest.approx(plain.allowed, rel=1e-6)
    assert late.power == pytest.approx(plain.power, rel=1e-2)


def test_a_comparison_that_is_kept_keeps_no_function(x):
    """What makes its matrices later is numbers, and numbers of the check alone."""
    fn, jac = _rows(1.0)
    gone = weakref.ref(fn)
    comparison = gl.check(fn, x, jac=jac)["x"]
    assert not is_made(comparison, "allowed")
    expected = jac(x)
    x[:] = np.nan
    del fn, jac
    gc.collect()

    assert gone() is None
    assert comparison.numeric == pytest.approx(expected, abs=1e-8)
    assert (comparison.allowed > 0).all()


@pytest.mark.parametrize(
    "other", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))]
)
def test_copies_hold_the_matrices(x, other):
    """A copy sent elsewhere needs nothing that stayed behind."""
    comparison = gl.check(*_rows(1.0)[:1], x, jac=_rows(1.0)[1])["x"]

    again = other(comparison)

    for name in MATRICES:
        assert is_made(again, name)
        assert (getattr(again, name) == getattr(comparison, name)).all()


def test_a_wrong_gradient_of_the_same_kind_is_found(x):
    """One per cent in every entry of the blocks: the long way has all matrices."""
    fn, jac = _rows(1.01)

    report = gl.check(fn, x, jac=jac)

    assert not report.ok
    assert report.findings[0].kind == gl.BugKind.SCALE
