"""What a live view says when its kernel has been restarted under it."""

from __future__ import annotations

import driver
import pytest

pytestmark = pytest.mark.browser

VIEW = """
import numpy as np, gradlab as gl
W, b = np.linspace(-1, 1, 12).reshape(3, 4), np.ones(3)
report = gl.check(lambda W, b: (W.sum(axis=1) + b) ** 2, W, b,
                  jac=lambda W, b: (np.zeros((3, 12)), np.zeros((3, 3))))
report.explore()
"""
RESTART = """() => window.jupyterapp.shell.currentWidget
  .sessionContext.session.kernel.restart()"""
GONE = "the kernel of this view is gone: run the cell again"


def test_a_view_without_its_kernel_says_so(lab):
    """Nothing hangs at "computing …", nothing stays grey, and no error is uncaught."""
    page = lab(VIEW)
    page.wait_for_selector(".gl .status")
    page.evaluate(RESTART)
    page.wait_for_function(driver.IDLE)
    driver.settle(page)

    button = page.get_by_role("button", name="recompute here")
    button.click()
    driver.shows(page, ".gl .bar .message", GONE)
    assert button.is_enabled()

    page.locator(".gl .brow[aria-selected=false]").first.click()
    driver.shows(page, ".gl p.message", GONE)
    assert page.locator(".gl.busy").count() == 0
