"""Texts for the terminal and for exceptions."""

from __future__ import annotations

import dataclasses

import builders
import numpy as np
import pytest

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.presentation.headline import headline
from gradlab.presentation.layer_text import audit_lines, audit_text, headline_of
from gradlab.presentation.packing_results import layers_state
from gradlab.presentation.text import failure_text, report_text
from gradlab.presentation.words import brief, number, one_line, pair, tabulate


class TestReportText:
    """The text of a whole report."""

    def test_verdict_stands_first(self, tutorial):
        """The first line carries glyph, word and the name of the culprit."""
        first = report_text(tutorial).splitlines()[0]

        assert first.startswith("✗ disagrees: W1 is wrong")
        assert "1 of 4 gradients disagrees" in first

    def test_worst_block_is_the_first_row(self, tutorial):
        """W1 leads the table, with its relative error of a third."""
        lines = report_text(tutorial).splitlines()
        head = next(i for i, line in enumerate(lines) if "worst entry" in line)

        assert lines[head + 1].split()[:2] == ["✗", "W1"]
        assert "3.3e-01" in lines[head + 1]

    def test_finding_gives_evidence_and_advice(self, tutorial):
        """What is wrong comes with its measurement and a next step."""
        text = report_text(tutorial)

        assert "analytic = 2.000 x numeric" in text
        assert "-> Look for a factor" in text

    def test_what_was_done_is_told(self, tutorial):
        """Coverage, evaluations, seconds and seed are all there."""
        last = report_text(tutorial).splitlines()[-1]

        assert "full coverage" in last
        assert "41 evaluations" in last
        assert "12 ms" in last
        assert "seed 0" in last

    def test_remarks_are_never_silent(self, tutorial):
        """Every remark of the report stands in the text."""
        report = dataclasses.replace(tutorial, remarks=("3 columns were escalated.",))

        assert "· 3 columns were escalated." in report_text(report)

    def test_a_note_that_asks_for_nothing_stands_at_the_foot(self, tutorial):
        """Of a float32 function compared in float64: behind all that matters."""
        said = "The function rounds."
        note = Finding(BugKind.LOW_PRECISION, "note", "", 0.9, said, "Nothing to do.")
        report = dataclasses.replace(tutorial, findings=(note, *tutorial.findings))

        lines = report_text(report).splitlines()

        assert lines[-1] == "  · The function rounds"
        assert not any("low_precision" in line for line in lines)

    def test_many_blocks_are_summed_up(self, report_of, compare):
        """Of sixty right blocks twelve are shown and the others counted."""
        report = report_of(*(compare(f"w{i}", [[1.0]], [[1.0]]) for i in range(60)))
        text = report_text(report)

        assert text.startswith("✓ agrees: all 60 gradients agree")
        assert "... 48 more agree" in text
        assert len(text.splitlines()) < 25

    def test_one_gradient_alone_is_named_not_counted(self, report_of, compare):
        """Nobody says "the only block": one gradient has a name, and no share."""
        right = report_of(compare("w", [[1.0]], [[1.0]]))
        wrong = report_of(compare("w", [[2.0]], [[1.0]]), culprits=("w",))

        assert headline(right) == "✓ agrees: the gradient of w"
        assert headline(wrong) == "✗ disagrees: w is wrong"

    def test_two_culprits_are_both_named(self, report_of, compare):
        """A second name says more than "1 more"; of three the others are counted."""
        blocks = [compare(name, [[2.0]], [[1.0]]) for name in "abc"]
        two = report_of(*blocks, culprits=("a", "b"))
        three = report_of(*blocks, culprits=("a", "b", "c"))

        assert headline(two).startswith("✗ disagrees: a and b are wrong (3 of 3 ")
        assert headline(three).startswith("✗ disagrees: a and 2 more are wrong (")

    def test_two_right_blocks_are_both(self, report_of, compare):
        """Nobody says "all two"."""
        report = report_of(*(compare(f"w{i}", [[1.0]], [[1.0]]) for i in range(2)))

        assert headline(report) == "✓ agrees: both gradients agree"

    def test_two_mistakes_in_one_place_are_both_told(self, tutorial):
        """Both have their evidence, wherever they stand in the list."""
        first = tutorial.findings[0]
        other = dataclasses.replace(
            first, kind=BugKind.ACCUMULATED_GRAD, evidence="a sum of 2 passes."
        )
        text = report_text(dataclasses.replace(tutorial, findings=(first, other)))

        assert "a sum of 2 passes" in text

    def test_long_names_keep_their_ends(self, report_of, compare):
        """Of a qualified name both ends tell; the index is never cut off."""
        name = "encoder." + 30 * "layers." + "attention.weight"
        text = report_text(report_of(compare(name, [[2.0]], [[1.0]], shape=(1, 1))))

        assert "…" in text
        assert "weight[0, 0]" in text

    def test_wrong_shape_does_not_accuse_the_values(self, tutorial, report_of, compare):
        """An error that no block shows: the first line says that the values agree."""
        right = compare("w", [[1.0]], [[1.0]])
        report = report_of(right, findings=tutorial.findings, culprits=("w",))

        assert "w is wrong (not its values: they agree)" in headline(report)

    def test_interrupted_report_says_so(self, report_of, compare):
        """A partial report is undecided at best, and the first line says why."""
        first = headline(report_of(compare("w", [[1.0]], [[1.0]]), partial=True))

        assert first.startswith("! undecided")
        assert "cut short" in first

    def test_nan_on_both_sides_is_undecided(self, report_of, compare):
        """A block of nan against nan is shown with both values and its verdict."""
        text = report_text(report_of(compare("w", [[np.nan]], [[np.nan]])))

        assert text.startswith("! undecided: the gradient of w\n")

    def test_empty_block_has_no_worst_entry(self, report_of, compare):
        """A parameter without entries agrees and is called empty."""
        block = compare("w", np.zeros((1, 0)), np.zeros((1, 0)), shape=(0, 3))

        assert "empty" in report_text(report_of(block))


