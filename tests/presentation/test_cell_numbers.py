"""Small matrices are written out in their figures, large ones are not."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from gradlab.presentation.plots import JacobianDisplay

MINUS = "\N{MINUS SIGN}"


def numbers(ax):
    """Return what is written into the cells of axes, row by row."""
    return [text.get_text().replace(MINUS, "-") for text in ax.texts]


class TestCellNumbers:
    """Colour is not the only carrier of a value."""

    def test_a_small_matrix_has_its_numbers_in_it(self, compare):
        """Three entries, twice what they should be: values, and a third as error."""
        numeric = np.array([[0.75, 3.0, -12.0]])
        axes = JacobianDisplay(compare("x", 2 * numeric, numeric)).plot().axes_

        assert numbers(axes["analytic"]) == ["1.5", "6.0", "-24.0"]
        assert numbers(axes["numeric"]) == ["0.8", "3.0", "-12.0"]
        assert numbers(axes["error"]) == ["0.33", "0.33", "0.33"]

    def test_errors_are_those_of_the_table(self, compare):
        """The number in a cell is the relative error that report.table gives."""
        block = compare("x", [[8.0, 1.0]], [[12.0, 1.0]])
        display = JacobianDisplay(block).plot()

        assert numbers(display.axes_["error"]) == ["0.2", "0"]
        assert block.max_rel_error == pytest.approx(0.2)

    def test_what_has_no_digits_is_named(self, compare):
        """NaN and infinities are words, on both sides."""
        analytic = [[np.nan, -np.inf, 0.25]]
        axes = JacobianDisplay(compare("x", analytic, [[0.5, -np.inf, 0.25]])).plot()

        assert numbers(axes.axes_["analytic"]) == ["NaN", "-inf", "0.250"]
        assert numbers(axes.axes_["error"])[:2] == ["NaN", "NaN"]

    def test_an_infinite_error_is_not_called_nan(self, compare):
        """inf against a number is coloured as inf, and said to be; inf / inf is not."""
        analytic, numeric = [[np.inf, -np.inf, np.nan]], [[0.5, 0.5, 0.5]]
        axes = JacobianDisplay(compare("x", analytic, numeric)).plot()

        assert numbers(axes.axes_["error"]) == ["inf", "inf", "NaN"]

    def test_a_matrix_of_nothing_but_nan_says_so(self, compare):
        """A gradient of a wrong shape has no values; the figure does not hide it."""
        nan = np.full((1, 3), np.nan)
        axes = JacobianDisplay(compare("b", nan, np.ones((1, 3)))).plot().axes_

        assert numbers(axes["analytic"]) == ["NaN"] * 3

    @pytest.mark.parametrize("shape", [(1, 40), (17, 2), (200, 300)])
    def test_many_cells_have_none(self, compare, rng, shape):
        """All or none: numbers in some cells would look like a message."""
        numeric = rng.normal(size=shape)
        axes = JacobianDisplay(compare("x", numeric, numeric)).plot().axes_

        assert [numbers(ax) for ax in axes.values()] == [[], [], []]

    def test_small_axes_of_ones_own_have_none(self, compare):
        """Axes of an inch hold no twelve numbers."""
        ax = Figure(figsize=(1, 1)).subplots()
        JacobianDisplay(compare("x", np.ones((3, 4)), np.ones((3, 4)))).plot(ax=ax)

        assert numbers(ax) == []

    def test_numbers_stand_out_from_their_cells(self, compare):
        """White on the dark end of the scale, black on its pale middle."""
        axes = JacobianDisplay(compare("x", [[9.0, 0.1]], [[9.0, 0.1]])).plot().axes_
        strong, pale = (text.get_color() for text in axes["analytic"].texts)

        assert (strong, pale) == ("w", "#111111")

    def test_sizes_of_complex_entries_have_a_scale_from_zero(self, compare):
        """No size is negative, so that the scale has no negative half."""
        display = JacobianDisplay(compare("z", [[2 + 4j]], [[2 - 4j]])).plot()
        bar = display.colorbars_["values"]

        assert [t.get_text() for t in bar.ax.get_xticklabels()] == ["0", "4.47"]
        assert bar.ax.get_xlim()[0] == 0
        assert numbers(display.axes_["error"]) == []  # of sizes nobody could tell it
