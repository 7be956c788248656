"""Slips of a first hour with gradlab: none is blamed on a gradient that is right."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gradlab as gl
from gradlab.errors import InputError, InputTypeError, SubjectError

X = np.arange(1.0, 4.0)
T = torch.ones(3, dtype=torch.float64)


class Product(torch.autograd.Function):
    """A Function of a tensor and a number."""

    @staticmethod
    def forward(ctx, x, alpha):
        """Multiply."""
        ctx.alpha = alpha
        return x * alpha

    @staticmethod
    def backward(ctx, upstream):
        """Multiply as well."""
        return upstream * ctx.alpha, None


class Twice(torch.autograd.Function):
    """A Function whose forward has no context of its own."""

    @staticmethod
    def forward(x, y):
        """Multiply."""
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Keep both."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, upstream):
        """One gradient too few."""
        return upstream * ctx.saved_tensors[1]


class Net:
    """A layer and its gradients; `slip` is how these are returned."""

    def __init__(self, slip="dict"):
        rng = np.random.default_rng(0)
        self.params = {"W": rng.normal(size=(3, 2)), "b": rng.normal(size=2)}
        self.slip = slip

    def loss(self):
        """Half the squares of a layer."""
        out = X @ self.params["W"] + self.params["b"]
        loss = (out**2).sum() / 2
        grads = {"W": np.outer(X, out), "b": out}
        return {
            "dict": (loss, grads),
            "list": (loss, [grads["W"], grads["b"]]),
            "swapped": (grads, loss),
            "three": (loss, out, grads),
        }[self.slip]


def _check(net, params=None):
    return gl.check(net.loss, params=net.params if params is None else params)


def _nothing(x):
    x.sum()


REFUSED = {
    "gradients before the loss": (
        lambda: _check(Net("swapped")),
        SubjectError,
        "number 1 is a dict; return the pair (loss, gradients), the loss first",
    ),
    "scores between them": (
        lambda: _check(Net("three")),
        SubjectError,
        "returned 3 values, of which number 3 is a dict",
    ),
    "no return": (
        lambda: gl.check(_nothing, X, grad=np.ones_like),
        SubjectError,
        "the function returned None; let it end with return",
    ),
    "a Function of arrays": (
        lambda: gl.check(Product.apply, X, 2.0),
        InputTypeError,
        "Product.apply takes tensors",
    ),
    "argument of a Function by keyword": (
        lambda: gl.check(Product.apply, T, alpha=2.0),
        InputTypeError,
        "check() takes inputs by position: write check(fn, ..., alpha)",
    ),
    "inputs in a tuple": (
        lambda: gl.check(Product.apply, (T, 2.0)),
        InputError,
        "the function takes 2 arguments (x, alpha) and got one tuple of 2; unpack it",
    ),
    "inputs in a list": (
        lambda: gl.check(Twice.apply, [T, T]),
        InputError,
        "the function takes 2 arguments (x, y) and got one list of 2; unpack it",
    ),
    "a Function made": (
        lambda: gl.check(Twice(), T, T),
        InputTypeError,
        "the function is an object of the class Twice; pass Twice.apply",
    ),
    "a forward": (
        lambda: gl.check(Product.forward, T, 2.0),
        InputTypeError,
        "forward is called by autograd, with its ctx; pass Product.apply",
    ),
    "one input too few": (
        lambda: gl.check(Product.apply, T),
        InputTypeError,
        "the function takes 2 arguments (x, alpha) and got 1 input; pass as many",
    ),
    "one input too few, without a context": (
        lambda: gl.sweep(Twice.apply, T),
        InputTypeError,
        "the function takes 2 arguments (x, y) and got 1 input; pass as many",
    ),
    "no input for a module": (
        lambda: gl.check(torch.nn.Linear(3, 2)),
        InputTypeError,
        "the module takes 1 argument (input) and got no inputs",
    ),
    "a gradient by position": (
        lambda: gl.check(lambda x: (x**2).sum(), X, lambda x: 2 * x),
        InputTypeError,
        "got 2 inputs; a gradient goes to grad=, jac=, backward= or vjp=",
    ),
    "parameters by position": (
        lambda: gl.check(lambda: (1.0, {}), {"W": X}),
        InputTypeError,
        "takes no arguments and got 1 input; parameters that it reads where they are",
    ),
    "a place instead of a name": (
        lambda: gl.check(Twice.apply, T, T, wrt=1),
        InputTypeError,
        "wrt= must be a name or a sequence of names, got int 1",
    ),
    "an int": (
        lambda: gl.check(lambda x: x**2, 2, grad=lambda x: 2 * x),
        InputError,
        "pass float(x), or an array of floating-point numbers",
    ),
    "no return of a tensor": (
        lambda: gl.check(_nothing, T),
        SubjectError,
        "the function returned None; let it end with return and a tensor",
    ),
    "an array where a tensor was": (
        lambda: gl.check(lambda x: x.detach().numpy(), T),
        SubjectError,
        "but ndarray of shape (3,); return tensors",
    ),
}


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")
@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_what_to_write(case):
    """The message names the slip and what to do."""
    call, kind, words = REFUSED[case]
    with pytest.raises(kind) as caught:
        call()
    assert words in str(caught.value)


def test_own_errors_of_the_function_stay_its_own():
    """A TypeError inside a function that was called as it should be is not refused."""
    with pytest.raises(SubjectError, match=r"TypeError .*test_newcomers"):
        gl.check(lambda x: x + "a" + 1j * {}, X, grad=np.ones_like)


def test_arguments_that_a_decorator_adds_are_not_missed():
    """The signature says two where the call takes one: it is not asked first."""

    def twice(x, factor):
        return (factor * x).sum()

    def given(x):
        return twice(x, 2.0)

    given.__wrapped__ = twice
    report = gl.check(given, X, grad=lambda x: 2 * np.ones(3))
    assert report.verdict == gl.Verdict.AGREES


def test_a_backward_that_returns_too_few_is_told_how_many():
    """What torch counts, and what to return."""
    report = gl.check(Twice.apply, T, T)
    assert "expected 2, got 1" in report.findings[0].evidence
    assert report.findings[0].advice.startswith("Return one gradient for each argument")


def test_nan_among_the_inputs_is_no_overflow():
    """The advice names the input, and not the forward pass."""
    x = torch.tensor([1.0, torch.nan], dtype=torch.float64)
    [finding] = [f for f in gl.check(lambda x: x**2, x).findings if f.where == ""]
    assert finding.advice == "x is not finite itself: check at another point."


def test_list_of_gradients_for_a_dict_of_parameters():
    """It is read in order, as where the parameters are an argument."""
    assert _check(Net("list")).verdict == gl.Verdict.AGREES


@pytest.mark.parametrize("container", [list, tuple])
@pytest.mark.parametrize(
    ("factor", "wrong"), [(2, None), (1, "scale"), (None, "detached")]
)
def test_a_list_of_one_gradient_for_a_dict_of_one_parameter(container, factor, wrong):
    """It is that one's gradient, which was taken for missing; None is missing still."""

    def loss_and_grads(p):
        grad = None if factor is None else factor * p["W"]
        return (p["W"] ** 2).sum(), container([grad])

    params = {"W": np.array([1.0, 2.0, 3.0])}
    for report in (
        gl.check(loss_and_grads, params),
        gl.check(lambda: loss_and_grads(params), params=params),
    ):
        assert report.ok == (wrong is None)
        assert report.diagnosis == (wrong or "none")


