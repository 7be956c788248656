"""Parameters that are read beside a module's own tables belong to its gradient."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import gradlab as gl
from gradlab.subject.tensors.subjects import torch_subject
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")


# A penalty, with a derivative half as large again.
own_slip = with_backward(
    lambda weight: (weight**2).sum(), lambda weight, g: 3 * weight * g
)


def right(weight):
    """Penalise without a slip."""
    return (weight**2).sum()


class Penalised(torch.nn.Module):
    """A layer whose forward adds a penalty on a weight that it holds twice."""

    def __init__(self, hold, penalty):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        hold(self, self.layer.weight)
        self.penalty = penalty

    def forward(self, x):
        return self.layer(x).sum() + self.penalty(self.held())


def in_a_list(module, weight):
    """Hold it in a list of weights."""
    module.weights = [weight]
    module.held = lambda: module.weights[0]


def in_a_tuple(module, weight):
    """Hold it in a tuple of weights."""
    module.weights = (None, weight)
    module.held = lambda: module.weights[1]


def in_a_closure(module, weight):
    """Hold it in a variable of a closure."""
    module.held = lambda: weight


HOLDS = [in_a_list, in_a_tuple, in_a_closure]


@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradient_is_that_of_training(hold, dtype):
    """Both uses of the weight are in the matrix, as in what ``backward()`` leaves."""
    torch.manual_seed(0)
    net, x = Penalised(hold, right).to(dtype), torch.ones(3, dtype=dtype)
    net(x).backward()
    expected = net.layer.weight.grad.numpy().ravel()

    report = gl.check(net, x)

    assert report.verdict is gl.Verdict.AGREES
    assert np.allclose(report["layer.weight"].analytic[0], expected, rtol=1e-6)


@pytest.mark.parametrize("hold", HOLDS)
def test_slip_behind_it_is_found(hold):
    """A wrong backward that only the second holder leads to is not passed over."""
    report = gl.check(Penalised(hold, own_slip).double(), torch.ones(3).double())

    assert report.verdict is gl.Verdict.DISAGREES


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("coverage", ["full", "probe"])
def test_penalties_in_a_loss_count(dtype, coverage):
    """``loss=`` may read ``net.parameters()``: right ones agree, wrong ones do not."""
    torch.manual_seed(0)
    net, x = torch.nn.Linear(3, 2).to(dtype), torch.ones(4, 3, dtype=dtype)
    found = {}

    for penalty in (right, own_slip):
        report = gl.check(
            net,
            x,
            loss=lambda out, p=penalty: out.sum() + sum(map(p, net.parameters())),
            coverage=coverage,
        )
        found[penalty] = report.verdict.name

    assert found == {right: "AGREES", own_slip: "DISAGREES"}


@pytest.mark.parametrize("hold", HOLDS)
def test_places_hold_the_users_tensors_again(hold):
    """Even a tuple is the same object after the check."""
    net = Penalised(hold, right).double()
    before = getattr(net, "weights", None)

    gl.check(net, torch.ones(3).double())

    assert net.held() is net.layer.weight
    assert getattr(net, "weights", None) is before


@pytest.mark.parametrize("hold", HOLDS)
def test_another_process_finds_the_places_again(hold):
    """Pickled with its module, a subject exchanges what that module holds there."""
    cloudpickle = pytest.importorskip("cloudpickle")
    subject = torch_subject(Penalised(hold, right).double(), (torch.ones(3).double(),))
    here = subject.row()

    there = pickle.loads(cloudpickle.dumps(subject))
    there.place(0, subject.point(0) + 1.0)

    assert not np.isclose(there.row(), here)
    there.place(0, None)
    assert np.array_equal(there.row(), here)


def test_what_was_made_of_it_before_is_told():
    """A cached parametrization cannot follow: it says so instead of agreeing alone."""
    parametrize = torch.nn.utils.parametrize
    layer = torch.nn.Linear(3, 3).double()
    parametrize.register_parametrization(layer, "weight", torch.nn.Tanh())

    with parametrize.cached():  # what was read once stays
        layer.weight
        report = gl.check(layer, torch.ones(3).double())

    assert report.findings[0].kind == gl.BugKind.DEPENDENT_INPUTS
    assert report.findings[0].where == "parametrizations.weight.original"


@pytest.mark.parametrize("slip", [False, True])
def test_inputs_that_a_function_reads_by_itself_are_inputs(slip):
    """Given W and reading the global W as well: the gradient is that of training."""
    x = torch.tensor([0.5, -1.0], dtype=torch.float64)
    W = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
    penalty = own_slip if slip else right

    def f(w):
        return (x * w).sum() + penalty(W)

    report = gl.check(f, W)

    assert report["w"].numeric[0] == pytest.approx((x + 2 * W).detach().numpy())
    assert report.verdict.name == ("DISAGREES" if slip else "AGREES")


def test_memory_in_common_is_told_by_addresses():
    """Two columns of a matrix share a span, and no number: nothing is told."""
    matrix = torch.arange(6.0, dtype=torch.float64).reshape(3, 2)

    apart = gl.check(torch.mul, matrix[:, 0], matrix[:, 1])
    shared = gl.check(torch.mul, matrix[:, 0], matrix[:, 0].clone().set_(matrix[:, 0]))

    assert apart.findings == ()
    assert [finding.kind for finding in shared.findings] == [gl.BugKind.ALIASING]
