"""Gradients in half precision: what it leaves nothing of, and what it does not hide."""

from __future__ import annotations

import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")

HALVES = [torch.bfloat16, torch.float16]


# The identity, with a factor on one entry of its gradient, or on all.
def slipped_backward(_x, factor, every, upstream):
    factors = torch.ones_like(upstream)
    factors[slice(None) if every else 2] = factor
    return (upstream * factors, None, None)


slipped = with_backward(lambda x, factor, every: x.clone(), slipped_backward)


def saturated(x):
    """A slope of 8 (1 - tanh(8 x)**2), of which the square rounds to 1."""
    return torch.tanh(8 * x)


@pytest.mark.parametrize(
    ("dtype", "point"), [(torch.bfloat16, 0.485), (torch.float16, 0.6)]
)
def test_what_saturates_in_half_precision_is_left_open(dtype, point):
    """Zero where 0.01 (0.002) is right: it was accused of a cut graph."""
    x = torch.tensor([1.15, 1.6, 0.9, 0.85, point], dtype=dtype, requires_grad=True)
    report = gl.check(saturated, x)

    assert (report.verdict, report.ok) == (gl.Verdict.UNDECIDED, True)
    assert report.diagnosis == "low_precision"
    assert "by the same code in float64" in report.findings[0].evidence


@pytest.mark.parametrize("dtype", HALVES)
def test_what_is_wrong_in_float64_as_well_is_told(dtype):
    """A detach and a factor are in both."""
    x = torch.tensor([0.44], dtype=dtype, requires_grad=True)

    for wrong in (
        lambda x: saturated(x.detach()) + 0 * x,
        lambda x: saturated(slipped(x, 2.0, True)),
    ):
        assert gl.check(wrong, x).verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize("factor", [1.0, 1.5])
@pytest.mark.parametrize("dtype", HALVES)
def test_multiples_of_short_numbers_are_no_single_precision(dtype, factor):
    """Three halves of 2 x have ten digits, in float64 as well: that slip passed."""
    point = [-0.836, 0.703, -0.3223, -2.89, -1.789]
    x = torch.tensor(point, dtype=dtype, requires_grad=True)

    report = gl.check(lambda x: (slipped(x, factor, False) ** 2).sum() + 100, x)

    assert report.verdict == (
        gl.Verdict.AGREES if factor == 1 else gl.Verdict.DISAGREES
    )
