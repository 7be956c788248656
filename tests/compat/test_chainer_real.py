"""The same calls on Chainer's own functions and links, against Chainer's verdicts.

Chainer 7.8.1 is not among the test requirements (it is no longer maintained, and needs
a few aliases that NumPy 2 has removed). To run these tests, install it beside gradlab::

    pip install "setuptools<70" wheel && pip install --no-build-isolation chainer==7.8.1
"""

from __future__ import annotations

import importlib.util
import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab.compat.chainer import check_backward, check_double_backward

pytestmark = pytest.mark.filterwarnings("ignore")  # an old library on a new NumPy


@pytest.fixture(scope="module")
def chainer():
    """Chainer, after giving NumPy back what its import asks for."""
    if importlib.util.find_spec("chainer") is None:
        pytest.skip("chainer is not installed (see the docstring of this file)")
    old = {"bool": bool, "int": int, "float": float, "complex": complex}
    old |= {"object": object, "str": str}
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, value in old.items():
            if not hasattr(np, name):
                patch.setattr(np, name, value, raising=False)
        floating = [np.float16, np.float32, np.float64]
        kinds = {"float": floating, "int": [np.int32, np.int64], "uint": [np.uint8]}
        kinds |= {"complex": [np.complex64, np.complex128], "others": [bool]}
        patch.setattr(np, "sctypes", kinds, raising=False)
        module = pytest.importorskip("chainer")
        import chainer.functions
        import chainer.gradient_check
        import chainer.links  # noqa: F401 - binds the name

        yield module


def _array(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("f")


FUNCTIONS = {
    "tanh": ((3, 4),),
    "exp": ((2,),),
    "matmul": ((2, 3), (3, 2)),
    "softmax": ((3, 4),),
    "maximum": ((3,), (3,)),
    "flatten": ((2, 3),),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_functions_pass_in_both_orders(chainer, name):
    """As Chainer says of itself."""
    func = getattr(chainer.functions, name)
    xs = tuple(_array(*shape, seed=k) for k, shape in enumerate(FUNCTIONS[name]))
    y = func(*xs)
    gy = _array(*y.shape, seed=5)
    ggx = tuple(_array(*x.shape, seed=7) for x in xs)
    theirs = chainer.gradient_check

    for first, second in (
        (theirs.check_backward, theirs.check_double_backward),
        (check_backward, check_double_backward),
    ):
        first(func, xs, gy, dtype="d", atol=1e-4, rtol=1e-4)
        second(func, xs, gy, ggx, dtype="d", atol=1e-3, rtol=1e-3)


def test_several_outputs(chainer):
    """The gradients of all arrive together."""
    func = lambda x: chainer.functions.split_axis(x, 2, 0)
    x, gys = _array(4, 2), (_array(2, 2, seed=1), _array(2, 2, seed=2))

    check_backward(func, x, gys, dtype="d")


def test_link_with_its_parameters(chainer):
    """They are perturbed in place, put back, and their gradients checked too."""
    link = chainer.links.Linear(4, 2)
    before = link.W.array.copy()
    x, gy = _array(3, 4), _array(3, 2)
    check_backward(link, x, gy, params=(link.W, link.b), dtype="d")
    check_double_backward(
        lambda x: link(x) ** 2,
        x,
        gy,
        _array(3, 4),
        params=(link.W, link.b),
        params_grad_grad=(_array(2, 4), _array(2)),
        dtype="d",
    )

    assert np.array_equal(link.W.array, before)


def test_wrong_function_fails_and_is_explained(chainer):
    """Chainer raises an AssertionError; so do we, with a report."""

    class Wrong(chainer.FunctionNode):
        def forward(self, inputs):
            self.retain_inputs((0,))
            return (inputs[0] ** 2,)

        def backward(self, indexes, gys):
            (x,) = self.get_retained_inputs()
            return (3 * x * gys[0],)

    func = lambda x: Wrong().apply((x,))[0]
    x, gy = _array(3), _array(3, seed=1)

    with pytest.raises(AssertionError):
        chainer.gradient_check.check_backward(func, x, gy, dtype="d")
    with pytest.raises(gl.GradientMismatchError) as caught:
        check_backward(func, x, gy, dtype="d")

    assert caught.value.report.diagnosis == "scale"


def test_kink_is_detected(chainer):
    """Along the same criterion; the exceptions have the same name."""
    x, gy = np.array([1e-4], "f"), np.ones(1, "f")
    for module in (chainer.gradient_check, gl.compat.chainer):
        with pytest.raises(module.NondifferentiableError):
            module.check_backward(
                chainer.functions.relu,
                x,
                gy,
                dtype="d",
                detect_nondifferentiable=True,
            )
