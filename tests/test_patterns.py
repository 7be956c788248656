"""Declared sparsity against the Jacobian itself."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import BudgetError, InputError

N = 6


def _second_differences(x):
    """A tridiagonal Jacobian: 2 x on the diagonal, -1 beside it."""
    y = x**2
    y[1:] -= x[:-1]
    y[:-1] -= x[1:]
    return y


def _band(*offsets):
    return sum(np.eye(N, k=k) for k in offsets)


def test_exact_pattern_passes():
    """What is declared is what there is."""
    found = gl.check_sparsity(
        _second_differences, np.arange(1.0, N + 1), pattern=_band(-1, 0, 1)
    )

    assert found.verdict == gl.Verdict.AGREES
    assert found.declared == 3 * N - 2
    assert not any(found.idle.values())


def test_entries_that_were_not_declared_are_named():
    """A forgotten diagonal is listed entry by entry, with its values."""
    found = gl.check_sparsity(
        _second_differences, np.arange(1.0, N + 1), pattern=_band(-1, 0)
    )

    assert found.verdict == gl.Verdict.DISAGREES
    places = {(e.output_index[0], e.input_index[0]) for e in found.uncovered}
    assert places == {(i, i + 1) for i in range(N - 1)}
    assert all(e.numeric == pytest.approx(-1) for e in found.uncovered)
    assert "out[0] / x[1]" in found.table["label"].tolist()


def test_a_pattern_may_declare_too_much():
    """A superset is right; what is zero here is counted, not accused."""
    found = gl.check_sparsity(_second_differences, np.zeros(N), pattern=np.ones((N, N)))

    assert found.ok
    assert found.idle == {"out / x": N * N - 2 * (N - 1)}


@pytest.mark.parametrize(
    "pattern",
    [
        np.nonzero(_band(-1, 0, 1)),
        tuple(part.tolist() for part in np.nonzero(_band(-1, 0, 1))),
        _band(-1, 0, 1) > 0,
    ],
    ids=["indices", "lists", "boolean"],
)
def test_ways_to_declare(pattern):
    """Index pairs as OpenMDAO takes them, and masks."""
    assert gl.check_sparsity(
        _second_differences, np.arange(1.0, N + 1), pattern=pattern
    ).ok


def test_scipy_sparse_pattern():
    """A sparse matrix declares its stored entries."""
    sparse = pytest.importorskip("scipy.sparse")
    pattern = sparse.csr_matrix(_band(0, 1))
    found = gl.check_sparsity(
        _second_differences, np.arange(1.0, N + 1), pattern=pattern
    )

    assert len(found.uncovered) == N - 1


def test_blocks_by_name():
    """Several inputs: a dict; 0 declares that there is no dependence at all."""
    a, b = np.arange(1.0, 4.0), np.ones(3)
    right = gl.check_sparsity(
        lambda a, b: a * b, a, b, pattern={"a": np.eye(3), "b": np.eye(3)}
    )
    wrong = gl.check_sparsity(lambda a, b: a * b, a, b, pattern={"b": 0})

    assert right.ok
    assert len(wrong.uncovered) == 3
    assert wrong.entries == 9


def test_round_off_is_no_dependence():
    """A term that cancels to rounding is not accused."""
    found = gl.check_sparsity(
        lambda x: np.array([x[0] + (x[1] + 1e3) - (x[1] + 1e3)]),
        np.array([1.0, 0.3]),
        pattern=np.array([[1, 0]]),
    )

    assert not found.uncovered


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (np.eye(3), r"shape \(3, 3\), expected \(6, 6\)"),
        (([0], [9]), "index below 0 or beyond .* 6 x 6"),
        (([-1], [0]), "index below 0 or beyond .* 6 x 6"),
        ({"y": 0}, "pattern names 'y'; the blocks are"),
    ],
)
def test_bad_patterns_are_refused(pattern, words):
    """The message names shape, index or name."""
    with pytest.raises(InputError, match=words):
        gl.check_sparsity(_second_differences, np.ones(N), pattern=pattern)


def test_budget_that_is_too_small():
    """Half a Jacobian says nothing about a pattern."""
    with pytest.raises(BudgetError, match="pattern"):
        gl.check_sparsity(_second_differences, np.ones(N), pattern=np.eye(N), budget=4)


def test_torch_pattern_and_function():
    """A tensor declares as an array does, dense or sparse."""
    torch = pytest.importorskip("torch")
    x = torch.linspace(0.5, 1.5, 4, dtype=torch.float64)
    lower = torch.tril(torch.ones(4, 4))

    for pattern in (lower, lower.to_sparse()):
        assert gl.check_sparsity(lambda x: x.cumsum(0), x, pattern=pattern).ok
    assert len(gl.check_sparsity(lambda x: x.cumsum(0), x, pattern=0).uncovered) == 10


def test_a_large_output_hides_no_entry_of_another():
    """What counts as round-off is measured block by block."""
    found = gl.check_sparsity(
        lambda x: (1e12 * x, 0.1 * x[::-1]),
        np.linspace(0.5, 1.5, 3),
        pattern={("out.0", "x"): np.eye(3), ("out.1", "x"): 0},
    )

    places = {(e.output, e.output_index, e.input_index) for e in found.uncovered}
    assert places == {("out.1", (i,), (2 - i,)) for i in range(3)}


def test_rows_of_other_units_are_judged_by_their_own():
    """An output of 1e-9 beside one of 1e9 has entries of its own, and no dust."""

    def f(x):
        return np.array([1e9 * x[0], 1e-9 * np.sin(x[1])])

    right = gl.check_sparsity(f, np.ones(2), pattern=np.eye(2))
    wrong = gl.check_sparsity(f, np.ones(2), pattern=np.array([[1, 0], [0, 0]]))

    assert right.verdict is gl.Verdict.AGREES
    assert [entry.output_index for entry in wrong.uncovered] == [(1,)]


def test_what_cancels_in_a_row_is_no_entry():
    """1e8 x - 1e8 x leaves round-off, in a row of its own as well."""

    def f(x):
        return np.array([x[0], (1e8 * np.sin(x[1]) + 1.0) - 1e8 * np.sin(x[1])])

    check = gl.check_sparsity(f, np.array([0.3, 0.7]), pattern=[[1, 0], [0, 0]])

    assert not check.uncovered
