"""Matrices that are mostly zeros, row by row: against the matrices themselves."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.differentiation.sparse.entries import Entries
from gradlab.differentiation.sparse.support import bands, listed

WHOLE = np.array([[0.0, 2.0, 0.0], [3.0, 0.0, 4.0], [0.0, 0.0, 0.0]])


def entries_of(matrix, pattern=None):
    """The entries of a matrix, in the places of a pattern, or its own."""
    pattern = matrix != 0 if pattern is None else pattern
    support = listed(pattern.__getitem__, *pattern.shape)
    value = np.take_along_axis(matrix, support.columns, axis=1)
    return Entries(support, np.where(support.valid[:, :1], value, 0.0))


def test_rows_list_their_columns_and_repeat_one_that_is_not_there():
    """Rows with fewer columns than others are filled up, and it is told where."""
    support = entries_of(WHOLE).support

    assert support.shape == (3, 3)
    assert support.columns.tolist() == [[1, 1], [0, 2], [0, 0]]
    assert support.valid.tolist() == [[True, False], [True, True], [False, False]]


def test_patterns_are_read_a_few_rows_at_a_time(monkeypatch):
    """Whatever the rows of a band, the same is listed."""
    monkeypatch.setattr("gradlab.differentiation.sparse.support._BAND", 3)
    some = listed((WHOLE != 0).__getitem__, 3, 3)

    assert [band.stop - band.start for band in bands(3, 3)] == [1, 1, 1]
    assert np.array_equal(some.columns, [[1, 1], [0, 2], [0, 0]])


def test_a_pattern_without_rows_or_columns_lists_nothing():
    """Neither is an error."""
    for shape in ((0, 3), (3, 0)):
        support = listed(np.ones(shape, dtype=bool).__getitem__, *shape)

        assert support.shape == shape
        assert not support.valid.any()


def test_the_matrix_comes_back():
    """Entries make the matrix that they are of, and say where it is not zero."""
    entries = entries_of(WHOLE)

    assert np.array_equal(entries.matrix(), WHOLE)
    assert np.array_equal(np.array(entries.nonzero()), np.array(WHOLE.nonzero()))


def test_rows_without_entries_keep_what_stands_there():
    """Values are put where there is a place for them, and nowhere else."""
    support, whole = entries_of(WHOLE).support, np.full((3, 3), 7.0)
    support.put(np.ones((3, 2)), whole)

    assert whole.tolist() == [[7, 1, 7], [1, 7, 1], [7, 7, 7]]


def test_places_are_those_of_the_flattened_matrix():
    """Taken from it they give the entries."""
    entries = entries_of(WHOLE)
    taken = WHOLE.take(entries.support.places())

    assert np.array_equal(taken[entries.support.valid], [2.0, 3.0, 4.0])


@pytest.mark.parametrize("more", [np.eye(3), np.ones((3, 3)), np.zeros((3, 3))])
def test_entries_are_laid_out_in_a_wider_support(more):
    """Where that has a place for all of them; elsewhere they are zero."""
    wider = entries_of(WHOLE, (WHOLE != 0) | (more != 0)).support
    laid = entries_of(WHOLE).laid_out_as(wider)
    found = Entries(wider, np.where(wider.valid, laid, laid[:, :1]))

    assert np.array_equal(found.matrix(), WHOLE)


def test_a_support_that_lacks_a_place_lays_nothing_out():
    """What has no place would be lost."""
    narrow = WHOLE != 0
    narrow[1, 2] = False

    assert entries_of(WHOLE).laid_out_as(entries_of(WHOLE, narrow).support) is None


def test_the_same_columns_of_which_fewer_count_are_another_support():
    """A column that is repeated is no place of its own."""
    full = entries_of(np.ones((2, 2)))
    one = entries_of(np.ones((2, 2)), np.array([[True, True], [True, False]])).support

    assert full.laid_out_as(full.support) is full.value
    assert full.laid_out_as(one) is None


def test_as_many_entries_elsewhere_are_another_support():
    """One in each row, on the diagonal and on the other one."""
    across = entries_of(np.eye(2)[::-1]).support

    assert entries_of(np.eye(2)).laid_out_as(across) is None


def test_a_cotangent_is_combined_as_by_the_matrix(rng):
    """The product, and the sum of the sizes of its terms."""
    matrix = np.where(rng.random((6, 5)) < 0.4, rng.normal(size=(6, 5)), 0.0)
    weights = rng.normal(size=6)
    product, size = entries_of(matrix).combined(weights)

    assert product == pytest.approx(weights @ matrix)
    assert size == pytest.approx(np.abs(weights) @ np.abs(matrix))
