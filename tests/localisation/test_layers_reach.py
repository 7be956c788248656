"""Layers that are right for all that the model hands to them, and not beside it."""

from __future__ import annotations

import gc
import weakref

import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")

from gradlab.localisation.layers.recording.frames import dissolve  # noqa: E402
from gradlab.localisation.layers.recording.owners import Owners  # noqa: E402
from gradlab.localisation.layers.recording.record import record  # noqa: E402
from gradlab.localisation.layers.recording.recorder import Program  # noqa: E402
from gradlab.localisation.layers.recording.state import random_now  # noqa: E402

nn = torch.nn


class Cholesky(nn.Module):
    def forward(self, matrix):
        return torch.linalg.cholesky(matrix)


class Exponential(nn.Module):
    """Of a symmetric matrix, by its eigenvectors."""

    def forward(self, matrix):
        values, vectors = torch.linalg.eigh(matrix)
        return vectors @ torch.diag(values.exp()) @ vectors.T


class Inverse(torch.autograd.Function):
    """Written for symmetric matrices: no transposes, and a factor of choice."""

    @staticmethod
    def forward(ctx, matrix, factor):
        inverse = torch.linalg.inv(matrix)
        ctx.save_for_backward(inverse)
        ctx.factor = factor
        return inverse

    @staticmethod
    def backward(ctx, upstream):
        (inverse,) = ctx.saved_tensors
        symmetric = (upstream + upstream.T) / 2
        return -ctx.factor * inverse @ symmetric @ inverse, None


class Inverted(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        self.factor = factor

    def forward(self, matrix):
        return Inverse.apply(matrix, self.factor)


class Covariance(nn.Module):
    """Hands a symmetric matrix made of its weight to a layer."""

    def __init__(self, layer):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.weight = nn.Parameter(torch.randn(4, 4, generator=generator) / 2)
        self.layer = layer

    def forward(self, x):
        matrix = self.weight @ self.weight.T + 2 * torch.eye(4).to(x)
        return self.layer(matrix) @ x


# Of numbers that add up to one: a constant in the gradient plays no part.
entropy = with_backward(
    lambda p, factor: -(p * p.log()).sum(-1),
    lambda p, factor, upstream: (-factor * upstream[:, None] * p.log(), None),
)


class Certainty(nn.Module):
    """A linear layer, and how sure its softmax is."""

    def __init__(self, factor=1.0):
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.factor = factor
        with torch.no_grad():
            self.linear.weight.copy_(torch.arange(12.0).view(4, 3).sin())

    def forward(self, x):
        return entropy(self.linear(x).softmax(-1), self.factor)


def point(dtype, *shape):
    """An input of the model."""
    generator = torch.Generator().manual_seed(5)
    return torch.randn(*shape, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layer", [Cholesky(), Exponential(), Inverted()])
def test_a_matrix_that_the_model_makes_symmetric_is_moved_as_one(layer, dtype):
    """Half a matrix answers for both: right for those that reach the layer."""
    model = Covariance(layer).to(dtype)

    assert gl.blame(model, point(dtype, 4, 2)).culprits == ()


class MadeAnew(nn.Module):
    """A Function that is defined where it is called, as qpth does."""

    def __init__(self, factor=1.0):
        super().__init__()
        self.factor = factor

    def forward(self, matrix):
        def backward(matrix, upstream):
            inverse = torch.linalg.inv(matrix)
            symmetric = (upstream + upstream.T) / 2
            return -self.factor * inverse @ symmetric @ inverse

        return with_backward(torch.linalg.inv, backward)(matrix)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("factor", "culprits"), [(1.0, ()), (1.1, ("layer",))])
def test_a_function_may_be_defined_anew_for_every_call(factor, culprits, dtype):
    """It is the same one by its code: the model was said to take another path."""
    audit = gl.blame(Covariance(MadeAnew(factor)).to(dtype), point(dtype, 4, 2))

    assert audit.culprits == culprits
    assert bool(audit.findings) == bool(culprits)  # none is said to be no derivative


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [1.1, -1.0])
def test_a_mistake_in_symmetric_matrices_is_a_mistake(factor, dtype):
    """What is wrong for the matrices of the model is told, as ever."""
    model = Covariance(Inverted(factor)).to(dtype)

    assert gl.blame(model, point(dtype, 4, 2)).culprits == ("layer",)


@pytest.mark.parametrize(
    ("factor", "culprits"), [(1.0, ()), (1.05, ("Certainty",)), (0.0, ("Certainty",))]
)
def test_probabilities_are_moved_as_probabilities(factor, culprits):
    """The gradient of an entropy may lack a constant, where a softmax comes before."""
    model = Certainty(factor).double()

    assert gl.blame(model, point(torch.float64, 5, 3)).culprits == culprits


def test_a_layer_that_takes_the_input_itself_answers_for_all_of_it():
    """An input of the model can be anything: half a matrix is not enough then."""
    generator = torch.Generator().manual_seed(6)
    matrix = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    matrix = (matrix @ matrix.T).requires_grad_()

    assert gl.blame(Inverted(), matrix).culprits == ("Inverted",)


def test_weights_are_what_they_were_after_the_model_was_moved():
    """Moving a model leaves its parameters, their gradients and versions alone."""
    model = Covariance(Cholesky()).double()
    before = model.weight.detach().clone()

    gl.blame(model, point(torch.float64, 4, 2))

    assert torch.equal(model.weight, before)
    assert model.weight.grad is None
    assert model.weight is model._parameters["weight"]


def test_a_run_that_is_cut_apart_goes_at_once():
    """No collector is needed: the calls of a run know each other no more."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh())
    program = Program(
        model, (torch.ones(1, 3),), {}, None, random_now(), 0, Owners(model)
    )
    frame = record(program).frames[0]
    value = weakref.ref(frame.outputs[0].value)
    gc.disable()
    try:
        dissolve(frame)
        del frame
        assert value() is None
    finally:
        gc.enable()


# A linear map whose gradient of the input has a factor of choice.
own_factor = with_backward(
    lambda x, weight, bias, factor: x @ weight.T + bias,
    lambda x, weight, _bias, factor, upstream: (
        factor * upstream @ weight,
        upstream.T @ x,
        upstream.sum(0),
        None,
    ),
)


class Mapped(nn.Module):
    def __init__(self, factor):
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(4, 4, dtype=torch.float64))
        self.bias = nn.Parameter(torch.randn(4, dtype=torch.float64))
        self.factor = factor

    def forward(self, x):
        return own_factor(x, self.weight, self.bias, self.factor)


@pytest.mark.parametrize("size", [1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("factor", [1.0, 2.0, 1.1, -1.0])
def test_what_hardly_moves_a_call_is_not_right_for_it(factor, size):
    """Beside weights, and beside rounding, an input of 1e-9 moves next to nothing."""
    torch.manual_seed(1)
    x = (size * torch.randn(3, 4, dtype=torch.float64)).requires_grad_()

    audit = gl.blame(Mapped(factor), x, loss=lambda y: y.sin().sum())

    assert bool(audit.culprits) == (factor != 1.0)
