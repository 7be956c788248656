"""Tables hold the columns and values they promise, worst first."""

from __future__ import annotations

from types import SimpleNamespace

import builders
import numpy as np
import pytest

from gradlab.errors import InputError
from gradlab.presentation.tables import (
    blocks_table,
    entries_table,
    layers_table,
    sweep_table,
)

BLOCKS = [
    *("output", "input", "shape", "verdict", "max_abs_error", "max_rel_error"),
    *("worst_index", "analytic", "numeric", "numeric_error"),
    *("step", "method", "coverage"),
]
ENTRIES = [
    *("label", "output_index", "input_index", "analytic", "numeric"),
    *("numeric_error", "error", "relative_error", "verdict"),
]


class TestBlocksTable:
    """One row per block."""

    def test_columns(self, tutorial):
        """The columns are those of the design, in its order."""
        assert blocks_table(tutorial).columns.tolist() == BLOCKS

    def test_report_without_blocks_keeps_the_columns(self, report_of):
        """An empty table can still be selected from."""
        assert blocks_table(report_of()).columns.tolist() == BLOCKS

    def test_worst_first(self, tutorial):
        """The doubled W1 leads, by its verdict's name and an error of a third."""
        row = tutorial.table.iloc[0]

        assert row.input == "W1"
        assert row.verdict == "DISAGREES"
        assert row.max_rel_error == pytest.approx(1 / 3)
        assert row.shape[0] == len(BLOCKS)
        assert row["shape"] == (4, 10)

    def test_undecided_stands_before_agreeing(self, report_of, compare):
        """A nan that cannot be judged outranks any error that agrees."""
        report = report_of(
            compare("right", [[1.0 + 1e-8]], [[1.0]]),
            compare("open", [[np.nan]], [[np.nan]]),
        )

        assert report.table.verdict.tolist() == ["UNDECIDED", "AGREES"]

    def test_values_are_those_of_the_worst_entry(self, report_of, compare):
        """Index and values belong to the same entry."""
        block = compare("W", [[1.0, 5.0, 3.0, 4.0]], [[1, 2, 3, 4]], shape=(2, 2))
        row = report_of(block).table.iloc[0]

        assert row.worst_index == (0, 1)
        assert (row.analytic, row.numeric) == (5.0, 2.0)
        assert row.max_abs_error == 3.0

    def test_index_into_the_jacobian_for_many_outputs(self, report_of, compare):
        """With several output entries the output's index comes first."""
        analytic = np.zeros((3, 4))
        analytic[2, 3] = 1
        block = compare("W", analytic, np.zeros((3, 4)), shape=(2, 2))

        assert report_of(block).table.worst_index[0] == (2, 1, 1)

    def test_empty_block(self, report_of, compare):
        """A block without entries has no worst entry and agrees."""
        row = report_of(compare("W", np.zeros((1, 0)), np.zeros((1, 0)))).table.iloc[0]

        assert row.verdict == "AGREES"
        assert row.worst_index == ()
        assert np.isnan(row.analytic)


class TestEntriesTable:
    """One row per entry of a block."""

    def test_columns(self, tutorial):
        """The columns are those of the design, in its order."""
        assert entries_table(tutorial["W1"], 2).columns.tolist() == ENTRIES

    def test_no_rows(self, tutorial):
        """k = 0 gives an empty table with all columns."""
        table = entries_table(tutorial["W1"], 0)

        assert len(table) == 0
        assert table.columns.tolist() == ENTRIES

    def test_worst_first_with_index_tuples(self, compare):
        """Rows are ordered by how far the allowance is exceeded."""
        table = compare("W", [[1.0, 2.2, 6, 4]], [[1, 2, 3, 4]], shape=(2, 2)).worst(2)

        assert table.label.tolist() == ["W[1, 0]", "W[0, 1]"]
        assert table.input_index.tolist() == [(1, 0), (0, 1)]
        assert table.output_index.tolist() == [(), ()]
        assert table.verdict.tolist() == ["DISAGREES", "DISAGREES"]
        assert table.error[0] == 3.0

    def test_complex_values_are_kept(self, compare):
        """A complex entry stays complex, a real one in the same block is a float."""
        table = compare("z", [[1 + 1j, 2]], [[1 - 1j, 2]]).worst(2)

        assert table.analytic[0] == 1 + 1j
        assert table.error[0] == 2.0

    def test_negative_k(self, compare):
        """A negative number of rows is refused by its value."""
        with pytest.raises(InputError, match="-1"):
            compare("W", [[1.0]], [[1.0]]).worst(-1)


def test_layers_table_keeps_execution_order():
    """One row per layer as executed, the state as a plain word."""
    rows = [
        builders.layer("b", "Linear", "right"),
        builders.layer("a", "Linear", "wrong"),
    ]
    table = layers_table(builders.audit_of(rows, ["a"]))

    assert table.name.tolist() == ["b", "a"]
    assert table.state.tolist() == ["right", "wrong"]


def test_sweep_table_is_long():
    """One row per input, method and step."""
    sweep = SimpleNamespace(
        inputs=("x", "y"),
        methods=("central",),
        steps=np.array([1e-8, 1e-4]),
        errors={("central", n): np.array([1e-7, 1e-9]) for n in "xy"},
        bars={("central", n): np.array([1e-7, 1e-10]) for n in "xy"},
    )
    table = sweep_table(sweep)

    assert table.columns.tolist() == ["input", "method", "step", "error", "error_bar"]
    assert table.input.tolist() == ["x", "x", "y", "y"]
    assert table.step.tolist() == [1e-8, 1e-4, 1e-8, 1e-4]
