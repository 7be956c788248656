"""What a terminal gets: lines that fit, columns that align, no codes, no exception."""

from __future__ import annotations

import contextlib
import io

import pytest

from gradlab.presentation.text import report_text
from gradlab.presentation.words import across, number


class TestTerminal:
    """The text of a report where it is printed."""

    @pytest.mark.parametrize("width", [40, 60, 80])
    def test_a_narrow_terminal_gets_two_lines_for_a_row(self, tutorial, width):
        """No line is longer than the terminal, and no number is left out."""
        text = report_text(tutorial, width=width)
        flat = " ".join(text.split())
        (worst,) = tutorial["W1"].worst(1).itertuples()

        assert max(map(len, text.splitlines()[1:])) <= max(width, 45)
        assert f"analytic {number(worst.analytic)}" in flat
        assert f"numeric {number(worst.numeric)} ±" in flat

    def test_a_wide_terminal_gets_the_table(self, tutorial):
        """Where the table fits it is the same as in a file."""
        assert report_text(tutorial, width=200) == report_text(tutorial)

    def test_columns_stand_below_each_other_in_any_letters(self, report_of, compare):
        """Chinese letters take two columns of a terminal each."""
        names = ("权重", "w", "e\N{COMBINING ACUTE ACCENT}")
        blocks = [compare(name, [[1.0]], [[1.0]], shape=(7,)) for name in names]
        lines = report_text(report_of(*blocks)).splitlines()
        rows = [line for line in lines if "  7 " in line]

        assert len(rows) == 3
        assert len({across(row[: row.index("  7 ")]) for row in rows}) == 1

    @pytest.mark.parametrize(
        ("encoding", "first"),
        [("utf-8", "✗ disagrees"), ("cp1252", "X disagrees"), ("ascii", "X disagrees")],
    )
    def test_printing_never_raises(self, report_of, compare, encoding, first):
        """Output into a file on Windows is cp1252, which has no tick and no cross."""
        report = report_of(compare("权重", [[2.0]], [[1.0]]), culprits=("权重",))
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)

        with contextlib.redirect_stdout(stream):
            print(report)
        stream.flush()
        text = stream.buffer.getvalue().decode(encoding)

        assert text.startswith(first)
        assert ("权重" in text) is (encoding == "utf-8")

    def test_no_escape_codes_unless_asked(self, tutorial):
        """Plain by default; with colour the first line is painted."""
        assert "\x1b" not in report_text(tutorial)
        assert report_text(tutorial, colour=True).startswith("\x1b[31;1m✗")

    def test_names_cannot_smuggle_control_codes(self, report_of, compare):
        """A parameter called by an escape sequence is shown without it."""
        text = report_text(report_of(compare("\x1b[2Jevil\n", [[1.0]], [[2.0]])))

        assert "\x1b" not in text
