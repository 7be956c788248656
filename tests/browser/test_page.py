"""The page of a report as a file: no kernel, no network, a real browser."""

from __future__ import annotations

import dataclasses

import builders
import driver
import numpy as np
import pytest

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
    return page.inner_text(".gl .status")


def entry(page):
    """Read the inspector."""
    return page.inner_text(".gl .entry")


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
    assert page.inner_text(".gl h3").startswith("Disagrees: W1")


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
    shown = page.inner_text(".gl")

    for finding in report.findings:
        assert finding.where in shown
        assert finding.evidence in shown
        assert finding.advice in shown


def test_rival_explanations_are_folded(show):
    """Two explanations of one place: the likelier is a card, the other a click away."""
    rng = np.random.default_rng(7)
    report = builders.tutorial(rng)
    rival = dataclasses.replace(
        report.findings[0],
        kind="accumulated_grad",
        confidence=0.3,
        evidence="Rival.",
        rival=True,
    )
    page = show(dataclasses.replace(report, findings=(*report.findings, rival)))

    assert not page.get_by_text("Rival.").is_visible()
    page.get_by_text("1 other explanation, less likely").click()
    assert page.get_by_text("Rival.").is_visible()


def test_tolerance_recounts_and_recolours(show):
    """A tolerance above the error makes all entries agree; the picture changes."""
    page = show("tutorial")
    before = page.locator(ERROR).screenshot()

    page.locator(SLIDER).focus()
    page.keyboard.press("End")  # 1e2
    page.wait_for_function(
        "document.querySelector('.gl .status').innerText.includes('all 40')"
    )

    assert page.locator(ERROR).screenshot() != before
    page.get_by_text("as checked", exact=True).click()
    page.wait_for_function(
        "document.querySelector('.gl .status').innerText.includes('disagree')"
    )
    assert page.locator(ERROR).screenshot() == before


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


def test_code_in_words_is_set_as_code(show):
    """Backticks mark code, as in a docstring; none is shown."""
    report = builders.tutorial(np.random.default_rng(7))
    finding = dataclasses.replace(report.findings[0], evidence="`loss.py` doubles it.")
    page = show(dataclasses.replace(report, findings=(finding,)))

    assert page.inner_text(".gl .finding code") == "loss.py"
    assert "`" not in page.inner_text(".gl")


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
        seen.append(page.inner_text(".gl .entry .num >> nth=0"))

    assert set(seen) == {"J[5, 2]", "J[7, 1]"}
    assert seen[0] == seen[2]


def test_zoom_and_reset(show):
    """+ zooms into the pinned entry, 0 shows everything again."""
    page = show("large")
    page.locator(ERROR).focus()
    before = page.locator(ERROR).screenshot()
    for _ in range(6):
        page.keyboard.press("+")
    page.wait_for_function(
        "document.querySelector('.gl .cap').innerText.includes('rows')"
    )
    assert page.locator(ERROR).screenshot() != before

    page.keyboard.press("0")
    page.wait_for_function(
        "document.querySelector('.gl .cap').innerText.includes('1,000 outputs')"
    )


def test_wheel_scrolls_past_and_zooms_after_a_click(show):
    """The pointer on its way down the page does not get caught in a heat map."""
    page = show("large", height=400)
    page.locator(ERROR).scroll_into_view_if_needed()
    box = page.locator(ERROR).bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 60)

    page.mouse.wheel(0, -120)
    page.wait_for_timeout(300)
    assert "rows" not in page.inner_text(".gl .cap >> nth=0")

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


def test_the_page_itself_reduces_to_the_worst_entry(chromium, tmp_path):
    """With all entries in the page, several share a pixel: the wrong one is drawn."""
    report = builders.large(np.random.default_rng(7), 900, (613, 271))
    packed = pack_report(report, 40_000_000)
    path = tmp_path / "page.html"
    path.write_text(html.document(html.island(packed, ""), "all"), encoding="utf-8")
    with driver.tab(chromium, offline=True) as page:
        page.goto(path.as_uri())

        assert page.evaluate(REDDISH) >= 1
        assert page.problems == []


def test_names_are_text_never_markup(show):
    """A name full of markup is shown as it is and runs nothing."""
    report = builders.hostile(np.random.default_rng(7))
    page = show(report)
    page.wait_for_timeout(200)

    assert page.evaluate("window.pwned") is None
    assert page.locator("img[src=x]").count() == 0
    assert report.comparisons[0].input.name in page.inner_text(".gl")


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

    assert page.locator(".gl.dark").count() == int(dark)
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

    assert page.locator("img[alt*='disagrees']").is_visible()
    assert "W1" in page.inner_text("pre")
    assert page.locator(".gl").count() == 0


def test_nothing_is_fetched(show):
    """The page asks the network for nothing."""
    page = show("zoo")
    page.wait_for_timeout(200)

    away = [u for u in page.requests_made if not u.startswith(("file:", "data:"))]
    assert away == []


@pytest.mark.parametrize("name", ["zoo", "long_names"])
@pytest.mark.parametrize("width", [360, 480, 700, 1400])
def test_nothing_sticks_out(show, width, name):
    """At every width the page fits: no sideways scrolling."""
    page = show(name, width=width)
    page.wait_for_timeout(150)

    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_layers_of_a_module_are_part_of_the_page(show):
    """A report with an audit shows the layers and opens the wrong one."""
    report = builders.zoo(np.random.default_rng(7))
    page = show(dataclasses.replace(report, layers=builders.audit(5)))

    assert "wrong itself" in page.inner_text(".gl .lrow[aria-selected=true]")
    assert "Swish" in page.inner_text(".gl .layers")
    page.locator(".gl .fold").first.click()
    assert page.locator(".gl .fold").count() == 0


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


def test_complex_entries_are_sizes_until_a_part_is_chosen(show):
    """|J| first, said in words; the imaginary part shows the sign that is flipped."""
    numeric = np.array([[1 + 2j, 3 - 1j], [2 + 1j, 1 + 1j]])
    analytic = numeric.conj()
    block = builders.comparison(analytic, numeric, "z", (2,), ("y", (2,)), rtol=1e-6)
    page = show(builders.report(block))
    colours = """side => {
      const map = document.querySelectorAll('.gl canvas.map')[side];
      return [...map.getContext('2d').getImageData(5, 5, 1, 1).data].join();
    }"""

    assert page.inner_text(".gl figcaption >> nth=0").startswith("|analytic|")
    assert page.evaluate(colours, 0) == page.evaluate(colours, 1)

    page.get_by_role("button", name="imaginary").click()

    assert page.inner_text(".gl figcaption >> nth=0").startswith("Im analytic")
    label = page.get_attribute(".gl canvas.map >> nth=0", "aria-label")
    assert "imaginary parts of complex entries" in label
    assert page.evaluate(colours, 0) != page.evaluate(colours, 1)


def test_real_entries_offer_no_parts(show):
    """The choice of a part is there for complex blocks only."""
    page = show("tutorial")

    assert not page.locator(".gl [aria-label='Part of complex entries']").is_visible()
