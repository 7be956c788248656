"""Modules as subjects, and their float64 references."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import InputError
from gradlab.subject.tensors.subjects import torch_subject
from tests.specimens.torch_sides import (
    DOUBLE,
    assert_analytic_equals_differences,
    names_of,
    randn,
)

torch = pytest.importorskip("torch")


def test_modules_have_trainable_parameters_as_inputs():
    """Qualified names; frozen parameters and plain inputs are left out."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)).double()
    module[0].bias.requires_grad_(False)
    subject = torch_subject(module, (randn(4, 2),))

    assert names_of(subject) == ["0.weight", "1.weight", "1.bias"]
    assert_analytic_equals_differences(subject)


def test_tied_weights_are_one_input():
    """A weight used twice is perturbed in both places."""
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)).double()
    module[1].weight = module[0].weight
    subject = torch_subject(module, (randn(2, 3),))

    assert names_of(subject) == ["0.weight", "0.bias", "1.bias"]
    assert_analytic_equals_differences(subject)


def test_inputs_of_modules_count_if_they_require_grad():
    """The names are those of forward's arguments."""
    module = torch.nn.Bilinear(2, 3, 1).double()
    arguments = (randn(4, 2), randn(4, 3, requires_grad=True))
    subject = torch_subject(module, arguments)

    assert names_of(subject) == ["weight", "bias", "input2"]


def test_loss_is_the_only_output():
    """With a criterion the output is one number, called loss."""
    module = torch.nn.Linear(2, 3).double()
    subject = torch_subject(module, (randn(4, 2),), loss=lambda y: (y**2).mean())

    assert len(subject.row()) == 1
    assert [variable.name for variable in subject.outputs] == ["loss"]
    assert_analytic_equals_differences(subject)


def test_loss_must_be_one_number():
    """A criterion without reduction is refused with the shape it gave."""
    module = torch.nn.Linear(2, 3)
    with pytest.raises(InputError, match=r"loss=.*\(4, 3\).*sum"):
        torch_subject(module, (torch.ones(4, 2),), loss=lambda y: y**2).row()


def test_batch_norm_in_training_mode_is_a_pure_function():
    """Running statistics are put back before every evaluation."""
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    module = module.double()
    before = copy.deepcopy(module.state_dict())
    subject = torch_subject(module, (randn(5, 3),))

    assert np.array_equal(subject.row(), subject.row())
    assert_analytic_equals_differences(subject)
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert module.training


def test_buffers_that_are_replaced_are_put_back():
    """A module that counts its calls by assignment is pure as well."""

    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2, dtype=DOUBLE))
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            """What is computed."""
            self.calls = self.calls + 1
            return x * self.weight * self.calls

    module = Counting()
    subject = torch_subject(module, (randn(2),))

    assert np.array_equal(subject.row(), subject.row())
    assert module.calls == 0


def test_recurrent_modules_keep_their_own_weights():
    """The flat list of weights points at the user's parameters afterwards."""
    module = torch.nn.GRU(2, 3).double()
    subject = torch_subject(module, (randn(4, 1, 2),))

    assert_analytic_equals_differences(subject)
    pairs = zip(module._flat_weights, module.parameters(), strict=True)
    assert all(weight is parameter for weight, parameter in pairs)


