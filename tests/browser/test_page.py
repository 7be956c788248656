"""The page of a report as a file: no kernel, no network, a real browser."""

from __future__ import annotations

import dataclasses

import builders
import driver
import numpy as np
import pytest
from playwright.sync_api import expect

import gradlab as gl
from gradlab.presentation import html
from gradlab.presentation.packing_results import pack_report

pytestmark = pytest.mark.browser

ERROR = ".gl canvas[role=application]"
SLIDER = ".gl .scale input[type=range]"
# Pixels of the error panel that are drawn in the loud half of the ramp.
REDDISH = """() => {
  const map = document.querySelector('.gl canvas[role=application]');
  const data = map.getContext('2d').getImageData(0, 0, map.width, map.height).data;
  let found = 0;
  for (let i = 0; i < data.length; i += 4) found += data[i] > 140 && data[i + 1] < 60;
  return found;
}"""


def status(page):
    """Read the line above the panels."""
    return driver.read(page, ".gl .status")


def entry(page):
    """Read the inspector."""
    return driver.read(page, ".gl .entry")


def click_cell(page, row, column, rows, columns):
    """Click the middle of a cell of the error panel, and move the pointer away."""
    at = driver.cell_centre(page, ERROR, row, column, rows, columns)
    page.locator(ERROR).click(position=at)
    page.mouse.move(2, 2)


def test_page_opens_at_the_worst_block_and_entry(show):
    """Without a click the page shows the wrong block, its count and the verdict."""
    page = show("tutorial")

    assert "W1" in status(page)
    assert "40 of 40 entries disagree" in status(page)
    assert "disagrees" in entry(page)
    assert driver.read(page, ".gl h3").startswith("Disagrees: W1")


def test_page_of_its_own_begins_its_outline_at_one(show):
    """Who goes from heading to heading meets the answer first, then the entry."""
    page = show("tutorial")

    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    levels = [
        (each["value"]["value"], node["name"]["value"])
        for node in nodes
        if node.get("role", {}).get("value") == "heading"
        for each in node["properties"]
        if each["name"] == "level"
    ]

    assert [level for level, _ in levels] == [1, 2]
    assert levels[0][1].startswith("Disagrees: W1")


def test_click_reads_both_values_their_ratio_and_the_error_bar(show):
    """Row 2, column 3 of W1: the inspector shows the numbers of that entry."""
    report = builders.tutorial(np.random.default_rng(7))
    page = show(report)
    block = report["W1"]

    click_cell(page, 2, 3, 4, 10)
    text = entry(page).replace(driver.MINUS, "-")

    assert "W1[2, 3]" in text
    assert "J[0, 23]" in text
    for side in ("analytic", "numeric"):
        shown = float(text.split(f"{side}\n")[1].split()[0])
        assert shown == pytest.approx(getattr(block, side)[0, 23], rel=1e-6)
    bar = float(text.split("error bar\n")[1].split("±")[1].split()[0])
    assert bar == pytest.approx(block.numeric_error[0, 23], rel=1e-2)
    assert "analytic / numeric\n2" in text
    assert "0.333" in text


def test_findings_are_listed_with_evidence_and_advice(show):
    """Every finding shows where, evidence and advice; notes too."""
    report = builders.zoo(np.random.default_rng(7))
    page = show(report)
    # numbers have the minus and the sign of products that they have on the page
    shown = driver.read(page, ".gl").replace(driver.MINUS, "-").replace("×", "x")

    for finding in report.findings:
        assert finding.where in shown
        assert finding.evidence in shown
        assert finding.advice in shown


def test_tolerance_recounts_and_recolours(show):
    """A tolerance above the error makes all entries agree; the picture changes."""
    page = show("tutorial")
    driver.settle(page)
    before = page.locator(ERROR).screenshot()

    page.locator(SLIDER).focus()
    page.keyboard.press("End")  # 1e2
    page.wait_for_function(
        "document.querySelector('.gl .status').innerText.includes('all 40')"
    )

    driver.settle(page)
    assert page.locator(ERROR).screenshot() != before
    page.get_by_text("as checked", exact=True).click()
    page.wait_for_function(
        "document.querySelector('.gl .status').innerText.includes('disagree')"
    )
    driver.settle(page)
    assert page.locator(ERROR).screenshot() == before


def test_back_to_the_tolerance_of_the_check_by_keyboard(show):
    """The button goes away when it is pressed; the focus goes to the slider."""
    page = show("tutorial")
    page.locator(SLIDER).focus()
    page.keyboard.press("End")
    page.get_by_text("as checked", exact=True).focus()
    page.keyboard.press("Enter")
    driver.shows(page, ".gl .tol", "as checked")

    assert page.evaluate("document.activeElement.type") == "range"


