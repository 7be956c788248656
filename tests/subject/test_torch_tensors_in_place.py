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


@pytest.mark.parametrize("slip", [1.0, 2.0])
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("value", [lambda y: y, float])
def test_gradients_in_a_list_behind_the_loss_are_those_that_are_checked(
    net, slip, kept, value
):
    """As in a dict: autograd was asked again, and agreed whatever had come."""

    def loss_and_gradients():
        loss = (net(X) ** 2).sum()
        found = torch.autograd.grad(loss, list(net.parameters()), retain_graph=kept)
        return value(loss), [slip * each for each in found]

    report = gl.check(loss_and_gradients, params=net)

    right = gl.Verdict.AGREES if slip == 1 else gl.Verdict.DISAGREES
    assert report.verdict is right
    assert [f.kind for f in report.findings] == ([] if slip == 1 else ["scale"])


@pytest.mark.parametrize("slip", [1.0, 2.0])
@pytest.mark.parametrize("all_of_them", [True, False])
def test_lists_of_gradients_where_some_are_frozen(net, slip, all_of_them):
    """They may have a None for what is frozen, or leave it out."""
    net.bias.requires_grad_(False)

    def loss_and_gradients():
        net.zero_grad()
        loss = (net(X) ** 2).sum()
        loss.backward(retain_graph=True)
        found = [slip * net.weight.grad]
        return loss, [*found, None] if all_of_them else found

    report = gl.check(loss_and_gradients, params=net)

    right = gl.Verdict.AGREES if slip == 1 else gl.Verdict.DISAGREES
    assert report.verdict is right
    assert [c.input.name for c in report.comparisons] == ["weight"]


@pytest.mark.parametrize("more", [lambda y: y, lambda y: [y], lambda y: (y, y)])
def test_predictions_behind_the_loss_are_no_gradients(net, more):
    """Autograd is asked of the loss, whatever else the function hands out."""

    def loss_and_predictions():
        y = net(X)
        return (y**2).sum(), more(y)

    report = gl.check(loss_and_predictions, params=net)

    assert report.verdict is gl.Verdict.AGREES


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


class Tanh(torch.autograd.Function):
    """Hyperbolic tangent, whose gradient is 1.2 times too large where that is asked."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x.tanh())
        ctx.factor = factor
        return x.tanh()

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return ctx.factor * grad * (1 - y * y), None


def halves(dtype, factor=1.0):
    """A loss of parameters in half precision, and those."""
    torch.manual_seed(0)
    params = {
        "W": torch.randn(3, 4).to(dtype).requires_grad_(),
        "b": torch.randn(3).to(dtype).requires_grad_(),
    }
    x = torch.randn(5, 4).to(dtype)

    def loss():
        hidden = Tanh.apply(x @ params["W"].T + params["b"], factor)
        return hidden.float().pow(2).mean()

    return loss, params


def in_float64(params):
    """Differentiate the same loss in float64."""
    torch.manual_seed(0)
    wide = {name: p.detach().double().requires_grad_() for name, p in params.items()}
    torch.randn(3, 4), torch.randn(3)
    x = torch.randn(5, 4).to(params["W"].dtype).double()
    loss = (x @ wide["W"].T + wide["b"]).tanh().pow(2).mean()
    return dict(zip(wide, torch.autograd.grad(loss, list(wide.values())), strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_compared_with_float64(dtype):
    """NumPy knows no bfloat16; differences are those of the same loss in float64."""
    loss, params = halves(dtype)
    before = {name: p.detach().clone() for name, p in params.items()}
    report = gl.check(loss, params=params)

    assert report.verdict is gl.Verdict.AGREES
    for name, truth in in_float64(params).items():
        assert np.allclose(report[name].numeric[0], truth.numpy().ravel(), atol=1e-8)
        assert torch.equal(params[name].detach(), before[name])
        assert params[name].grad is None
        assert params[name].dtype is dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_wrong_gradient_in_half_precision_is_found(dtype):
    """By a fifth: float16 was compared in its own digits, which forgave as much."""
    loss, params = halves(dtype, 1.2)
    report = gl.check(loss, params=params)

    assert report.verdict is gl.Verdict.DISAGREES
    assert set(report.culprits) == {"W", "b"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_that_half_precision_left_behind(dtype):
    """What training has put into .grad: right, and twice that."""
    loss, params = halves(dtype)
    loss().backward()
    held = {name: p.grad.clone() for name, p in params.items()}
    right = gl.check(loss, params=params, grad=held)
    twice = gl.check(loss, params=params, grad={**held, "W": 2 * held["W"]})

    assert right.verdict is gl.Verdict.AGREES
    assert twice.verdict is gl.Verdict.DISAGREES
    assert twice.culprits == ("W",)


def test_half_precision_beside_float32():
    """Data in half precision are widened beside a parameter that has more digits."""
    loss, params = halves(torch.bfloat16)
    scale = torch.ones(3, requires_grad=True)
    both = {**params, "scale": scale}
    report = gl.check(lambda: loss() * scale.pow(2).sum(), params=both)

    assert report.verdict is gl.Verdict.AGREES
    assert list(report.table["verdict"]) == ["AGREES"] * 3


def test_arrays_beside_half_precision_are_not_left_out():
    """What NumPy cannot move is refused, where arrays have to be moved as well."""
    loss, params = halves(torch.bfloat16)
    scale = np.ones(1)
    both = {**params, "scale": scale}
    with pytest.raises(InputError, match="NumPy cannot share"):
        gl.check(lambda: loss() * torch.from_numpy(scale).sum(), params=both)


def test_every_evaluation_is_counted(net, monkeypatch):
    """Also the one by which casts to half precision are looked for."""
    calls = []

    def forward(x):
        calls.append(1)
        return torch.nn.functional.linear(x, net.weight, net.bias)

    monkeypatch.setattr(net, "forward", forward)
    report = gl.check(lambda: net(X).pow(2).sum(), params=net)
    backwards = 1

    assert report.evaluations == len(calls) - backwards
