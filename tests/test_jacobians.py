"""Jacobians on their own: shapes, error bars, and every way to get one."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import InputError

METHODS = ["adaptive", "central", "forward", "backward", "complex-step"]


@pytest.mark.parametrize("method", METHODS)
def test_linear_map(method, rng):
    """The derivative of A x B is known, in the shape out + in, within its bars."""
    a, b = rng.normal(size=(2, 3)), rng.normal(size=(4, 5))
    x = rng.normal(size=(3, 4))

    jacobian = gl.numeric_jacobian(lambda x: a @ x @ b, x, method=method)

    exact = np.einsum("ik,lj->ijkl", a, b)
    assert jacobian.value.shape == (2, 5, 3, 4)
    assert jacobian.error.shape == jacobian.step.shape == jacobian.value.shape
    assert (np.abs(jacobian.value - exact) <= 5 * jacobian.error + 1e-15).all()
    assert np.abs(jacobian.value - exact).max() < 1e-7
    assert jacobian.method == method


@pytest.mark.parametrize("method", METHODS)
def test_steps_are_those_taken(method):
    """A given step is used, and reported as it was taken."""
    classes = {
        "central": gl.Central, "forward": gl.Forward, "backward": gl.Backward,
        "complex-step": gl.ComplexStep,
    }  # fmt: skip
    if method not in classes:
        pytest.skip("finds its own steps")
    jacobian = gl.numeric_jacobian(
        np.exp, np.array(2.0), method=classes[method](step=1e-3)
    )
    assert jacobian.step == pytest.approx(1e-3)


def test_several_inputs_and_outputs(rng):
    """Dicts by name of input, or by output and input."""
    x, w = rng.normal(size=3), rng.normal(size=3)
    by_input = gl.numeric_jacobian(lambda x, w: x @ w, x, w)
    assert set(by_input) == {"x", "w"}
    assert by_input["x"].value == pytest.approx(w)
    both = gl.numeric_jacobian(lambda x: (x.sum(), x**2), x)
    assert set(both) == {("out.0", "x"), ("out.1", "x")}
    assert both["out.1", "x"].value == pytest.approx(np.diag(2 * x))


def test_complex_input():
    """Of a real output, d/dRe + i d/dIm, as torch has it."""
    z = np.array([1.0 + 2.0j, -0.5j])
    jacobian = gl.numeric_jacobian(lambda z: (np.abs(z) ** 2).sum(), z)
    assert jacobian.value == pytest.approx(2 * z)


def test_an_infinite_imaginary_part_leaves_the_real_one_alone():
    """What the user's code returned is handed on as it is, not as nan + inf i."""
    z, given = np.ones(2, dtype=complex), np.array([complex(1, np.inf), 2 - 3j])

    jacobian = gl.analytic_jacobian(lambda z: z.real.sum(), z, grad=lambda _: given)

    assert (jacobian.value.real == given.real).all()
    assert (jacobian.value.imag == given.imag).all()


