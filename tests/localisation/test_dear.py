"""Functions of millions of coordinates: few evaluations, and nobody falsely accused."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.subject.tensors.subjects import torch_subject
from gradlab.subject.tensors.values import make_cell
from tests.sizes import drawn
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")

MANY = 2_100_000  # more than `gradlab.differentiation.metering.meter.DEAR`
COUNT = drawn(MANY // 5, MANY)


@pytest.fixture(autouse=True)
def _all_are_dear(dear_from):
    dear_from(COUNT)


def sine(x):
    return float(np.sin(x).sum())


def scattered(x):
    """The sum of sines, and a noise of some 1e-9 that no step can resolve."""
    return sine(x) + 1e-9 * np.sin(1e13 * float(np.dot(x, x)))


def relu(x):
    return float(np.maximum(x, 0.0).sum())


def checked(fn, grad, x, seed=0):
    return gl.check(fn, x, grad=grad, coverage="probe", seed=seed, diagnose=False)


@pytest.fixture
def point(rng):
    return rng.normal(size=COUNT)


def test_smooth_functions_cost_five_evaluations(rng):
    """One at the point, and both sides of one step along each of two directions."""
    report = checked(sine, np.cos, rng.normal(size=MANY))

    assert report.verdict == gl.Verdict.AGREES
    assert report.evaluations == 5


@pytest.mark.parametrize("digits", [0, 3, 6])
def test_stairs_accuse_nobody(point, digits):
    """What rounds its result is flat to fine steps, and that is no slope."""
    report = checked(lambda x: float(np.round(sine(x), digits)), np.cos, point)

    assert report.verdict != gl.Verdict.DISAGREES


def test_noise_accuses_nobody(point):
    """It is heard along the directions themselves."""
    for seed in range(3):
        report = checked(scattered, np.cos, point, seed)

        assert report.verdict != gl.Verdict.DISAGREES


@pytest.mark.parametrize("offset", [1e8, 1e9])
def test_round_off_hides_single_entries_and_no_tensor(rng, offset):
    """Beside a large constant a thousandth of the norm still shows; that is enough."""
    point = rng.normal(size=MANY)
    report = checked(lambda x: offset + sine(x), np.cos, point)

    assert report.verdict == gl.Verdict.AGREES


def test_a_kink_at_the_point_accuses_nobody(point):
    """Any slope between both sides will do; a central quotient is their mean."""
    point[::1000] = 0.0
    report = checked(relu, lambda x: (x > 0).astype(float), point)

    assert report.verdict != gl.Verdict.DISAGREES


def crowded(seed, width=1e-3, count=COUNT):
    """A sum of rectifiers: of two million some thirty turn within a step of 2**-26."""
    rng = np.random.default_rng(seed)
    weights, x = rng.uniform(0.5, 1.5, count), 1 + width * rng.normal(size=count)
    return (
        lambda x: float(weights @ np.maximum(x - 1, 0)),
        lambda x: weights * (x > 1),
        x,
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kinks_that_crowd_round_the_point_are_stepped_between(seed):
    """Finer steps cross fewer of them, and one side of the point may cross none."""
    report = checked(*crowded(seed))

    assert report.verdict == gl.Verdict.AGREES
    assert report.evaluations <= 30


@pytest.mark.parametrize("seed", range(1, 1 + drawn(2, 3)))
@pytest.mark.parametrize("slip", ["all of it by 0.3 %", "one in a hundred by half"])
def test_kinks_that_crowd_round_the_point_hide_no_slip(seed, slip):
    """What one side crosses is told from what the gradient is off by."""
    fn, grad, x = crowded(seed)
    factor = np.ones(COUNT)
    if slip.startswith("all"):
        factor *= 1.003
    else:
        factor[::100] = 1.5

    report = checked(fn, lambda x: factor * grad(x), x)

    assert report.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("wrong", [False, True])
def test_a_crowd_in_a_smaller_function_is_stepped_between_as_well(wrong):
    """Where long steps cross thousands of kinks one entry of 200,000 still shows."""
    fn, grad, x = crowded(101, width=1e-2, count=200_000)
    factor = np.ones(len(x))
    factor[np.flatnonzero(x > 1)[77]] = 1.5 if wrong else 1.0

    report = checked(fn, lambda x: factor * grad(x), x)

    told = gl.Verdict.DISAGREES if wrong else gl.Verdict.AGREES
    assert report.verdict == told


def test_a_crowd_that_no_step_passes_is_told_as_that():
    """Undecided, and for the reason that there is: it was taken for rounding."""
    fn, grad, x = crowded(1, width=1e-5)
    report = gl.check(fn, x, grad=grad, coverage="probe")

    assert report.verdict == gl.Verdict.UNDECIDED
    assert [f.kind for f in report.findings] == [gl.BugKind.NONDIFFERENTIABLE]


def test_a_gradient_of_what_plays_no_part_is_wrong(point):
    """Flat to all steps, coarse ones too, is flat."""
    report = checked(lambda x: 1.0 + 0.0 * x[0], np.cos, point)

    assert report.verdict == gl.Verdict.DISAGREES


# Identity whose backward is a thousandth too small.
shrunk = with_backward(lambda x: x.clone(), lambda _x, g: 0.999 * g)


def model(wrong=None, layers=13, width=600):
    """Float32, and more than 16 MiB of it, from where on gradients are streamed."""
    torch.manual_seed(0)
    parts = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width), torch.nn.Tanh()]
    net = torch.nn.Sequential(*parts)
    if wrong is not None:
        layer = net[wrong]
        layer.forward = lambda x: torch.nn.functional.linear(
            x, shrunk(layer.weight), layer.bias
        )
    return net, torch.randn(8, width)


def squares(out):
    return (out**2).mean()


@pytest.mark.parametrize("most", [20_000_000, 0])
def test_a_slip_of_a_thousandth_in_float32_is_found(most, monkeypatch):
    """In the one tensor that it spoils, by the gradients as float32 made them.

    Those of the twin are streamed where they are too many numbers.
    """
    monkeypatch.setattr("gradlab.localisation.searching.gradients.MOST_NUMBERS", most)
    net, x = model(wrong=8)
    report = gl.check(net, x, loss=squares, coverage="probe", diagnose=False)

    wrong = {c.input.name for c in report.comparisons if c.verdict == 2}
    assert wrong == {"8.weight"}


class TestCopies:
    """Private copies that are let go of, or not put back at once."""

    def test_a_parked_copy_is_made_again(self):
        """With the numbers of the user's, in memory of its own."""
        source = torch.randn(5)
        cell = make_cell("x", source)
        cell.park()
        cell.coordinates()[2] = 7.0

        assert cell.values[2] == 7.0
        assert source[2] != 7.0
        assert torch.equal(cell.values[:2], source[:2])

    @pytest.mark.parametrize("look", ["tensor", "leaf", "coordinates", "own"])
    def test_large_copies_are_put_back_when_somebody_looks(self, look):
        """Displaced before, they are those of the point then."""
        source = torch.randn(70_000)
        cell = make_cell("x", source)
        cell.place(np.zeros(70_000))
        cell.place(None)
        getattr(cell, look)()

        assert torch.equal(cell.values.detach(), source)

    def test_a_twin_in_float64_keeps_no_second_point(self):
        """It reads the user's own, which holds the same numbers."""
        weight = torch.randn(300, 400)
        twin = torch_subject(torch.sin, (weight,)).in_double()
        (cell,) = twin.cells

        assert cell.source.data_ptr() == weight.data_ptr()
        assert cell.values.dtype == torch.float64
        assert twin.inputs[0].dtype == "float64"
        assert np.array_equal(twin.point(0), weight.double().numpy().ravel())


def _arc(x):
    with np.errstate(invalid="ignore"):
        return float(np.arccos(x).sum())


def _arc_slope(x):
    return -1 / np.sqrt((1 - x) * (1 + x))


@pytest.mark.parametrize("factor", [1.0, -1.0, 1.01])
def test_the_edge_of_a_domain_is_looked_at_from_nearer(rng, factor):
    """A step of a billionth leaves the domain of arccos at 1 - 1e-8: shorter ones do.

    Right was undecided, and so was a sign.
    """
    x = 1 - 1e-8 * (1 + rng.random(COUNT))
    report = checked(_arc, lambda x: factor * _arc_slope(x), x)

    right = factor == 1
    assert report.verdict == (gl.Verdict.AGREES if right else gl.Verdict.DISAGREES)


def test_stairs_at_the_edge_of_a_domain_accuse_nobody(rng):
    """Where longer steps are not finite and shorter ones flat, nothing is known."""
    x = 1 - 1e-8 * (1 + rng.random(COUNT))
    report = checked(lambda x: float(np.round(_arc(x), 1)), _arc_slope, x)

    assert report.verdict != gl.Verdict.DISAGREES
