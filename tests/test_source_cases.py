"""The five cases the project started from, each with what must be said about it."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.course import TwoLayerNet, data

torch = pytest.importorskip("torch")


class TestCourseNetwork:
    """Gradient of W1 doubled."""

    def test_broken(self):
        """W1 is off by 3.33e-01, the other three by less than 1e-8; W1 is named."""
        net, (inputs, labels) = TwoLayerNet(), data()

        report = gl.check(lambda: net.loss(inputs, labels), params=net.params)

        errors = {c.input.name: c.max_rel_error for c in report.comparisons}
        assert errors.pop("W1") == pytest.approx(1 / 3, abs=1e-6)
        assert max(errors.values()) < 1e-8
        assert report.culprits == ("W1",)
        assert report.verdict == gl.Verdict.DISAGREES
        assert report.diagnosis == "scale"

    def test_fixed(self):
        """After the fix every gradient agrees and nothing is found."""
        net, (inputs, labels) = TwoLayerNet(slip=1.0), data()

        report = gl.check(lambda: net.loss(inputs, labels), params=net.params)

        assert report.verdict == gl.Verdict.AGREES
        assert report.ok
        assert report.culprit is None
        assert max(c.max_rel_error for c in report.comparisons) < 1e-7

    def test_functional(self):
        """The same network as a function of its parameters says the same."""
        net, (inputs, labels) = TwoLayerNet(), data()

        def loss_and_grads(params):
            twin = TwoLayerNet()
            twin.params = params
            return twin.loss(inputs, labels)

        assert gl.check(loss_and_grads, net.params).culprits == ("W1",)


class BuggySigmoid(torch.autograd.Function):
    """``s (1 + s)`` instead of ``s (1 - s)``."""

    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(s)
        return s

    @staticmethod
    def backward(ctx, upstream):
        (s,) = ctx.saved_tensors
        return upstream * s * (1 + s)


class CorrectSigmoid(BuggySigmoid):
    """The formula as it should be."""

    @staticmethod
    def backward(ctx, upstream):
        (s,) = ctx.saved_tensors
        return upstream * s * (1 - s)


class TestSigmoid:
    """A sign inside the derivative."""

    def test_broken(self):
        """The input is named and the formula is called another function's."""
        torch.manual_seed(0)
        x = torch.randn(5, dtype=torch.float64, requires_grad=True)

        report = gl.check(BuggySigmoid.apply, x)

        assert report.culprits == ("x",)
        assert report.diagnosis == "wrong_derivative"

    def test_fixed(self):
        """The correct sigmoid agrees."""
        x = torch.linspace(-2, 2, 5, dtype=torch.float64)
        assert gl.check(CorrectSigmoid.apply, x).verdict == gl.Verdict.AGREES


class Capsule(torch.autograd.Function):
    """Length of the projection onto the columns of a weight matrix."""

    @staticmethod
    def forward(ctx, vector, weight):
        inverse = (weight.T @ weight).inverse()
        projection = weight @ inverse @ weight.T
        length = (projection @ vector).norm(dim=0)
        ctx.save_for_backward(vector, weight, inverse, projection, length)
        return length

    @staticmethod
    def backward(ctx, upstream):
        vector, weight, inverse, projection, length = ctx.saved_tensors
        to_vector = upstream * (projection @ vector) / length
        outside = torch.eye(len(weight), dtype=weight.dtype) - projection
        # the incoming gradient is forgotten here
        to_weight = outside @ (vector / length) @ vector.T @ weight @ inverse
        return to_vector, to_weight


def test_capsule():
    """The weight is named; its gradient ignores what comes from above."""
    torch.manual_seed(0)
    vector = torch.randn(10, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(10, 4, dtype=torch.float64, requires_grad=True)

    report = gl.check(Capsule.apply, vector, weight)

    assert report.culprits == ("weight",)
    assert report["vector"].verdict == gl.Verdict.AGREES
    assert report.diagnosis == "ignores_upstream"
    assert np.ptp(report["weight"].analytic, axis=0).max() < 1e-12  # identical rows


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
class TestAccumulated:
    """The gradient of the input, never zeroed over ten epochs."""

    def _train(self, dtype, *, zero):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2, dtype=dtype)
        x = torch.randn(10, 4, dtype=dtype, requires_grad=True)
        labels = torch.randint(2, (10,))
        optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
        criterion = torch.nn.CrossEntropyLoss()
        for epoch in range(10):
            if zero:
                x.grad = None
            optimiser.zero_grad()
            criterion(model(x), labels).backward()
            if epoch < 9:
                optimiser.step()
        return model, x, labels, criterion

    def test_never_zeroed(self, dtype):
        """Ten times the gradient, at every step size: accumulated."""
        model, x, labels, criterion = self._train(dtype, zero=False)

        report = gl.check(lambda x: criterion(model(x), labels), x, grad={"x": x.grad})

        assert report.culprits == ("x",)
        assert report.diagnosis == "accumulated_grad"

    def test_zeroed(self, dtype):
        """Zeroed before each pass it agrees, in float32 as well."""
        model, x, labels, criterion = self._train(dtype, zero=True)

        report = gl.check(lambda x: criterion(model(x), labels), x, grad={"x": x.grad})

        assert report.verdict == gl.Verdict.AGREES


def test_layer_through_vjp(rng):
    """A layer of any framework, its VJP written out; a lost transpose is found."""
    x, w = rng.normal(size=(4, 3)), rng.normal(size=(3, 3))

    def forward(x, w):
        return x @ w

    right = gl.check(forward, x, w, vjp=lambda ct, x, w: (ct @ w.T, x.T @ ct))
    wrong = gl.check(forward, x, w, vjp=lambda ct, x, w: (ct @ w, x.T @ ct))

    assert right.verdict == gl.Verdict.AGREES
    assert wrong.culprits == ("x",)
    assert wrong.diagnosis == "transpose"
