"""The built site, opened from files with the network blocked."""

from __future__ import annotations

import driver
import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser]
PAGES = driver.ROOT / "build" / "site" / "_build" / "html"
# The theme's own: before it has remembered whether it is light or dark, and a script of
# jupyter-book 1.0.4 that is put into every page twice.
THEIRS = ("Got invalid theme mode", "THEBE_JS_URL")


@pytest.fixture
def site(tabs):
    """Open a page of the site; nothing may be asked of a network, or go wrong."""
    assert PAGES.is_dir(), f"{PAGES} is not there: run `make site` first"
    with tabs.lend() as page:

        def go(name):
            page.goto((PAGES / f"{name}.html").as_uri())
            return page

        yield go
        asked = [url for url in page.requests_made if url.startswith("http")]
        assert asked == []
        ours = [p for p in page.problems if not any(each in p for each in THEIRS)]
        assert ours == []


def test_a_report_in_a_lesson_is_interactive_without_a_kernel(site):
    """A click on a block shows that block."""
    page = site("03_the_bug_hunt")
    report = page.locator(".gl:has(.brow[data-key='b1'])").first
    report.locator(".brow[data-key='b1']").click()

    expect(report.locator(".status").first).to_contain_text("b1")


def test_formulas_are_set_without_a_network(site):
    """MathJax comes with the pages."""
    page = site("03_the_bug_hunt")
    page.locator("mjx-container").first.wait_for()


@pytest.mark.parametrize("width", [600, 1000, 1300])
def test_there_is_one_field_to_search_in(site, width):
    """Beside the contents where they are shown, else an icon; no bar of its own."""
    page = site("README")
    page.set_viewport_size({"width": width, "height": 900})

    expect(page.locator(".search-button__button:visible")).to_have_count(1)


def test_a_sweep_on_a_page_can_be_dragged(site):
    """The cursor moves, and the error at it is read out."""
    page = site("instruments/bug_hunt")
    slider = page.locator(".gl [role=slider][aria-label='step size h']").first
    before = slider.get_attribute("aria-valuetext")
    slider.focus()
    slider.press("ArrowLeft")

    expect(slider).not_to_have_attribute("aria-valuetext", before)


def test_the_reference_names_every_public_function(site):
    """What `import gradlab` offers is explained somewhere below Reference."""
    import gradlab as gl

    pages = ("checking", "results", "methods", "widgets", "errors")
    told = "".join((PAGES / "reference" / f"{p}.html").read_text() for p in pages)
    missing = [n for n in gl.__all__ if f'id="gradlab.{n}"' not in told]
    site("reference/checking")

    errors = {"GradlabError", "GradientMismatchError"}  # under gradlab.errors
    assert set(missing) - errors - {"compat", "testing", "__version__"} == set()
