"""Rows of a sparse analytic Jacobian, several by each cotangent."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.autograd import Function

import gradlab as gl
from gradlab.building import Sides, build_subject
from gradlab.differentiation.metering.budget import parse_budget
from gradlab.differentiation.metering.meter import BudgetExhausted, Meter
from gradlab.differentiation.sparse import row_groups
from gradlab.differentiation.sparse.entries import Entries
from gradlab.differentiation.sparse.row_groups import grouped_rows
from gradlab.late import is_made
from gradlab.pipeline.sides.analytic_side import analytic_side
from gradlab.subject.tensors.gradients.forward import ForwardMode
from tests.specimens.functions import stray, with_backward


def _leaves(*shapes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    return tuple(
        torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()
        for shape in shapes
    )


def _subject(fn, inputs):
    subject = build_subject(fn, inputs, Sides())
    subject.row()
    return subject


def _one_by_one(fn, inputs):
    """Every row by a backward pass of its own, by torch alone."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    outputs = fn(*leaves)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    flat = torch.cat([output.reshape(-1) for output in outputs])
    rows = []
    for row in flat:
        pulled = torch.autograd.grad(row, leaves, retain_graph=True, allow_unused=True)
        rows.append(
            [
                torch.zeros_like(x) if g is None else g
                for x, g in zip(leaves, pulled, strict=True)
            ]
        )
    return [
        torch.stack([row[k].reshape(-1) for row in rows]).numpy()
        for k in range(len(leaves))
    ]


class _Counted(Function):
    """A cube whose backward counts how often it is asked, and cannot be batched."""

    asked = 0

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        _Counted.asked += 1
        return torch.from_numpy(g.numpy() * (3 * x**2).numpy())


def _clipped(x, g):
    return 2 * g / max(1.0, float(g.norm()))


def _broken(x, g):
    gradient = 2 * g
    gradient[0, 0] = float("nan")
    return gradient


_SPARSE = {
    "elementwise": (torch.sin, [(20, 20)]),
    "long axis": (torch.sin, [(500,)]),
    "prime axis": (torch.sin, [(499,)]),
    "softmax": (lambda x: torch.softmax(x, -1), [(24, 16)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (32,), w, b), [(16, 32), 32, 32]),
    "linear": (F.linear, [(16, 32), (32, 32), (32,)]),
    "conv": (lambda x, w: F.conv2d(x, w, padding=1), [(2, 3, 8, 8), (4, 3, 3, 3)]),
    "stencil": (lambda x: x[2:] * x[1:-1] - x[:-2], [(402,)]),
    "transposed": (lambda x: x.T.flip(0) ** 2, [(25, 18)]),
    "two outputs": (lambda x: (x**2, x.sum(1)), [(20, 25)]),
    "three outputs": (lambda x, y: (x * y, x.sum(), y[:0]), [(20, 20), (20, 20)]),
    "empty input": (lambda x, y: x.sin() + y.sum(), [(20, 20), (0,)]),
    "one input unused": (lambda x, y: x**2 + y.detach().sum(), [(20, 20), (5,)]),
    "diagonal of blocks": (torch.linalg.inv, [(30, 4, 4)]),
}


