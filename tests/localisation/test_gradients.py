"""Gradients of large models: streamed, measured as they come, never all in memory."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.differentiation.lines.directions import Direction
from gradlab.differentiation.lines.parts import Part
from gradlab.localisation.searching.gradients import Gradients
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")

from gradlab.subject.tensors.subjects import torch_subject  # noqa: E402
from tests.allocations import Allocations  # noqa: E402

# Identity whose backward halves the gradient.
halved = with_backward(lambda x: x.clone(), lambda _x, g: 0.5 * g)


def network(act=torch.nn.Tanh, layers=7, width=600, wrong=None):
    """A network of more than two million parameters in float64."""
    torch.manual_seed(0)
    parts = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width), act()]
    model = torch.nn.Sequential(*parts).double()
    if wrong is not None:
        layer = model[wrong]
        layer.forward = lambda x: torch.nn.functional.linear(
            x, halved(layer.weight), layer.bias
        )
    return model, torch.randn(8, width, dtype=torch.float64)


def loss(out):
    """Curved in every output."""
    return (out**2).mean()


def size_of(model):
    """Bytes of the parameters."""
    return sum(p.numel() * p.element_size() for p in model.parameters())


@pytest.mark.parametrize("act", [torch.nn.Tanh, torch.nn.ReLU])
def test_a_right_model_costs_five_evaluations_and_one_backward(act, passes):
    """One at the point, two along each of two directions."""
    model, x = network(act=act)
    report = gl.check(model, x, loss=loss, coverage="probe")

    assert report.verdict == gl.Verdict.AGREES
    assert report.evaluations == 5
    assert len(passes) == 1


def test_a_right_float32_model_costs_six_and_one_backward_in_float32(passes):
    """One more for the twin at the point; its gradient is not asked for."""
    model, x = network(layers=13)
    report = gl.check(model.float(), x.float(), loss=loss, coverage="probe")

    assert report.verdict == gl.Verdict.AGREES
    assert report.evaluations == 6
    assert len(passes) == 1


@pytest.mark.slow
@pytest.mark.untraced
@pytest.mark.parametrize(("dtype", "layers"), [("float64", 9), ("float32", 18)])
def test_memory_stays_below_one_and_a_half_times_the_parameters(dtype, layers):
    """The private copy of the parameters, one gradient, and small change.

    More than 64 MiB, up to which the user's parameters are copied as well. Of what f is
    evaluated at in float64 only a few layers are there at a time.
    """
    size, peak = peak_of(dtype, layers)

    assert size < peak < 1.5 * size


@pytest.mark.slow
@pytest.mark.untraced
@pytest.mark.parametrize(("dtype", "layers"), [("float64", 5), ("float32", 10)])
def test_a_smaller_model_takes_one_copy_more(dtype, layers):
    """Of 40 MB what the user's parameters hold is kept besides, to be put back."""
    size, peak = peak_of(dtype, layers)

    assert 2 * size < peak < 2.75 * size


def peak_of(dtype, layers):
    """Bytes of the parameters, and at most of what a check allocates beside them."""
    kind = getattr(torch, dtype)
    small, x = network(layers=1, width=4)
    with Allocations():  # for what is imported on the way
        gl.check(
            small.to(kind), x.to(kind), loss=loss, coverage="probe", diagnose=False
        )
    model, x = network(layers=layers, width=1000)
    model, x = model.to(kind), x.to(kind)
    with Allocations(x, *model.parameters()) as counted:
        report = gl.check(model, x, loss=loss, coverage="probe")

    assert report.verdict == gl.Verdict.AGREES
    return size_of(model), counted.peak


def test_the_counter_counts():
    """A tensor and an array at a time, then a view, then nothing."""
    for _ in range(2):  # the first use imports much
        with Allocations() as counted:
            one, two = torch.ones(1000, 1000), np.ones((1000, 1000))
            half = one[:500]
            del one, two, half
            torch.ones(1000)

    assert 12e6 < counted.peak < 12.1e6


@pytest.mark.untraced
def test_a_wrong_tensor_of_a_large_model_is_named(passes):
    """Gradients that were let go are asked for again, of the accused one only."""
    model, x = network(wrong=6)
    report = gl.check(model, x, loss=loss, coverage="probe", diagnose=False)

    wrong = {c.input.name for c in report.comparisons if c.verdict == 2}
    assert wrong == {"6.weight"}
    assert 1 in passes


