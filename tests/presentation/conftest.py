"""Comparisons and reports made by hand from two matrices."""

from __future__ import annotations

import dataclasses
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "page"))

import builders

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding


@pytest.fixture
def compare():
    """Return the judge: ``compare(name, analytic, numeric, shape=...)``."""

    def judge(
        name,
        analytic,
        numeric,
        *,
        shape=None,
        output="loss",
        output_shape=None,
        bar=1e-12,
    ):
        rows = len(np.atleast_2d(analytic))
        wide = () if rows == 1 else (rows,)
        out = (output, output_shape or wide)
        return builders.comparison(analytic, numeric, name, shape, out, bar, floor=0)

    return judge


@pytest.fixture
def report_of():
    """Return a maker of reports from comparisons, with a finding per wrong block."""

    def make(*comparisons, **changes):
        findings = [
            Finding(
                BugKind.SCALE,
                "error",
                c.input.name,
                0.9,
                "analytic = 2.000 x numeric in all entries.",
                "Look for a factor that is applied twice.",
            )
            for c in comparisons
            if c.verdict == Verdict.DISAGREES
        ]
        return builders.report(*comparisons, **{"findings": findings, **changes})

    return make


@pytest.fixture
def tutorial(rng):
    """A two-layer network of which W1 is doubled; the other three are right."""
    return dataclasses.replace(builders.tutorial(rng), evaluations=41, seconds=0.0123)
