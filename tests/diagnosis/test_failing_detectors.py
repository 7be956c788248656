"""A detector that fails: told to users, never swallowed here."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.diagnosis import detectors, diagnose


def failing(case):
    """Fail as a detector with a slip would."""
    raise IndexError(f"no {case.name}")


@pytest.fixture
def _with_failing(monkeypatch):
    asked = (failing, *detectors.DETECTORS)
    monkeypatch.setattr(detectors, "DETECTORS", asked)


def doubled():
    """Check x**2 with a gradient that is twice as large."""
    x = np.linspace(1.0, 2.0, 5)
    return gl.check(lambda x: (x**2).sum(), x, grad=lambda x: 4 * x)


@pytest.mark.usefixtures("_with_failing")
def test_failing_detector_fails_a_test():
    """Under pytest of gradlab itself the exception comes through."""
    with pytest.raises(IndexError, match="no x"):
        doubled()


@pytest.mark.usefixtures("_with_failing")
def test_failing_detector_is_noted_for_users(monkeypatch):
    """The others still explain the error, and a note names the one that failed."""
    monkeypatch.setattr(diagnose, "STRICT", False)
    report = doubled()

    assert report.diagnosis == "scale"
    (note,) = (f for f in report.findings if f.severity == "note")
    assert note.where == "x"
    assert "test_failing_detectors.failing failed (IndexError: no x)" in note.evidence
