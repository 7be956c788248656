"""Live views between a question and its answer: it comes when a test says so."""

from __future__ import annotations

import builders
import driver
import numpy as np
import pytest
import waiting
from playwright.sync_api import expect

import gradlab as gl

pytestmark = pytest.mark.browser

HEAT = ".gl figure canvas[role=img]"
BUSY = ".gl figure[aria-busy=true]"


@pytest.fixture
def page(tabs):
    """Open an empty page; nothing may be thrown in it."""
    with tabs.lend() as page:
        page.set_content("<!doctype html>")
        yield page
        assert page.problems == []


@pytest.fixture
def sweep():
    """A sweep of five inputs, `fc2.weight` the last of them."""
    return gl.EpsilonSweep(builders.sweep(np.random.default_rng(7)))


@pytest.fixture
def measured():
    """A sweep of a real function, which other methods may be asked of."""
    x, y = np.linspace(0.5, 2, 12).reshape(3, 4), np.array([1.0, 2.0])
    report = gl.check(
        lambda x, y: (x**3).sum() + (y**2).sum(),
        *(x, y),
        grad=lambda x, y: (3 * x**2, y),
    )
    return report.sweep().explore()


def planes_of(widget, page):
    """Return the numbers that a sweep has just asked for."""
    return widget._planes[waiting.asked(page, "block")["key"]]


def test_the_first_input_is_the_one_that_python_picked(page):
    """`EpsilonSweep(sweep, picked=...)` opens at that input, not at the worst one."""
    swept = builders.sweep(np.random.default_rng(7))
    waiting.mount(page, gl.EpsilonSweep(swept, picked="fc2.weight"))

    expect(page.locator(".gl .chip[aria-pressed=true]")).to_contain_text("fc2.weight")


def test_pointing_at_a_matrix_that_is_on_its_way_is_no_error(page, sweep):
    """The heat map is read where the pointer stands once its numbers are there."""
    waiting.mount(page, sweep)
    waiting.answer(page, "block", planes=planes_of(sweep, page))
    page.locator(".gl .chip", has_text="fc2.weight").click()
    expect(page.locator(BUSY)).to_have_count(1)

    driver.bring(page, HEAT)
    page.locator(HEAT).hover(position={"x": 5, "y": 5})
    waiting.answer(page, "block", planes=planes_of(sweep, page))

    expect(page.locator(BUSY)).to_have_count(0)
    driver.shows(page, ".gl figure .keys", "J[0, 0]: ")


def test_what_is_read_follows_the_step(page, sweep):
    """The number under the pointer is that of the new step when the cursor moves."""
    sweep.picked = "fc2.weight"
    waiting.mount(page, sweep)
    waiting.answer(page, "block", planes=planes_of(sweep, page))
    driver.bring(page, HEAT)
    page.locator(HEAT).hover(position={"x": 5, "y": 5})
    driver.shows(page, ".gl figure .keys", "J[0, 0]: ")
    before = page.inner_text(".gl figure .keys")

    page.locator(".gl .cursor").focus()
    page.keyboard.press("End")

    driver.shows(page, ".gl figure .keys", "J[0, 0]: ")
    assert page.inner_text(".gl figure .keys") != before


def test_a_name_keeps_the_focus_when_its_numbers_arrive(page, sweep):
    """Enter on a name singles it out; the next Tab goes on from there."""
    waiting.mount(page, sweep)
    page.locator(".gl .chip", has_text="fc2.weight").focus()
    page.keyboard.press("Enter")
    waiting.answer(page, "block", planes=planes_of(sweep, page))

    assert "fc2.weight" in waiting.focused(page)


