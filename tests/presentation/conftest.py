"""Comparisons and reports made by hand from two matrices."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gradlab.comparison.comparison import Comparison
from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.report import Report
from gradlab.subject.subject import Variable


def _compare(
    name, analytic, numeric, *, shape=None, output="loss", output_shape=None, bar=1e-12
):
    """Judge two matrices (m, n) by rtol 1e-6 and the given absolute error bar."""
    analytic = np.atleast_2d(np.asarray(analytic))
    numeric = np.atleast_2d(np.asarray(numeric))
    m, n = analytic.shape
    with np.errstate(invalid="ignore"):
        size = np.maximum(np.abs(analytic), np.abs(numeric))
        allowed = 1e-6 * np.nan_to_num(size, nan=0.0, posinf=0.0)
        error = np.abs(analytic - numeric)
    bars = np.broadcast_to(np.asarray(bar, float), (m, n)).copy()
    verdicts = np.where(error > np.maximum(allowed, 5 * bars), 2, 0)
    verdicts[np.isnan(analytic) ^ np.isnan(numeric)] = Verdict.DISAGREES
    verdicts[np.isnan(analytic) & np.isnan(numeric)] = Verdict.UNDECIDED
    verdicts[(bars > 0.1 * size) & (size > 0)] = Verdict.UNDECIDED
    return Comparison(
        output=Variable(output, output_shape or (() if m == 1 else (m,))),
        input=Variable(name, shape or (n,)),
        analytic=analytic,
        numeric=numeric,
        numeric_error=bars,
        allowed=allowed,
        verdicts=verdicts.astype(np.int8),
        step=np.full((m, n), 6e-6),
    )


@pytest.fixture
def compare():
    """Return the judge: ``compare(name, analytic, numeric, shape=...)``."""
    return _compare


@pytest.fixture
def report_of():
    """Return a maker of reports from comparisons, with a finding per wrong block."""

    def make(*comparisons, **changes):
        wrong = [c for c in comparisons if c.verdict == Verdict.DISAGREES]
        findings = tuple(
            Finding(
                BugKind.SCALE,
                "error",
                c.input.name,
                0.9,
                "analytic = 2.000 x numeric in all entries.",
                "Look for a factor that is applied twice.",
            )
            for c in wrong
        )
        report = Report(
            subject="NumPy function",
            analytic="the gradients it returns",
            comparisons=comparisons,
            findings=findings,
            culprits=tuple(c.input.name for c in wrong),
            method="central",
            coverage="full",
            evaluations=41,
            seconds=0.0123,
            seed=0,
        )
        return dataclasses.replace(report, **changes)

    return make


@pytest.fixture
def tutorial(report_of, compare, rng):
    """A two-layer network of which W1 is doubled; the other three are right."""
    shapes = {"W1": (4, 10), "b1": (10,), "W2": (10, 3), "b2": (3,)}
    blocks = []
    for name, shape in shapes.items():
        numeric = rng.normal(size=(1, int(np.prod(shape))))
        factor = 2.0 if name == "W1" else 1.0 + 1e-10
        blocks.append(compare(name, factor * numeric, numeric, shape=shape))
    return report_of(*blocks)
