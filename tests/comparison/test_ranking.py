"""Which entry is shown as the worst of a block."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.comparison.comparison import Comparison
from gradlab.comparison.ranking import candidates, scores
from gradlab.subject.subject import Variable

RELATIVE, ABSOLUTE = 1e-3, 1e-3


def block(analytic, numeric, bar=1e-9, *, verdict=2, rtol=RELATIVE, atol=ABSOLUTE):
    """One row, at a tolerance with an absolute part, all of one verdict."""
    a, n = np.atleast_2d(analytic).astype(float), np.atleast_2d(numeric).astype(float)
    return Comparison(
        output=Variable("f", ()),
        input=Variable("x", (a.shape[1],)),
        analytic=a,
        numeric=n,
        numeric_error=np.full(a.shape, bar),
        allowed=rtol * np.maximum(abs(a), abs(n)) + atol,
        verdicts=np.full(a.shape, verdict, np.int8),
        step=np.full(a.shape, 1e-6),
    )


def test_the_worst_entry_has_the_error_that_the_table_tells():
    """A sign, 22 times what is allowed, before a half too much, 200 times."""
    wrong = block([1.5, -0.012], [1.0, 0.01])

    assert wrong.excess.ravel() == pytest.approx([200, 21.7], rel=0.01)
    assert wrong.ranking(2) == [(0, 1), (0, 0)]
    assert wrong.relative_error[wrong.ranking(1)[0]] == wrong.max_rel_error == 1


def test_what_is_hardly_beyond_the_tolerance_is_not_the_worst():
    """A sign of an entry that the absolute part nearly covers shows little."""
    wrong = block([1.5, -1e-3], [1.0, 1e-3])

    assert wrong.excess.ravel() == pytest.approx([200, 2], rel=0.01)
    assert wrong.ranking(1) == [(0, 0)]


def test_of_equally_wrong_entries_the_largest_is_shown(rng):
    """A factor of two everywhere: the noise of the numeric side does not choose."""
    numeric = rng.permutation(np.linspace(1, 4, 30))
    noisy = numeric * (1 + 1e-8 * rng.standard_normal(30))

    wrong = block(2 * numeric, noisy)

    assert wrong.ranking(1) == [(0, int(numeric.argmax()))]


def test_what_agrees_within_its_bar_alone_is_not_the_worst():
    """Its relative error is not told: the bar is wider than what is allowed there."""
    right = block(
        *([1 + 1e-8, 1e-5 + 5e-11], [1, 1e-5]), verdict=0, rtol=1e-6, atol=0.0
    )

    assert right.excess.ravel() == pytest.approx([0.01, 0.01], rel=0.01)
    assert right.ranking(1) == [(0, 0)]
    assert right.relative_error[0, 0] == right.max_rel_error


def test_a_tolerance_hides_no_relative_error():
    """The sign is the other one: "max rel 0" stood beside -12 and 12."""
    covered = block([-6.0, -12.0], [6.0, 12.0], verdict=0, atol=100.0)

    assert covered.max_rel_error == 1
    assert covered.ranking(1) == [(0, 1)]


def test_round_off_that_a_tolerance_covers_is_as_little_as_it_is():
    """A zero that is off by all of itself counts beside the largest entry."""
    right = block([1.0, 1e-13], [1.0, 0.0], 1e-16, verdict=0, rtol=1e-6, atol=1e-11)

    assert right.relative_error.max() == pytest.approx(1e-5)
    assert right.max_rel_error == pytest.approx(1e-13)


def test_no_number_is_worse_than_any():
    """Nan before the rest, and the rest in its order: here all are clear."""
    wrong = block([1.2, np.nan, 1.4, 1.3], [1.0, 1.0, 1.0, 1.0])

    assert wrong.ranking(4) == [(0, 1), (0, 2), (0, 3), (0, 0)]


def test_what_is_equal_has_a_score():
    """No excess above zero: a score of one each, and no warning."""
    assert (scores(block([1.0, 2.0], [1.0, 2.0])) == 1).all()
    assert candidates(np.zeros(3, np.int8), np.ones(3), 1).tolist() == [0, 1, 2]
