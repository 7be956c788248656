"""Findings that say the same: what is put together, and what must stand alone."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.diagnosis.alike import alike
from gradlab.presentation.packing_results import pack_findings
from gradlab.presentation.text import failure_text, report_text

FACTOR = "analytic = 2 x numeric {}."
LINE = (
    "Search the backward for the factor 2 in the line that computes the gradient of {}."
)


def finding(where, evidence, advice="Look.", kind="scale"):
    """An error at a place."""
    return gl.Finding(kind, "error", where, 0.9, evidence, advice)


def many(names, sizes):
    """A sum of squares whose gradients are all twice too large."""
    rng = np.random.default_rng(3)
    params = {n: rng.normal(size=k) for n, k in zip(names, sizes, strict=True)}

    def loss_and_grads(p):
        return sum((v**2).sum() for v in p.values()), {k: 4 * v for k, v in p.items()}

    return gl.check(loss_and_grads, params)


class TestAlike:
    """Which sentences are one."""

    def test_names_and_counts_of_all_entries_may_differ(self):
        """A weight and its bias, doubled: one sentence that is true of both."""
        pair = [
            finding("W", FACTOR.format("in all 40 entries"), LINE.format("W")),
            finding("b", FACTOR.format("in both entries"), LINE.format("b")),
        ]
        [told] = alike(pair)

        assert told.places == ("W", "b")
        assert told.evidence == FACTOR.format("in all entries")
        assert told.advice == LINE.format("each")

    def test_one_alone_keeps_its_words(self):
        """Nothing is generalised where there is nothing to put together."""
        alone = finding("W", FACTOR.format("in all 40 entries"), LINE.format("W"))

        assert alike([alone]) == [alone]

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("analytic = 2 x numeric.", "analytic = 3 x numeric."),
            ("wrong in 3 of 40 entries.", "wrong in 4 of 40 entries."),
            ("wrong in row 1 of W (4 of 8 entries).", "wrong in row 1 of b (2 of 8)."),
            (
                "the error sits in an entry of W[2].",
                "the error sits in an entry of b[2].",
            ),
            (
                "the gradient of W.weight is right.",
                "the gradient of b.weight is right.",
            ),
        ],
    )
    def test_other_measurements_are_told_apart(self, one, other):
        """Another factor, count or place is another finding."""
        assert len(alike([finding("W", one), finding("b", other)])) == 2

    def test_an_input_called_x_is_not_the_sign_between_factors(self):
        """An input may be called x: "2 x numeric" keeps that letter."""
        said = FACTOR.format("in all 3 entries")
        [told] = alike([finding("x", said), finding("w", said)])

        assert told.evidence == said
        assert told.places == ("x", "w")

    def test_another_kind_or_severity_is_another_finding(self):
        """The words alone do not make two findings one."""
        same = [finding("W", "so.", kind=kind) for kind in ("scale", "sign")]

        assert len(alike(same)) == 2

    def test_the_first_of_each_keeps_its_rank(self):
        """What is worst stays first."""
        told = alike([finding("a", "so."), finding("b", "no."), finding("c", "so.")])

        assert [each.places for each in told] == [("a", "c"), ("b",)]


class TestTold:
    """Where they are told."""

    def test_a_factor_in_seven_gradients_is_one_paragraph(self):
        """Report, text, page and exception say it once, and count the places."""
        names = [f"layer{i}.weight" for i in range(7)]
        report = many(names, range(4, 11))
        (told,) = report.findings
        assert told.where == "layer6.weight"
        assert set(told.places) == set(names) == set(report.culprits)
        text = report_text(report)
        packed = pack_findings(report.findings)

        assert text.count("analytic = 2 x numeric in all entries.") == 1
        assert "and 3 more: scale (error)" in " ".join(text.split())
        assert "the gradient of each." in " ".join(text.split())
        assert [len(each["places"]) for each in packed] == [7]
        assert "likely cause  scale in layer6.weight and 6 more" in failure_text(report)

    def test_how_it_was_measured_names_a_few(self):
        """Thirty inputs that were measured again are not all listed."""
        report = many([f"layer{i}.weight" for i in range(30)], [4] * 30)
        foot = next(remark for remark in report.remarks if "all at once" in remark)

        assert "and 24 more" in foot
        assert "remark" not in failure_text(report)