class TestFailureText:
    """The message of an exception."""

    def test_at_most_ten_sentences(self, tutorial):
        """Whatever the report holds, the exception is read at a glance."""
        report = dataclasses.replace(tutorial, remarks=("one\n" * 9, "two\n" * 9))
        lines = failure_text(report).splitlines()

        assert sum(not line.startswith(" " * 3) for line in lines) <= 10

    def test_tells_the_whole_story(self, report_of, compare):
        """Entry, both values, error bar, allowance, cause and next step are there."""
        block = compare("W", [[1.0, -1.5]], [[1.0, -0.75]], bar=2e-11)
        text = failure_text(report_of(block))

        assert "W[1]" in text
        assert "-1.5\n" in text
        assert "-0.75 ± 2.0e-11" in text
        assert "0.75; allowed 1.5e-06" in text
        assert "analytic = 2 x numeric" in text
        assert "1 of 2 entries of W" in text
        assert "scale in W" in text
        assert "next step" in text

    def test_error_outside_the_blocks(self, tutorial, report_of, compare):
        """A finding that no block shows is still told, without an entry."""
        right = compare("w", [[1.0]], [[1.0]])
        report = report_of(right, findings=tutorial.findings, culprits=("act",))
        text = failure_text(report)

        assert "act is wrong" in text
        assert "worst entry" not in text
        assert "likely cause" in text

    def test_nan_on_one_side(self, report_of, compare):
        """A nan is named as such instead of a quotient with it."""
        text = failure_text(report_of(compare("w", [[np.nan]], [[1.0]])))

        assert "the analytic side is not a finite number" in text
        assert "x numeric;" not in text


class TestWords:
    """Numbers and columns as people write them."""

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (-0.0, "0"),
            (0.1, "0.1"),
            (1e-30, "1e-30"),
            (np.inf, "inf"),
            (3 - 2j, "3-2j"),
        ],
    )
    def test_number(self, value, expected):
        """Numbers are written in as few characters as they need."""
        assert number(value) == expected

    def test_pair_shows_the_difference(self):
        """Two different numbers never look alike."""
        left, right = pair(0.123456789, 0.123456788)

        assert left != right

    def test_pair_of_equals_is_short(self):
        """Equal numbers get the usual six digits."""
        assert pair(1 / 3, 1 / 3) == ("0.333333", "0.333333")

    def test_brief_zero(self):
        """No error at all is 0, not 0.0e+00."""
        assert brief(0.0) == "0"

    def test_one_line_cuts(self):
        """A long text ends in an ellipsis and keeps to its width."""
        assert one_line("x" * 50, 10) == "x" * 9 + "…"

    def test_tabulate_nothing(self):
        """A table without rows has no lines."""
        assert tabulate([]) == []


