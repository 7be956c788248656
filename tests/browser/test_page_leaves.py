"""What leaves the page: numbers that are copied, and the page on paper."""

from __future__ import annotations

import builders
import driver
import numpy as np
import pytest

pytestmark = pytest.mark.browser

# Which entry is read, and the value that stands beside "analytic".
SELECT = """() => {
  const value = document.querySelector('.gl .entry dd');
  getSelection().selectAllChildren(value);
  return value.textContent;
}"""
COPIED = """() => new Promise(done => {
  document.addEventListener('copy', event => done(
    event.clipboardData.getData('text/plain')), {once: true});
  document.execCommand('copy');
})"""
PANELS = """() => [...document.querySelectorAll('.gl .panels figure')]
  .map(figure => figure.getBoundingClientRect().top)"""
BRIGHTNESS = """() => {
  const map = document.querySelector('.gl .panels canvas');
  const [r, g, b] = map.getContext('2d').getImageData(0, 0, map.width, 1).data;
  return (r + g + b) / 3;
}"""


def test_a_number_that_is_copied_is_one_for_python(show):
    """On the page it has a typographic minus, at which Python stops."""
    numeric = np.full((1, 3), -0.5)
    report = builders.report(builders.comparison(2 * numeric, numeric, "w", (3,)))
    page = show(report)
    shown = page.evaluate(SELECT)

    copied = page.evaluate(COPIED)

    assert shown == f"{driver.MINUS}1"
    assert float(copied) == -1


@pytest.mark.parametrize("width", [1200, 500])
def test_paper_is_white_and_holds_three_panels_beside_each_other(show, width):
    """Whatever the screen is: dark, wider than paper or narrower."""
    numeric = np.zeros((4, 6))
    report = builders.report(builders.comparison(numeric, numeric, "w", (6,)))
    page = show(report, width=width, dark=True)
    dark, across = page.evaluate(BRIGHTNESS), len(set(page.evaluate(PANELS)))

    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    printed = page.locator(".gl").bounding_box()["width"]
    light, row = page.evaluate(BRIGHTNESS), set(page.evaluate(PANELS))
    page.evaluate("dispatchEvent(new Event('afterprint'))")

    assert printed <= 700
    assert dark < 60
    assert light > 200
    assert len(row) == 1
    assert page.evaluate(BRIGHTNESS) == dark
    assert len(set(page.evaluate(PANELS))) == across


def test_paper_tells_what_the_screen_folds_and_drops_what_is_pressed(show):
    """How it was checked is told; buttons are not, the name of what is shown is."""
    page = show("tutorial")
    page.emulate_media(media="print")

    assert page.locator(".gl .facts dt", has_text="seed").is_visible()
    assert page.locator(".gl .status .name").first.is_visible()
    assert not page.locator(".gl .tools button").first.is_visible()
