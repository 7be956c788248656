"""Detection and false alarms of `gradlab.check` over a few hundred programs.

Run with ``-s`` to see both tables.
"""

from __future__ import annotations

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


def reports(title, shelves, **options):
    """Check every program of some shelves; reports by name."""
    outcomes = {
        shelf: {case.name: case.check(**options) for case in cases}
        for shelf, cases in shelves.items()
    }
    tabulate(title, outcomes)
    return {name: r for found in outcomes.values() for name, r in found.items()}


def of_library(shelves, library):
    """Shelves of one library: several workers can divide the work."""
    return {shelf: cases for shelf, cases in shelves.items() if library in shelf}


@pytest.mark.slow
@pytest.mark.parametrize("shelf", BUGS)
def test_bugs_are_detected(shelf):
    """At least 98 % of wrong programs disagree; their kinds are tested elsewhere."""
    found = reports("wrong programs", {shelf: BUGS[shelf]}, diagnose=False)
    missed = [name for name, r in found.items() if r.verdict != Verdict.DISAGREES]
    print("missed:", missed or "none")

    assert len(missed) <= (1 - DETECTED) * len(found), missed


@pytest.mark.slow
@pytest.mark.parametrize("library", ["NumPy", "torch"])
def test_correct_programs_are_not_flagged(library):
    """Not one of the correct programs is flagged; at most 8 % cannot be decided."""
    found = reports("correct programs", of_library(CONTROLS, library))
    flagged = {
        name for name, r in found.items() if r.verdict == Verdict.DISAGREES or not r.ok
    }
    open_ = [name for name, r in found.items() if r.verdict == Verdict.UNDECIDED]
    print("false alarms:", sorted(flagged) or "none", "undecided:", open_ or "none")

    assert not flagged
    assert len(open_) <= UNDECIDED * len(found), open_


def test_battery_is_large():
    """Both sides have well over a hundred programs of all subject kinds."""
    sizes = [sum(len(cases) for cases in side.values()) for side in (CONTROLS, BUGS)]

    assert min(sizes) > 100
    split = [of_library(CONTROLS, library) for library in ("NumPy", "torch")]
    assert sum(map(len, split)) == len(CONTROLS)