SMOOTH = {
    "exp": (np.exp, 1.0, np.exp(1.0)),
    "sin": (np.sin, 0.4, np.cos(0.4)),
    "sin(300x)": (lambda x: np.sin(300 * x), 0.5, 300 * np.cos(150.0)),
    "on 1e6": (lambda x: 1e6 + np.sin(x), 1.0, np.cos(1.0)),
    "1/x": (lambda x: 1 / x, 0.01, -1e4),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_bar_of_a_central_difference_covers_its_error(name):
    """Of what bends on a scale far below x as well, for one further evaluation.

    And two for whether f stops early.
    """
    f, x, exact = SMOOTH[name]

    jacobian = gl.numeric_jacobian(f, np.array(x), method="central")

    assert abs(jacobian.value - exact) <= 5 * jacobian.error
    assert jacobian.error <= 1e-3 * abs(exact)
    assert jacobian.evaluations == 5


def test_bar_of_a_central_difference_covers_a_kink():
    """Where one-sided slopes are 0 and 1, no bar below a quarter can be believed."""
    x = np.array(1.0)
    jacobian = gl.numeric_jacobian(lambda x: np.maximum(x - 1, 0), x, method="central")
    assert jacobian.error >= 0.25


def test_single_precision_is_differentiated_in_single_precision():
    """The bar tells how little float32 resolves."""
    x = np.array([0.5], dtype=np.float32)
    jacobian = gl.numeric_jacobian(np.sin, x, method="central")
    true_error = abs(jacobian.value[0, 0] - np.cos(0.5))
    assert true_error <= 5 * jacobian.error[0, 0]
    assert jacobian.error[0, 0] > 1e-6


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_autograd(mode):
    """Both modes of autograd give the derivative of a matrix product."""
    torch = pytest.importorskip("torch")
    a = torch.randn(2, 3, dtype=torch.float64)
    x = torch.randn(3, 4, dtype=torch.float64)
    jacobian = gl.analytic_jacobian(lambda x: a @ x, x, mode=mode)
    exact = np.einsum("ik,lj->ijkl", a.numpy(), np.eye(4))
    assert jacobian.value == pytest.approx(exact)
    assert np.isnan(jacobian.step).all()


def test_hand_written_forms(rng):
    """grad, jac, backward and vjp give the same Jacobian."""
    x = rng.normal(size=3)
    exact = np.diag(np.cos(x))
    jac = gl.analytic_jacobian(np.sin, x, jac=lambda x: np.diag(np.cos(x)))
    vjp = gl.analytic_jacobian(np.sin, x, vjp=lambda ct, x: ct * np.cos(x))
    backward = gl.analytic_jacobian(
        lambda x: (np.sin(x), x), x, backward=lambda ct, x: ct * np.cos(x)
    )
    assert jac.value == pytest.approx(exact)
    assert vjp.value == pytest.approx(exact)
    assert backward.value == pytest.approx(exact)
    grad = gl.analytic_jacobian(lambda x: np.sin(x).sum(), x, grad=np.cos)
    assert grad.value == pytest.approx(np.cos(x))


def test_refusals():
    """An unknown mode, and nothing to read out."""
    with pytest.raises(InputError, match='mode must be "reverse" or "forward"'):
        gl.analytic_jacobian(np.sin, np.ones(2), mode="sideways")


def test_inputs_survive(rng):
    """The arrays passed in are bitwise what they were."""
    x = rng.normal(size=(4, 3))
    before = x.tobytes()
    gl.numeric_jacobian(np.tanh, x)
    assert x.tobytes() == before


def test_both_sides_name_the_same_inputs_beside_plain_numbers():
    """A number beside an array is no input of either, whatever the vjp returns."""
    x = np.array([0.4, -1.3])

    analytic = gl.analytic_jacobian(
        lambda x, s: s * x, x, 0.7, vjp=lambda d, x, s: (d * s, d @ x)
    )
    numeric = gl.numeric_jacobian(lambda x, s: s * x, x, 0.7)

    assert analytic.value.shape == numeric.value.shape == (2, 2)


def test_a_jacobian_shows_its_numbers(rng):
    """At the end of a cell: the values, how they came about, and their largest bar."""
    small = gl.numeric_jacobian(lambda x: x**2, np.array([1.0, 2.0]))
    large = gl.numeric_jacobian(lambda x: x, rng.normal(size=100))
    number = gl.numeric_jacobian(lambda x: x**2, 1.5)
    empty = gl.numeric_jacobian(lambda x: x.sum(), np.zeros((0, 3)))

    assert repr(small).splitlines()[1:] == ["[[2. 0.]", " [0. 4.]]"]
    assert f"bars up to {small.error.max():.0e}\n" in repr(small)
    assert len(repr(large).splitlines()) < 10
    product = gl.numeric_jacobian(lambda x: x @ np.ones((30, 3)), np.ones((20, 30)))
    assert product.value.ndim == 4
    assert len(repr(product).splitlines()) < 30
    assert repr(number).endswith("\n3")
    assert "\n" not in repr(empty)


def test_numpy_takes_a_jacobian_for_its_value():
    """It raised a TypeError about operands; writing to a copy leaves it alone."""
    x = np.array([0.3, 1.2])
    found, truth = gl.numeric_jacobian(np.sin, x), np.diag(np.cos(x))
    mine = np.array(found)
    mine[0, 0] = 9.0

    assert np.allclose(found, truth)
    assert abs(found - truth).max() < 1e-12
    assert np.asarray(found, dtype=np.float32).dtype == np.float32
    assert found.value[0, 0] < 1
