"""Detection and false alarms of `gradlab.check` over a few hundred programs.

Run with ``-s`` to see both tables.
"""

from __future__ import annotations

import functools

import pytest

from gradlab import Verdict

torch = pytest.importorskip("torch")

from tests.battery.bugs import BUGS  # noqa: E402
from tests.battery.controls import CONTROLS  # noqa: E402

pytestmark = pytest.mark.untraced

DETECTED = 0.98
UNDECIDED = 0.08


def tabulate(title, outcomes):
    """Print one line per shelf, and the names of whatever went wrong."""
    print(f"\n{title:20s} cases     agrees  undecided  disagrees evaluations")
    for shelf, reports in outcomes.items():
        count = [
            sum(r.verdict == verdict for r in reports.values()) for verdict in Verdict
        ]
        spent = sum(r.evaluations for r in reports.values())
        row = "".join(f"{number:11d}" for number in (*count, spent))
        print(f"{shelf:20s} {len(reports):5d}{row}")


def flat(outcomes):
    return {name: r for reports in outcomes.values() for name, r in reports.items()}


@functools.cache
def controls():
    """Reports on all correct programs, with diagnosis."""
    outcomes = {
        shelf: {case.name: case.check() for case in cases}
        for shelf, cases in CONTROLS.items()
    }
    tabulate("correct programs", outcomes)
    return flat(outcomes)


@functools.cache
def bugs():
    """Reports on all wrong programs; what is wrong with them is tested elsewhere."""
    outcomes = {
        shelf: {case.name: case.check(diagnose=False) for case in cases}
        for shelf, cases in BUGS.items()
    }
    tabulate("wrong programs", outcomes)
    return flat(outcomes)


@pytest.mark.slow
def test_bugs_are_detected():
    """At least 98 % of the wrong programs disagree."""
    missed = [name for name, r in bugs().items() if r.verdict != Verdict.DISAGREES]
    print("missed:", missed or "none")

    assert len(missed) <= (1 - DETECTED) * len(bugs()), missed


@pytest.mark.slow
def test_correct_programs_are_not_flagged():
    """Not one of the correct programs is flagged; three percent would be allowed."""
    flagged = {
        name
        for name, r in controls().items()
        if r.verdict == Verdict.DISAGREES or not r.ok
    }
    print("false alarms:", sorted(flagged) or "none")

    assert not flagged


@pytest.mark.slow
def test_few_correct_programs_stay_undecided():
    """At most 8 % of the correct programs cannot be decided."""
    open_ = [name for name, r in controls().items() if r.verdict == Verdict.UNDECIDED]
    print("undecided:", open_ or "none")

    assert len(open_) <= UNDECIDED * len(controls()), open_


@pytest.mark.slow
def test_battery_is_large():
    """Both sides have well over a hundred programs of all subject kinds."""
    sizes = [sum(len(cases) for cases in side.values()) for side in (CONTROLS, BUGS)]

    assert min(sizes) > 100
