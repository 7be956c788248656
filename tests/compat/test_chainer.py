"""chainer.gradient_check on NumPy functions with a vjp, and on torch functions.

What Chainer itself would say is tested in test_chainer_real.py, where it is installed.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.compat.chainer import (
    NondifferentiableError,
    check_backward,
    check_double_backward,
    numerical_grad,
)


# ------------------------------------------------------------------ numerical_grad
@pytest.mark.parametrize("detect", [False, True])
def test_numeric_gradient_of_two_inputs(rng, detect):
    """Contracted with the output gradients; two points, or five."""
    x, w, g = (rng.normal(size=s) for s in ((2, 3), (3, 2), (2, 2)))

    gx, gw = numerical_grad(
        lambda: (x @ w,), (x, w), (g,), detect_nondifferentiable=detect
    )

    assert gx == pytest.approx(g @ w.T, abs=1e-9)
    assert gw == pytest.approx(x.T @ g, abs=1e-9)


def test_five_points_are_of_fourth_order():
    """exp with eps = 0.1: error eps**4 / 120 of e instead of eps**2 / 6."""
    x = np.array([1.0])
    (five,) = numerical_grad(
        lambda: (np.exp(x),), (x,), (1,), 0.1, detect_nondifferentiable=True
    )
    (two,) = numerical_grad(lambda: (np.exp(x),), (x,), (1,), 0.1)

    assert five[0] / np.e - 1 == pytest.approx(-(0.1**4) / 120 / 4, rel=0.6)
    assert two[0] / np.e - 1 == pytest.approx(0.1**2 / 6, rel=0.1)


def test_outputs_that_do_not_count():
    """None as a gradient leaves an output out; an output may be None then."""
    x = np.array([2.0])
    (gradient,) = numerical_grad(lambda: (x**2, None, x**3), (x,), (1.0, None, None))

    assert gradient[0] == pytest.approx(4)


def test_gradient_has_the_dtype_of_its_input():
    """float32 in, float32 out."""
    x = np.ones(2, dtype=np.float32)
    (gradient,) = numerical_grad(lambda: (x * 2,), (x,), (1.0,))

    assert gradient.dtype == np.float32


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (np.abs, 1e-4),
        (lambda x: np.where(x > 0, 1.0, 0.0), 2e-4),
        (lambda x: np.where(x > 0, x, np.nan), 2e-4),
    ],
)
def test_kinks_jumps_and_edges_are_detected(f, x):
    """Within eps of the point, if asked for."""
    x = np.array([x])

    with pytest.raises(NondifferentiableError, match="output 0"):
        numerical_grad(lambda: (f(x),), (x,), (1.0,), detect_nondifferentiable=True)


@pytest.mark.parametrize("f", [np.sin, np.square, np.zeros_like])
def test_smooth_functions_are_not_accused(f):
    """A sine over 1e-3 is a parabola; a constant is no kink."""
    x = np.array([0.7])
    numerical_grad(lambda: (f(x),), (x,), (1.0,), detect_nondifferentiable=True)


def test_input_is_put_back_if_the_function_raises():
    """Whatever happens."""
    x = np.array([1.0, 2.0])

    def fails():
        if x[1] != 2:
            raise KeyError
        return (x,)

    with pytest.raises(KeyError):
        numerical_grad(fails, (x,), (1.0,))
    assert x.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((lambda: (), (np.arange(3),), ()), RuntimeError),
        ((lambda: (), (np.ones(3),), (), 0.0), ValueError),
        ((lambda: (), np.ones(3), ()), ValueError),
        ((lambda: (1.0, 2.0), (np.ones(3),), (1.0,)), RuntimeError),
    ],
)
def test_bad_calls_are_refused(arguments, error):
    """Chainer's RuntimeError for a dtype; a ValueError where it asserts."""
    with pytest.raises(error) as caught:
        numerical_grad(*arguments)
    assert isinstance(caught.value, gl.GradlabError)


# ------------------------------------------------------------------ check_backward
def _linear(w):
    def forward(x):
        return x @ w

    def vjp(g, x):
        return g @ w.T, x.T @ g

    return forward, vjp


def test_right_backward_with_a_parameter(rng):
    """A layer that reads its weight in place."""
    x, w, g = (rng.normal(size=s) for s in ((4, 3), (3, 2), (4, 2)))
    forward, vjp = _linear(w)

    check_backward(forward, x, g, params=w, vjp=vjp)