def test_tuple_that_is_one_argument():
    """A function that takes one tuple is given one."""
    report = gl.check(
        lambda pair: pair[0] @ pair[1], (X, 2 * X), grad=lambda pair: ((2 * X, X),)
    )
    assert report.verdict == gl.Verdict.AGREES


def test_copies_of_parameters():
    """That nothing moves is no normalisation; the advice says what to pass."""
    net = Net()
    copies = {name: array.copy() for name, array in net.params.items()}
    report = _check(net, copies)
    assert {str(f.kind) for f in report.findings} == {"extra_term"}
    assert all("the very arrays" in f.advice for f in report.findings)


def test_jacobian_upside_down():
    """Its shape tells."""
    a = np.arange(12.0).reshape(4, 3)
    report = gl.check(lambda x: a @ x, X, jac=lambda _: a.T)
    assert report.diagnosis == "wrong_shape"
    assert report.findings[0].advice.endswith("return jac.T.")


def test_slopes_for_a_jacobian():
    """They have the shape of the input and of the output; a whole matrix is wanted."""
    report = gl.check(np.sin, X, jac=np.cos)
    assert report.diagnosis == "wrong_shape"
    assert "np.diag(slopes.ravel())" in report.findings[0].advice


def test_gradients_in_another_order():
    """Two shapes that are each other's name the slip."""

    def backward(upstream, cache):
        x, w = cache
        return x.T @ upstream, upstream @ w.T

    report = gl.check(
        lambda x, w: (x @ w, (x, w)),
        np.ones((4, 3)),
        np.ones((3, 2)),
        backward=backward,
    )
    assert "; it has that of w." in report.findings[-1].evidence
    assert (
        report.findings[0].advice == "Return the gradients in the order of the inputs."
    )