class TestValues:
    """The entries are those that single rows give."""

    @pytest.mark.thinned(2)
    @pytest.mark.parametrize("name", _SPARSE)
    def test_they_are_those_of_single_rows(self, name):
        """For every kind of sparsity, bit by bit or by a few roundings."""
        fn, shapes = _SPARSE[name]
        inputs = _leaves(*shapes)
        subject = _subject(fn, inputs)
        found, problems = grouped_rows(subject, 2**24)

        for part, truth in zip(found, _one_by_one(fn, inputs), strict=True):
            assert isinstance(part, Entries)
            assert np.allclose(part.matrix(), truth, rtol=1e-13, atol=1e-15)
        unused = [p.where for p in problems if p.kind == "none"]
        assert unused == (["y"] if name == "one input unused" else [])

    @pytest.mark.parametrize("seed", [1, 2, 3, 5, 6, 7])
    def test_any_pattern_comes_out_whole(self, seed):
        """Random sparse linear maps, whose matrix is known; seeds with few groups."""
        generator = np.random.default_rng(seed)
        matrix = np.zeros((400, 300))
        for _ in range(generator.integers(1, 4)):
            shift, step = generator.integers(0, 300), generator.integers(1, 3)
            rows = np.arange(0, 400, generator.integers(1, 3))
            matrix[rows, (shift + rows // step) % 300] = generator.normal(
                size=len(rows)
            )
        weights = torch.from_numpy(matrix)
        subject = _subject(lambda x: weights @ x, _leaves((300,)))
        (found,), _ = grouped_rows(subject, 2**24)

        assert np.array_equal(found.matrix(), matrix)
        assert set(zip(*found.nonzero(), strict=True)) == set(
            zip(*np.nonzero(matrix), strict=True)
        )

    def test_complex_inputs_have_two_columns(self):
        """Real and imaginary part are coordinates of their own."""
        x = _leaves((20, 20), dtype=torch.complex128)
        subject = _subject(lambda x: (x * x).abs(), x)
        (found,), _ = grouped_rows(subject, 2**24)
        size = 4 * np.abs(x[0].detach().numpy().ravel()) ** 2

        # the gradient of |z|^2 is 2 z, of length 2 |z|
        assert found.value.shape == (400, 2)
        assert np.allclose((found.value**2).sum(axis=1), size)

    def test_small_batches_give_the_same(self):
        """However few cotangents memory allows at a time."""
        subject = _subject(torch.sin, _leaves((20, 20)))
        (whole,), _ = grouped_rows(subject, 2**24)
        (parts,), _ = grouped_rows(subject, 3 * 8 * 800)

        assert np.array_equal(whole.value, parts.value)


class TestHonesty:
    """Nothing is believed of a backward that it does not show."""

    def test_an_entry_where_none_should_be_is_found(self):
        """As single rows would have shown it."""
        (found,), _ = grouped_rows(
            _subject(with_backward(lambda x: 2 * x, stray(1e-9)), _leaves((20, 20))),
            2**24,
        )
        row, column = 3 * 20 + 5, 11 * 20 + 17

        assert found.matrix()[row, column] == 1e-9
        assert len(found.nonzero()[0]) == 401

    def test_such_an_entry_is_accused(self):
        """By its place, in a whole check, if it is large enough to matter."""
        larger = with_backward(lambda x: 2 * x, stray(1e-3))
        report = gl.check(larger, *_leaves((20, 20)))
        wrong = np.argwhere(report["x"].verdicts == gl.Verdict.DISAGREES)

        assert wrong.tolist() == [[65, 237]]

    def test_a_lost_entry_is_accused(self):
        """The pattern of a wrong gradient is not that of the function."""
        lost = with_backward(lambda x: torch.cumsum(x, 1), lambda x, g: g)
        report = gl.check(lost, *_leaves((40, 10)))
        wrong = report["x"].verdicts.reshape(40, 10, 40, 10) == gl.Verdict.DISAGREES
        lower = np.tril(np.ones((10, 10), dtype=bool), -1)

        assert np.array_equal(wrong.any(axis=(0, 2)), lower)
        assert wrong.sum() == 40 * 45

    @pytest.mark.parametrize("backward", [_clipped, _broken])
    def test_what_is_no_linear_map_is_read_row_by_row(self, backward):
        """A backward that normalises, or answers with nan."""
        doubled = with_backward(lambda x: 2 * x, backward)
        subject = _subject(doubled, _leaves((20, 20)))

        assert grouped_rows(subject, 2**24) is None
        side = analytic_side(subject)
        assert side.entries(0) is None
        assert side.values[0].shape == (400, 400)

    def test_dense_jacobians_are_read_row_by_row(self):
        """Nothing would be saved."""
        fn = torch.linalg.inv
        (x,) = _leaves((19, 19))
        subject = _subject(fn, ((x + 9 * torch.eye(19)).detach().requires_grad_(),))

        assert grouped_rows(subject, 2**24) is None


class TestCost:
    """Fewer backward passes than rows, and no matrix that nobody looks at."""

    def test_an_elementwise_function_takes_a_few_dozen(self):
        """Of 400 rows, with a backward that answers to one cotangent at a time."""
        subject = _subject(_Counted.apply, _leaves((20, 20)))
        _Counted.asked = 0
        grouped_rows(subject, 2**24)

        assert _Counted.asked < 60

    def test_a_budget_of_seconds_holds(self, monkeypatch):
        """A slow backward is asked sixteen times between two looks at the clock."""
        meter = Meter(parse_budget("1s"))
        subject = _subject(_Counted.apply, _leaves((20, 20)))
        pull = type(subject.analytic).pull

        def slow(self, cotangents):
            meter.started -= len(cotangents)  # seconds
            return pull(self, cotangents)

        monkeypatch.setattr(type(subject.analytic), "pull", slow)
        _Counted.asked = 0
        with pytest.raises(BudgetExhausted):
            grouped_rows(subject, 2**24, meter=meter)
        assert _Counted.asked < 24

    def test_a_jacobian_that_comes_whole_is_asked_for_once(self):
        """Forward mode makes all columns whatever it is asked for."""
        subject = _subject(torch.sin, _leaves((20, 20)))
        forward = ForwardMode(subject)
        asked, jacobian = [], forward.jacobian
        forward.jacobian = lambda: asked.append(1) or jacobian()
        subject.analytic = forward
        side = analytic_side(subject)

        assert len(asked) == 1
        assert side.entries(0) is None
        slopes = np.cos(subject.point(0))
        assert np.allclose(side.values[0], np.diag(slopes), rtol=1e-14, atol=0)

    def test_float32_is_grouped_as_well(self):
        """Its last digits are those of single precision."""
        (x,) = _leaves((24, 16), dtype=torch.float32)
        subject = _subject(lambda x: torch.softmax(x, -1), (x,))
        (found,), _ = grouped_rows(subject, 2**24)
        truth = _one_by_one(lambda x: torch.softmax(x, -1), (x,))[0]

        assert np.allclose(found.matrix(), truth, rtol=1e-5, atol=1e-8)

    def test_small_matrices_are_not_worth_it(self, monkeypatch):
        """Two batches cost more than one, of few rows."""
        subject = _subject(torch.sin, _leaves((10, 10)))

        assert grouped_rows(subject, 2**24) is None
        monkeypatch.setattr(row_groups, "_FEWEST", 1)
        assert grouped_rows(subject, 2**24) is not None

    def test_no_matrix_is_made_of_a_check_that_agrees(self):
        """Neither of the analytic nor of the numeric side, until it is asked for."""
        (x,) = _leaves((24, 16))
        report = gl.check(lambda x: torch.softmax(x, -1), x)
        comparison = report["x"]

        assert comparison.verdict == gl.Verdict.AGREES
        assert not is_made(comparison, "analytic")
        assert not is_made(comparison, "numeric")
        truth = _one_by_one(lambda x: torch.softmax(x, -1), (x,))[0]
        assert np.allclose(comparison.analytic, truth, rtol=1e-13, atol=1e-16)
        assert comparison.max_abs_error < 1e-8