def test_a_method_keeps_the_focus_while_it_is_measured_and_after(page, measured):
    """Enter on a method: the button waits, is not pressed twice, and stays in hand."""
    waiting.mount(page, measured)
    button = page.get_by_role("button", name="forward", exact=True)
    button.focus()
    page.keyboard.press("Enter")
    waiting.asked(page, "method")
    page.keyboard.press("Enter")

    assert waiting.focused(page) == "forward"
    assert page.evaluate("model.asked.filter(m => m.type === 'method').length") == 1
    measured._answer_method({"method": "forward"})
    waiting.change(page, {"method": "forward", "page": measured.page})
    waiting.answer(page, "method")
    assert waiting.focused(page) == "forward"
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".gl button[aria-disabled=true]")).to_have_count(0)


def test_a_drag_outlives_what_is_drawn_meanwhile(page, sweep):
    """Numbers arrive and the page gets narrower while the line is held: it follows."""
    waiting.mount(page, sweep)
    driver.bring(page, ".gl .cursor")
    box = page.locator(".gl .cursor rect").last.bounding_box()
    page.mouse.move(box["x"] + 6, box["y"] + 8)
    page.mouse.down()
    waiting.answer(page, "block", planes=planes_of(sweep, page))
    page.set_viewport_size({"width": 900, "height": 1000})
    driver.settle(page)

    plot = page.locator(".gl svg[role=group]").bounding_box()
    page.mouse.move(plot["x"] + 60, plot["y"] + 600, steps=4)  # far below the plot
    driver.settle(page)
    first = float(page.get_attribute(".gl .cursor", "aria-valuenow"))
    page.mouse.up()
    page.mouse.move(plot["x"] + 400, plot["y"] + 100, steps=4)
    driver.settle(page)

    assert first < -12
    assert float(page.get_attribute(".gl .cursor", "aria-valuenow")) == first
    # and the arrow keys go on from there
    page.keyboard.press("ArrowRight")
    assert float(page.get_attribute(".gl .cursor", "aria-valuenow")) > first


def test_a_finger_that_scrolls_lets_go_of_the_cursor(tabs, sweep):
    """A finger that moves down scrolls the page, and the line does not stick to it."""
    with tabs.lend(has_touch=True, height=300) as page:
        page.set_content("<!doctype html>")
        waiting.mount(page, sweep)
        driver.bring(page, ".gl .cursor")
        box = page.locator(".gl svg[role=group]").bounding_box()
        x, y = box["x"] + 300, 250
        hand = page.context.new_cdp_session(page)
        for kind, points in (
            ("touchStart", [(x, y)]),
            *(("touchMove", [(x, y - 15 * k)]) for k in range(1, 8)),
            ("touchEnd", []),
        ):
            touches = [{"x": a, "y": b} for a, b in points]
            hand.send(
                "Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches}
            )
        driver.settle(page)
        before = page.get_attribute(".gl .cursor", "aria-valuetext")

        page.mouse.move(box["x"] + 120, 150, steps=3)
        driver.settle(page)

        assert page.get_attribute(".gl .cursor", "aria-valuetext") == before


def test_an_entry_of_the_block_before_is_not_chosen_in_the_next(page):
    """A click on the picture while another block is on its way pins nothing."""
    explorer = builders.zoo(np.random.default_rng(7)).explore()
    waiting.mount(page, explorer)
    ask = lambda: waiting.asked(page, "block")["key"]
    meta, planes = explorer._packed[ask()]
    waiting.answer(page, "block", {"meta": meta}, planes)
    driver.shows(page, ".gl .status", "fc2.bias")
    page.locator(".gl .brow[data-key='norm.gamma']").click()

    page.locator(".gl canvas[role=application]").click(position={"x": 9, "y": 9})
    meta, planes = explorer._packed[ask()]
    waiting.answer(page, "block", {"meta": meta}, planes)

    driver.shows(page, ".gl .status", "norm.gamma")
    driver.shows(page, ".gl .entry", "the worst entry")
    assert page.evaluate("model.get('selected')") == []


