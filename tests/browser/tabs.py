"""Tabs for pages that are files, lent to one test after another.

Three processes are started for a new tab, which takes several times as long as to draw
a report in one that is there. What a page leaves behind is gone with the page: it keeps
nothing (no storage, no cookies), and the rest is put back here.
"""

from __future__ import annotations

import collections
import contextlib

import driver


class Tabs:
    """Tabs of one browser, with the network blocked."""

    def __init__(self, chromium):
        self._chromium = chromium
        self._free = collections.defaultdict(list)
        self._open = contextlib.ExitStack()

    @contextlib.contextmanager
    def lend(self, *, width=1300, height=1000, dark=False, **options):
        """Give an empty tab as `driver.tab` does, its list of problems empty as well.

        Where something goes wrong it is not lent again.
        """
        free = self._free[tuple(sorted(options.items()))]
        page = free.pop() if free else self._open_tab(options)
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(media="null", color_scheme="dark" if dark else "light")
        page.problems.clear()
        page.requests_made.clear()
        yield page
        page.mouse.up()
        page.goto("about:blank")
        page.mouse.move(-1, -1)  # the next page meets no pointer
        free.append(page)

    def _open_tab(self, options):
        tab = driver.tab(self._chromium, offline=True, **options)
        return self._open.enter_context(tab)

    def close(self):
        """Close all of them."""
        self._open.close()
