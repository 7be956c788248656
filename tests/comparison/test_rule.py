"""The rule of the verdict, on numbers made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.comparison.effects import sensitivity, typical_effect
from gradlab.comparison.relative_errors import relative_error
from gradlab.comparison.rule import (
    Leniency,
    Side,
    Units,
    judge,
    tops_of,
    unresolved,
    zeros_told,
)
from gradlab.comparison.tolerance import Tolerance, stillness, stillness_in_noise
from gradlab.comparison.verdict import Verdict
from gradlab.errors import InputError

INF, NAN = np.inf, np.nan


def verdict_of(analytic, numeric, error, **options):
    """Verdict of one entry in a row whose other entry is 1."""
    side = Side(np.array([[numeric, 1.0]]), np.array([[error, 1e-12]]))
    settings = {
        "units": Units(np.ones(2), np.ones(2), np.ones((1, 1)), np.ones((1, 1))),
        "leniency": Leniency(
            **{"tolerance": Tolerance(), "epsilon": 2.2e-16} | options
        ),
    }
    return Verdict(
        int(judge(np.array([[analytic, 1.0]]), side, **settings).verdicts[0, 0])
    )


@pytest.mark.parametrize(
    ("analytic", "numeric", "error", "expected"),
    [
        (2.0, 2.0, 1e-11, Verdict.AGREES),
        (2.0, 2.0 + 1e-6, 1e-11, Verdict.AGREES),  # within rtol
        (2.0, 2.0 + 1e-5, 1e-11, Verdict.DISAGREES),
        (2.0, 2.0 + 1e-5, 1e-5, Verdict.AGREES),  # within the error bar
        (2.0, 2.0 + 5e-5, 2e-5, Verdict.AGREES),  # beside a bar that is fine
        (2.0, 2.01, 4e-3, Verdict.UNDECIDED),  # a bar that is not, and not within it
        (2.0, 2.007, 4e-3, Verdict.AGREES),
        (2.0, 1.0, 10.0, Verdict.UNDECIDED),  # nothing can be told
        (2.0, 2.0, 10.0, Verdict.UNDECIDED),  # luck is not agreement
        (1e-7, -1e-7, 1e-12, Verdict.DISAGREES),  # small entries count
        (1e-13, 3e-13, 1e-12, Verdict.AGREES),  # nothing beside an entry of 1
        (NAN, NAN, NAN, Verdict.UNDECIDED),
        (NAN, 1.0, 1e-12, Verdict.DISAGREES),
        (1.0, NAN, NAN, Verdict.DISAGREES),
        (INF, INF, NAN, Verdict.UNDECIDED),
        (INF, -INF, NAN, Verdict.DISAGREES),
        (INF, 1.0, 1e-12, Verdict.DISAGREES),
        (0.0, 0.0, 0.0, Verdict.AGREES),
    ],
)
def test_rule(analytic, numeric, error, expected):
    """DESIGN section 4, one line for each of its clauses."""
    assert verdict_of(analytic, numeric, error) == expected


def test_number_of_entries_never_matters(rng):
    """One wrong entry among a million is as wrong as one among two."""
    numeric = rng.normal(size=(1, 1_000_000))
    analytic = numeric.copy()
    analytic[0, 321] *= 1.001
    side = Side(numeric, np.full(numeric.shape, 1e-11))

    ones = np.ones(numeric.shape[1])
    units = Units(ones, ones, np.ones((1, 1)), np.ones((1, 1)))
    verdicts = judge(analytic, side, units, Leniency(Tolerance(), 2.2e-16)).verdicts

    assert np.flatnonzero(verdicts).tolist() == [321]


def test_scale_of_the_loss_never_matters():
    """The same case times 1e-12 or 1e12 has the same verdicts."""
    for factor in (1e-12, 1.0, 1e12):
        top = np.full((1, 1), factor)
        units = Units(np.ones(2), np.ones(2), top, top)
        side = Side(factor * np.array([[1.0, 2.0]]), factor * np.full((1, 2), 1e-11))
        found = judge(
            factor * np.array([[1.0, 2.001]]), side, units,
            Leniency(Tolerance(), 2.2e-16, still=1e-8 * factor),
        )  # fmt: skip
        assert found.verdicts.tolist() == [[0, 2]]


def test_units_of_the_inputs_never_matter():
    """A slope per metre, off by its round-off, is judged as one per micrometre is."""
    for factor in (1e-6, 1.0, 1e6):
        sizes = np.array([1.0, factor])
        units = Units(sizes, sizes, np.ones((1, 1)), np.ones((1, 1)))
        side = Side(np.array([[1.0, 1e-9 / factor]]), np.zeros((1, 2)))
        for slip, verdict in ((1e-13, Verdict.AGREES), (1e-10, Verdict.DISAGREES)):
            analytic = side.value + np.array([[0.0, slip / factor]])
            found = judge(
                analytic, side, units, Leniency(Tolerance(atol=0), 2.2e-16, still=1e-8)
            )
            assert found.verdicts.tolist() == [[0, verdict]]


def test_user_tolerance_is_kept():
    """rtol and atol of the user replace the defaults."""
    assert verdict_of(2.0, 2.1, 1e-12, tolerance=Tolerance(rtol=0.1)) == 0
    assert verdict_of(2.0, 2.1, 1e-12, tolerance=Tolerance(atol=0.2)) == 0
    assert verdict_of(2.0, 2.1, 1e-12, tolerance=Tolerance(atol=0.01)) == 2


def test_sensitivity_counts_only_what_stands_out():
    """An entry within its error bar does not set the scale of others."""
    side = Side(np.array([[5.0, 1.0]]), np.array([[2.0, 1e-9]]))
    assert sensitivity(side, np.array([1.0, 3.0])).tolist() == [[3.0]]


@pytest.mark.parametrize(("height", "expected"), [(1e9, 6e6), (10.0, 10.0), (0.1, 2.0)])
def test_a_small_coordinate_counts_with_f_at_most(height, expected):
    """By its scale it moves f by 6e6: that is believed if f is as large."""
    side = Side(np.array([[6.0, 2.0]]), np.full((1, 2), 1e-9))
    found = typical_effect(
        side, np.array([1e6, 1.0]), np.array([1e-6, 1.0]), np.array([[height]])
    )
    assert found.tolist() == [[expected]]


def test_unresolved_measures_a_block_by_itself():
    """A block of influence 1e-9 with a bar as large is looked at again."""
    side = Side(np.array([[1e-9, 0.0]]), np.full((1, 2), 1e-9))
    own = sensitivity(side, np.ones(2))
    assert unresolved(side, np.zeros((1, 2)), np.ones(2), 1e-12, own).all()


def test_unresolved_leaves_alone_what_is_told():
    """A narrow bar is enough; a value or gradient that is no number is not."""
    side = Side(np.array([[1.0, 1.0, NAN]]), np.full((1, 3), 1e-12))
    analytic = np.array([[1.0, NAN, 1.0]])
    own = sensitivity(side, np.ones(3))
    found = unresolved(side, analytic, np.ones(3), 1e-12, own)

    assert found.tolist() == [[False, True, True]]


@pytest.mark.parametrize(("f", "expected"), [(3e12, 1e-8), (1.0, 1e-8), (1e-6, 1e-14)])
def test_a_constant_excuses_nothing(f, expected):
    """What counts as no movement never grows with f."""
    assert stillness(np.array([f])) == pytest.approx(expected)


def test_movement_is_measured_by_each_output():
    """By the largest of all only where one is 0 itself."""
    still = stillness(np.array([0.5, 0.25, 0.0]))

    assert still.ravel() == pytest.approx([5e-9, 2.5e-9, 5e-9])


def test_what_is_only_rounding_goes_by_what_it_is_the_rounding_of():
    """A few units of the last digit of 0.25; a small number with digits stays small."""
    base, noise = np.array([2e-16, 1e-6]), np.array([0.25, 1e-8]) * 2**-52

    still = stillness_in_noise(base, noise, 2**-52, np.full((2, 1), 1e-10))
    beside = stillness_in_noise(base, noise, 2**-52, np.full((2, 1), 1e-3))

    assert still.ravel() == pytest.approx([2.5e-9, 1e-14])
    assert beside.ravel() == pytest.approx([1e-3, 1e-14])


@pytest.mark.parametrize(
    ("bar", "matters", "own", "told"),
    [
        (1e-9, 1.0, 1.0, True),
        (1e-6, 1e3, 1.0, False),  # would hide what matters to this input
        (1e-6, 1.0, 1e3, False),  # or to the others
        (1e-6, 1e3, 1e3, True),
        (1e-9, 0.0, 0.0, True),  # nothing moves f: by its stillness
        (1e-7, 0.0, 0.0, False),
    ],
)
def test_zeros_are_settled_where_their_bars_hide_nothing(bar, matters, own, told):
    """Five bars are below 1e-7 of both effects, or below what is no movement."""
    numbers = (bar, matters, own, 1e-8)
    bars, effect, here, still = (np.array([[size]]) for size in numbers)

    assert zeros_told(bars, (effect, here), still) is told


def test_relative_error_is_that_of_cs231n():
    """Doubled is 1/3, flipped is 1, equal is 0, zero against zero is 0."""
    analytic, numeric = np.array([2.0, -1.0, 3.0, 0.0]), np.array([1.0, 1.0, 3.0, 0.0])
    assert relative_error(analytic, numeric) == pytest.approx([1 / 3, 1, 0, 0])


@pytest.mark.parametrize("value", [-1e-9, NAN, "1e-6"])
def test_tolerance_refuses(value):
    """A tolerance is a number >= 0."""
    with pytest.raises((InputError, TypeError)):
        Tolerance(rtol=value)


def test_largest_entries_of_small_rows_are_small():
    """Entries below 1 have a largest below 1; what is no number does not count."""
    found = tops_of(np.array([[0.5, -0.25], [np.nan, 0.125]]), np.array([1.0, 8.0]))

    assert found.size.tolist() == [[0.5], [0.125]]
    assert found.effect.tolist() == [[2.0], [1.0]]


def test_largest_entries_of_halves_are_those_of_the_whole():
    """A matrix in two pieces is measured as one; nan and inf are left out."""
    values = np.array([[1e8, 2.0, -3.0, 4e-8], [NAN, -INF, 0.0, 5.0]])
    scales = np.array([1e-8, 1.0, 10.0, 1e8])
    first = tops_of(values[:, :2], scales[:2])

    both = tops_of(values[:, 2:], scales[2:], first)

    assert both.size.tolist() == [[1e8], [5.0]]
    assert both.effect.tolist() == [[30.0], [5e8]]
    assert both.in_units_of(scales)[1].tolist() == [5.0, 5.0, 5.0, 5.0]
    assert np.allclose(both.in_units_of(scales)[0], [1e8, 30.0, 3.0, 30e-8])


def test_equal_scales_measure_every_entry_alike():
    """One number for each row: the largest entry itself, whatever the scale is."""
    values, scales = np.array([[0.5, -2.0, 1.0]]), np.full(3, 4.0)
    assert tops_of(values, scales).in_units_of(scales).tolist() == [[2.0]]
