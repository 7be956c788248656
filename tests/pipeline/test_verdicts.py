"""Verdicts of a block beyond the rule: zeros of a coarse f, kinks, no ground at all."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gradlab.comparison.tolerance import Tolerance
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.outcome import Known, Matters, Outcome
from gradlab.pipeline.plan import Plan
from gradlab.pipeline.verdicts import judge_all, matters_of
from tests.specimens.blocks import block

A, U, D = Verdict.AGREES, Verdict.UNDECIDED, Verdict.DISAGREES


def judged(one, base=1.0, known=None):
    """Judge one block by default tolerances."""
    subject = SimpleNamespace(
        inputs=[SimpleNamespace(name="x")], epsilon=2.0**-52, outputs=()
    )
    rows = len(one.value)
    outcome = Outcome([one], np.broadcast_to(base, rows) * 1.0, (), None, known=known)
    judge_all(subject, outcome, Plan("auto", Tolerance()))
    return one.verdicts


class TestGrain:
    """Zeros of an f that rounds inside: 1 beside them, a bar that leaves them open."""

    @pytest.mark.parametrize(
        ("analytic", "value", "bar", "looked", "expected"),
        [
            (0.0, 0.0, 3e-7, True, A),  # could not have moved by more
            (0.0, 0.0, 3e-7, False, U),  # nobody looked closely
            (0.0, 0.0, 3e-5, True, U),  # f could say more than that
            (1e-7, 0.0, 3e-7, True, U),  # a gradient that claims something
            (0.0, 1e-7, 3e-7, True, U),  # f did move
            (0.3, 0.0, 3e-7, True, D),  # what is wrong stays wrong
        ],
    )
    def test_zeros(self, analytic, value, bar, looked, expected):
        """Only what is zero on both sides, looked at, and below the grain, agrees."""
        one = block(
            [[analytic, 1.0]], [[value, 1.0]], [[bar, 1e-12]],
            looked=np.array([looked, False]), grain=np.array([[1e-6]]),
        )  # fmt: skip
        assert judged(one).tolist() == [[expected, A]]

    def test_by_the_scale_that_is_known_now(self):
        """A coordinate with a scale of its own moves f by no more than that allows."""
        found = [
            judged(
                block(
                    [[0.0, 1.0]],
                    [[0.0, 1.0]],
                    [[3e-5, 1e-12]],
                    looked=np.array([True, False]),
                    grain=np.array([[1e-6]]),
                    own_scales=np.array([own, 1.0]),
                )
            )[0, 0]
            for own in (1e-3, 1.0)
        ]
        assert found == [A, U]


def test_what_is_let_pass_at_a_kink_is_remembered():
    """The same difference beside a kink and on a smooth spot: one was accepted."""
    one = block(
        [[1.0, 1.0, 1.0]], [[0.9, 0.9, 1.0]], 1e-9,
        slack=np.full((1, 3), 0.2),
        kinds=np.array([[Smoothness.KINK, Smoothness.SMOOTH, Smoothness.KINK]]),
    )  # fmt: skip
    assert judged(one).tolist() == [[A, A, A]]
    assert one.accepted.tolist() == [[True, False, False]]


def test_what_is_wrong_at_a_kink_is_not_accepted():
    """Beyond what is forgiven the kind of the point excuses nothing."""
    one = block([[2.0]], [[0.9]], 1e-9, kinds=np.array([[Smoothness.KINK]]))
    assert judged(one).tolist() == [[D]]
    assert one.accepted.tolist() == [[False]]


@pytest.mark.parametrize(
    ("analytic", "value", "base", "expected"),
    [
        (1.0, np.nan, 1.0, U),  # the quotient failed, not the gradient
        (np.nan, np.nan, 1.0, U),
        (1.0, 1.0, np.nan, U),  # no value, hence no derivative to fail
        (2.0, 1.0, np.inf, U),
        (np.nan, 1.0, 1.0, D),  # a slope that the gradient does not know
        (1.0, 1.0, 1.0, A),
    ],
)
def test_ground(analytic, value, base, expected):
    """A verdict needs an f and a slope; what has none is held against nobody."""
    assert judged(block([[analytic]], [[value]], 1e-9), base).tolist() == [[expected]]


def test_nan_in_a_column_with_an_infinite_slope_is_no_statement():
    """That of another output is the infinite slope times a cotangent of zero."""
    steep = block([[np.inf], [np.nan]], [[np.inf], [1.0]], [[np.nan], [1e-9]])
    plain = block([[1.0], [np.nan]], [[1.0], [1.0]], [[1e-9], [1e-9]])
    assert judged(steep).tolist() == [[U], [U]]
    assert judged(plain).tolist() == [[A], [D]]


class TestShortArithmetic:
    """A gradient in single precision, and the same formula in double."""

    @pytest.mark.parametrize(
        ("analytic", "precise", "expected"),
        [
            (1.03, 1.0, A),  # three percent: round-off
            (1.20, 1.0, D),  # twenty percent is none
            (1.03, 1.03, D),  # a slip of the formula, which double shows
        ],
    )
    def test_round_off_is_forgiven(self, analytic, precise, expected):
        """Up to five percent of the largest entry, and of the formula nothing."""
        one = block([[analytic]], [[1.0]], 1e-9, precise=np.array([[precise]]))
        assert judged(one).tolist() == [[expected]]

    def test_by_the_largest_entry_of_the_block(self):
        """0.03 beside an entry of 1, not beside one of 0.1."""
        beside = [
            judged(
                block([[0.13, top]], [[0.1, top]], 1e-9, precise=np.array([[0.1, top]]))
            )[0, 0]
            for top in (1.0, 0.1)
        ]
        assert beside == [A, D]


def test_what_matters_is_the_larger_of_here_and_elsewhere():
    """Row by row, in effects: slope times size of the coordinate."""
    one = block([[1.0, 0.0]], [[3.0, 2.0]], 1e-9, scales=np.array([1.0, 10.0]))
    known = Known(Matters(np.array([[5.0]]), np.array([[50.0]])), {})

    assert matters_of([one]).typical.tolist() == [[20.0]]
    assert matters_of([one]).own.tolist() == [[20.0]]
    assert matters_of([one], known).typical.tolist() == [[20.0]]
    assert matters_of([one], known).own.tolist() == [[50.0]]


def test_what_matters_goes_by_the_size_that_a_coordinate_counts_with():
    """Steps chosen for a mass say nothing of a constant that stands beside it."""
    one = block(
        [[1.0, 0.0]], [[3.0, 2.0]], 1e-9, height=np.array([[5.0]]),
        scales=np.array([1e6, 1e6]), sizes=np.array([1e-6, 1.0]),
        own_scales=np.array([4.0, 1e6]),
    )  # fmt: skip
    assert matters_of([one]).own.tolist() == [[2.0]]
    assert matters_of([one]).typical.tolist() == [[5.0]]
