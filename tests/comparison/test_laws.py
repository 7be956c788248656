"""Laws of the verdict: no order, unit or sign of rows and columns changes it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradlab.comparison.effects import sensitivity
from gradlab.comparison.rule import Leniency, Side, Units, judge
from gradlab.comparison.tolerance import Tolerance
from gradlab.comparison.verdict import Verdict

SEEDS = st.integers(0, 2**32 - 1)
POWERS = st.integers(-12, 12)  # of two: by these nothing is rounded
M, N = 4, 5


@dataclasses.dataclass(frozen=True)
class Block:
    """Two sides of a matrix with everything that a verdict depends on."""

    analytic: np.ndarray
    side: Side
    scales: np.ndarray
    still: np.ndarray

    def verdicts(self, matters=None):
        """Judge with the default tolerance; by what matters here, or elsewhere."""
        if matters is None:
            matters = sensitivity(self.side, self.scales)
        return judge(
            self.analytic,
            self.side,
            Units(self.scales, self.scales, matters, matters),
            Leniency(Tolerance(), 2.0**-52, still=self.still),
        ).verdicts


def block(seed):
    """Entries from right to far off, with bars from tiny to hopeless."""
    rng = np.random.default_rng(seed)
    numeric = rng.normal(size=(M, N)) * 10.0 ** rng.integers(-9, 3, (M, N))
    bars = np.abs(numeric) * 10.0 ** rng.integers(-14, 2, (M, N))
    off = rng.choice([0.0, 1e-8, 1e-6, 1e-4, 0.3, -2.0], (M, N))
    numeric[rng.random((M, N)) < 0.1] = 0.0
    analytic = numeric * (1 + off)
    analytic[rng.random((M, N)) < 0.05] = np.nan
    scales = 10.0 ** rng.integers(-2, 3, N)
    return Block(analytic, Side(numeric, bars), scales, np.full((M, 1), 1e-9))


def test_all_three_verdicts_come_up():
    """Otherwise the laws below would say little."""
    found = np.concatenate([block(seed).verdicts().ravel() for seed in range(20)])
    assert np.bincount(found, minlength=3).min() > 20


@given(SEEDS)
def test_order_of_rows_and_columns_is_nothing(seed):
    """A permuted matrix has the permuted verdicts."""
    one, rng = block(seed), np.random.default_rng(seed)
    rows, columns = rng.permutation(M), rng.permutation(N)
    at = np.ix_(rows, columns)
    other = Block(
        one.analytic[at],
        Side(one.side.value[at], one.side.error[at]),
        one.scales[columns],
        one.still[rows],
    )
    assert (other.verdicts() == one.verdicts()[at]).all()


@given(SEEDS)
def test_signs_are_nothing(seed):
    """Outputs and inputs that count the other way round have the same verdicts."""
    one, rng = block(seed), np.random.default_rng(seed)
    sign = rng.choice([-1.0, 1.0], (M, 1)) * rng.choice([-1.0, 1.0], N)
    other = Block(
        sign * one.analytic, Side(sign * one.side.value, one.side.error),
        one.scales, one.still,
    )  # fmt: skip
    assert (other.verdicts() == one.verdicts()).all()


@given(SEEDS, st.lists(POWERS, min_size=M, max_size=M))
def test_units_of_the_outputs_are_nothing(seed, powers):
    """Metres or miles, each row by itself; what counts as standing still goes along."""
    one, unit = block(seed), np.ldexp(1.0, powers)[:, None]
    other = Block(
        unit * one.analytic,
        Side(unit * one.side.value, unit * one.side.error),
        one.scales,
        unit * one.still,
    )
    assert (other.verdicts() == one.verdicts()).all()


@given(SEEDS, POWERS)
def test_units_of_the_inputs_are_nothing(seed, power):
    """The same point in other units, of all columns: slopes shrink as sizes grow."""
    one, unit = block(seed), 2.0**power
    other = Block(
        one.analytic / unit,
        Side(one.side.value / unit, one.side.error / unit),
        one.scales * unit,
        one.still,
    )
    assert (other.verdicts() == one.verdicts()).all()


@given(SEEDS)
def test_the_same_columns_twice_change_nothing(seed):
    """The number of entries never enters."""
    one = block(seed)
    twice = Block(
        np.tile(one.analytic, 2),
        Side(np.tile(one.side.value, 2), np.tile(one.side.error, 2)),
        np.tile(one.scales, 2),
        one.still,
    )
    assert (twice.verdicts() == np.tile(one.verdicts(), 2)).all()


@given(SEEDS, st.floats(1.0, 1e6))
def test_a_wider_bar_accuses_nobody(seed, factor):
    """Given what matters: what a narrower bar lets pass or leaves open, stays so."""
    one = block(seed)
    matters = sensitivity(one.side, one.scales)
    wide = Block(
        one.analytic, Side(one.side.value, factor * one.side.error),
        one.scales, one.still,
    )  # fmt: skip
    told = one.verdicts() == Verdict.DISAGREES
    again = wide.verdicts(matters) == Verdict.DISAGREES
    assert not (again & ~told).any()


@given(SEEDS)
def test_sides_that_are_equal_are_never_accused(seed):
    """Whatever the bars: a side agrees with itself, or nothing can be told."""
    one = block(seed)
    same = Block(one.side.value, one.side, one.scales, one.still)
    assert (same.verdicts() != Verdict.DISAGREES).all()


@pytest.mark.parametrize("where", [0, 1])
def test_an_error_in_one_row_is_told_in_this_row(where):
    """Rows know nothing of each other: the verdict stays where the error is."""
    numeric = np.array([[1.0, 2.0], [1e6, 2e6]])
    analytic = numeric.copy()
    analytic[where, 0] *= 1.01
    one = Block(analytic, Side(numeric, 1e-12 * numeric), np.ones(2), np.zeros((2, 1)))
    assert np.argwhere(one.verdicts() == Verdict.DISAGREES).tolist() == [[where, 0]]
