"""Reports and widgets in JupyterLab, clicked and dragged in a real browser."""

from __future__ import annotations

import driver
import pytest
from driver import PREAMBLE
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ERROR = ".gl canvas[role=application]"
NETWORK = f"""{PREAMBLE}
X, y = rng.standard_normal((5, 4)), rng.integers(0, 3, 5)
def loss_and_grads(params):
    hidden = np.maximum(0, X @ params["W1"] + params["b1"])
    scores = hidden @ params["W2"] + params["b2"]
    q = np.exp(scores - scores.max(axis=1, keepdims=True))
    q /= q.sum(axis=1, keepdims=True)
    loss = -np.log(q[np.arange(5), y]).mean()
    d = q.copy(); d[np.arange(5), y] -= 1; d /= 5
    dh = d @ params["W2"].T; dh[hidden <= 0] = 0
    grads = {{"W1": 2 * X.T @ dh, "b1": dh.sum(0)}}
    return loss, grads | {{"W2": hidden.T @ d, "b2": d.sum(0)}}
params = {{"W1": rng.standard_normal((4, 10)), "b1": 0.1 * rng.standard_normal(10),
          "W2": rng.standard_normal((10, 3)), "b2": 0.1 * rng.standard_normal(3)}}
report = gl.check(loss_and_grads, params)
"""


def click_cell(page, row, column, rows, columns):
    """Click the middle of a cell of the error panel."""
    driver.bring(page, ERROR)
    at = driver.cell_centre(page, ERROR, row, column, rows, columns)
    page.locator(ERROR).click(position=at)


def test_report_of_a_real_check_is_the_page(lab):
    """The last line `report` of a cell shows the interactive page with the culprit."""
    page = lab(NETWORK + "report")

    driver.shows(page, ".gl h3", "W1")
    driver.shows(page, ".gl .status", "W1")
    click_cell(page, 1, 2, 4, 10)
    driver.shows(page, ".gl .entry", "W1[1, 2]")
    # JupyterLab styles definition lists of its own accord: ours stay one line each
    heights = page.eval_on_selector_all(
        ".gl .entry dt",
        "terms => terms.map(term => term.getBoundingClientRect().height)",
    )
    assert max(heights) < 24


def test_report_needs_no_kernel(lab):
    """After the kernel is gone, blocks and entries can still be chosen."""
    page = lab(PREAMBLE + "builders.zoo(rng)")
    page.wait_for_selector(".gl .brow")
    page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()"
    )
    driver.settle(page)

    page.locator(".gl .brow[data-key='fc1.weight']").click()
    page.get_by_text("worst", exact=True).click()

    driver.shows(page, ".gl .entry", "fc1.weight[5")


def test_click_reaches_python(lab):
    """Choosing a block and an entry sets the traits `param` and `selected`."""
    page = lab(PREAMBLE + "w = builders.zoo(rng).explore(); w")

    page.locator(".gl .brow[data-key='norm.gamma']").click()
    driver.wait_for_kernel(page, "w.param", "'norm.gamma'")
    driver.shows(page, ".gl .status", "norm.gamma")  # its numbers are there
    click_cell(page, 7, 4, 24, 16)

    driver.wait_for_kernel(page, "w.selected", "[7, 4]")
    driver.shows(page, ".gl .entry", "norm.gamma[4]")


def test_tolerance_reaches_python(lab):
    """Dragging the tolerance sets the trait `tol`."""
    page = lab(PREAMBLE + "w = builders.zoo(rng).explore(); w")
    slider = driver.bring(page, ".gl .scale input[type=range]")
    box = slider.bounding_box()
    middle = box["y"] + 6

    page.mouse.move(box["x"] + box["width"] * 0.56, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, middle, steps=6)
    page.mouse.up()

    driver.wait_for_kernel(page, "1e-3 < (w.tol or 0) < 1e0", "True")


def test_python_reaches_the_picture(lab):
    """Setting `param`, `tol` and `selected` in Python changes the page."""
    page = lab(PREAMBLE + "w = builders.zoo(rng).explore(); w")
    page.wait_for_selector(ERROR)
    driver.settle(page)
    before = page.locator(ERROR).screenshot()

    driver.ask_kernel(page, "w.set_trait('param', 'fc1.weight')")
    page.wait_for_function(
        "document.querySelector('.gl .status').innerText.includes('fc1.weight')"
    )
    driver.ask_kernel(page, "w.set_trait('selected', [3, 31])")
    page.wait_for_function(
        "document.querySelector('.gl .entry').innerText.includes('J[3, 31]')"
    )
    driver.ask_kernel(page, "w.set_trait('tol', 100.0)")
    page.wait_for_function(
        "document.querySelector('.gl .status').innerText.includes('all 1,728')"
    )

    driver.settle(page)
    assert page.locator(ERROR).screenshot() != before


def test_recompute_here_updates_block_and_report(lab):
    """Another step changes the numeric side of that block, in page and Python."""
    page = lab(NETWORK + "w = report.explore(); w")
    page.locator(".gl .brow[data-key=W2]").click()
    driver.wait_for_kernel(page, "w.param", "'W2'")

    row = ".gl .brow[data-key=W2] .worst"
    before = driver.read(page, row)
    page.select_option(".gl select", "central")
    page.locator(".gl input[type=text]").fill("1e-3")
    page.get_by_text("recompute here").click()

    driver.wait_for_kernel(page, "float(w.comparison.step.max().round(9))", "0.001")
    page.wait_for_function(
        "document.querySelector('.gl').innerText.includes('central: ')"
    )
    expect(page.locator(row)).not_to_have_text(before)


