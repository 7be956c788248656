"""How long from a key on the tolerance slider to changed pixels.

Measured by the browser itself (Event Timing: from the input event to the time stamp of
the frame that shows it, in steps of 8 ms). Printed; see `pytest -rP`.
"""

from __future__ import annotations

import statistics

import builders
import driver
import numpy as np
import pytest

from gradlab.presentation import html
from gradlab.presentation.packing_results import pack_report

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WATCH = """() => {
  window.waits = [];
  new PerformanceObserver(list => {
    for (const entry of list.getEntries())
      if (entry.name === 'keydown') window.waits.push(entry.duration);
  }).observe({type: 'event', durationThreshold: 16, buffered: false});
}"""
KEYS = 15


@pytest.mark.parametrize(("side", "limit"), [(200, 30), (1000, 60)])
def test_tolerance_repaints_at_once(chromium, tmp_path, side, limit):
    """The median of a series of key presses stays below the limit.

    The best of three series: a neighbour's load can spoil one, not make one good.
    """
    report = builders.large(np.random.default_rng(7), side, (61, 27))
    packed = pack_report(report, 40_000_000)  # every entry, as a live view has them
    assert packed.state["blocks"][0]["grid"] is None
    path = tmp_path / "page.html"
    path.write_text(html.document(html.island(packed, ""), "speed"), encoding="utf-8")
    medians = []
    with driver.tab(chromium) as page:
        page.goto(path.as_uri())
        page.locator(".gl .scale input").focus()
        page.evaluate(WATCH)
        for _ in range(3):
            page.evaluate("window.waits.length = 0")
            for _ in range(KEYS):
                page.keyboard.press("ArrowRight")
                page.wait_for_timeout(120)
            waits = page.evaluate("window.waits")
            # what was faster than a frame of 16 ms is not reported
            waits += [16.0] * (KEYS - len(waits))
            medians.append(statistics.median(waits))

    print(f"{side} x {side}: medians {medians} ms from key to pixels")
    assert min(medians) <= limit
