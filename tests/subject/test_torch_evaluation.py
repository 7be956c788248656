"""Evaluating torch subjects: rows, grad mode, and what is left untouched."""

from __future__ import annotations

import pickle

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import gradlab as gl
from gradlab.subject.tensors.subjects import torch_subject
from tests.specimens.torch_sides import (
    DOUBLE,
    assert_analytic_equals_differences,
    randn,
)

torch = pytest.importorskip("torch")

F = torch.nn.functional


def test_row_is_fresh_memory():
    """Rows handed out earlier do not change when coordinates do."""
    subject = torch_subject(lambda x: x, (torch.ones(2, dtype=DOUBLE),))
    before = subject.row()
    subject.coordinates(0)[0] = 7.0

    assert before.tolist() == [1, 1]
    assert subject.row().tolist() == [7, 1]


def test_place_overwrites_and_puts_back():
    """`place(None)` brings back the point, bit by bit."""
    x = randn(3, 2).t()
    subject = torch_subject(torch.sin, (x,))
    at_point = subject.row()
    subject.place(0, np.arange(6.0))
    assert subject.row() == pytest.approx(np.sin(np.arange(6.0)), rel=1e-15)
    subject.place(0, None)

    assert np.array_equal(subject.row(), at_point)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_displacements_taken_are_those_of_the_dtype(dtype):
    """`taken` is what rounding left of the displacement, exactly."""
    x = torch.tensor([1.0, 100.0], dtype=dtype)
    subject = torch_subject(lambda x: x * 1, (x,))
    values, taken = subject.rows(0, np.array([0, 1]), np.array([0.3, 0.3]))

    moved = (x.double() + 0.3).to(dtype).double() - x.double()
    assert taken.tolist() == moved.tolist()
    assert (np.diag(values) - x.double().numpy()).tolist() == moved.tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_epsilon_is_that_of_the_coarsest_dtype(dtype):
    """An output in lower precision counts as well."""
    subject = torch_subject(lambda x: x.to(dtype), (randn(2),))
    subject.row()

    assert subject.epsilon == torch.finfo(dtype).eps


def test_functions_that_differentiate_inside_run_in_grad_mode():
    """A gradient penalty is evaluated with grad mode on, and differentiated."""

    def penalty(x):
        inner = (x**3).sum()
        (slope,) = torch.autograd.grad(inner, x, create_graph=True)
        return (slope**2).sum()

    x = randn(3, requires_grad=True)
    subject = torch_subject(penalty, (x,))

    assert subject.row() == pytest.approx(float((9 * x.detach() ** 4).sum()))
    (gradient,) = subject.analytic.pull(np.ones((1, 1))).values
    assert gradient[0] == pytest.approx((36 * x**3).detach().numpy())


def test_functions_that_branch_on_grad_mode_are_taken_as_in_training():
    """What the user differentiates is what grad mode computes."""
    subject = torch_subject(lambda x: x * (2 if x.requires_grad else 5), (randn(2),))

    assert subject.row() == pytest.approx(2 * subject.point(0))


def test_reset_is_called_before_every_evaluation():
    """Random functions become functions once their state is put back."""
    x = torch.ones(50, dtype=DOUBLE)
    subject = torch_subject(lambda x: F.dropout(x, 0.5), (x,))
    subject.reset = lambda: torch.manual_seed(7)

    assert np.array_equal(subject.row(), subject.row())
    assert_analytic_equals_differences(subject)
    assert np.array_equal(subject.analytic._subject.forward_value, subject.row())


def test_inputs_written_to_are_put_back_and_remembered():
    """A function that mutates its input is evaluated on copies from then on."""

    def f(x):
        x.mul_(2)
        return torch.sin(x)

    x = randn(3)
    subject = torch_subject(f, (x,))

    assert subject.row() == pytest.approx(np.sin(2 * x.numpy()))
    assert subject.row() == pytest.approx(np.sin(2 * x.numpy()))
    assert subject.mutated == ("x",)
    assert_analytic_equals_differences(subject)


def test_constants_written_to_are_put_back():
    """A counter passed as an argument does not make evaluations depend on order."""

    def f(x, calls):
        calls += 1
        return x * calls

    calls = torch.zeros(1, dtype=torch.int64)
    subject = torch_subject(f, (randn(2), calls))

    assert np.array_equal(subject.row(), subject.row())
    assert calls.item() == 0


def by_data(tensor):
    """Write in a way that no version counts."""
    tensor.data.mul_(0.5)


def by_numpy(tensor):
    """Write through the memory that NumPy shares."""
    array = tensor.detach().numpy()
    array *= 0.5


WRITES = pytest.mark.parametrize("write", [by_data, by_numpy])


