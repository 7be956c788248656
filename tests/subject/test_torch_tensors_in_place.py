"""``params=`` with tensors: what is checked, of which function."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import InputError

torch = pytest.importorskip("torch")


@pytest.fixture
def net():
    """A layer in float64."""
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2).double()


X = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)


@pytest.mark.parametrize("output", [lambda y: y, lambda y: y.sum()])
def test_loss_is_differentiated_as_well(net, output):
    """Autograd goes through ``loss=``, whatever the function itself returns."""
    report = gl.check(lambda: output(net(X)), params=net, loss=lambda y: (y**2).sum())
    (output(net(X)) ** 2).sum().backward()

    assert report.verdict is gl.Verdict.AGREES
    assert np.allclose(report["weight"].numeric[0], net.weight.grad.numpy().ravel())


def test_tensors_that_do_not_require_grad_are_constants_where_some_do():
    """What is frozen may be detached: that is no slip; ``wrt=`` still asks for it."""
    W = torch.ones(3, dtype=torch.float64, requires_grad=True)
    E = torch.full((3,), 2.0, dtype=torch.float64)
    params = {"W": W, "E": E}

    def loss():
        return (W**2 * E.detach()).sum()

    found = gl.check(loss, params=params)
    asked = gl.check(loss, params=params, wrt="E")

    assert [c.input.name for c in found.comparisons] == ["W"]
    assert found.verdict is gl.Verdict.AGREES
    assert asked.diagnosis == "detached"
    assert not E.requires_grad


def test_loss_of_a_loss_with_its_own_gradients_is_refused():
    """The gradients that come along belong to the inner one."""

    def fn(p):
        return float((p**3).sum()), 3 * p**2

    with pytest.raises(InputError, match="belong to its own loss"):
        gl.check(fn, np.ones(3), loss=lambda value: value**2)


@pytest.mark.parametrize("given", ["parameters", "named_parameters", "state_dict"])
def test_parameters_are_taken_in_the_forms_in_which_a_module_gives_them(net, given):
    """An iterator is read once; a state_dict is memory without the graph."""

    def loss():
        return (net(X) ** 2).sum()

    report = gl.check(loss, params=getattr(net, given)())
    loss().backward()

    assert report.verdict is gl.Verdict.AGREES
    weight = report.comparisons[0]
    assert np.allclose(weight.analytic[0], net.weight.grad.numpy().ravel())


def test_a_state_dict_hides_no_cut_graph(net):
    """What the function itself detaches is found through it as well."""
    state = net.state_dict()

    def loss():
        return (net(X) ** 2).sum() + (X @ net.weight.detach().T).sum()

    report = gl.check(loss, params=state)

    assert report.culprit == "weight"
    assert report["bias"].verdict is gl.Verdict.AGREES
