"""Accusations that hold at one point alone: ties that no slope along an axis shows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gradlab as gl
from tests.specimens.functions import with_backward


def middle(x):
    """Give the middle number of three or five."""
    return float(np.sort(x)[len(x) // 2])


def of_the_middle(x, factor=1.0):
    """Give the gradient to the entry that a stable sort puts in the middle."""
    gradient = np.zeros_like(x)
    gradient[np.argsort(x, kind="stable")[len(x) // 2]] = factor
    return gradient


@pytest.mark.parametrize("count", [3, 5, 9])
@pytest.mark.parametrize("factor", [1.0, 1.1, -1.0])
def test_middle_of_equal_numbers(count, factor):
    """It stands still along every axis, and its gradient is that of one entry."""
    report = gl.check(
        middle, np.full(count, 2.0), grad=lambda x: of_the_middle(x, factor)
    )

    assert report.ok is (factor == 1.0)
    if report.ok:
        assert (report.verdict.name, report.diagnosis) == (
            "AGREES",
            "nondifferentiable",
        )


@pytest.mark.parametrize("size", [2.0, 3e-4, 5e6])
def test_ties_of_any_size_beside_a_slope(size):
    """What is judged beside the point is measured in units of the coordinates."""
    slopes = np.array([3.0, -1.0, 2.0])

    report = gl.check(
        lambda x: middle(x) + float(slopes @ x),
        np.full(3, size),
        grad=lambda x: of_the_middle(x) + slopes,
    )

    assert report.verdict == gl.Verdict.AGREES


@pytest.mark.parametrize("share", [1e-2, 3e-4, 1e-4])
@pytest.mark.parametrize("count", [5, 20])
def test_ties_that_move_f_by_little(count, share):
    """Steps are longer where a short one would see the rounding of f, and no slope."""
    weights = share * np.random.default_rng(count).normal(size=count)

    def gradient(x, factor=1.0):
        shared = np.zeros(count)
        shared[np.argsort(x, kind="stable")] = weights / np.cosh(np.sort(x)) ** 2
        return factor * shared

    def check(factor):
        return gl.check(
            lambda x: 1 + float(weights @ np.tanh(np.sort(x))),
            np.full(count, -0.67),
            grad=lambda x: gradient(x, factor),
        )

    assert check(1.0).verdict == gl.Verdict.AGREES
    assert check(1.5).verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("factor", [1.0, 1.5])
@pytest.mark.parametrize("point", [np.zeros(9), np.array([1.0, 1, 0, 1, 0, 2, 1])])
def test_a_search_breaks_ties_with_entries_that_it_does_not_name(point, factor):
    """The entry that is found differs from the others only where these move as well."""
    found = gl.locate(middle, point, grad=lambda x: of_the_middle(x, factor))

    assert bool(len(found.table)) is (factor != 1.0)


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_a_search_finds_ties_where_one_entry_alone_is_named(factor):
    """It stands still until the others of its row have moved, up and down."""
    x = np.array([[0.0, 0, 0, 1, 1], [1, 1, 1, 0, 1], [0, 1, 0, 1, 1]])

    def gradient(x):
        shared = np.zeros_like(x)
        middle = np.argsort(x, axis=1, kind="stable")[:, 2:3]
        slopes = 2 * x / (1 + x * x) * np.array([[1.0], [factor], [1.0]])
        np.put_along_axis(shared, middle, np.take_along_axis(slopes, middle, 1), 1)
        return shared

    found = gl.locate(
        lambda x: np.median(np.log1p(x * x), axis=1).sum(), x, grad=gradient
    )

    assert bool(len(found.table)) is (factor != 1.0)


@pytest.mark.parametrize("wrong", [False, True])
def test_rows_of_a_sort_with_ties(wrong):
    """Of the rows of a permutation, only one that is none is accused."""
    x = np.array([1.0, 4.0, 1.0, 1.0, 0.5])

    def jacobian(x):
        order = np.argsort(x, kind="stable")
        return np.eye(len(x))[np.roll(order, 1) if wrong else order]

    report = gl.check(np.sort, x, jac=jacobian)

    assert report.ok is not wrong


def test_value_at_a_kink_alone_is_still_wrong():
    """A relu with a slope of -1/2 at 0 is right beside it, and wrong all the same."""
    report = gl.check(
        lambda x: np.maximum(x, 0).sum(),
        np.array([-1.0, 0.0, 2.0]),
        grad=lambda x: (x > 0) - 0.5 * (x == 0),
    )

    assert report.verdict.name == "DISAGREES"


def test_conventions_of_torch_that_do_not_add_up():
    """relu(x) - relu(-x) is x; that torch says 0 there is no mistake of the user's."""
    torch = pytest.importorskip("torch")

    def split(x):
        return torch.relu(x) - torch.relu(-x)

    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    report = gl.check(split, x)

    assert (report.verdict.name, report.diagnosis) == ("UNDECIDED", "nondifferentiable")
    assert gl.check(lambda x: split(x) * x.detach().exp(), x + 1).verdict == 2


