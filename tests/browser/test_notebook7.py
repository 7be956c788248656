"""Live views, reports and the bug hunt in Notebook 7, which is started once for all."""

from __future__ import annotations

import driver
import pytest
from driver import PREAMBLE

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ERROR = ".gl canvas[role=application]"
SLIDER = ".gl .scale input[type=range]"
GAME = "from gradlab.presentation.widgets.hunt import BugHunt\nBugHunt(level=2)"


def test_notebook_7_drags_clicks_and_asks(notebook7):
    """The live page in Notebook 7: tolerance, entry, layer and step reach Python."""
    page = notebook7(
        PREAMBLE + "w = builders.zoo(rng).explore(); w",
        "v = gl.LayerBlame(builders.audit(6)); v",
        "s = gl.EpsilonSweep(builders.sweep(rng)); s",
    )
    driver.bring(page, SLIDER).focus()
    for _ in range(4):
        page.keyboard.press("PageUp")
    driver.wait_for_kernel(page, "(w.tol or 0) > 2e-6", "True")

    page.locator(".gl .brow[data-key='norm.gamma']").click()
    driver.shows(page, ".gl .status", "norm.gamma")  # its numbers are there
    driver.bring(page, ERROR)
    at = driver.cell_centre(page, f"{ERROR} >> nth=0", 7, 4, 24, 16)
    page.locator(ERROR).first.click(position=at)
    driver.wait_for_kernel(page, "w.param, w.selected", "('norm.gamma', [7, 4])")

    page.locator(".gl .lrow", has_text="stem").first.click()
    driver.wait_for_kernel(page, "v.picked", "'stem'")
    page.locator(".gl .cursor").focus()
    page.keyboard.press("Home")
    driver.wait_for_kernel(page, "s.h", "1e-14")


def test_notebook_7_shows_the_report_and_opens_it_again(notebook7):
    """Run, save, reload: the page of the report is interactive without a kernel."""
    page = notebook7(PREAMBLE + "builders.zoo(rng)")
    driver.save(page)

    page.reload(wait_until="domcontentloaded")
    page.wait_for_selector(".gl .status")
    page.locator(".gl .brow[data-key='norm.gamma']").click()

    driver.shows(page, ".gl .status", "norm.gamma")


def test_typing_on_a_report_never_deletes_the_cell(notebook7):
    """The same as in JupyterLab, though shortcuts listen earlier."""
    page = notebook7(PREAMBLE + "builders.zoo(rng)", "1 + 1")

    driver.type_on(page, [page.locator(f".gl {part}").first for part in driver.PARTS])


def test_typing_in_the_game_never_deletes_the_cell(notebook7):
    """Every element takes the focus there as well."""
    page = notebook7(GAME)
    page.wait_for_selector(".gl.hunt button.main")
    driver.settle(page)
    focusable = page.locator(driver.FOCUSABLE).all()

    assert len(focusable) >= 14
    driver.type_on(page, focusable)
