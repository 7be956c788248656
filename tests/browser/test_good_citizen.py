"""Good behaviour: progress and the Stop button, no leaks."""

from __future__ import annotations

import itertools
import re

import builders
import driver
import numpy as np
import pytest
from driver import PREAMBLE
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ERROR = ".gl canvas[role=application]"
SLOW = f"""{PREAMBLE}
import time
def slow(x):
    time.sleep(0.004)
    return (x**2).sum()
report = gl.check(slow, np.ones(60_000), grad=lambda x: 2 * x, coverage="full")
report
"""
RUN = "() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }"
STOP = "() => { window.jupyterapp.commands.execute('notebook:interrupt-kernel'); }"


def test_a_running_check_shows_progress_and_can_be_stopped(lab):
    """The bar moves; Stop ends it: a partial report that says so, and no bar left."""
    page = lab(SLOW, run=False)

    page.evaluate(RUN)
    bar = page.locator(".jp-OutputArea progress")
    bar.wait_for()  # of eight minutes at least
    first = float(bar.get_attribute("value") or 0)
    page.wait_for_function(
        "first => +(document.querySelector('.jp-OutputArea progress')?.value ?? 0)"
        " > first + 300",
        arg=first,
    )
    page.evaluate(STOP)

    heading = page.locator(".gl h3")
    expect(heading).to_have_text(re.compile(r"\s*Undecided"))
    expect(heading).to_contain_text("coordinates looked at")
    expect(page.locator(".jp-OutputArea progress")).to_have_count(0)
    driver.wait_for_kernel(page, "report.partial", "True")
    assert 0 < int(driver.ask_kernel(page, "report['x'].shape[1]")) < 60_000


def _counted(page):
    """Count DOM nodes and listeners that are alive after a collection of garbage."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    counters = session.send("Memory.getDOMCounters")
    session.detach()
    return counters["nodes"], counters["jsEventListeners"]


def _leaves_nothing(page, use, nodes, listeners):
    """Use the page again and again until nothing is left of it.

    What leaks, leaks each time; what a notebook loads late, or lets go of late, it does
    so once.
    """
    before = _counted(page)
    for _ in range(20):
        use()
        driver.settle(page, 500)
        after = _counted(page)
        print(f"nodes and listeners before {before}, after 200 updates {after}")
        if after[0] <= before[0] + nodes and after[1] <= before[1] + listeners:
            return True
        before = after
    return False


def test_two_hundred_updates_leak_nothing_in_the_page(chromium, tmp_path):
    """Blocks, tolerances and entries chosen 200 times: no node, no listener more."""
    path = tmp_path / "page.html"
    builders.zoo(np.random.default_rng(7)).to_html(path)
    use = """([from, to]) => {
      const rows = [...document.querySelectorAll('.gl .brow[role=option]')];
      const slider = document.querySelector('.gl .scale input');
      const map = document.querySelector('.gl canvas[role=application]');
      for (let i = from; i < to; i++) {
        rows[i % rows.length].click();
        slider.value = -14 + (i % 14);
        slider.dispatchEvent(new Event('input'));
        map.dispatchEvent(new KeyboardEvent('keydown', {key: 'n'}));
      }
    }"""
    with driver.tab(chromium, offline=True) as page:
        page.goto(path.as_uri())
        page.wait_for_selector(ERROR)
        page.evaluate(use, [0, 20])

        assert _leaves_nothing(page, lambda: page.evaluate(use, [20, 220]), 60, 5)
        assert page.problems == []


def test_two_hundred_changes_from_python_leak_nothing(lab):
    """A trait set 200 times: one widget, one view, and no figure is held."""
    page = lab(
        PREAMBLE + "import gc, sys\nw = builders.zoo(rng).explore()\n"
        "names = [b['key'] for b in w.page['blocks']]\nw",
        "from ipywidgets.widgets.widget import _instances\nbefore = len(_instances)",
    )
    page.wait_for_selector(".gl .status")
    driver.settle(page)

    turns = itertools.count()  # each ends at another block

    def use():
        first = next(turns)
        driver.ask_kernel(
            page,
            "[w.set_trait('param', names[i % 7]) or w.set_trait('tol', 0.1 ** (i % 9))"
            f" for i in range({first}, {first + 200})] and None",
        )
        shown = driver.ask_kernel(page, "w.param").strip("'")
        driver.shows(page, ".gl .status", shown)

    # what the notebook itself keeps of 200 messages is a few hundred nodes at most
    assert _leaves_nothing(page, use, 1500, 60)
    assert driver.ask_kernel(page, "len(_instances) - before") == "0"
    held = "sum(type(x).__name__ == 'Figure' for x in gc.get_objects())"
    assert driver.ask_kernel(page, held) == "0"
    assert page.locator(".gl").count() == 1