def test_middle_of_zeros_in_torch():
    """torch shares the gradient of a median among equals: none of them is its own."""
    torch = pytest.importorskip("torch")
    x = torch.zeros(5, dtype=torch.float64, requires_grad=True)

    assert gl.check(lambda x: x.median(), x).ok
    assert not gl.check(lambda x: x.median() + 0.1 * (x - x.detach()).sum(), x).ok
    assert gl.check(lambda x: x.sort().values * torch.arange(5.0), x).ok


def test_small_slip_beside_a_kink_of_another_entry():
    """What is wrong at the point and beside it alike is no matter of the point."""
    report = gl.check(
        lambda x: abs(x[0]) + x[1] ** 2,
        np.array([0.0, 1.5]),
        grad=lambda x: np.array([np.sign(x[0]), 2.002 * x[1]]),
    )

    assert report.verdict.name == "DISAGREES"


@pytest.mark.parametrize("slip", [1.001, 1.0001, 0.999])
def test_slip_that_f_curves_to_beside_the_point(slip):
    """The slope of x**3 at 0.004 is that at 0.004002 a little further: no kink."""
    x = np.linspace(0.5, 1.5, 40)
    x[7] = 0.004

    def jacobian(x):
        slopes = 3 * x**2
        slopes[7] *= slip
        return np.diag(slopes)

    assert gl.check(lambda x: x**3, x, jac=jacobian).verdict.name == "DISAGREES"


@pytest.mark.parametrize("distance", [1e-8, 1e-6, 5e-6])
def test_slope_of_the_other_side_of_a_near_kink(distance):
    """Where f has a derivative, that of a point beside it is none of its own."""
    x = np.array([distance, -1.0, 1.0])
    report = gl.check(
        lambda x: np.maximum(x, 0).sum(), x, grad=lambda x: (x > 0.5).astype(float)
    )

    assert report.verdict.name == "DISAGREES"
    assert report.comparisons[0].verdicts.tolist() == [[2, 0, 0]]


@pytest.mark.parametrize("slip", [1e-5, 1e-3])
def test_small_slip_where_slopes_change_quickly(slip):
    """The gradient of a curved function a little way off is wrong at the point."""
    x = np.array([0.7])
    report = gl.check(
        lambda x: np.exp(3 * x).sum(), x, grad=lambda x: 3 * np.exp(3 * x) * (1 + slip)
    )

    assert report.verdict.name == "DISAGREES"


def test_rounding_inside_is_no_kink():
    """A new tensor takes single precision: short steps miss that it moves at all."""
    torch = pytest.importorskip("torch")

    def cut(x):
        return torch.stack([torch.tensor(v.item() ** 2) for v in x]) + x

    x = torch.tensor([0.4, -1.3, 0.7], dtype=torch.float64, requires_grad=True)

    assert gl.check(cut, x).verdict.name == "DISAGREES"
    assert gl.check(lambda x: (x**2).float().double() + x, x).ok


@pytest.mark.parametrize("seed", range(6))
def test_running_maxima_of_equal_numbers_have_slopes_between_none(seed):
    """What lies after a tie weighs with both signs: no side of it bounds a slope."""
    weights = torch.tensor(np.random.default_rng(seed).normal(size=(4, 3)))
    x = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)

    report = gl.check(lambda x: (weights * x.cummax(-1).values).sum(), x)

    assert report.verdict == gl.Verdict.AGREES
    assert all(found.severity != "error" for found in report.findings)


