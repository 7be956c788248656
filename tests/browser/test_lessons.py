"""A lesson as a student meets it: run in JupyterLab, a line moved, an answer given."""

from __future__ import annotations

import driver
import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]
# Of the cells themselves, not of the page: JupyterLab draws only those in sight.
ALL_RAN = """() => window.jupyterapp.shell.currentWidget.content.widgets
  .filter(cell => cell.model.type === 'code')
  .every(cell => cell.model.executionCount)"""


@pytest.fixture
def lesson(opened):
    """Open one lesson and run all of it; nothing may go wrong."""

    def _lesson(start):
        (path,) = (driver.ROOT / "tutorials").glob(f"{start}_*.ipynb")
        page = opened(path)
        page.evaluate(
            "() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }"
        )
        page.wait_for_function(ALL_RAN)
        page.wait_for_function(driver.IDLE)
        assert page.evaluate(driver.TROUBLE) == []
        return page

    return _lesson


def test_the_best_step_is_found_by_moving_the_line(lesson):
    """In lesson 2 the cursor of the sweep moves by keyboard and the error is read."""
    page = lesson("02")
    page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.content.scrollToItem(8, 'start')"
    )
    cursor = page.locator(".gl .cursor").first  # found again where it is redrawn
    cursor.wait_for()
    driver.settle(page)
    before = cursor.get_attribute("aria-valuetext")

    cursor.focus()
    page.keyboard.press("ArrowRight")

    expect(cursor).not_to_have_attribute("aria-valuetext", before)


def test_an_answer_is_judged(lesson):
    """The cell of an exercise says what is off, and is right at the second try."""
    page = lesson("08")
    ask = "__import__('gradlab.teaching.lessons', fromlist=['x']).check_answer"

    wrong = driver.ask_kernel(page, f"{ask}('8.1', ['fc3.weight'])")
    right = driver.ask_kernel(page, f"{ask}('8.1', ['fc4.weight'])")

    assert "✗ 8.1" in wrong
    assert "✓ 8.1  right." in right
