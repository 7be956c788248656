"""What a result is worth in an ``assert``: true where it agrees, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

POINT = np.arange(1.0, 7.0)


def _square(x):
    return (x**2).sum()


def _right(x):
    return 2 * x


def _wrong(x):
    return -x


def _nowhere(x):
    return np.nan * x


def _accumulated(expect):
    buffers = {"w": np.zeros(3)}

    def step():
        buffers["w"] += np.ones(3)

    return gl.check_accumulation(step, buffers, expect=expect)


DOORS = {
    "check": lambda grad: gl.check(_square, POINT, grad=grad),
    "comparison": lambda grad: gl.check(_square, POINT, grad=grad)["x"],
    "verdict": lambda grad: gl.check(_square, POINT, grad=grad).verdict,
    "sweep": lambda grad: gl.sweep(_square, POINT, grad=grad),
    "taylor_test": lambda grad: gl.taylor_test(_square, POINT, grad=grad),
    "locate": lambda grad: gl.locate(_square, POINT, grad=grad),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_result_is_true_where_the_gradient_is_right(door):
    """Only a report was false with a wrong gradient; a verdict was true with one."""
    judge = DOORS[door]

    assert bool(judge(_right))
    assert not judge(_wrong)


@pytest.mark.parametrize(
    ("found", "agrees"),
    [
        (lambda: _accumulated("add"), True),
        (lambda: _accumulated("write"), False),
        (lambda: gl.check_sparsity(np.square, POINT, pattern=np.eye(6)), True),
        (lambda: gl.check_sparsity(np.cumsum, POINT, pattern=np.eye(6)), False),
        (lambda: _hessian(2 * np.eye(6)), True),
        (lambda: _hessian(np.eye(6)), False),
        (lambda: _modes(lambda x, v: 2 * x * v), True),
        (lambda: _modes(lambda _, v: v), False),
    ],
)
def test_so_is_the_result_of_a_property(found, agrees):
    """By algebra: x**2 has the derivative 2 x, and twice the identity as Hessian."""
    assert bool(found()) is agrees


def _hessian(matrix):
    return gl.check_hessian(_square, POINT, grad=_right, hess=lambda _: matrix)


def _modes(jvp):
    return gl.compare_modes(np.square, POINT, jvp=jvp, jac=lambda x: np.diag(2 * x))


def test_what_is_undecided_is_not_true():
    """Nobody has seen it agree."""
    report = gl.check(lambda x: np.nan * x.sum(), POINT, grad=_nowhere)

    assert report.ok
    assert not report
    assert not report["x"]
    assert not report.verdict


def test_a_search_that_was_cut_short_is_not_true():
    """Nothing was found wrong, as far as it came."""
    found = gl.locate(_square, np.ones(4000), grad=_right, budget=6)

    assert found.ok
    assert not found.complete
    assert not found


def test_an_audit_is_true_where_every_layer_is_right():
    """A hook that turns the sign of one gradient makes it false."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())
    right = gl.blame(net, torch.ones(2, 3))
    net[1].register_full_backward_hook(lambda _, passed, __: (-passed[0],))
    wrong = gl.blame(net, torch.ones(2, 3))

    assert bool(right)
    assert not wrong
    assert wrong.verdict == gl.Verdict.DISAGREES