def test_numbers_that_come_in_the_trait_are_shown(page):
    """The answer to the page has none; they have come before it, or come after."""
    explorer = builders.zoo(np.random.default_rng(7)).explore()
    waiting.mount(page, explorer)
    meta, planes = explorer._packed[waiting.asked(page, "block")["key"]]
    waiting.answer(page, "block", {"meta": meta}, planes)
    for name, first in (("norm.gamma", True), ("fc1.weight", False)):
        page.locator(f".gl .brow[data-key='{name}']").click()
        if first:
            waiting.send_block(page, name, *explorer._packed[name])
        waiting.answer(page, "block")
        if not first:
            waiting.send_block(page, name, *explorer._packed[name])

        driver.shows(page, ".gl .status", name)
        assert not page.locator(".gl.busy").count()


def test_recompute_here_keeps_the_focus(page):
    """Enter asks once; the button waits, and the next Enter asks again."""
    report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    explorer = report.explore()
    waiting.mount(page, explorer)
    meta, planes = explorer._packed["x"]
    waiting.answer(page, "block", {"meta": meta}, planes)
    count = "model.asked.filter(m => m.type === 'recompute').length"
    page.get_by_role("button", name="recompute here").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")

    assert page.evaluate(count) == 1
    waiting.answer(page, "recompute", {"words": "done"})
    page.keyboard.press("Enter")
    assert page.evaluate(count) == 2


def test_a_method_without_a_step_says_so_before_one_is_typed(page):
    """The field is closed for it, and open again, with what was in it, for others."""
    report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    waiting.mount(page, report.explore())
    meta, planes = report.explore()._packed["x"]
    waiting.answer(page, "block", {"meta": meta}, planes)
    step = page.get_by_label("Step size")
    expect(step).to_be_disabled()  # as checked
    expect(step).to_have_attribute("placeholder", "its own")

    page.get_by_label("Numeric method").select_option("central")
    step.fill("1e-3")
    page.get_by_label("Numeric method").select_option("adaptive")
    expect(step).to_be_disabled()
    expect(step).to_have_value("")
    page.get_by_role("button", name="recompute here").click()
    assert waiting.asked(page, "recompute")["step"] is None

    page.get_by_label("Numeric method").select_option("complex-step")
    expect(step).to_be_editable()
    expect(step).to_have_value("1e-3")


def test_another_precision_opens_at_its_own_best_step(page, measured):
    """What was chosen in float64 is noise in float32: the cursor is set anew."""
    waiting.mount(page, measured)
    page.locator(".gl .cursor").focus()
    page.keyboard.press("Home")
    driver.settle(page)
    measured.h = page.evaluate("model.get('h')")
    measured._answer_dtype({"dtype": "float32"})
    names = ("h", "dtype", "method", "page")
    waiting.change(page, {name: getattr(measured, name) for name in names})

    cursor = page.locator(".gl .cursor").get_attribute("aria-valuetext")
    step = float(cursor.replace(driver.MINUS, "-"))
    best = [measured.sweep.best_step[name] for name in "xy"]
    assert min(best) / 3 < step < 3 * max(best)


def test_without_a_kernel_the_block_before_is_named(page):
    """Another block cannot come: the page says why, and what it still shows."""
    explorer = builders.zoo(np.random.default_rng(7)).explore()
    waiting.mount(page, explorer)
    meta, planes = explorer._packed[waiting.asked(page, "block")["key"]]
    waiting.answer(page, "block", {"meta": meta}, planes)
    driver.shows(page, ".gl .status", "fc2.bias")
    page.evaluate("() => { model.send = () => { throw new Error('no comm'); }; }")

    page.locator(".gl .brow[data-key='norm.gamma']").click()

    driver.shows(page, ".gl p.message", "run the cell again", "still fc2.bias")
    expect(page.locator(".gl .brow[aria-selected=true]")).to_contain_text("fc2.bias")


def test_the_last_hint_hands_the_focus_to_the_button_beside_it(page):
    """A button that is used up lets go of the focus: `check` takes it."""
    game = gl.BugHunt(level=2)
    waiting.mount(page, game)
    page.locator(".gl .bar button", has_text="hint").focus()
    while game.page["left"]:
        page.keyboard.press("Enter")
        game.hint()
        waiting.change(page, {"page": game.page})

    assert waiting.focused(page) == "check"
