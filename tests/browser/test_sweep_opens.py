"""A sweep as it opens: what is shown before anybody has touched it."""

from __future__ import annotations

import driver
import numpy as np
import pytest
from playwright.sync_api import expect

import gradlab as gl

pytestmark = pytest.mark.browser

LOUD = """() => {
  const map = document.querySelector('.gl figure canvas');
  const data = map.getContext('2d').getImageData(0, 0, map.width, map.height).data;
  let n = 0;
  for (let i = 0; i < data.length; i += 4) n += data[i] > data[i + 2] + 60;
  return n / (data.length / 4);
}"""


def single_precision(factor=1):
    """Sweep a matrix product through tanh in float32; its rounding is seen."""
    rng = np.random.default_rng(3)
    x, w = (rng.normal(size=n).astype(np.float32) for n in [(5, 4), (4, 3)])

    def vjp(cotangents, x, w):
        slope = cotangents * (1 - np.tanh(x @ w) ** 2)
        return slope @ w.T, factor * x.T @ slope

    return gl.sweep(lambda x, w: np.tanh(x @ w), x, w, vjp=vjp)


def test_a_method_that_has_no_other_beside_it_is_no_button(show):
    """There is nothing to choose: it stands in the line below the headline."""
    page = show(gl.sweep(lambda x: np.exp(x).sum(), np.ones(3), grad=np.exp))

    expect(page.get_by_role("group", name="Numeric method")).to_have_count(0)
    expect(page.locator(".gl header p")).to_contain_text("43 steps · central ·")


@pytest.mark.parametrize(("entries", "shown"), [(1, 0), (2, 1)])
def test_a_single_entry_has_no_matrix_beside_its_curve(show, entries, shown):
    """All that it would show is in the curve, which takes the room."""
    page = show(gl.sweep(lambda x: np.exp(x).sum(), np.ones(entries), grad=np.exp))
    driver.settle(page)

    visible = page.locator(".gl figure canvas.map").evaluate_all(
        "maps => maps.filter(map => map.getBoundingClientRect().width > 0).length"
    )
    assert visible == shown


def test_noise_of_float32_is_not_shown_as_a_mistake(show):
    """At the best step nothing is louder than the floor that is drawn beside it."""
    sweep = single_precision()
    assert sweep.verdict == gl.Verdict.AGREES
    page = show(sweep)

    assert page.evaluate(LOUD) == 0


def test_a_mistake_in_float32_is_loud(show):
    """Three times too much stands above any floor."""
    page = show(single_precision(factor=3))
    driver.settle(page)

    assert page.evaluate(LOUD) > 0.2


def test_the_cursor_stands_at_the_better_of_two_steps(show):
    """The best step lies between rungs of the ladder: the lower of both is read."""
    for sweep in (single_precision(), single_precision(factor=3)):
        name = min(sweep.inputs, key=lambda name: -int(sweep.verdicts[name]))
        errors = sweep.errors["central", name]
        best = sweep.curve("central", name).best_step
        above = int(np.searchsorted(sweep.steps, best))
        page = show(sweep)
        at = float(
            page.get_attribute(".gl .cursor", "aria-valuetext").replace(
                driver.MINUS, "-"
            )
        )
        rung = int(np.argmin(np.abs(np.log(sweep.steps / at))))

        assert rung in (above - 1, above)
        assert errors[rung] == errors[[above - 1, above]].min()


def test_a_curve_that_was_cut_short_ends_where_it_ends(show):
    """No floor, no best step, and a leader that is not taken for the curve."""
    calls = iter(range(1000))

    def f(x):
        if next(calls) == 300:
            raise KeyboardInterrupt
        return np.sin(x).sum()

    sweep = gl.sweep(f, np.linspace(0.1, 1, 20), grad=np.cos)
    page = show(sweep)

    words = page.locator(".gl svg").first.text_content()
    assert "floor" not in words
    assert "best h" not in words
    leader = page.locator(".gl svg path[stroke-dasharray='1 5']")
    expect(leader).to_have_count(1)
    known = np.isfinite(sweep.errors["central", "x"])
    at = page.get_attribute(".gl .cursor", "aria-valuetext").replace(driver.MINUS, "-")
    assert float(at) <= 1.1 * sweep.steps[known].max()
    assert page.evaluate(LOUD) == 0  # what agrees is not shown as a mistake


def test_a_floor_below_a_narrow_plot_stands_beside_the_name_of_its_axis(show):
    """Both branches end at the foot of the plot, and the cursor stands between them."""
    x = np.linspace(0.1, 1.0, 4)
    sweep = gl.sweep(lambda x: np.exp(x).sum(), x, grad=lambda x: 2 * np.exp(x))
    page = show(sweep, width=400)

    texts = page.locator(".gl svg text")
    boxes = [texts.filter(has_text=words).bounding_box() for words in ("u/h", "h²")]
    boxes.append(page.locator(".gl .cursor rect").last.bounding_box())
    floor = texts.filter(has_text="↓ floor").bounding_box()
    for box in boxes:
        assert (
            box["x"] + box["width"] <= floor["x"]
            or floor["x"] + floor["width"] <= box["x"]
            or box["y"] + box["height"] <= floor["y"]
        )