def test_tolerance_below_the_error_bar_is_undecided_not_wrong(show):
    """At 1e-16 no finite difference can tell: right entries become undecided."""
    page = show("tutorial")
    page.locator(".gl .brow[data-key=W2]").click()
    assert "all 30 entries agree" in status(page)

    page.locator(SLIDER).focus()
    page.keyboard.press("Home")

    page.wait_for_function(
        "document.querySelector('.gl .status').innerText.includes('undecided')"
    )
    assert "beyond the tolerance" not in status(page)


@pytest.mark.parametrize("keys", [("ArrowLeft",), ("ArrowRight",), ("End",)])
def test_zeros_that_agree_go_on_agreeing_at_other_tolerances(show, keys):
    """Of their own size nothing is known, of an error that would matter all."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 4)), rng.standard_normal((4, 3))
    layer = gl.check(lambda w: np.tanh(x) @ w, w, vjp=lambda up, w: np.tanh(x).T @ up)
    page = show(layer)
    assert "all 72 entries agree" in status(page)

    page.locator(SLIDER).focus()
    for key in keys:
        page.keyboard.press(key)
    driver.settle(page)
    assert page.get_by_text("as checked", exact=True).is_visible()  # to go back to

    assert "all 72 entries agree" in status(page)


def test_a_subgradient_goes_on_agreeing_where_more_is_allowed(show):
    """At a kink the bar reaches from slope to slope, whatever is tolerated."""
    kink = gl.check(lambda x: np.abs(x).sum(), np.array([0.0, 1, -2]), grad=np.sign)
    page = show(kink)

    page.locator(SLIDER).focus()
    page.keyboard.press("ArrowRight")
    driver.settle(page)

    assert "all 3 entries agree" in status(page)


def test_another_tolerance_leaves_the_verdicts_of_the_check(show):
    """The list says what the check found; only the line of the tolerance moves."""
    page = show("tutorial")
    row = page.locator(".gl .brow[data-key=W1]")
    before = row.inner_text()
    line = row.locator(".track u").get_attribute("style")

    page.locator(SLIDER).focus()
    page.keyboard.press("End")  # 1e2
    page.wait_for_function(
        "document.querySelector('.gl .status').innerText.includes('all 40')"
    )

    assert row.inner_text() == before
    assert row.locator(".track u").get_attribute("style") != line


def test_an_entry_is_pinned_in_its_own_block_only(show):
    """Another block opens at its own worst entry, not where the last one was left."""
    page = show("tutorial")
    click_cell(page, 2, 3, 4, 10)
    assert "pinned" in entry(page)

    page.locator(".gl .brow[data-key=W2]").click()

    assert "the worst entry" in entry(page)


def test_blocks_are_chosen_by_keyboard(show):
    """Arrow keys move through the list of blocks, worst first."""
    page = show("tutorial")

    page.locator(".gl .brow[aria-selected=true]").focus()
    page.keyboard.press("ArrowDown")

    assert "agree" in status(page)
    assert "W1" not in status(page)


def test_next_and_previous_wrong_entry(show):
    """n steps through the two wrong entries of fc2.bias and comes round again."""
    page = show("zoo")
    assert "fc2.bias" in status(page)
    page.locator(ERROR).focus()
    seen = []
    for _ in range(3):
        page.keyboard.press("n")
        seen.append(driver.read(page, ".gl .entry .num >> nth=0"))

    assert set(seen) == {"J[5, 2]", "J[7, 1]"}
    assert seen[0] == seen[2]


def test_zoom_and_reset(show):
    """+ zooms into the pinned entry, 0 shows everything again."""
    page = show("large")
    page.locator(ERROR).focus()
    driver.settle(page)
    before = page.locator(ERROR).screenshot()
    for _ in range(6):
        page.keyboard.press("+")
    page.wait_for_function(
        "document.querySelector('.gl .cap').innerText.includes('rows')"
    )
    driver.settle(page)
    assert page.locator(ERROR).screenshot() != before

    page.keyboard.press("0")
    page.wait_for_function(
        "document.querySelector('.gl .cap').innerText.includes('1,000 outputs')"
    )


def test_wheel_scrolls_past_and_zooms_after_a_click(show):
    """The pointer on its way down the page does not get caught in a heat map."""
    page = show("large", height=400)
    driver.bring(page, ERROR)
    box = page.locator(ERROR).bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 60)

    top = page.evaluate("scrollY")
    page.mouse.wheel(0, -120)
    page.wait_for_function("top => scrollY < top", arg=top)
    driver.settle(page)
    assert "rows" not in driver.read(page, ".gl .cap >> nth=0")

    page.locator(ERROR).click(position={"x": 100, "y": 60})
    page.mouse.wheel(0, -120)
    page.wait_for_function(
        "document.querySelector('.gl .cap').innerText.includes('rows')"
    )


def test_one_wrong_entry_in_a_million_is_found_and_seen(show):
    """The page holds worst entries of tiles; the wrong one has its true index."""
    page = show("large")

    assert "1 of 1,000,000 entries disagrees" in status(page)
    assert "J[613, 271]" in entry(page)
    assert page.evaluate(REDDISH) >= 1


def test_the_page_itself_reduces_to_the_worst_entry(tabs, tmp_path):
    """With all entries in the page, several share a pixel: the wrong one is drawn."""
    report = builders.large(np.random.default_rng(7), 900, (613, 271))
    packed = pack_report(report, 40_000_000)
    path = tmp_path / "page.html"
    path.write_text(html.document(html.island(packed, ""), "all"), encoding="utf-8")
    with tabs.lend() as page:
        page.goto(path.as_uri())

        assert page.evaluate(REDDISH) >= 1
        assert page.problems == []


def test_layers_of_a_module_are_part_of_the_page(show):
    """A report with an audit shows the layers and opens the wrong one."""
    report = builders.zoo(np.random.default_rng(7))
    page = show(dataclasses.replace(report, layers=builders.audit(5)))

    assert "wrong itself" in driver.read(page, ".gl .lrow[aria-expanded=true]")
    assert "Swish" in driver.read(page, ".gl .layers")
    page.locator(".gl .fold").first.click()
    expect(page.locator(".gl .fold")).to_have_count(0)


def test_complex_entries_show_both_parts(show):
    """A complex block shows real and imaginary part of both sides."""
    numeric = np.array([[1 + 2j, 3 - 1j]])
    analytic = numeric * np.array([[1, -1]])
    block = builders.comparison(analytic, numeric, "z", (2,), rtol=1e-6)
    page = show(builders.report(block))

    text = entry(page).replace(driver.MINUS, "-")
    assert "z[1]" in text
    assert "3 - 1i" in text
    assert "-3 + 1i" in text


COLOURS = """side => {
  const map = document.querySelectorAll('.gl canvas.map')[side];
  return [...map.getContext('2d').getImageData(5, 5, 1, 1).data].join();
}"""


def test_complex_entries_are_sizes_unless_these_hide_what_is_wrong(show):
    """Of a conjugate both sizes are equal: it opens at the part that is flipped."""
    numeric = np.array([[1 + 2j, 3 - 1j], [2 + 1j, 1 + 1j]])
    block = builders.comparison(
        numeric.conj(), numeric, "z", (2,), ("y", (2,)), rtol=1e-6
    )
    page = show(builders.report(block))

    assert driver.read(page, ".gl figcaption >> nth=0").startswith("Im analytic")
    label = page.get_attribute(".gl canvas.map >> nth=0", "aria-label")
    assert "imaginary parts of complex entries" in label
    assert page.evaluate(COLOURS, 0) != page.evaluate(COLOURS, 1)

    page.get_by_role("button", name="Show the sizes").click()

    assert driver.read(page, ".gl figcaption >> nth=0").startswith("|analytic|")
    assert page.evaluate(COLOURS, 0) == page.evaluate(COLOURS, 1)


@pytest.mark.parametrize(
    ("factor", "caption"),
    [(1.0, "|analytic|"), (2.0, "|analytic|"), (-1.0, "Re analytic")],
)
def test_the_part_that_a_complex_block_opens_at(show, factor, caption):
    numeric = np.array([[3 + 1j, 5 - 1j]])
    block = builders.comparison(factor * numeric, numeric, "z", (2,), rtol=1e-6)
    page = show(builders.report(block))
    assert driver.read(page, ".gl figcaption >> nth=0").startswith(caption)


def test_a_heat_map_is_told_in_words(show):
    """A name, a shape and how many are wrong: no glyph that is read as "ballot x"."""
    page = show(gl.check(np.sin, np.ones(3), jac=lambda x: np.diag(2 * np.cos(x))))

    label = page.get_attribute(".gl canvas.map >> nth=2", "aria-label")
    assert label == "Error of x0, 3 by 3. 3 of 9 entries disagree"


def test_real_entries_offer_no_parts(show):
    """The choice of a part is there for complex blocks only."""
    page = show("tutorial")

    parts = page.locator(".gl [aria-label='Part of complex entries']")
    expect(parts).not_to_be_visible()