def test_a_wrong_step_is_told_in_the_page(lab):
    """An impossible step is refused with a sentence, not with a stack trace."""
    page = lab(NETWORK + "w = report.explore(); w")

    page.select_option(".gl select", "central")
    page.locator(".gl input[type=text]").fill("1e999")
    page.get_by_text("recompute here").click()

    page.wait_for_selector(".gl .message")
    page.wait_for_function(
        "document.querySelector('.gl .message').innerText.includes('number above 0')"
    )


def test_a_pinned_entry_shows_its_own_sweep(lab):
    """Clicking a cell draws that entry's error against the step."""
    page = lab(NETWORK + "w = report.explore(); w")

    click_cell(page, 2, 2, 4, 10)

    page.wait_for_selector(".gl .entryplot svg path", state="attached")
    driver.shows(page, ".gl .entryplot", "W1[2, 2]")


def test_typing_never_deletes_the_cell(lab):
    """d d, b and x typed on any control leave the notebook's cells alone."""
    page = lab(PREAMBLE + "builders.zoo(rng)", "1 + 1")
    page.locator(".jp-InputPrompt").first.click()  # command mode, where keys are orders

    driver.type_on(page, [page.locator(f".gl {part}").first for part in driver.PARTS])


def test_zooming_into_a_large_block_fetches_true_values(lab):
    """Zoomed in, an entry that no tile showed has its own value, from the kernel."""
    page = lab(
        PREAMBLE + "report = builders.large(rng, 1100, (613, 271))\n"
        "w = report.explore(); w"
    )
    driver.shows(page, ".gl .entry", "J[613, 271]")
    page.locator(ERROR).focus()
    for _ in range(14):
        page.keyboard.press("+")
    # its tile is asked for after a pause, and comes when the kernel has answered
    caption = page.locator(".gl figcaption", has_text="error")
    expect(caption).not_to_contain_text("worst per tile")

    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")

    driver.shows(page, ".gl .entry", "J[614, 272]")
    value = float(driver.ask_kernel(page, "float(report['W'].analytic[614, 272])"))
    text = driver.read(page, ".gl .entry").replace(driver.MINUS, "-")
    shown = float(text.split("analytic\n")[1].split()[0])
    assert shown == pytest.approx(value, rel=1e-5)


def test_a_name_opens_its_jacobian_at_the_step(lab):
    """A chip of a live sweep opens the panels of that input, checked at that step."""
    page = lab(NETWORK + "w = report.sweep().explore(); w")

    page.locator(".gl .chip", has_text="W2").click()

    page.wait_for_selector(ERROR)
    driver.shows(page, ".gl .status", "W2")


def test_names_are_text_in_live_views_too(lab):
    """Hostile names in a widget run nothing."""
    page = lab(PREAMBLE + "w = builders.hostile(rng).explore(); w")
    page.wait_for_selector(".gl .entry")
    driver.settle(page)

    assert page.evaluate("window.pwned") is None
    driver.shows(page, ".gl h3", "<img src=x")


def test_two_views_of_one_widget_follow_each_other(lab):
    """A choice in one view is shown in the other."""
    page = lab(PREAMBLE + "w = builders.zoo(rng).explore(); w", "w")

    page.locator(".gl >> nth=0").locator(".brow[data-key='fc1.weight']").click()

    second = page.locator(".gl >> nth=1").locator(".status")
    second.get_by_text("fc1.weight").wait_for()


def test_dragging_the_step_reaches_python(lab):
    """Drag the cursor of a sweep: the trait `h` follows, the heat map changes."""
    page = lab(
        PREAMBLE + "w = gl.EpsilonSweep(builders.sweep(rng), picked='fc1.weight'); w"
    )
    page.locator(".gl .chip", has_text="fc2.weight").click()
    driver.wait_for_kernel(page, "w.picked", "'fc2.weight'")
    # from here on nothing is drawn that nobody asks for
    driver.shows(page, ".gl figure:not([aria-busy=true]) figcaption", "fc2.weight")
    cursor = driver.bring(page, ".gl .cursor rect >> nth=1")
    before = page.locator(".gl figure canvas[role=img]").screenshot()
    box = cursor.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 160, y, steps=8)
    page.mouse.up()

    driver.wait_for_kernel(page, "0 < w.h < 1e-6", "True")
    driver.settle(page)
    assert page.locator(".gl figure canvas[role=img]").screenshot() != before


def test_layers_open_by_click(lab):
    """Clicking a layer opens it and sets the trait `picked`."""
    page = lab(PREAMBLE + "w = gl.LayerBlame(builders.audit(6)); w")
    driver.shows(page, ".gl .lrow[aria-expanded=true]", "wrong itself")

    page.locator(".gl .lrow", has_text="stem").click()

    driver.wait_for_kernel(page, "w.picked", "'stem'")
    driver.shows(page, ".gl .ldetail", "agrees with finite differences")


def test_reopened_notebook_is_interactive(fresh_lab):
    """Saved and opened again (trusted, kernel not run), the page works."""
    page = fresh_lab(PREAMBLE + "builders.zoo(rng)")
    driver.save(page)

    page.reload(wait_until="domcontentloaded")
    page.wait_for_selector(".gl .status")
    page.locator(".gl .brow[data-key='norm.gamma']").click()

    driver.shows(page, ".gl .status", "norm.gamma")