def test_backward_inside_the_function():
    """What asks for the gradient itself is told to leave that to gradlab."""

    def step(x):
        loss = (x**3).sum()
        loss.backward()
        return loss

    report = gl.check(step, T.clone().requires_grad_())
    assert "leave that out and return the loss" in report.findings[0].advice


def test_debris_before_a_batch_norm_is_no_mistake():
    """Round-off of float16 is no linear map of the incoming gradient, nor is it one."""
    torch.manual_seed(0)

    class Half(torch.nn.Module):
        def forward(self, x):
            return x.half().to(x.dtype)

    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1),
        torch.nn.BatchNorm2d(4),
        torch.nn.GELU(),
        Half(),
        torch.nn.Flatten(),
        torch.nn.Linear(256, 3),
    )
    for seed in range(3):
        x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
        report = gl.check(net, x, loss=lambda out: out.square().mean())
        assert "ignores_upstream" not in {str(f.kind) for f in report.findings}


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_report_is_true_where_everything_agrees(factor):
    """As whoever asserts a gradcheck expects; what is undecided is not true either."""
    report = gl.check(lambda x: x @ x, X, grad=lambda x: 2 * factor * x)
    undecided = gl.check(lambda x: np.sqrt(-(x @ x)), X, grad=lambda x: x)

    assert bool(report) is (factor == 1.0)
    assert undecided.ok
    assert not undecided


class ForgetfulGelu(torch.autograd.Function):
    """Its backward forgets a term of the product rule."""

    @staticmethod
    def forward(ctx, x):
        """Keep the input."""
        ctx.save_for_backward(x)
        return torch.nn.functional.gelu(x)

    @staticmethod
    def backward(ctx, upstream):
        """Leave out x times the density."""
        (x,) = ctx.saved_tensors
        return upstream * 0.5 * (1 + torch.erf(x / 2**0.5))


class Gelu(torch.nn.Module):
    """Calls it."""

    def forward(self, x):
        """Apply it."""
        return ForgetfulGelu.apply(x)


def test_audit_names_the_cause_that_a_check_names():
    """Where one direction tells none, the layer's own Jacobian does."""
    torch.manual_seed(0)
    linear = torch.nn.Linear
    net = torch.nn.Sequential(linear(3, 4), Gelu(), linear(4, 2)).double()
    x = torch.randn(5, 3, dtype=torch.float64)

    audit, report = gl.blame(net, x), gl.check(net, x)

    assert report.diagnosis == "missing_term"
    assert [str(f.kind) for f in audit.findings] == ["missing_term"]
    assert audit.culprits == ("1",)


def test_audit_of_a_large_layer_stays_cheap():
    """A thousand coordinates are not looked at one by one."""
    torch.manual_seed(0)
    linear = torch.nn.Linear
    net = torch.nn.Sequential(linear(3, 1000), Gelu(), linear(1000, 2)).double()

    audit = gl.blame(net, torch.randn(1, 3, dtype=torch.float64))

    assert [str(f.kind) for f in audit.findings] == ["unknown"]
    assert audit.evaluations < 200


def test_inputs_moved_together_say_so(monkeypatch):
    """One number in several rows is that of all of them."""
    monkeypatch.delenv("COLUMNS", raising=False)  # which folds tables
    x = np.linspace(0.5, 1.5, 40)
    report = gl.check(
        lambda a, b: (a * b).sum(), x, 2 * x, grad=lambda a, b: (b, a), coverage="probe"
    )
    rows = [line for line in str(report).splitlines() if "  agrees  " in line]
    assert report["a"].analytic.tobytes() == report["b"].analytic.tobytes()
    assert len(rows) == 2
    assert all(", with 1 other " in row for row in rows)
