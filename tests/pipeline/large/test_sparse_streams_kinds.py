"""Sparse Jacobians that do not fit, in single precision and of complex numbers."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import gradlab as gl
from tests.specimens.functions import with_backward

_SHORT, _WIDE = torch.complex64, torch.complex128


def _leaf(*shape, dtype):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()


_KINDS = {
    "single, elementwise": (torch.sin, [(20, 20)], torch.float32),
    "single, by row": (lambda x: torch.softmax(x, -1), [(24, 16)], torch.float32),
    "single, stencil": (lambda x: x[2:] * x[1:-1], [(400,)], torch.float32),
    "single, two inputs": (lambda x, b: x.sin() + b, [(40, 20), (20,)], torch.float32),
    "complex, holomorphic": (lambda z: z**2 * z.sin(), [(300,)], _WIDE),
    "complex, one half": (lambda z: z.real**2, [(400,)], _WIDE),
    "complex, conjugate": (lambda z: z * z.conj() ** 2, [(20, 15)], _SHORT),
    "complex, two inputs": (lambda a, b: a * b.conj(), [(200,), (200,)], _SHORT),
    "complex, bias": (lambda a, b: a.sin() + b, [(10, 20), (20,)], _WIDE),
    "real to complex": (
        lambda x: torch.complex(x.sin(), x**3),
        [(400,)],
        torch.float32,
    ),
}


def _checked(fn, *inputs, memory="16MiB"):
    return gl.check(fn, *inputs, coverage="full", memory=memory)


@pytest.mark.parametrize("name", _KINDS)
def test_entries_say_what_the_whole_matrix_says(name):
    """Counts, extremes, power, tiles and kept columns, from as many evaluations."""
    fn, shapes, dtype = _KINDS[name]
    inputs = [_leaf(*shape, dtype=dtype) for shape in shapes]
    whole = _checked(fn, *inputs, memory="1GiB")
    streamed = _checked(fn, *inputs)

    assert streamed.verdict == gl.Verdict.AGREES
    assert streamed.evaluations <= whole.evaluations + 16 < 200
    for one, other in zip(streamed.comparisons, whole.comparisons, strict=True):
        tally, kept = one.tally, one.columns
        assert tally is not None
        assert other.tally is None
        assert one.counts == other.counts
        assert tally.shape == other.shape
        assert one.max_abs_error == pytest.approx(other.max_abs_error)
        assert one.max_rel_error == pytest.approx(other.max_rel_error)
        assert other.power * (1 - 1e-12) <= one.power <= 1.5 * other.power
        kept = slice(None) if kept is None else kept
        assert np.array_equal(one.analytic, other.analytic[:, kept])
        assert np.array_equal(tally.analytic, other.analytic[tally.rows, tally.columns])
        off = tally.numeric - other.numeric[tally.rows, tally.columns]
        assert np.abs(off).max() < 1e-7
        assert (np.abs(off) <= tally.numeric_error + 1e-9).all()


def _twisted(x, g, slope):
    """Spoil a gradient: a hundredth, a stray entry, a sign, and a conjugate."""
    gradient = g * slope
    gradient[11] *= 1.01
    gradient[23] += 1e-2 * g[37]
    gradient[53] *= -1
    if x.is_complex():
        gradient[71] = gradient[71].conj()
    return gradient


_wrong = with_backward(
    lambda x: x.sin() * x,
    lambda x, g: _twisted(x, g, (x.cos() * x + x.sin()).conj()),
)


@pytest.mark.parametrize("dtype", [torch.float32, _SHORT, _WIDE])
def test_wrong_entries_are_told_by_their_places(dtype):
    """Nothing else is accused, and no other column is measured again."""
    report = _checked(_wrong, _leaf(600, dtype=dtype), memory="32MiB")
    places = {(11, 11), (37, 23), (53, 53)} | (
        {(71, 71)} if dtype.is_complex else set()
    )
    for block in report.comparisons:
        assert block.tally is not None
        assert block.counts == (600**2 - len(places), 0, len(places))
        at = np.argwhere(block.verdicts == gl.Verdict.DISAGREES).tolist()
        assert {(i, int(block.columns[k])) for i, k in at} == places
    assert report.evaluations < 1000  # twice two for each coordinate, where complex


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, _WIDE])
def test_what_is_wrong_everywhere_is_not_measured_densely(dtype):
    """Its differences are known from the first pass; ladders uphold what they say."""
    doubled = with_backward(torch.sin, lambda x, g: 2 * g * x.cos().conj())
    x = _leaf(400, dtype=dtype)
    report = _checked(doubled, x, memory="64MiB" if dtype.is_complex else "16MiB")
    for block in report.comparisons:
        assert block.tally is not None
        assert block.counts == (400**2 - 400, 0, 400)
    assert report.culprit == "x"
    assert report.diagnosis in {"scale", "accumulated_grad"}
    coordinates = x.numel() * (2 if dtype.is_complex else 1)
    assert report.evaluations < 3.5 * coordinates


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, _WIDE])
def test_an_output_that_hardly_moves_leaves_the_others_sparse(dtype):
    """Its zeros are asked from farther away: its only slope is 1e-5."""
    x = _leaf(400, dtype=dtype)
    with torch.no_grad():
        x[7] = np.pi / 2 - 1e-5
    report = _checked(torch.sin, x, memory="16MiB")

    assert report.verdict == gl.Verdict.AGREES
    assert report.evaluations < 200
    assert report.comparisons[0].tally is not None


@pytest.mark.untraced
@pytest.mark.parametrize("dtype", [torch.float32, _SHORT])
def test_ten_million_entries_take_a_few_evaluations_and_little_memory(dtype):
    """A dense pass would take two evaluations for each of 3,136 coordinates or more."""
    x = _leaf(3136, dtype=dtype)
    _checked(F.softsign, _leaf(3, dtype=torch.float32))  # what is imported is no matrix
    tracemalloc.start()
    report = _checked(torch.sin, x, memory="256MiB")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 256 * 2**20
    assert report.evaluations < 100
    assert all(block.counts == (3136**2, 0, 0) for block in report.comparisons)
