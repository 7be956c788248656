"""One wrong tensor among millions of parameters: what is wrong with it, in 40 calls."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.differentiation.lines.directions import AxisWeights, Direction, MaskWeights
from gradlab.differentiation.lines.parts import Part
from gradlab.localisation.searching.readings import axes_of, rearranged
from tests.specimens.functions import Spoiled

torch = pytest.importorskip("torch")

WIDTH, LAYERS, PLACE = 600, 6, 4  # more coordinates than `metering.DEAR`


def network(slip=None, *, bias=False, act=torch.nn.Tanh):
    """A network of which one parameter has a slip in its gradient."""
    torch.manual_seed(0)
    parts = []
    for _ in range(LAYERS):
        parts += [torch.nn.Linear(WIDTH, WIDTH), act()]
    model = torch.nn.Sequential(*parts).double()
    layer = model[PLACE]

    def forward(x):
        weight, shift = layer.weight, layer.bias
        if bias:
            shift = Spoiled.apply(shift, slip)
        elif slip is not None:
            weight = Spoiled.apply(weight, slip)
        return torch.nn.functional.linear(x, weight, shift)

    layer.forward = forward
    return model, torch.randn(8, WIDTH, dtype=torch.float64)


def squares(out):
    return (out**2).mean()


def lost(index):
    def slip(g):
        g[index] = 0.0
        return g

    return slip


def smaller(index, factor):
    def slip(g):
        g[index] *= factor
        return g

    return slip


SLIPS = {
    "a factor": (lambda g: 1.01 * g, "scale", "is 1.01 times the true one"),
    "a sign": (lambda g: -g, "sign", "is -1 times the true one"),
    "transposed": (lambda g: g.T.clone(), "transpose", "with axes (1, 0)"),
    "reversed": (lambda g: g.flip(1), "wrong_index", "with axis 1 reversed"),
    "off by one": (lambda g: g.roll(1, 0), "wrong_index", "with axis 0 rolled by 1"),
    "no gradient": (torch.zeros_like, "detached", "is zero in every entry"),
    "a missing row": (lost(7), "wrong_mask", "where the function moves, at 7 along"),
    "half a mask": (torch.triu, "wrong_mask", "is zero where the function moves"),
    "a constant": (lambda g: g + 1e-8, "extra_term", "plus 1e-08 times 1"),
    "every second": (
        smaller((slice(None), slice(None, None, 2)), 0.9),
        "scale",
        "is 0.9 times the true one in every second of its columns, from 0",
    ),
}


# of a mask that is no slice: two directions more for each axis that it might have been
MOST = {"half a mask": 42, "a constant": 41}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", SLIPS)
def test_a_wrong_matrix_is_described_in_forty_evaluations(name):
    """Tensor, kind and place are those that were planted."""
    slip, kind, words = SLIPS[name]
    model, x = network(slip)
    report = gl.check(model, x, loss=squares, coverage="probe")

    assert report.evaluations <= MOST.get(name, 40)
    assert report.culprits == (str(PLACE), f"{PLACE}.weight")
    assert report.diagnosis == kind
    assert any(words in remark for remark in report.remarks)


@pytest.mark.parametrize("act", [torch.nn.Tanh, torch.nn.ReLU])
def test_a_bias_that_was_forgotten_is_described_in_forty_evaluations(act):
    """Nothing comes back to it, and nothing else is accused."""
    model, x = network(torch.zeros_like, bias=True, act=act)
    report = gl.check(model, x, loss=squares, coverage="probe")

    assert report.evaluations <= 40
    assert report.culprits == (str(PLACE), f"{PLACE}.bias")
    assert report.diagnosis == "detached"


@pytest.mark.parametrize("index", [(slice(None), 11), (20,), (3, 5)])
def test_one_place_is_found_by_weights(index):
    """A column, a row, an entry, in which the gradient is too large or too small."""
    model, x = network(smaller(index, 30.0 if len(index) > 1 else 0.5))
    report = gl.check(model, x, loss=squares, coverage="probe", diagnose=False)
    shown = report[f"{PLACE}.weight"]
    probe = np.zeros((WIDTH, WIDTH), dtype=bool)
    probe[index] = True
    wrong = shown.columns[shown.verdicts[0] == gl.Verdict.DISAGREES]

    assert report.evaluations <= 50
    assert wrong.size
    assert probe.ravel()[wrong].all()
    assert not probe.ravel()[shown.columns[shown.verdicts[0] == 0]].any()


def test_scattered_errors_are_counted_and_one_is_named():
    """Of 1 % of the entries, which single entries do not meet."""
    chosen = torch.rand(WIDTH, WIDTH, generator=torch.Generator().manual_seed(3)) < 0.01
    model, x = network(smaller(chosen, 0.5))
    report = gl.check(model, x, loss=squares, coverage="probe", diagnose=False)
    shown = report[f"{PLACE}.weight"]
    wrong = shown.columns[shown.verdicts[0] == gl.Verdict.DISAGREES]

    assert report.evaluations <= 70
    assert wrong.size
    assert chosen.ravel()[wrong.tolist()].all()


def test_values_of_entries_are_the_derivatives():
    """Of a right gradient that somebody transposed: those of the right one."""
    right, x = network()
    squares(right(x)).backward()
    true = right[PLACE].weight.grad.numpy().ravel()
    model, x = network(lambda g: g.T.clone())
    report = gl.check(model, x, loss=squares, coverage="probe", diagnose=False)
    shown = report[f"{PLACE}.weight"]
    gap = np.abs(shown.numeric[0] - true[shown.columns])

    assert (gap <= 5 * shown.numeric_error[0]).all()
    assert (shown.numeric_error[0] < 1e-2 * np.abs(true).max()).all()


class TestWeights:
    """Of a direction."""

    def test_a_weighted_direction_is_the_product(self):
        """Block by block, wherever it is cut."""
        size = 200_000
        plain = Direction(3, (Part(0, 0, size),), (0.5,), pooled=True)
        numbers = np.linspace(-1.0, 1.0, 40)
        weights = AxisWeights(numbers, 100)
        tilted = Direction(3, plain.parts, (0.5,), pooled=True, weights=weights)
        ones = {0: np.ones(size)}
        along = np.concatenate([v for _, v in plain.values(plain.parts[0])])
        expected = float(np.sum(along * np.tile(np.repeat(numbers, 100), 50)))

        assert np.isclose(tilted.along(ones)[0], expected, rtol=1e-9, atol=1e-6)

    def test_a_mask_leaves_the_rest(self):
        """As if the direction had only the entries that move."""
        moves = np.arange(1000) % 3 == 0
        part = Part(0, 0, 1000)
        plain = Direction(3, (part,), (1.0,), pooled=True)
        masked = Direction(3, (part,), (1.0,), pooled=True, weights=MaskWeights(moves))
        (_, all_values), *_ = plain.values(part)
        (_, some), *_ = masked.values(part)

        assert np.array_equal(some, np.where(moves, all_values, 0.0))


@pytest.mark.parametrize("shape", [(4, 4), (3, 4), (2, 3, 2), (6,)])
def test_a_gradient_put_back_in_order_is_the_true_one(shape, rng):
    """Every rearrangement that is offered is undone."""
    true = rng.normal(size=shape)
    spoiled = {"with axis 0 reversed": true[::-1]}
    spoiled["with axis 0 rolled by 1"] = np.roll(true, 1, 0)
    if shape == (4, 4):
        spoiled["with axes (1, 0)"] = true.T
    if shape == (3, 4):
        spoiled["with axes (1, 0), read in the wrong order"] = true.T
    if shape == (2, 3, 2):
        spoiled["with axes (2, 1, 0)"] = true.transpose(2, 1, 0)
    for words, grid in spoiled.items():
        found = {w: back for _, w, back in rearranged(grid.ravel(), shape)}

        assert np.array_equal(found[words], true.ravel())


def test_the_longest_axes_are_looked_at():
    """Of a convolution the channels, in the order of the axes."""
    assert axes_of((32, 64, 3, 3)) == [(0, 576), (1, 9)]


def test_one_factor_for_all_is_told_without_all_gradients_in_memory(passes):
    """Of a wrong loss; each pass for its cause is for one tensor."""
    model, x = network(lambda g: g)
    report = gl.check(
        model,
        x,
        loss=lambda out: squares(Spoiled.apply(out, lambda g: 0.99 * g)),
        coverage="probe",
    )
    wrong = [c.input.name for c in report.comparisons if c.verdict == 2]
    last = f"{2 * (LAYERS - 1)}.bias"

    assert len(wrong) == 2 * LAYERS
    assert report.evaluations <= 30
    assert any(f"{last}: the gradient is 0.99" in remark for remark in report.remarks)
    assert sum(count == 2 * LAYERS for count in passes) <= 2
