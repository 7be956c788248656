"""Pages of sweeps as files: which curves are drawn, and how each is named."""

from __future__ import annotations

import itertools

import builders
import driver
import numpy as np
import pytest
from playwright.sync_api import expect

import gradlab as gl
from gradlab.presentation.packing_results import pack_sweep

pytestmark = pytest.mark.browser

LABELS = ".gl svg[role=group] text"


def test_a_gradient_of_nan_is_said_and_not_drawn(show):
    """It has no error that a curve could show: its name says so, and the sentence."""
    point = {"w": np.arange(1.0, 4), "b": np.ones(2)}
    grads = {"w": np.array([2.0, np.nan, 6]), "b": np.cos(np.ones(2))}
    sweep = gl.sweep(lambda p: (p["w"] @ p["w"] + np.sin(p["b"]).sum(), grads), point)
    page = show(pack_sweep(sweep))

    drawn = page.eval_on_selector_all(
        ".gl .curve", "all => all.map(g => [g.dataset.name, g.lastChild.tagName])"
    )
    assert dict(drawn) == {"w": "path", "b": "circle"}  # a dot on a curve alone
    assert page.get_attribute(".gl .curve[data-name=w] path >> nth=0", "d") == ""
    expect(page.locator(LABELS, has_text="w: no curve")).to_be_visible()
    assert "analytic nan" in driver.read(page, ".gl .finding")
    assert "NaN" in driver.read(page, ".gl .chip >> nth=0")


@pytest.fixture
def crowd():
    """Sixty inputs; the gradients of nine are wrong, w9 by most, and w1 by least."""
    point = {f"w{k}": np.array([1.0, 1.5]) for k in range(60)}
    by = {f"w{k}": 2.0 + 0.1 * k * (k < 10) for k in range(60)}
    f = lambda p: (sum(w @ w for w in p.values()), {k: by[k] * p[k] for k in p})
    return gl.sweep(f, point)


def test_of_a_crowd_the_worst_are_drawn_in_full(show, crowd):
    """Six of nine wrong curves stand out; the others are thin, and are counted."""
    page = show(pack_sweep(crowd))

    full = page.locator(".gl .curve:not([data-quiet])")
    names = full.evaluate_all("all => all.map(group => group.dataset.name)")
    assert set(names) == {f"w{k}" for k in range(4, 10)}
    assert "w9" in driver.read(page, ".gl .finding")  # by most
    labels = page.locator(LABELS).all_text_contents()
    assert "✗ 3 others" in labels
    assert "✓ 51 others" in labels
    thin = page.locator(".gl .curve[data-name=w2] path")
    assert "--bad" in thin.get_attribute("stroke")
    assert page.locator(".gl .chip").count() == 6


def test_of_a_crowd_that_agrees_some_are_named(show):
    """Those with the highest floors."""
    point = {f"w{k}": np.array([1.0, 1.5]) for k in range(20)}
    f = lambda p: (
        sum(np.exp(w).sum() for w in p.values()),
        {k: np.exp(p[k]) for k in p},
    )
    page = show(pack_sweep(gl.sweep(f, point)))

    assert page.locator(".gl .curve:not([data-quiet])").count() == 3
    assert page.locator(LABELS, has_text="others").text_content() == "✓ 17 others"


def test_a_curve_of_a_crowd_is_named_where_the_pointer_is(show, crowd):
    """Pointing near a thin curve draws it in full, with its name and its reading."""
    page = show(pack_sweep(crowd))
    middle = """group => {
      const path = group.querySelector('path');
      const at = path.getPointAtLength(path.getTotalLength() * 0.6);
      const box = group.ownerSVGElement.getBoundingClientRect();
      return [box.left + at.x, box.top + at.y];
    }"""
    x, y = page.locator(".gl .curve[data-name=w2]").evaluate(middle)
    page.mouse.move(x, y + 1)
    driver.settle(page)

    assert page.locator(LABELS, has_text="✗ w2").count() == 1
    assert "w2" in driver.read(page, ".gl .finding")
    page.mouse.move(2, 2)
    driver.settle(page)
    assert page.locator(LABELS, has_text="✗ w2").count() == 0


