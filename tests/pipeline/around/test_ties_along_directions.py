"""Ties among many entries, of which directions see both sides at once."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

RIGHT = {"first": (1.0, 0.0), "shared out": (0.5, 0.5), "uneven": (0.2, 0.8)}
WRONG = {"counted twice": (1.0, 1.0), "to nobody": (0.0, 0.0), "too much": (0.65, 0.65)}
SIZES = [(8, 2), (40, 5), (4000, 3)]


def largest_of_pairs(pairs, ties, seed=0):
    """Return the weighted sum of the larger of each pair; and where two are equal."""
    rng = np.random.default_rng(seed)
    x, weights = rng.normal(size=(pairs, 2)), rng.normal(size=pairs)
    tied = rng.choice(pairs, ties, replace=False)
    x[tied, 1] = x[tied, 0]

    def value(x):
        return (weights * x.max(axis=1)).sum()

    def gradient(shares):
        def grad(x):
            mask = (x == x.max(axis=1, keepdims=True)).astype(float)
            mask[tied] = shares
            return mask * weights[:, None]

        return grad

    return value, x, gradient


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("pairs", "ties"), SIZES)
@pytest.mark.parametrize("way", WRONG)
def test_what_is_no_gradient_of_all_ties_together_is_told(way, pairs, ties):
    """Each entry has a slope between both sides, and both together have not."""
    value, x, gradient = largest_of_pairs(pairs, ties)

    report = gl.check(value, x, grad=gradient(WRONG[way]), coverage="probe")

    assert report.verdict == gl.Verdict.DISAGREES
    assert any("of all together it is none" in f.evidence for f in report.findings)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("pairs", "ties"), SIZES)
@pytest.mark.parametrize("way", RIGHT)
@pytest.mark.parametrize("seed", range(2))
def test_no_right_one_is_accused(way, pairs, ties, seed):
    """A tie may be given to one of both, although differences see their mean."""
    value, x, gradient = largest_of_pairs(pairs, ties, seed)

    assert gl.check(value, x, grad=gradient(RIGHT[way]), coverage="probe").ok


@pytest.mark.parametrize("seed", range(2))
def test_nor_is_torch_where_a_picture_has_equal_pixels(seed):
    """Pixels of few levels, in the pooling of torch itself."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    picture = torch.tensor(np.round(40 * rng.normal(size=(1, 2, 24, 24))) / 40)
    weights = torch.tensor(rng.normal(size=(1, 2, 12, 12)))

    def f(picture):
        return (weights * torch.nn.functional.max_pool2d(picture, 2)).sum()

    assert gl.check(f, picture, coverage="probe").ok


@pytest.mark.parametrize("way", WRONG)
def test_a_search_leaves_them_open_and_says_why(way):
    """None of the entries is wrong by itself, so none is named."""
    value, x, gradient = largest_of_pairs(8, 2)

    found = gl.locate(value, x, grad=gradient(WRONG[way]))

    assert not found.entries
    assert not found.complete
    tied = np.argwhere(x == x[:, ::-1])
    assert sorted(s.first for s in found.suspects) == list(map(tuple, tied.tolist()))
    assert any("of all together it is none" in remark for remark in found.remarks)


@pytest.mark.parametrize("way", RIGHT)
@pytest.mark.parametrize("seed", range(2))
def test_a_search_says_nothing_of_right_ones(way, seed):
    """As a check does of all entries, where directions met these kinks."""
    value, x, gradient = largest_of_pairs(8, 2, seed)

    found = gl.locate(value, x, grad=gradient(RIGHT[way]))

    assert found.ok
    assert found.complete
    assert not found.remarks
