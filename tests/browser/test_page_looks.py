"""How the page looks and reads: themes, widths, names, screen readers, no network."""

from __future__ import annotations

import dataclasses

import builders
import driver
import numpy as np
import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def test_code_in_words_is_set_as_code(show):
    """Backticks mark code, as in a docstring; none is shown."""
    report = builders.tutorial(np.random.default_rng(7))
    finding = dataclasses.replace(report.findings[0], evidence="`loss.py` doubles it.")
    page = show(dataclasses.replace(report, findings=(finding,)))

    assert driver.read(page, ".gl .finding code") == "loss.py"
    assert "`" not in driver.read(page, ".gl")


def test_names_are_text_never_markup(show):
    """A name full of markup is shown as it is and runs nothing."""
    report = builders.hostile(np.random.default_rng(7))
    page = show(report)
    driver.settle(page)

    assert page.evaluate("window.pwned") is None
    assert page.locator("img[src=x]").count() == 0
    assert report.comparisons[0].input.name in driver.read(page, ".gl")


def test_everything_that_takes_the_focus_carries_the_keyboard_guard(show):
    """Without the attribute, typing d d there would delete the notebook cell."""
    page = show("zoo")

    bare = page.evaluate(
        """() => [...document.querySelectorAll('.gl *')]
          .filter(node => node.tabIndex >= 0
            && node.dataset.lmSuppressShortcuts !== 'true')
          .map(node => node.outerHTML.slice(0, 80))"""
    )
    assert bare == []


def test_every_control_has_a_name_for_a_screen_reader(show):
    """Buttons, sliders, options and pictures have a label or words of their own."""
    page = show("zoo")

    nameless = page.evaluate(
        """() => [...document.querySelectorAll(
            '.gl button, .gl input, .gl select, .gl [role]')]
          .filter(node => !node.closest('[aria-hidden=true]'))
          .filter(node => !['status', 'group'].includes(node.getAttribute('role')))
          .filter(node => !(node.getAttribute('aria-label') || node.textContent.trim()))
          .map(node => node.outerHTML.slice(0, 80))"""
    )
    assert nameless == []


@pytest.mark.parametrize("dark", [False, True])
def test_page_follows_the_theme(show, dark):
    """Ink and paper stand apart at 4.5 : 1 or better in both themes."""
    page = show("tutorial", dark=dark)

    expect(page.locator(".gl.dark")).to_have_count(int(dark))
    contrast = page.evaluate(
        """() => {
          const level = text => {
            const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255)
              .map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const paper = level(getComputedStyle(document.body).backgroundColor);
          return ['h3', 'header p', '.mark', '.brow .name'].map(selector => {
            const ink = level(getComputedStyle(
              document.querySelector('.gl ' + selector)).color);
            return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
          });
        }"""
    )
    assert min(contrast) >= 4.5


def test_without_scripts_picture_and_text_remain(show):
    """With JavaScript off the reader sees the PNG and the verdict in words."""
    page = show("tutorial", java_script_enabled=False)

    expect(page.locator("img[alt*='disagrees']")).to_be_visible()
    driver.shows(page, "pre", "W1")
    assert page.locator(".gl").count() == 0


def test_nothing_is_fetched(show):
    """The page asks the network for nothing."""
    page = show("zoo")
    driver.settle(page)

    away = [u for u in page.requests_made if not u.startswith(("file:", "data:"))]
    assert away == []


@pytest.mark.parametrize("name", ["zoo", "long_names"])
@pytest.mark.parametrize("width", [360, 480, 700, 1400])
def test_nothing_sticks_out(show, width, name):
    """At every width the page fits: no sideways scrolling."""
    page = show(name, width=width)
    driver.settle(page)

    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_long_names_stay_apart(show):
    """Names that differ in the middle are told apart at 700 pixels, none is clipped."""
    page = show("long_names", width=700)

    seen = page.eval_on_selector_all(
        ".gl .brow[role=option] .name",
        """names => names.map(name => ({
          words: [...name.childNodes].filter(part => part.className !== 'hide')
            .map(part => part.textContent).join(''),
          clipped: name.scrollWidth > name.clientWidth + 1
            || name.scrollHeight > name.clientHeight + 1}))""",
    )
    assert len({name["words"] for name in seen}) == 6
    assert all(len(name["words"]) < 50 for name in seen)
    assert not any(name["clipped"] for name in seen)
    # and whoever listens hears the whole name
    text = page.locator(".gl .brow[aria-selected=true] .name").text_content()
    assert builders.LONG.format(2) in text.replace("…", "")