def test_modules_that_cannot_be_called_on_other_parameters_are_refused():
    """Lazy modules are told to run once first."""
    with pytest.raises(InputError, match=r"'weight' of LazyLinear.*once"):
        torch_subject(torch.nn.LazyLinear(2), (torch.ones(1, 2),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_in_double_is_the_same_function_at_the_same_point(dtype):
    """The reference evaluates the rounded point without further rounding."""
    x, w = randn(3, 4, dtype=dtype), randn(4, dtype=dtype)
    double = torch_subject(lambda x, w: torch.tanh(x @ w), (x, w)).in_double()

    exact = np.tanh(x.double().numpy() @ w.double().numpy())
    assert double.row() == pytest.approx(exact, rel=1e-14)
    assert {variable.dtype for variable in double.inputs} == {"float64"}
    assert_analytic_equals_differences(double)


def test_in_double_casts_constants_parameters_and_buffers():
    """A module in evaluation mode uses its statistics in float64."""
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).eval()
    module[0].bias.requires_grad_(False)
    x = torch.randn(5, 3)
    double = torch_subject(module, (x,)).in_double()

    exact = copy.deepcopy(module).double()(x.double()).detach().numpy()
    assert double.row() == pytest.approx(exact.reshape(-1), rel=1e-14)
    assert next(module.parameters()).dtype == torch.float32


class PlainAttribute(torch.nn.Module):
    """Keeps a tensor that is neither parameter nor buffer."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 3))
        self.mixing = torch.randn(3, 3)

    def forward(self, x):
        """What is computed."""
        return x @ self.weight @ self.mixing


def test_in_double_casts_plain_attributes_on_a_copy():
    """A deep copy is taken where exchanging parameters is not enough."""
    module = PlainAttribute()
    double = torch_subject(module, (torch.randn(2, 3),)).in_double()

    assert double.epsilon == np.finfo(float).eps
    assert module.mixing.dtype == torch.float32


def fills_its_own(x):
    """Creates its result in the default dtype."""
    out = torch.zeros(3)
    out[:] = x * 2
    return out


def single_only(x):
    """Refuse all but float32."""
    if x.dtype != torch.float32:
        raise TypeError(x.dtype)
    return x * 2


def test_in_double_covers_functions_that_create_their_own_tensors():
    """With float64 as the default dtype, and float32 again afterwards."""
    double = torch_subject(fills_its_own, (torch.randn(3),)).in_double()

    assert double.outputs[0].dtype == "float64"
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.bfloat16() * 2,  # seen in the output
        lambda x: (x.bfloat16() * 2).to(x.dtype),  # hidden inside
        single_only,  # cannot run
    ],
)
def test_hidden_half_precision_has_no_reference(fn):
    """A function that casts to less than its inputs on the way gives None."""
    assert torch_subject(fn, (torch.randn(2, 3),)).in_double() is None


def test_float64_needs_no_reference():
    """There is nothing better than float64 to be had."""
    assert torch_subject(torch.sin, (randn(2),)).in_double() is None


class Fragile(torch.nn.Module):
    """Raises at a chosen call, wherever that happens to be."""

    def __init__(self, call):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
        self.left = call

    def forward(self, x):
        """What is computed."""
        self.left -= 1
        y = self.inner(x)
        if self.left == 0:
            raise KeyboardInterrupt
        return y


@pytest.mark.parametrize("call", range(1, 60, 4))
def test_modules_survive_an_interrupt_at_any_call(call):
    """Parameters, buffers and the modes of torch are as before."""
    module = Fragile(call)
    parameters = dict(module.named_parameters())
    buffers = dict(module.named_buffers())
    before = copy.deepcopy(module.state_dict())
    try:
        subject = torch_subject(module, (torch.randn(4, 2),))
        subject.row()
        for which, variable in enumerate(subject.inputs):
            count = variable.coordinates
            subject.rows(which, np.arange(count), np.full(count, 1e-3))
        subject.analytic.pull(np.eye(12))
        subject.in_double()
    except KeyboardInterrupt:
        pass

    assert all(a is parameters[name] for name, a in module.named_parameters())
    assert all(a is buffers[name] for name, a in module.named_buffers())
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() is torch.float32
    assert module.training


class Counting(torch.nn.Module):
    """A layer that counts its calls in a parameter that does not learn."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.calls = torch.nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, x):
        with torch.no_grad():
            self.calls.add_(1)
        return torch.sin(self.layer(x) * self.calls)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_frozen_parameters_that_calls_change_are_put_back(dtype):
    """Every evaluation is the second call, in either precision, and the user's too."""
    torch.manual_seed(0)
    module = Counting().to(dtype)

    report = gl.check(module, torch.ones(4, 3, dtype=dtype))

    assert report.verdict is gl.Verdict.AGREES
    assert "stateful" in [finding.kind for finding in report.findings]
    assert module.calls.item() == 1.0


def test_frozen_parameters_are_said_to_be_left_out():
    """Their gradient is not compared, and a report that says nothing hides it."""
    net = torch.nn.Sequential(
        torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)
    ).double()
    net[0].requires_grad_(False)
    x = torch.tensor([[0.3, -1.0]], dtype=torch.float64)
    report = gl.check(net, x, loss=lambda out: out.sum())
    assert [c.input.name for c in report.comparisons] == ["2.weight", "2.bias"]
    said = "0.weight, 0.bias, which do not require grad"
    assert any(said in remark for remark in report.remarks)
    assert said in " ".join(str(report).split())


def test_tensors_that_do_not_require_grad_are_said_to_be_left_out():
    """Of a function as well, unless the choice was the user's own: wrt=."""
    x = torch.tensor([0.3, -1.0], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([2.0, 1.0], dtype=torch.float64)
    assert gl.check(lambda x, y: x * y, x, y).remarks == (
        "not compared: y, which does not require grad (wrt= asks for it)",
    )
    assert not gl.check(lambda x, y: x * y, x, y, wrt="x").remarks
    assert not gl.check(lambda x, y: x * y, x.detach(), y).remarks


def test_data_that_a_module_is_called_on_is_no_omission():
    """All parameters are compared: what the batch is made of needs no gradient."""
    x = torch.tensor([[0.3, -1.0]], dtype=torch.float64)
    assert not gl.check(torch.nn.Linear(2, 1).double(), x).remarks
