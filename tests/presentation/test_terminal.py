"""What a terminal gets: lines that fit, columns that align, no codes, no exception."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import types

import builders
import numpy as np
import pytest

import gradlab as gl
from gradlab.presentation.layer_text import audit_table, audit_text
from gradlab.presentation.screens import terminal
from gradlab.presentation.sweep_text import sweep_text
from gradlab.presentation.text import failure_text, report_text
from gradlab.presentation.words import across, number, wrapped


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

    @pytest.mark.parametrize("width", [60, 80, 120, None])
    def test_names_longer_than_a_line_are_broken_at_their_dots(self, width):
        """Nothing runs past the terminal; what fits, or stands in a file, is whole."""
        name = (
            "encoder.layers.11.self_attention.output_projection.dense_to_hidden.weight"
        )
        name = name.replace("encoder", "encoder_of_the_classifier")
        grads = lambda p: (float((p[name] ** 2).sum()), {name: 3 * p[name]})
        report = gl.check(grads, {name: np.array([1.0, 2, 3])})
        for text in (
            report_text(report, width=width),
            sweep_text(report.sweep(), width),
        ):
            assert max(map(len, text.splitlines())) <= (width or 200)
        text = report_text(report, width=width)
        assert (name in text) == (width in {120, None})
        # broken lines begin with what follows a dot, and nothing is lost
        assert name in "".join(text.split())
        if width in {60, 80}:
            assert re.search(r"\.\n {2,4}\w", text)

    @pytest.mark.parametrize("width", [60, 80])
    def test_rows_that_agree_take_one_line_beside_a_wrong_one(self, tutorial, width):
        """In a narrow terminal only what is wrong has its numbers on a second line."""
        text = report_text(tutorial, width=width)

        assert "W1[" in text
        assert all(f"{name}[" not in text for name in ("b1", "W2", "b2"))

    @pytest.mark.parametrize("width", [60, 80])
    def test_where_all_agree_the_worst_shows_its_numbers(
        self, report_of, compare, width
    ):
        """A report without a mistake still says how close the two sides are."""
        blocks = [compare(name * 20, [[1.0]], [[1.0]]) for name in "ab"]
        text = report_text(report_of(*blocks), width=width)

        assert text.count("analytic 1, numeric 1") == 1

    @pytest.mark.parametrize("width", [None, 60, 80])
    @pytest.mark.parametrize(
        ("grad", "kind"),
        [
            (lambda x: x[:2], "wrong_shape"),
            (lambda x: np.outer(np.ones(4), x), "broadcast_reduction"),
        ],
    )
    def test_a_gradient_of_another_shape_is_none_and_not_nan(self, width, grad, kind):
        """Nothing was there to compare: nan in the table would say it was returned."""
        report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=grad)
        text = report_text(report, width=width)

        assert report.diagnosis == kind
        assert "nan" not in text
        assert "none" in text
        assert "nan" not in failure_text(report)

    def test_noise_has_no_relative_error(self, report_of, compare):
        """2 beside 4 that may be anything: no error stands out of it, and none is 0."""
        blurred = compare("x", [[2.0]], [[4.0]], bar=np.inf)
        text = report_text(report_of(blurred))

        assert re.search(r"undecided +- +x\[0\]", text)

    @pytest.mark.parametrize("width", [None, 80])
    def test_a_gradient_that_is_nan_is_told_as_such(self, width):
        """Also where it is nan in every entry."""
        report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x * np.nan)

        assert " nan" in report_text(report, width=width).splitlines()[4]

    @pytest.mark.parametrize("width", [60, 80])
    def test_sweeps_and_audits_fit_as_well(self, width):
        """Long names are cut, and no line is longer than the terminal."""
        name = "encoder.layers.0.self_attention.projection_of_queries"
        sweep = gl.sweep(
            lambda p: ((p[name] ** 2).sum(), {name: p[name]}), {name: np.ones(3)}
        )
        assert max(map(across, sweep_text(sweep, width).splitlines())) <= width

        torch = pytest.importorskip("torch")
        net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
        audit = gl.blame(net, torch.ones(1, 2))
        assert max(map(across, audit_text(audit, width).splitlines())) <= width

    def test_layers_with_long_names_fit_a_line(self):
        """Names and types lose their middle, and no two become one; numbers stay."""
        stem = "transformer_encoder_layers.{}.position_wise_feed_forward_activation"
        names = [stem.format(k) for k in range(12)]
        kind = "ScaledActivationWithAVeryLongClassName"
        rows = [
            builders.layer(name, kind, "wrong" if k % 2 else "right", 1e-3 / (k + 1), 2)
            for k, name in enumerate(names)
        ]
        audit = builders.audit_of(rows)
        for width in (None, 80, 100, 200):
            table = audit_table(audit, width)
            cells = [line.split() for line in table[1:]]

            assert max(map(across, table)) <= (width or 80)
            assert len({cell[1] for cell in cells}) == len(names)
            assert [cell[-1] for cell in cells] == [
                f"{1e-3 / (k + 1):.1e}" for k in range(12)
            ]
        assert kind[:30] not in audit_table(audit, 80)[1]
        assert len(audit_table(audit, 200)[1].split()[1]) == 60

    @pytest.mark.parametrize("width", [56, 60, 70])
    def test_layers_fit_a_narrow_terminal_without_their_types(self, width):
        """A row that is broken is none; verdicts and numbers are kept."""
        stem = "{}.activation_function_of_the_block"
        rows = [
            builders.layer(stem.format(k), "Sequential", state, 1e-3)
            for k, state in enumerate(["right"] * 12 + ["wrong", "contaminated"])
        ]
        table = audit_table(builders.audit_of(rows), width)

        assert max(map(across, table)) <= width
        assert "12 layers right" in table[1]
        assert [line.split()[-2:] for line in table[2:]] == [
            ["itself", "1.0e-03"],
            ["contaminated", "1.0e-03"],
        ]

    @pytest.mark.parametrize("width", [60, 80])
    def test_entries_of_long_names_leave_the_name_to_their_row(
        self, report_of, compare, width
    ):
        """Shortened in the middle, those of all layers would read the same."""
        stem = "model.encoder.layers.{}.self_attention.parametrizations.weight"
        blocks = [compare(stem.format(k), [[2.0]], [[1.0]]) for k in range(2)]
        text = report_text(report_of(*blocks), width=width)

        assert "model.encoder.layer…" not in text.partition("\n\n")[2]
        assert text.count("…[0]: analytic 2, numeric 1") == 2

    def test_short_names_are_left_as_they_are(self):
        """Where all fits there is nothing to shorten."""
        table = "\n".join(audit_table(builders.audit(3), 80))

        assert "blocks.1.act" in table
        assert "CrossEntropyLoss" in table

    @pytest.mark.parametrize("width", [70, 80])
    def test_long_shapes_fit_a_terminal(self, width):
        """Names are shortened by what the shapes are longer; numbers are below them."""
        name = "encoder.layers.0.self_attention.projection_of_queries.weight"
        x = {name: np.full((2, 1, 1, 1, 3, 1, 1), 1e8 + 1 / 3)}
        report = gl.check(lambda p: ((p[name] ** 2).sum(), {name: 2.1 * p[name]}), x)
        lines = report_text(report, width=width).splitlines()
        row = next(line for line in lines if "2 x 1 x 1 x 1 x 3 x 1 x 1" in line)

        assert across(row) <= width
        assert row.endswith("e-02")

    @pytest.mark.parametrize("width", [None, 60, 80])
    def test_readings_of_long_names_fit_a_line(self, width):
        """The name of the entry stands in front of them already."""
        name = "transformer_encoder_layers.0.multi_head_self_attention_projection.w"
        sweep = gl.sweep(
            lambda p: ((p[name] ** 3).sum(), {name: p[name]}),
            {name: np.array([1.0, 2.0])},
        )
        lines = sweep_text(sweep, width).splitlines()

        assert max(map(across, lines[1:])) <= (width or 80)
        assert "…[" in " ".join(lines)

    def test_names_that_differ_in_the_middle_stay_apart(self, report_of, compare):
        """A list of adapters of one block: the letters cut out are not those it takes.

        The headline says in full which of them is wrong.
        """
        stem = "model.decoder.layers.11.self_attention.{}_projection.adapter.weight"
        names = [stem.format(which) for which in ("query", "key", "value")]
        blocks = [compare(n, [[1.0 + (n == names[1])]], [[1.0]]) for n in names]
        report = report_of(*blocks, culprits=(names[1],))
        lines = report_text(report).splitlines()
        rows = [line for line in lines if line.startswith(("✗  ", "✓  "))]

        assert names[1] in lines[0]
        assert len({row.split()[1] for row in rows}) == 3
        assert "key_projection" in rows[0]

    def test_a_long_headline_is_broken_and_painted_as_a_whole(self, report_of, compare):
        """Where the terminal is narrower than the headline it goes on, indented."""
        names = [f"blocks.{i}.attention.weight" for i in range(4)]
        blocks = [compare(name, [[2.0]], [[1.0]]) for name in names]
        report = report_of(*blocks, culprits=tuple(names))
        plain = report_text(report, width=50).splitlines()
        painted = report_text(report, width=50, colour=True).splitlines()

        assert max(map(len, plain[:2])) <= 50
        assert plain[1].startswith("  ")
        assert painted[:2] == [f"\x1b[31;1m{line}\x1b[0m" for line in plain[:2]]

    @pytest.mark.parametrize("width", range(30, 60))
    def test_no_line_breaks_in_an_index_or_an_error_bar(self, width):
        """`out[1, 1]`, a number with its side and a bar with its sign stay whole."""
        words = "wrong (out[1, 1] / x[1, 0]: analytic 1.101, numeric 0.03 ± 2e-12, 9 s)"
        lines = wrapped(words, "  ", width=width)

        assert " ".join(line.strip() for line in lines) == words
        for whole in (
            "out[1, 1]",
            "x[1, 0]",
            "analytic 1.101",
            "numeric 0.03",
            "± 2e",
            "9 s",
        ):
            assert any(whole in line for line in lines)

    def test_lines_of_wide_letters_fit_as_well(self):
        """Chinese letters take two columns, which counts where lines are broken."""
        lines = wrapped("权重 " * 40, "  ", width=60)

        assert max(map(across, lines)) <= 60

    def test_a_wide_terminal_gets_the_table(self, tutorial):
        """Where the table fits it is the same as in a file."""
        assert report_text(tutorial, width=200) == report_text(tutorial)

    def test_long_names_are_shortened_before_rows_are_wide(self, report_of, compare):
        """One line for a row, no number cut, and no name that is another's."""
        names = [f"encoder.layers.{k}.self_attention.weight" for k in (1, 12)]
        blocks = [compare(name, [[1.0, 2.0]], [[1.0, 2.5]]) for name in names]
        text = report_text(report_of(*blocks), width=100)
        rows = [line for line in text.splitlines() if "…[1]" in line]

        assert max(map(across, rows)) <= 100
        assert all(" 2.5  ±" in row for row in rows)
        assert len({row.split()[1] for row in rows}) == 2

    def test_numbers_are_kept_where_the_row_does_not_fit(self, report_of, compare):
        """In a file, where a row is a line; names are not shortened in vain then."""
        name, value = "layers.attention.weight", 0.12345678901234
        block = compare(name, [[value]], [[value + 3e-13]], shape=(1,))
        text = report_text(report_of(block))
        (row,) = [line for line in text.splitlines() if f"{value:.12f}" in line]

        assert row.split()[1] == name
        assert f"{name}[0]" in row

    def test_a_notebook_is_as_wide_as_beside_its_sidebar(self, monkeypatch, capsys):
        """Nobody tells a kernel how wide its window is, which breaks lines anywhere."""
        shell = types.SimpleNamespace(kernel=object())
        monkeypatch.setattr("IPython.get_ipython", lambda: shell)
        point = {f"blocks.{k}.weight": 1e-4 * np.ones(3) for k in range(3)}
        f = lambda p: (sum((w**2).sum() for w in p.values()), {k: 2 * p[k] for k in p})
        print(gl.check(f, point))

        assert terminal() == (80, False)
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 80

    def test_columns_that_are_asked_for_hold_for_a_file(self, tutorial, monkeypatch):
        """COLUMNS is what a script can say where there is no terminal."""
        monkeypatch.setenv("COLUMNS", "60")
        assert str(tutorial) == report_text(tutorial, width=60)
        monkeypatch.setenv("COLUMNS", "many")
        assert str(tutorial) == report_text(tutorial)

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
        # an error bar is one in any encoding: cp1252 has its sign, ASCII writes it out
        assert {"ascii": " +- 1", "cp1252": " ± 1"}.get(encoding, " ± 1") in text

    def test_no_escape_codes_unless_asked(self, tutorial):
        """Plain by default; with colour the first line is painted."""
        assert "\x1b" not in report_text(tutorial)
        assert report_text(tutorial, colour=True).startswith("\x1b[31;1m✗")

    def test_names_cannot_smuggle_control_codes(self, report_of, compare):
        """A parameter called by an escape sequence is shown without it."""
        text = report_text(report_of(compare("\x1b[2Jevil\n", [[1.0]], [[2.0]])))

        assert "\x1b" not in text