def test_every_input_of_a_crowd_is_reached_by_keyboard(show, crowd):
    """Those without a button of their own stand in a list, which keeps the focus."""
    page = show(pack_sweep(crowd))
    others = page.get_by_label("Another input")
    assert (
        others.evaluate("list => list.selectedOptions[0].text")
        == "✗ 3 more · ✓ 51 more"
    )
    others.focus()
    others.select_option("✓ w40")

    assert "w40" in driver.read(page, ".gl .finding")
    assert page.evaluate("document.activeElement.selectedOptions[0].text") == "✓ w40"
    expect(page.locator(".gl .chip[aria-pressed=true]")).to_contain_text("w40")


def test_the_sentence_is_of_the_method_that_is_drawn(show):
    """Its best step is the one above the curve, not that of another method."""
    sweep = builders.sweep(np.random.default_rng(7))
    sweep.read = lambda method, _: f"V: correct, as {method} tells"
    page = show(pack_sweep(sweep))
    words = page.locator(".gl .finding")

    for method in sweep.methods:
        page.locator(f".gl button[data-key={method}]").click()
        expect(words).to_contain_text(f"as {method} tells")


@pytest.mark.parametrize("width", [380, 1100])
@pytest.mark.parametrize(
    ("steps", "most"),
    [
        (np.logspace(-14, 0, 43), 9),
        (np.logspace(-6, 0, 19), 9),
        (np.logspace(-3.7, -2.2, 9), 4),  # one power of ten inside, or none
        (np.logspace(-3.7, -3.2, 9), 4),
        (np.array([1e-5]), 4),  # its line stands inside of the plot
    ],
)
def test_every_ladder_has_its_scale(show, width, steps, most):
    """Two numbers or more stand below the plot, with room between them."""
    right = lambda x: np.exp(x).sum()
    sweep = gl.sweep(right, np.ones(1), grad=np.exp, steps=steps)
    page = show(pack_sweep(sweep), width=width)

    words = page.eval_on_selector_all(
        LABELS,
        """all => {
          const line = document.querySelector('.gl .cursor line').getBBox();
          const under = (t) => t.getBBox().y - line.y - line.height;
          return all.filter(t => t.matches('.mute'))
            .filter(t => /[\\d⁰-⁹¹²³]$/.test(t.textContent))
            .filter(t => under(t) > 0 && under(t) < 20)
            .map(t => t.getBoundingClientRect()).map(b => [b.left, b.right]);
        }""",
    )
    words.sort()
    assert 2 <= len(words) <= most
    assert all(a[1] + 8 < b[0] for a, b in itertools.pairwise(words))
    plot = page.locator(".gl svg[role=group]").bounding_box()
    line = page.locator(".gl .cursor line").bounding_box()
    assert plot["x"] + 40 < line["x"] < plot["x"] + plot["width"] - 40


@pytest.mark.parametrize("width", [380, 700, 1100])
def test_the_floor_of_half_a_valley_is_not_written_over_its_branch(show, width):
    """The shortest step is on the branch: level and branch begin at one place."""
    steps = np.logspace(-3.7, -2.2, 9)
    sweep = gl.sweep(lambda x: np.exp(x).sum(), np.ones(1), grad=np.exp, steps=steps)
    page = show(pack_sweep(sweep), width=width)

    floor = page.locator(LABELS, has_text="floor").bounding_box()
    branch = page.locator(LABELS, has_text="~ h²").bounding_box()
    assert floor["y"] >= branch["y"] + branch["height"] - 2


def test_errors_that_no_step_explains_are_loud(show):
    """A ladder without a good step: its map does not call an error of one quiet."""
    sweep = gl.sweep(
        lambda x: np.sin(1e4 * x).sum(),
        np.array([0.7, 1.3]),
        grad=lambda x: 1e4 * np.cos(1e4 * x),
        steps=np.logspace(-3, 0, 10),
    )
    page = show(sweep)
    red = """() => {
      const map = document.querySelector('.gl figure canvas');
      const [x, y] = [map.width >> 2, map.height >> 1];
      const { data } = map.getContext('2d').getImageData(x, y, 1, 1);
      return data[0] - data[2];
    }"""

    assert page.evaluate(red) > 60
    assert page.get_by_text("best h").count() == 0
