"""How the page looks and reads: themes, widths, names, screen readers, no network."""

from __future__ import annotations

import dataclasses

import builders
import driver
import numpy as np
import pytest
from playwright.sync_api import expect

import gradlab as gl

pytestmark = pytest.mark.browser


def test_code_in_words_is_set_as_code(show):
    """Backticks mark code, as in a docstring; none is shown."""
    report = builders.tutorial(np.random.default_rng(7))
    finding = dataclasses.replace(report.findings[0], evidence="`loss.py` doubles it.")
    page = show(dataclasses.replace(report, findings=(finding,)))

    assert driver.read(page, ".gl .finding code") == "loss.py"
    assert "`" not in driver.read(page, ".gl")


def test_no_line_breaks_within_a_number(show):
    """A hyphen is a place to break a line at, a minus is none; code stays code."""
    report = builders.tutorial(np.random.default_rng(7))
    words = "off by 4.5e-01, as `1e-3` says."
    finding = dataclasses.replace(report.findings[0], evidence=words)
    page = show(dataclasses.replace(report, findings=(finding,)))

    told = driver.read(page, ".gl .finding")
    assert f"4.5e{driver.MINUS}01" in told
    assert "1e-3" in told


def test_the_ring_of_the_tolerance_leaves_its_numbers_alone(show):
    """It stands round the bar: the powers of ten below it can be read."""
    page = show("tutorial")
    page.locator("input[type=range]").focus()
    page.keyboard.press("ArrowRight")

    low = page.locator("input[type=range]").evaluate(
        """input => {
          const style = getComputedStyle(input), box = input.getBoundingClientRect();
          const out = parseFloat(style.outlineOffset) + parseFloat(style.outlineWidth);
          return box.bottom + out - input.parentNode.getBoundingClientRect().top;
        }"""
    )
    assert low < 14  # pixels below the upper edge of the bar, where the numbers begin


def test_scales_follow_the_width_where_cells_do_not(show):
    """Three columns stay as they are in a narrower page; the scales below do not."""
    page = show(gl.check(np.sin, np.ones(3), jac=lambda x: np.diag(2 * np.cos(x))))
    page.set_viewport_size({"width": 700, "height": 1000})
    driver.settle(page)

    edges = page.evaluate(
        """() => [...document.querySelectorAll('.gl figure')].map(figure => [
          figure.getBoundingClientRect().right,
          figure.querySelector('.scale canvas').getBoundingClientRect().right])"""
    )
    assert all(scale <= figure for figure, scale in edges)


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


def test_without_scripts_no_row_of_the_table_is_broken(show):
    """A table that is wider than the page is as high as on a wide one."""
    heights = {
        show("zoo", java_script_enabled=False, width=width)
        .locator("pre")
        .bounding_box()["height"]
        for width in (500, 1400)
    }

    assert max(heights) - min(heights) < 40  # a scroll bar


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


@pytest.mark.parametrize("width", [360, 480])
def test_a_sentence_with_a_long_name_stays_inside(show, width):
    """The card of an entry says why there is no analytic value, and names it."""
    name = "encoder.layers.0.self_attention.projection_of_queries.weight"
    report = gl.check(
        lambda p: ((p[name] ** 2).sum(), {name: p[name].T}), {name: np.ones((4, 6))}
    )
    page = show(report, width=width)
    driver.settle(page)

    assert page.get_by_text("has shape (6, 4)").count() > 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("place", ["h3", ".finding .where"])
def test_a_long_name_breaks_at_its_dots(show, place):
    """No line of a heading, or of a finding, ends in the middle of a word."""
    name = "encoder.layers.11.self_attention.query_projection.adapter.default.weight"
    report = gl.check(
        lambda p: ((p[name] ** 2).sum(), {name: 4 * p[name]}), {name: np.ones((2, 3))}
    )
    page = show(report, width=480)

    ends = page.locator(f".gl {place}").first.evaluate(
        """place => {
          const range = document.createRange(), told = [];
          const walk = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
          for (let top, node; (node = walk.nextNode());) {
            for (let i = 0; i < node.length; i++) {
              range.setStart(node, i);
              range.setEnd(node, i + 1);
              const line = range.getClientRects()[0]?.top ?? top;
              if (top !== undefined && line > top + 4) told.push(told.last);
              [top, told.last] = [line, node.data[i]];
            }
          }
          return told;
        }"""
    )
    assert ends
    assert set(ends) <= set(" ._")


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


def test_controls_stand_in_one_row_on_narrow_pages(show):
    """At 500 pixels the name takes a row, and no group of buttons is left over."""
    page = show("tutorial", width=500)

    tops = page.eval_on_selector_all(
        ".gl .bar .group", "groups => groups.map(g => g.getBoundingClientRect())"
    )
    assert len({round(top["y"]) for top in tops if top["width"]}) == 1


def test_what_nobody_looked_at_is_not_decided(show):
    """A check that ends before its first direction has compared nothing."""
    report = gl.check(
        lambda x: (x**2).sum(),
        np.ones(300),
        grad=lambda x: 2 * x,
        coverage="probe",
        budget=2,
    )
    page = show(report)

    driver.shows(page, ".gl .status", "not decided")


def test_without_entries_there_is_nothing_to_control(show):
    """Of an input of size 0 it is said that it has no entries, and that is all."""
    empty = np.zeros((1, 0))
    page = show(builders.report(builders.comparison(empty, empty, "w", (0, 3))))

    driver.shows(page, ".gl .status", "no entries")
    assert page.locator(".gl .bar button:visible").count() == 0


def test_numbers_in_undecided_cells_are_not_crossed_out(show):
    """Stripes stop where a number stands: none in the middle of the cell."""
    numeric = np.full((2, 3), 1.25)
    bar = np.full(numeric.shape, 0.1)
    page = show(builders.report(builders.comparison(numeric, numeric + 1e-4, bar=bar)))

    inks = page.evaluate(
        """() => {
          const map = [...document.querySelectorAll('.gl .map')].pop();
          const { width, height } = map, ink = map.getContext('2d');
          const line = (x, y, w) => [...new Uint32Array(
            ink.getImageData(x, y, w, 1).data.buffer)];
          const middle = Math.round(width / 6) - 8, row = Math.round(0.275 * height);
          return {
            striped: new Set(line(4, 4, 60)).size,
            words: line(middle, row - 7, 16), // just above the digits
          };
        }"""
    )
    assert inks["striped"] >= 2
    assert len(set(inks["words"])) == 1


def test_a_list_of_few_gradients_is_not_cut_off(show):
    """Up to ten rows stand there whole; more than that are scrolled."""
    for count, scrolled in ((10, False), (11, True)):
        page = show(builders.right(np.random.default_rng(7), count))
        hidden = page.locator(".gl .blocks .rows").evaluate(
            "rows => rows.scrollHeight - rows.clientHeight"
        )
        assert (hidden > 1) is scrolled


def test_paper_shows_every_row_and_every_mark(show):
    """In print no list is cut off, and marks keep the ground they are drawn on."""
    page = show("right")  # a hundred gradients
    page.emulate_media(media="print")
    driver.settle(page)

    rows = page.locator(".gl .blocks .rows")
    assert rows.evaluate("rows => rows.scrollHeight - rows.clientHeight") <= 1
    expect(page.locator(".gl .hint")).to_be_hidden()
    for mark in (".seal", ".track i", ".legend i"):
        kept = page.locator(f".gl {mark}").first.evaluate(
            "mark => getComputedStyle(mark).printColorAdjust"
        )
        assert kept == "exact"
