"""The fixture `gradcheck` and failed asserts, in a pytest session of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = """
import numpy as np
import pytest

def test_right(gradcheck):
    report = gradcheck(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: 2 * x)
    assert report.ok

def test_wrong(gradcheck):
    gradcheck(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)

def test_plain():
    from gradlab.testing import assert_gradients

    assert_gradients(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)

def test_twice(gradcheck, tmp_path):
    for _ in range(2):
        with pytest.raises(AssertionError):
            gradcheck(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    assert len(list(tmp_path.glob("*.html"))) == 2

def test_half_said(gradcheck):
    gradcheck(lambda x: (x**2).sum(), np.ones(3))

import gradlab as gl

def checked(factor):
    return gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: factor * x)

def test_bare():
    assert checked(1)

def test_ok():
    report = checked(-2)
    assert (
        report.ok
    )

def test_several():
    reports = [checked(2), checked(6)]
    assert all(report.ok for report in reports)

def test_located():
    assert gl.locate(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: 3 * x)

def test_printed():
    report = checked(1)
    assert report, str(report)

class Refusing(list):
    def __iter__(self):
        raise NotImplementedError

def test_beside_a_list_that_refuses():
    refusing, report = Refusing([1]), checked(8)
    assert report.ok and refusing

def test_of_something_else():
    report = checked(1)
    assert 3 == 4
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """Output of a run of all these tests."""
    folder = tmp_path_factory.mktemp("session")
    (folder / "test_cases.py").write_text(CASES, encoding="utf-8")
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p"]
    run += ["no:cacheprovider", "-p", "no:nbmake"]  # its import takes two seconds
    run += ["--basetemp", str(folder / "pages"), str(folder)]
    plugin = [] if _installed() else ["-p", "gradlab.pytest_plugin"]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [*run, *plugin, "--rootdir", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    return done.stdout + done.stderr


def _installed():
    """Whether this gradlab is installed with its entry point, or only checked out."""
    from importlib.metadata import entry_points

    found = entry_points(group="pytest11")
    return any(point.value == "gradlab.pytest_plugin" for point in found)


def test_right_gradients_pass_and_wrong_ones_fail(session):
    """And the report is handed back."""
    assert "10 failed, 2 passed" in session


def test_failure_names_entry_cause_and_page(session):
    """The page is there, complete, and under the temporary directory."""
    assert "worst entry" in session
    assert "x[0]" in session
    path = re.search(r"page\s+(\S+gradcheck\.html)", session)[1]

    assert "</html>" in Path(path).read_text(encoding="utf-8").lower()
    assert "pages" in path


def test_traceback_points_at_the_users_line(session):
    """Not into gradlab."""
    assert "test_cases.py:10" in session
    assert "test_cases.py:15" in session
    assert "pytest_plugin.py" not in session
    assert "report.py" not in session


def test_what_is_wrong_with_the_arguments_is_told_at_the_users_line(session):
    """A gradient was forgotten: no line of gradlab stands between call and reason."""
    told = session.split("_ test_half_said _")[1].split("short test summary")[0]

    assert "pass it as grad=, jac=, backward= or vjp=" in told
    assert ".py:" in told
    assert set(re.findall(r"(\w+\.py):\d+", told)) == {"test_cases.py"}


def _told(session, name):
    """What is said of one test: above and below the headings of gradlab."""
    words = re.split(r"\n____|\n=+ short", session.split(f"_ {name} _")[1])[0]
    above, *below = re.split(r"-+ gradlab -+\n", words)
    return above, below


@pytest.mark.parametrize(
    ("name", "kind"), [("test_bare", "scale"), ("test_ok", "sign")]
)
def test_a_failed_assert_tells_all_of_its_report(session, name, kind):
    """The line of pytest keeps the verdict; table, cause and advice stand below it."""
    above, (story,) = _told(session, name)

    assert "✗ disagrees: x is wrong" in above
    assert "coverage" not in above
    assert "\\n" not in above
    assert story.startswith("✗ disagrees: x is wrong\n")
    assert "worst entry" in story
    assert f"✗ x: {kind} (error)" in story
    assert "  -> " in story
    assert "evaluations" in story


def test_of_several_reports_those_that_fail_are_told(session):
    """Not the right ones, which stood in the same list."""
    (story,) = _told(session, "test_several")[1]

    assert "analytic = 3 x numeric" in story


def test_a_list_that_cannot_be_read_hides_no_report(session):
    """Such a class of lists beside a report stopped the whole session."""
    (story,) = _told(session, "test_beside_a_list_that_refuses")[1]

    assert "analytic = 4 x numeric" in story


def test_a_report_is_not_told_twice(session):
    """Who passes it as the message of the assert reads it there, and only there."""
    above, below = _told(session, "test_printed")

    assert "✗ x: scale (error)" in above
    assert not below


def test_a_failure_of_something_else_stays_as_it_is(session):
    """A report that merely stands beside it is no part of it."""
    above, below = _told(session, "test_of_something_else")

    assert "assert 3 == 4" in above
    assert not below


def test_a_table_of_wrong_entries_is_told_by_lines(session):
    """Not on one line with its line ends spelt out."""
    above, (story,) = _told(session, "test_located")

    assert "\\n" not in above
    assert "x[2]: analytic 3, numeric 2" in story