@pytest.mark.parametrize("wrong", ["x", "w"])
def test_wrong_backward_is_localised(rng, wrong):
    """Which of the two it is stands in the report, not in Chainer's one number."""
    x, w, g = (rng.normal(size=s) for s in ((4, 3), (3, 2), (4, 2)))
    before = w.copy()
    forward, vjp = _linear(w)

    def slip(g, x):
        gx, gw = vjp(g, x)
        return (2 * gx, gw) if wrong == "x" else (gx, 2 * gw)

    with pytest.raises(AssertionError, match="backward") as caught:
        check_backward(forward, x, g, params=(w,), vjp=slip)

    assert caught.value.report.culprits == ("x" if wrong == "x" else "param0",)
    assert caught.value.report.diagnosis == "scale"
    assert np.array_equal(w, before)


def test_inputs_are_numbered_where_there_are_several(rng):
    """The second of two is x1 in the report."""
    x, y, g = rng.normal(size=(3, 4))

    with pytest.raises(AssertionError, match="backward") as caught:
        check_backward(
            lambda x, y: x * y, (x, y), g, vjp=lambda g, x, y: (g * y, 3 * g * x)
        )

    assert caught.value.report.culprits == ("x1",)


def test_nan_does_not_agree_with_nan():
    """Chainer lets it pass."""
    with pytest.raises(AssertionError):
        check_backward(
            lambda x: x * np.nan, np.ones(2), np.ones(2), vjp=lambda g, x: g * np.nan
        )


def test_scalar_output_needs_no_gradient():
    """None stands for 1 then, and only then."""
    x = np.array([1.0, 2.0])
    check_backward(lambda x: (x**2).sum(), x, None, vjp=lambda g, x: g * 2 * x)

    with pytest.raises(ValueError, match="exactly one output"):
        check_backward(np.square, x, None, vjp=lambda g, x: g * 2 * x)


@pytest.mark.parametrize(
    ("options", "telling"),
    [
        ({"y_grad": np.ones(3)}, "shape and dtype"),
        ({"y_grad": np.ones(2, np.float32)}, "shape and dtype"),
        ({"y_grad": (np.ones(2), np.ones(2))}, "one entry for each"),
        ({"no_grads": (True, False)}, "no_grads"),
        ({"dtype": "i"}, "floating"),
        ({"vjp": lambda g, x: (g, g)}, "one gradient for each"),
        ({"vjp": None}, "vjp="),
    ],
)
def test_bad_arguments_are_value_errors(options, telling, monkeypatch):
    """As in Chainer, with what came and what was expected."""
    import sys

    monkeypatch.delitem(sys.modules, "chainer", raising=False)
    given = {"y_grad": np.ones(2), "vjp": lambda g, x: g} | options

    with pytest.raises(ValueError, match=telling):
        check_backward(lambda x: x, np.ones(2), given.pop("y_grad"), **given)


def test_input_marked_as_without_gradient_must_not_get_one():
    """no_grads is a claim, and checked."""
    with pytest.raises(RuntimeError, match="no_grads"):
        check_backward(
            np.square,
            np.ones(2),
            np.ones(2),
            no_grads=(True,),
            vjp=lambda g, x: 2 * g * x,
        )


def test_integer_input_passes_through():
    """An index has no gradient, and None is its gradient."""
    x, k = np.array([1.0, 2.0, 3.0]), np.array([2, 0])

    def vjp(g, x, k):
        gx = np.zeros_like(x)
        np.add.at(gx, k, g)
        return gx, None

    check_backward(lambda x, k: x[k], (x, k), np.ones(2), vjp=vjp)


@pytest.mark.parametrize(
    ("x", "backward"),
    [
        (np.array([[0.5, 2.0, 1.0]]), lambda g, x: (2 * g * x)[0]),
        (np.array([3.0]), lambda g, x: (2 * g * x).sum()),
    ],
)
def test_gradient_of_another_shape_is_found(x, backward):
    """Also where it would broadcast to the right numbers."""
    with pytest.raises(AssertionError, match="has shape") as caught:
        check_backward(np.square, x, np.ones_like(x), vjp=backward)

    assert caught.value.report.diagnosis == "wrong_shape"


def test_complex_numbers_are_refused():
    """Among inputs, outputs and parameters: an input was skipped as if of integers."""
    real, other = np.ones(2), np.ones(2, dtype=complex)
    vjp = lambda g, *inputs: inputs

    for call in (
        lambda: check_backward(np.sin, other, other, vjp=vjp),
        lambda: check_backward(lambda x: x * 1j, real, other, vjp=vjp),
        lambda: check_backward(np.sin, real, real, params=(other,), vjp=vjp),
        lambda: numerical_grad(lambda: (real * 1j,), (real,), (real,)),
    ):
        with pytest.raises(gl.GradlabError, match="real numbers, got complex128"):
            call()