@pytest.mark.parametrize("seed", [3, 4, 12, 13, 24, 32])
def test_conventions_of_torch_that_are_no_slope_are_no_ties_of_a_maximum(seed):
    """Weights and biases that begin at zero, where their activation has a kink."""
    x = torch.tensor(np.sin(100 + np.random.default_rng(seed).normal(size=(2, 8))))
    goal = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3)
    w = torch.zeros(8, 3, dtype=torch.float64, requires_grad=True)
    b = torch.zeros(3, dtype=torch.float64, requires_grad=True)

    def loss(w, b):
        z = torch.atan(x @ w + b)
        return (torch.where(z > 0, z, 0.1 * z * z) - goal).square().mean()

    report = gl.check(loss, w, b)

    assert report.verdict == gl.Verdict.UNDECIDED
    assert all(found.severity != "error" for found in report.findings)


def test_rounding_inside_is_no_tie():
    """Over so short a step a wave far out shows any slope, now and then the right."""
    far, slope = -18531.12381709826, -0.7227382758777343
    x = np.array(-0.002484424718063686)

    report = gl.check(lambda x: np.cos(far + slope * x), x, grad=np.zeros_like)

    assert report.verdict == gl.Verdict.DISAGREES


def test_ties_of_a_jacobian_that_does_not_fit_are_the_same():
    """Its columns come a few at a time, and are heard as those of a small one are."""
    rng = np.random.default_rng(0)
    x = torch.tensor(np.round(2 * rng.normal(size=(40, 7))))

    report = gl.check(
        lambda x: x.median(1).values,
        x.requires_grad_(),
        coverage="full",
        memory="1MiB",
    )

    assert any("streamed" in remark for remark in report.remarks)
    assert report.verdict != gl.Verdict.DISAGREES
    assert report.ok


@pytest.mark.parametrize("scale", [1.0, 1e-2, 1e-4])
@pytest.mark.parametrize("cut", [False, True])
def test_kinks_of_a_slight_slope_are_seen_beside_a_large_value(scale, cut):
    """Where rounding hides what the shortest steps show, longer ones are taken."""
    labels = torch.arange(4) % 2

    def f(x):
        hidden = torch.relu(x - x.mean(-1, keepdim=True))
        hidden = hidden.detach() + 0 * x if cut else hidden
        return torch.nn.functional.cross_entropy(scale * hidden, labels)

    x = torch.full((4, 2), 0.1, dtype=torch.float64, requires_grad=True)
    report = gl.check(f, x)

    assert report.ok is not cut
    assert report.diagnosis == ("detached" if cut else "nondifferentiable")


@pytest.mark.parametrize("power", [2, 3])
def test_single_precision_is_no_reason_to_look_for_kinks(power):
    """A wrong slope of a power costs hardly more evaluations in float32.

    Beside the point f is evaluated in float64: what float32 rounds of it at the point
    would be a slope over so short a step, and was taken for a kink.
    """
    own_wrong = with_backward(
        lambda x: x**power, lambda x, cotangent: cotangent * x ** (power - 1)
    )

    x = torch.linspace(0.3, 2.1, 40, dtype=torch.float64)
    double = gl.check(own_wrong, x, coverage="full", diagnose=False)
    single = gl.check(own_wrong, x.float(), coverage="full", diagnose=False)

    assert single.verdict == double.verdict == gl.Verdict.DISAGREES
    assert single.evaluations < double.evaluations + 30


@pytest.mark.parametrize("slip", [0.0, 1e-3])
def test_what_f_bends_by_is_no_tie(slip):
    """Behind a large constant steps are long, and any slope is right somewhere near."""
    samples = 1 + 2 * np.random.default_rng(2).normal(size=1000)

    def loss(theta):
        z = (samples - theta[0]) / np.exp(theta[1])
        return 1e5 + 0.5 * (z**2).sum() + samples.size * theta[1]

    def gradient(theta):
        z = (samples - theta[0]) / np.exp(theta[1])
        first = -z.sum() / np.exp(theta[1])
        return np.array([(1 + slip) * first, samples.size - (z**2).sum()])

    report = gl.check(loss, np.array([0.9, 0.8]), grad=gradient, diagnose=False)

    assert report.ok is (slip == 0)
    assert not report.findings or slip