class TestAuditText:
    """The text of a layer audit."""

    def test_root_culprit_with_class_and_line(self):
        """The first line names the layer, its class, file and line."""
        act = builders.layer("act", "Swish", "wrong", 1e-3)
        rows = [builders.layer(f"blocks.{i}", "Linear", "right") for i in range(9)]
        rows += [dataclasses.replace(act, file="/home/me/model.py")]
        audit = builders.audit_of(rows, ["act"], ("a", "b"))
        lines = audit_text(audit).splitlines()

        assert lines[0].startswith("✗ act (Swish, model.py:31) is wrong itself")
        numbered = builders.audit_of([dataclasses.replace(act, name="3")], ["3"], ())
        assert headline_of(numbered).startswith("✗ layer 3 (Swish, model.py:31) is")
        assert "2 gradients upstream are only contaminated" in lines[0]
        assert lines[1].split() == ["layer", "type", "verdict", "own", "error"]
        assert "9 layers right" in lines[2]
        assert "wrong itself" in lines[3]
        last = " ".join(" ".join(lines[-2:]).split())
        assert last.startswith("12 evaluations, ")
        assert "3.0 times a forward and backward pass through its layers" in last

    def test_all_right(self):
        """Nothing wrong is said in words."""
        rows = [
            builders.layer("fc", "Linear", "right"),
            dataclasses.replace(
                builders.layer("drop", "Dropout", "unchecked", np.nan), idle=True
            ),
        ]
        text = audit_text(builders.audit_of(rows))

        assert text.startswith("✓ every layer that was checked is right by itself")
        assert "; 1 of 2 was not checked: returns a Python number (1)" in text

    def test_nothing_checked_is_undecided_everywhere(self):
        """Text, figure and page agree that an audit of nothing proves nothing."""
        rows = [builders.layer("drop", "Dropout", "unchecked", np.nan)]
        audit = builders.audit_of(rows)
        page = layers_state(audit)

        told = "no layer could be checked by itself: returns a Python number (1)"
        assert headline_of(audit) == f"! {told}"
        assert page["verdict"] == Verdict.UNDECIDED
        assert page["headline"] == told.replace("no", "No", 1)  # a sentence there

    @pytest.mark.parametrize("idle", [True, False])
    def test_a_tick_only_where_nothing_is_left_open(self, idle):
        """A layer that could be wrong is no tick; one without anything to check is."""
        rows = [
            builders.layer("fc", "Linear", "right"),
            dataclasses.replace(
                builders.layer("odd", "Odd", "unchecked", np.nan), idle=idle
            ),
        ]
        audit = builders.audit_of(rows)
        verdict = Verdict.AGREES if idle else Verdict.UNDECIDED

        assert headline_of(audit)[0] == verdict.glyph
        assert layers_state(audit)["verdict"] == verdict

    def test_why_layers_were_not_checked_is_counted(self):
        """The two most frequent reasons, up to their colon, and how many others."""
        reasons = ["noise: high", "noise: low", "a kink", "was not called", "noise"]
        row = builders.layer("odd", "Odd", "unchecked", np.nan)
        rows = [dataclasses.replace(row, reason=reason) for reason in reasons]
        rows.append(builders.layer("fc", "Linear", "right"))

        assert headline_of(builders.audit_of(rows)) == (
            "! every layer that was checked is right by itself; 5 of 6 could not be "
            "checked: noise (3); a kink (1); other reasons (1)"
        )

    def test_an_error_outside_of_all_layers_is_not_ticked(self):
        """A hook on an input: every layer is right, and the gradient is wrong."""
        hook = Finding("scale", "error", "input", 0.9, "A hook doubles it.", "Remove.")
        rows = [builders.layer("fc", "Linear", "right")]
        audit = builders.audit_of(rows, findings=(hook,))

        assert headline_of(audit) == (
            "✗ input: wrong, but every layer that was checked is right by itself"
        )
        assert layers_state(audit)["verdict"] == Verdict.DISAGREES

    def test_lines_fit_a_terminal(self):
        """Reasons are cut to 79 columns, findings and remarks are wrapped."""
        rows = [
            dataclasses.replace(row, reason="because of this " * 20, error=np.nan)
            for row in builders.audit(3).rows
        ]
        finding = dataclasses.replace(
            builders.audit(3).findings[0], evidence="so many words " * 20
        )
        audit = builders.audit_of(rows, findings=(finding,))

        assert max(map(len, audit_text(audit).splitlines()[1:])) <= 79
        assert "because" in audit_text(audit)

    def test_reasons_stand_where_there_is_no_number(self):
        """What the verdict and the error say already is not said a third time."""
        rows = [
            dataclasses.replace(row, reason=f"of {row.name}")
            for row in builders.audit(1).rows
        ]
        text = audit_text(builders.audit_of(rows))

        assert "of loss" in text  # not checked: no error
        assert "of stem" not in text

    def test_a_wide_table_has_no_empty_lines(self):
        """Where no reason has room beside a row, it stands below, if there is one."""
        rows = [
            dataclasses.replace(row, name="encoder." * 5 + row.name, type="Long" * 9)
            for row in builders.audit(1).rows
        ]
        rows[-1] = dataclasses.replace(rows[-1], reason="was not called")
        told = audit_lines(builders.audit_of(rows))

        assert all(line.strip() for line in told)
        assert told[-1].strip() == "was not called"

    def test_what_holds_a_wrong_layer_says_so(self):
        """All that stands around a wrong layer, but nothing beside it."""
        layers = [("net", 0), ("block", 1), ("act", 2), ("other", 1), ("loss", 0)]
        rows = [
            dataclasses.replace(
                builders.layer(name, "Any", "wrong" if name == "act" else "right", 0.1),
                depth=depth,
            )
            for name, depth in layers
        ]
        told = [line.split()[:5] for line in audit_lines(builders.audit_of(rows))[2:]]

        assert told[0] == ["↳", "net", "Any", "holds", "a"]
        assert told[1] == ["↳", "block", "Any", "holds", "a"]
        assert told[2] == ["✗", "act", "Any", "wrong", "itself"]
        assert [cells[3] for cells in told[3:]] == ["right", "right"]

    def test_contaminated_gradients_are_not_accused(self, report_of, compare):
        """With a guilty layer, the parameters upstream are not called wrong."""
        rows = [builders.layer("act", "Swish", "wrong", 1e-3)]
        report = report_of(
            compare("w", [[2.0]], [[1.0]]),
            compare("b", [[2.0]], [[1.0]]),
            culprits=("act", "w", "b"),
            layers=builders.audit_of(rows, ["act"], ("w", "b")),
        )
        text = report_text(report)

        assert text.splitlines()[0].startswith("✗ disagrees: act is wrong (2 of 2")
        assert "... 2 findings on contaminated gradients" in text
        # in its own row as well; how it is wrong, a finding says
        named = [line.split() for line in text.splitlines() if "act" in line.split()]
        assert [cells[:2] for cells in named[1:]] == [["✗", "act"]]

    def test_contaminated_rows_are_few(self, report_of, compare):
        """Behind a guilty layer four contaminated rows do; the rest are counted."""
        rows = [builders.layer("5", "Swish", "wrong", 1e-3)]
        spoiled = tuple(f"w{i}" for i in range(9))
        text = report_text(
            report_of(
                *(compare(name, [[2.0]], [[1.0]]) for name in spoiled),
                culprits=("5", *spoiled),
                layers=builders.audit_of(rows, ["5"], spoiled),
                findings=[Finding("sign", "error", "5", 1.0, "a = -n.", "Look.")],
            )
        )

        assert text.startswith("✗ disagrees: layer 5 is wrong")
        assert "✗ layer 5: sign (error)" in text
        assert "... 5 more disagree" in text