class TestSentences:
    """What a reader stumbles over."""

    def test_the_mark_of_a_finding_stands_before_its_name(self):
        """A name that is longer than the line does not leave it alone."""
        name = "encoder." + "self_attention." * 8 + "weight"
        x = {name: np.ones(3)}
        report = gl.check(lambda p: ((p[name] ** 2).sum(), {name: p[name]}), x)

        for width in (None, 60):
            lines = report_text(report, width=width).splitlines()
            assert not any(line.strip() == "✗" for line in lines)

    def test_a_relative_error_that_tells_nothing_is_left_out(self):
        """At a kink 0 is right where the numeric side, 0.5, is the mean of 0 and 1."""
        x = np.array([0.0, 1.0])
        report = gl.check(
            lambda x: np.maximum(x, 0), x, jac=lambda x: np.diag([0.0, 1.0])
        )
        row = report_text(report).splitlines()[4].split()

        assert row[:5] == ["✓", "x", "2", "agrees", "-"]
        assert row[8:10] == ["0", "0.5"]


def test_long_sentences_are_wrapped_beside_what_they_are(tutorial):
    """No line is longer than a terminal; the rest hangs below its beginning."""
    first = dataclasses.replace(tutorial.findings[0], evidence="measured " * 30)
    report = dataclasses.replace(tutorial, findings=(first,))
    lines = failure_text(report).splitlines()
    place = next(i for i, line in enumerate(lines) if "evidence" in line)

    assert max(map(len, lines[place:])) <= 79
    assert lines[place].startswith("  evidence      measured")
    assert lines[place + 1].startswith(" " * 16 + "measured")
