"""The bug hunt in JupyterLab, played with mouse and keyboard."""

from __future__ import annotations

import driver
import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

START = "from gradlab.presentation.widgets.hunt import BugHunt"
BROKEN = """
def linear_backward(dout, x, W, b):
    return dout @ W.T, x.T @ dout, dout
"""
FIXED = BROKEN.replace(", dout\n", ", dout.sum(axis=0)\n")
NAME = "<img src=x onerror=boom()>"
GAME = f"{START}\nw = BugHunt(level=2, seconds=600, student={NAME!r})\nw"


def press(page, words):
    """Press a button of the game by its words."""
    page.locator(".gl.hunt .bar button", has_text=words).click()


def wait_for(page, words):
    """Wait until the status line says so."""
    page.wait_for_function(
        "words => document.querySelector('.gl.hunt .said').innerText.includes(words)",
        arg=words,
    )


def test_check_shows_a_row_for_each_gradient(lab):
    """The wrong gradient is named with its reason, the right ones with their error."""
    page = lab(BROKEN, GAME)
    press(page, "check")
    wait_for(page, "1 of 3 wrong: db.")

    rows = page.locator(".gl.hunt .hrow")
    expect(rows).to_have_count(3)
    assert [rows.nth(i).locator(".g").inner_text() for i in range(3)] == list("✓✓✗")
    expect(rows.nth(2)).to_contain_text("has shape (5, 3), expected (3,)")


def test_fixed_code_is_found_by_name_and_rewarded(lab):
    """A hint, a wrong try and the fix: points fall, the moral appears, next opens."""
    page = lab(BROKEN, GAME)
    press(page, "check")
    wait_for(page, "1 of 3 wrong")
    press(page, "hint")
    page.wait_for_selector(".gl.hunt .hints li")
    driver.ask_kernel(page, f"exec({FIXED!r}, globals())")
    press(page, "check")
    wait_for(page, "Solved: 75 points.")

    expect(page.locator(".gl.hunt .score b")).to_have_text("75")
    driver.shows(page, ".gl.hunt .finding.ok", "broadcasts")
    press(page, "next bug")
    page.wait_for_function(
        "document.querySelector('.gl.hunt h3').innerText.includes('Bug 3')"
    )
    driver.wait_for_kernel(page, "w.log()['solved'].tolist()", "[False, False, True]")


def test_an_answer_as_before_is_an_answer(lab):
    """Pressing check again and again with the same code: it never stays "checking…"."""
    page = lab(BROKEN, GAME)
    for words in ("1 of 3 wrong", "As before", "As before"):
        press(page, "check")
        page.wait_for_function(
            "!document.querySelector('.gl.hunt.busy')", timeout=1000 * driver.PATIENCE
        )
        driver.shows(page, ".gl.hunt .said", words)


def test_code_that_raises_or_never_ends_is_an_answer(lab):
    """An exception and an endless loop become sentences; the game goes on."""
    page = lab(
        "def linear_backward(*_):\n    return 1 / 0",
        GAME.replace("seconds=600", "seconds=2"),
    )
    press(page, "check")
    driver.shows(page, ".gl.hunt .hrow", "ZeroDivisionError")

    endless = "def linear_backward(*_):\n    while True:\n        pass"
    driver.ask_kernel(page, f"exec({endless!r}, globals())")
    press(page, "check")
    driver.shows(page, ".gl.hunt .hrow", "never ends")
    driver.wait_for_kernel(page, "1 + 1", "2")


def test_a_name_is_shown_as_text(lab):
    """A student called <img onerror=...> is shown, and nothing of it runs."""
    page = lab(GAME)

    driver.shows(page, ".gl.hunt header", "<img src=x")
    driver.settle(page)
    assert page.locator(".gl.hunt img").count() == 0


def test_a_cell_calls_what_the_buttons_call(lab):
    """hunt.check() in a cell answers there, and in the window."""
    page = lab(GAME, FIXED, "w.check()")
    wait_for(page, "Solved: 100 points.")

    last = page.locator(".jp-OutputArea-output pre >> nth=-1")
    expect(last).to_contain_text("✓ db")


def test_typing_never_deletes_the_cell(lab):
    """All elements of the game take the focus; what is typed there reaches no cell."""
    page = lab(GAME)
    page.wait_for_selector(".gl.hunt button.main")
    driver.settle(page)
    focusable = page.locator(driver.FOCUSABLE).all()

    assert len(focusable) >= 14
    driver.type_on(page, focusable)


def test_the_keyboard_plays(lab):
    """Enter on the focused button checks; the next level is reached without a mouse."""
    page = lab(FIXED, GAME)
    page.locator(".gl.hunt button.main").focus()
    page.keyboard.press("Enter")
    wait_for(page, "Solved: 100 points.")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    page.wait_for_function(
        "document.querySelector('.gl.hunt h3').innerText.includes('Bug 3')"
    )