@WRITES
def test_uncounted_writes_to_an_input_are_seen(write):
    """Half of x goes in, and half the slope comes out; autograd sees no half."""
    x = randn(2)

    def f(x):
        write(x)
        return torch.sin(x)

    subject = torch_subject(f, (x,))
    slopes = gl.numeric_jacobian(f, x).value
    report = gl.check(f, x)

    assert np.array_equal(subject.row(), subject.row())
    assert subject.mutated == ("x",)
    assert slopes == pytest.approx(np.diag(0.5 * np.cos(x.numpy() / 2)))
    assert report.verdict is gl.Verdict.DISAGREES


@WRITES
def test_uncounted_writes_to_a_large_input_are_seen(write):
    """Of 70,000 numbers no copy is kept; they are held against the user's own."""
    x = randn(70_000)

    def f(x):
        write(x)
        return torch.sin(x[::7000])

    subject = torch_subject(f, (x,))

    assert subject.row() == pytest.approx(np.sin(x[::7000].numpy() / 2))
    assert subject.mutated == ("x",)
    assert np.array_equal(subject.cells[0].real(), x)


@WRITES
def test_writes_to_the_users_own_are_none_to_what_stands_for_it(write):
    """Behind the back of f its own x changes; what is displaced stays as it was."""
    x = randn(70_000)
    before = x.clone()

    def f(copy):
        write(x)
        return torch.sin(copy[::7000])

    subject = torch_subject(f, (x,))

    assert subject.row() == pytest.approx(np.sin(before[::7000].numpy()))
    assert subject.mutated == ()
    assert np.array_equal(subject.cells[0].real(), before)


@WRITES
def test_uncounted_writes_to_constants_and_buffers_are_put_back(write):
    """A moving average kept by ``.data`` is at its start before every evaluation."""

    class Average(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.full((3,), 0.8, dtype=torch.float64))

        def forward(self, x, scale):
            write(self.mean)
            write(scale)
            return torch.sin(x * self.mean * scale)

    x, scale = randn(3, requires_grad=True), torch.ones(3, dtype=torch.float64)

    report = gl.check(Average(), x, scale)

    assert report.verdict is gl.Verdict.AGREES
    expected = np.diag(0.2 * np.cos(0.2 * x.detach().numpy()))
    assert report["x"].numeric == pytest.approx(expected, abs=1e-6)


class Boom(KeyboardInterrupt):
    """Raised in the middle of things."""


@hypothesis.given(st.integers(1, 12), st.sampled_from([ValueError, Boom]))
def test_user_tensors_are_untouched_whatever_happens(call, kind):
    """Values, version counters, grad and flags survive an exception at any call."""
    calls = 0

    def f(x, w):
        nonlocal calls
        calls += 1
        if calls == call:
            raise kind
        x.add_(1)
        return x @ w

    x, w = randn(2, 3).t(), randn(2, 3, requires_grad=True)
    w.grad = torch.ones_like(w)
    originals = (x.clone(), w.detach().clone())
    versions = (x._version, w._version)
    try:
        subject = torch_subject(f, (x, w), wrt=["x", "w"])
        subject.row()
        subject.rows(0, np.arange(6), np.full(6, 1e-3))
        subject.rows(1, np.arange(6), np.full(6, 1e-3))
        subject.analytic.pull(np.eye(9))
    except (ValueError, RuntimeError, Boom):
        pass  # RuntimeError: where the first call was cut short, x is still a leaf

    assert torch.equal(x, originals[0])
    assert torch.equal(w, originals[1])
    assert (x._version, w._version) == versions
    assert torch.equal(w.grad, torch.ones_like(w))
    assert not x.requires_grad
    assert w.requires_grad


def test_module_is_untouched_by_an_exception_inside():
    """Parameters are the user's own objects again after a failure."""
    module = torch.nn.Linear(2, 2)
    parameters = list(module.parameters())
    subject = torch_subject(module, (torch.ones(1, 3),))
    with pytest.raises(RuntimeError, match="shapes"):
        subject.row()

    assert all(a is b for a, b in zip(parameters, module.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in parameters)


def test_hooks_on_tensors_take_part_and_stay():
    """A hook that doubles the gradient doubles the analytic side."""
    x = randn(2, requires_grad=True)
    x.register_hook(lambda gradient: 2 * gradient)
    subject = torch_subject(lambda x: x.sum(), (x,))

    assert subject.analytic.pull(np.ones((1, 1))).values[0].tolist() == [[2, 2]]
    assert len(x._backward_hooks) == 1


def test_subjects_can_be_pickled():
    """Executors send subjects to other processes."""
    subject = torch_subject(torch.sigmoid, (randn(3),))
    row = subject.row()
    twin = pickle.loads(pickle.dumps(subject))
    twin.coordinates(0)[0] = 0.0

    assert twin.row()[0] == 0.5
    assert np.array_equal(subject.row(), row)