def test_parameters_in_a_dict_are_refused():
    """And so is the generator that a module gives; both by name."""
    for params in ({"w": np.ones(2)}, iter([np.ones(2)])):
        with pytest.raises(ValueError, match=r"params .*, got (dict|list_iterator)"):
            check_backward(np.sin, np.ones(2), np.ones(2), params, vjp=np.multiply)


def test_kink_is_detected_if_asked_for():
    """Along the direction of the check."""
    x = np.array([1e-4])
    vjp = lambda g, x: g * np.sign(x)

    with pytest.raises(NondifferentiableError):
        check_backward(np.abs, x, np.ones(1), detect_nondifferentiable=True, vjp=vjp)


def test_dtype_evaluates_differences_in_double():
    """float32 differences are off by a part in a thousand, float64 ones are not."""
    x = np.linspace(0.1, 2, 5).astype(np.float32)
    g = np.ones(5, dtype=np.float32)
    vjp = lambda g, x: g * np.cos(x)

    check_backward(np.sin, x, g, dtype="d", vjp=vjp)
    with pytest.raises(AssertionError):
        check_backward(np.sin, x, g, eps=1e-6, vjp=vjp)


def test_random_state_is_untouched():
    """Chainer draws its direction from the user's generator."""
    before = np.random.get_state()[1].copy()
    check_backward(np.sin, np.ones(2), np.ones(2), vjp=lambda g, x: g * np.cos(x))

    assert np.array_equal(np.random.get_state()[1], before)


# ------------------------------------------------------------------ second order
def _sine_twice(slip=1.0):
    return {
        "vjp": lambda g, x: g * np.cos(x),
        "double_vjp": lambda gg, x, g: (-slip * gg * g * np.sin(x), gg * np.cos(x)),
    }


def test_double_backward_of_arrays(rng):
    """The vjp's own vjp, right and wrong."""
    x, g, gg = rng.normal(size=(3, 4))
    check_double_backward(np.sin, x, g, gg, **_sine_twice())

    with pytest.raises(AssertionError, match="check_double_backward"):
        check_double_backward(np.sin, x, g, gg, **_sine_twice(2.0))


def test_double_backward_of_arrays_needs_both():
    """There is no autograd to fall back on."""
    with pytest.raises(ValueError, match="double_vjp"):
        check_double_backward(
            np.sin, np.ones(2), np.ones(2), np.ones(2), vjp=lambda g, x: g
        )


# ------------------------------------------------------------------ torch
class TestTorch:
    """The same on tensors, where autograd is the analytic side."""

    @pytest.fixture(autouse=True)
    def _torch(self):
        self.torch = pytest.importorskip("torch")

    def tensor(self, *shape):
        generator = self.torch.Generator().manual_seed(0)
        return self.torch.randn(*shape, generator=generator, dtype=self.torch.float64)

    def test_right_functions_pass(self):
        """With parameters, and an integer input."""
        layer = self.torch.nn.Linear(3, 2).double()
        before = layer.weight.detach().clone()
        check_backward(
            layer,
            self.tensor(4, 3),
            self.tensor(4, 2),
            params=tuple(layer.parameters()),
        )
        table, where = self.tensor(5), self.torch.tensor([4, 0])
        check_backward(lambda t, k: t[k], (table, where), self.tensor(2))

        assert self.torch.equal(layer.weight, before)
        assert layer.weight.grad is None

    def test_wrong_backward_is_found(self):
        """Half of the gradient is detached."""
        with pytest.raises(AssertionError, match="scale"):
            check_backward(lambda x: x * x.detach(), self.tensor(3), self.tensor(3))

    def test_double_backward(self):
        """Right, and with a second derivative that is cut off."""
        x, g, gg = self.tensor(3, 3)
        check_double_backward(self.torch.sin, x, g, gg)
        from tests.compat.functions import wrong_second

        with pytest.raises(AssertionError, match="check_double_backward"):
            check_double_backward(wrong_second, x, g, gg)

    def test_double_backward_with_parameters(self):
        """Gradients of the parameters are outputs of the first-order function."""
        layer = self.torch.nn.Linear(3, 2).double()
        check_double_backward(
            lambda x: layer(x) ** 2,
            self.tensor(4, 3),
            self.tensor(4, 2),
            self.tensor(4, 3),
            params=tuple(layer.parameters()),
            params_grad_grad=(self.tensor(2, 3), self.tensor(2)),
        )
