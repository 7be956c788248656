"""Sparse Jacobians that do not fit: compared whole, by their entries."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import gradlab as gl
from gradlab.comparison.tally import Packed, Tallying
from gradlab.presentation.pictures import picture
from tests.specimens.functions import stray, with_backward


def _leaf(*shape, scale=1.0):
    generator = torch.Generator().manual_seed(5)
    return (scale * torch.randn(shape, generator=generator).double()).requires_grad_()


_SPARSE = {
    "elementwise": (torch.sin, [(20, 20)]),
    "softmax": (lambda x: torch.softmax(x, -1), [(24, 16)]),
    "layer_norm": (lambda x, w: F.layer_norm(x, (20,), w), [(20, 20), (20,)]),
    "conv": (lambda x: F.conv1d(x, torch.ones(3, 2, 3).double()), [(4, 2, 60)]),
    "bias": (lambda x, b: x.sin() + b, [(40, 20), (20,)]),
    "few channels": (
        lambda x, b: F.conv1d(x, torch.ones(4, 2, 3).double(), b),
        [(4, 2, 50), (4,)],
    ),
    "empty input": (lambda x, y: x.sin() + y.sum(), [(20, 20), (0,)]),
    "two outputs": (lambda x: (x**2, torch.tanh(x)), [(20, 20)]),
}


def _agrees(streamed, whole):
    """Whether what is counted of a streamed block is what a whole one shows."""
    assert streamed.tally is not None
    assert whole.tally is None
    assert streamed.counts == whole.counts
    assert streamed.tally.shape == whole.shape
    assert streamed.max_abs_error == whole.max_abs_error
    assert streamed.max_rel_error == pytest.approx(whole.max_rel_error)
    assert streamed.power >= whole.power * (1 - 1e-12)
    assert streamed.power <= 1.01 * whole.power
    kept = slice(None) if streamed.columns is None else streamed.columns
    assert np.array_equal(streamed.analytic, whole.analytic[:, kept])
    assert np.allclose(streamed.numeric, whole.numeric[:, kept], rtol=0, atol=1e-8)


def _pairs(streamed, whole):
    """Blocks of both; of an input without entries a streamed report has none."""
    kept = [c for c in whole.comparisons if c.input.size]
    return zip(streamed.comparisons, kept, strict=True)


@pytest.mark.parametrize("name", _SPARSE)
def test_entries_say_what_the_whole_matrix_says(name):
    """Counts, extremes, power and kept columns, from as many evaluations."""
    fn, shapes = _SPARSE[name]
    inputs = [_leaf(*shape) for shape in shapes]
    whole = gl.check(fn, *inputs, coverage="full")
    streamed = gl.check(fn, *inputs, coverage="full", memory="16MiB")

    assert streamed.verdict == gl.Verdict.AGREES
    assert any("streamed within 16 MiB" in remark for remark in streamed.remarks)
    assert streamed.evaluations <= whole.evaluations + 8
    for one, other in _pairs(streamed, whole):
        _agrees(one, other)


@pytest.mark.parametrize("name", _SPARSE)
def test_tiles_show_entries_where_there_are_any(name):
    """Every tile with an entry shows one of its entries, by its true numbers."""
    fn, shapes = _SPARSE[name]
    inputs = [_leaf(*shape) for shape in shapes]
    whole = gl.check(fn, *inputs, coverage="full")
    streamed = gl.check(fn, *inputs, coverage="full", memory="16MiB")
    for one, other in _pairs(streamed, whole):
        tally = one.tally
        m, n = tally.shape
        down, across = tally.rows.shape
        assert np.array_equal(tally.analytic, other.analytic[tally.rows, tally.columns])
        zeros = np.multiply.outer(*map(np.ones, tally.rows.shape))
        i, j = np.nonzero(other.analytic)
        top = np.arange(down) * m // down
        tile = np.searchsorted(top, i, side="right") - 1, j * across // n
        zeros[tile] = 0
        assert np.array_equal(tally.analytic == 0, zeros.astype(bool))
        assert np.array_equal(tally.columns * across // n, np.indices(zeros.shape)[1])
        shown = np.searchsorted(top, tally.rows, side="right") - 1
        assert np.array_equal(shown, np.indices(zeros.shape)[0])


def _nearly_still(x):
    """Slopes of 3e-10 beside slopes of one: single steps do not resolve them."""
    return x**3


def _kinked(x):
    """At zero any slope between 0.1 and 1 will do; torch has 0.1."""
    return F.leaky_relu(x, 0.1)


def _slipped(x, g):
    """A sign, a factor and a lost entry, in three columns; all else is right."""
    gradient = g * (1 - x.tanh() ** 2)
    gradient[1, 1] *= -1
    gradient[7, 19] *= 1.01
    gradient[19, 0] = 0
    return gradient


_slips = with_backward(torch.tanh, _slipped)
_astray = with_backward(lambda x: 2 * x, stray(1e-3))


@pytest.mark.parametrize("fn", [_nearly_still, _kinked, _slips, _astray])
def test_columns_in_doubt_are_looked_at_as_ever(fn):
    """What entries leave open is told as by a check that keeps all; nothing else is."""
    with torch.no_grad():
        x = _leaf(20, 20)
        x[2, 3] = 1e-5
        x[5, 5] = 0.0
    x.requires_grad_()
    whole = gl.check(fn, x, coverage="full")["x"]
    report = gl.check(fn, x, coverage="full", memory="16MiB")
    streamed = report["x"]

    assert streamed.tally is not None
    assert streamed.counts == whole.counts
    assert report.evaluations < 450
    assert streamed.tally.looked == 400
    wrong = [whole.label(*at) for at in np.argwhere(whole.verdicts).tolist()]
    told = [streamed.label(*at) for at in np.argwhere(streamed.verdicts).tolist()]
    assert sorted(told) == sorted(wrong)
    assert len(wrong) == {_slips: 3, _astray: 1}.get(fn, 0)
    accepted = [streamed.label(*at) for at in np.argwhere(streamed.accepted).tolist()]
    assert accepted == (["out[5, 5] / x[5, 5]"] if fn is _kinked else [])
    assert np.count_nonzero(whole.accepted) == len(accepted)


def test_a_tile_of_columns_that_are_elsewhere_shows_nothing():
    """Nor are they counted, until somebody has looked at them."""
    one = np.arange(3)[:, None]
    flat = np.ones((3, 1))
    part = Packed(
        columns=one,
        valid=one != 1,
        analytic=flat,
        numeric=flat,
        numeric_error=1e-9 * flat,
        allowed=1e-8 * flat,
        verdicts=np.zeros((3, 1), dtype=np.int8),
        bars=lambda i, j: np.zeros(np.broadcast(i, j).shape),
        forgiven=lambda i, j: np.zeros(np.broadcast(i, j).shape),
        caught=np.zeros(3),
        left_out=np.array([1]),
    )
    tallying = Tallying((3, 3))
    tallying.add_packed(part)
    tally = tallying.result()

    assert tally.counts == (6, 0, 0)
    assert tally.looked == 2
    assert tally.columns.tolist() == [[0, -1, 2]] * 3
    assert tally.analytic.tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 1]]


def test_a_wrong_entry_is_told_by_its_place():
    """One that is a thousandth off is found, and nothing else."""

    def off(x, g):
        gradient = g * x.cos()
        gradient[3, 4] *= 1.001
        return gradient

    report = gl.check(
        with_backward(torch.sin, off), _leaf(20, 20), coverage="full", memory="16MiB"
    )

    assert report["x"].counts == (400**2 - 1, 0, 1)
    assert report["x"].worst(1).label[0] == "out[3, 4] / x[3, 4]"


@pytest.mark.untraced
def test_ten_million_entries_take_a_few_evaluations_and_little_memory():
    """Matrices of 3,136 x 3,136 would take 75 MiB each, and 6,272 evaluations."""
    x = _leaf(56, 56)
    gl.check(torch.sin, _leaf(3), memory="64MiB")  # what is imported is no matrix
    tracemalloc.start()
    report = gl.check(torch.sin, x, coverage="full", memory="256MiB")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 256 * 2**20
    assert report.evaluations < 100
    assert report["x0"].counts == (3136**2, 0, 0)
    view = picture(report["x0"])
    diagonal = view.verdicts.shape
    assert diagonal == (240, 240)
    tally = report["x0"].tally
    assert (tally.analytic.diagonal() != 0).all()
    assert np.count_nonzero(tally.analytic) < 3 * 240
