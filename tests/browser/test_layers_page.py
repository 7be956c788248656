"""Many layers, and many curves: what is told one by one, and how the rest is."""

from __future__ import annotations

import builders
import driver
import numpy as np
import pytest
from playwright.sync_api import expect

from gradlab.presentation.packing_results import pack_layers, pack_sweep

pytestmark = pytest.mark.browser


def audit(right):
    """A wrong layer, and so many right ones, of which the third is off by most."""
    rows = [builders.layer("bad", "Swish", "wrong", 0.45)]
    for k in range(right):
        error = 3e-8 if k == 2 else 1e-12
        rows.append(builders.layer(f"fc{k}", "Linear", "right", error))
    return builders.audit_of(rows, ["bad"])


def test_a_few_layers_are_shown_one_by_one(show):
    """Seven right layers in a row, and each has its line."""
    page = show(pack_layers(audit(7)))

    expect(page.locator(".gl .fold")).to_have_count(0)
    expect(page.locator(".gl .lrow[role]")).to_have_count(8)


@pytest.mark.parametrize("width", [400, 700, 1200])
def test_a_run_of_layers_tells_the_worst_error_among_them(show, width):
    """Its bar and number stand in the columns of those of single layers."""
    page = show(pack_layers(audit(9)), width=width)

    run = page.locator(".gl .fold")
    expect(run).to_contain_text("9 layers: fc0 … fc8")
    expect(run.locator(".worst")).to_have_text("3e−08")
    right = "node => node.getBoundingClientRect().right"
    assert run.evaluate("node => node.scrollHeight <= node.clientHeight")  # not cut
    for part in (".track", ".worst"):
        single = page.locator(f".gl .lrow.bad {part}").evaluate(right)
        assert abs(run.locator(part).evaluate(right) - single) < 1


def test_what_was_not_measured_has_no_number(show):
    """A run of layers that were not checked: a dash, and no bar."""
    rows = [builders.layer("bad", "Swish", "wrong", 0.45)]
    rows += [
        builders.layer(f"fc{k}", "Linear", "unchecked", float("nan")) for k in range(9)
    ]
    page = show(pack_layers(builders.audit_of(rows, ["bad"])))

    expect(page.locator(".gl .fold .worst")).to_have_text("–")
    expect(page.locator(".gl .fold .track i")).to_have_count(0)


@pytest.mark.parametrize(("width", "bars"), [(1200, 3), (800, 3), (580, 0)])
def test_a_narrow_page_keeps_the_types_of_layers(show, width, bars):
    """Where not all columns fit the bars go, whose numbers stand beside them."""
    rows = [builders.layer(f"fc{k}", "Linear", "right", 1e-9) for k in range(2)]
    rows += [
        builders.layer("bad", "Swish", "wrong", 0.45),
        builders.layer("drop", "Dropout", "unchecked", float("nan")),
    ]
    page = show(pack_layers(builders.audit_of(rows, ["bad"])), width=width)

    lines = page.locator(".gl .lrow[role]")
    types = lines.locator(".shape:visible").all_inner_texts()
    assert types == ["Linear", "Linear", "Swish", "Dropout"]
    expect(lines.locator(".track i:visible")).to_have_count(bars)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    dashed = lines.last.locator(".track")  # no bar, nor the stub of one, beside a dash
    assert dashed.evaluate("t => getComputedStyle(t).backgroundColor").endswith(", 0)")
    columns = (
        "row => [...row.children].filter(c => c.offsetWidth).map(c => c.offsetLeft)"
    )
    shown = lines.nth(0).evaluate(columns)
    assert shown == lines.nth(1).evaluate(columns)


def test_a_network_that_fits_begins_with_its_first_layer(show):
    """The wrong layer is opened, and nothing is scrolled out of sight for it."""
    page = show(pack_layers(builders.audit(3)))

    assert page.locator(".gl .layers").evaluate("list => list.scrollTop") == 0


def test_the_rest_of_many_curves_is_counted_below_their_names(show):
    """Not beside the numbers of the axis, where it would read as one of them."""
    rng = np.random.default_rng(7)
    page = show(pack_sweep(builders.sweep(rng, 50)))

    where = """node => {
      const box = node.getBoundingClientRect(), plot = node.closest('svg');
      const names = [...plot.querySelectorAll('text:has(title)')];
      const last = Math.max(...names.map(name => name.getBoundingClientRect().bottom));
      const axis = [...plot.querySelectorAll('text')]
        .find(text => text.textContent === 'step size h →');
      return [last, box.top, axis.getBoundingClientRect().top - box.bottom];
    }"""
    last, top, above = page.locator(".gl svg text", has_text="others").evaluate(where)
    assert -5 < top - last < 10
    assert above > 40


def test_words_in_a_plot_stand_on_the_colour_that_the_page_has(show):
    """In JupyterLab, dark, an output is darker than the paper of its forms."""
    page = show(pack_sweep(builders.sweep(np.random.default_rng(7))))
    page.evaluate(
        """() => {
          const style = document.documentElement.style;
          style.setProperty('--jp-layout-color1', 'rgb(33, 33, 33)');
          document.body.style.background = 'rgb(17, 17, 17)';
        }"""
    )
    driver.settle(page)

    expect(page.locator(".gl")).to_have_class("gl dark")
    strokes = page.locator(".gl svg text").evaluate_all(
        "nodes => nodes.map(node => getComputedStyle(node).stroke)"
    )
    assert set(strokes) == {"rgb(17, 17, 17)"}
