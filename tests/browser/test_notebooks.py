"""The instruments as a reader meets them: opened in JupyterLab and run."""

from __future__ import annotations

import driver
import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]
NOTEBOOKS = sorted((driver.ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_shows_its_pages(opened, path):
    """No cell fails, nothing is written to stderr, every page comes alive."""
    page = opened(path)
    assert driver.run_all(page) == []
    page.wait_for_selector(".gl :is(.status, .cursor, .lrow)")

    expect(page.locator("[data-gl]:not([data-on])")).to_have_count(0)
    driver.settle(page)
    # JupyterLab indents the lists of HTML outputs: ours stand flush
    lists = page.eval_on_selector_all(
        ".gl ul", "nodes => nodes.map(node => getComputedStyle(node).paddingLeft)"
    )
    assert set(lists) <= {"0px"}