def test_streamed_gradients_are_those_of_a_whole_pass():
    """With a hook of the user's, a tied tensor, and one that plays no part."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(50, 30, sparse=True)
            self.tied = torch.nn.Parameter(torch.randn(30, 30))
            self.idle = torch.nn.Parameter(torch.randn(3))
            self.tied.register_hook(lambda g: 2 * g)

        def forward(self, ids):
            return (self.table(ids) @ self.tied).tanh() @ self.tied.T

    torch.manual_seed(1)
    subject = torch_subject(Model().double(), (torch.tensor([3, 7, 7]),), loss=loss)
    subject.row()
    got = {}
    analytic = subject.analytic
    problems = analytic.stream(
        np.ones(1), range(3), lambda which, g: got.update({which: g.copy()})
    )
    whole_pass = analytic.pull(np.ones((1, 1)))

    assert [p.where for p in problems] == [p.where for p in whole_pass.problems]
    for which, values in enumerate(whole_pass.values):
        assert np.array_equal(got[which], values[0])


def test_a_backward_that_raises_is_told_as_ever():
    """The stream says that it failed; only the tensor behind it is accused."""

    def broken_backward(_x, _g):
        raise ValueError("no way back")

    broken = with_backward(lambda x: x.clone(), broken_backward)

    model, x = network()
    layer = model[4]
    layer.forward = lambda x: torch.nn.functional.linear(x, broken(layer.weight))
    report = gl.check(model, x, loss=loss, coverage="probe", diagnose=False)

    assert report.culprits == ("4.weight",)
    assert np.isnan(report["4.weight"].analytic).all()


class TestGradients:
    """Of two inputs, from a stream that is counted."""

    def streamed(self, rng):
        """Gradients, the arrays behind them, and the list of passes."""
        arrays = [rng.normal(size=200_000), rng.normal(size=70_000), rng.normal(size=9)]
        asked = []

        def stream(chosen, take):
            asked.append(list(chosen))
            for which in chosen:
                take(which, arrays[which])

        return Gradients(tuple(map(len, arrays)), stream), arrays, asked

    def test_products_that_were_foreseen_cost_one_pass(self, rng):
        """As if the arrays were there, in units of the inputs."""
        gradients, arrays, asked = self.streamed(rng)
        parts = tuple(Part(k, 0, len(a)) for k, a in enumerate(arrays))
        units = (0.5, 2.0, 1.0)
        lines = [Direction(s, parts, units, pooled=True) for s in (1, 2)]
        gradients.foresee(lines)
        found = [gradients.along(line) for line in lines]
        sizes = [gradients.magnitudes(k).largest for k in range(3)]

        assert asked == [[0, 1, 2]]
        assert np.allclose(found, [line.along(arrays) for line in lines], rtol=1e-12)
        assert sizes == [np.abs(a).max() for a in arrays]

    def test_what_was_corrected_stays_corrected(self, rng):
        """In the array, in products and in sizes, also after it was let go."""
        gradients, arrays, _ = self.streamed(rng)
        line = Direction(3, (Part(0, 0, 200_000),), (1.0, 1.0, 1.0), pooled=True)
        gradients.along(line)
        gradients.correct(0, [7], 100.0)
        for which in (1, 2, 0, 1):
            assert gradients[which].shape == arrays[which].shape
        right = arrays[0].copy()
        right[7] = 100.0

        assert np.array_equal(gradients[0], right)
        assert gradients.magnitudes(0).largest == 100.0
        assert np.allclose(gradients.along(line), line.along([right]), rtol=1e-12)

    def test_parts_of_an_input_are_cut_from_its_gradient(self, rng):
        """A thinned direction too."""
        gradients, arrays, _ = self.streamed(rng)
        for thinning in (0, 2):
            parts = (Part(0, 100, 150_000), Part(2, 0, 9))
            line = Direction(5, parts, (1.0,) * 3, thinning, choice=8, pooled=True)

            assert np.allclose(gradients.along(line), line.along(arrays), rtol=1e-12)
