"""Pages of odd results: not numbers, few entries, probes, names of other scripts."""

from __future__ import annotations

import dataclasses

import builders
import driver
import numpy as np
import pytest
from playwright.sync_api import expect

import gradlab as gl

pytestmark = pytest.mark.browser

# Which pixels of the layer above a picture are drawn on, along its middle.
PIN = """(row) => {
  const over = document.querySelectorAll('.gl .over')[0];
  const g = over.getContext('2d');
  const [w, h] = [over.width, over.height];
  const line = row ? g.getImageData(0, h >> 1, w, 1) : g.getImageData(w >> 1, 0, 1, h);
  return Array.from({length: row ? w : h}, (_, i) => line.data[4 * i + 3] > 0);
}"""


@pytest.mark.parametrize(
    ("analytic", "numeric", "words"),
    [
        (np.nan, np.inf, "neither side is a finite number"),
        (1.0, np.nan, "the numeric side is not a finite number"),
        (-np.inf, 1.0, "the analytic side is not a finite number"),
    ],
)
def test_the_side_that_is_no_number_is_named(show, analytic, numeric, words):
    """By the values that stand above it, not by the verdict."""
    block = builders.comparison([[analytic, 1.0]], [[numeric, 1.0]], bar=1e-9)
    page = show(builders.report(block))

    driver.shows(page, ".gl .entry", words)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_pinned_cell_is_framed_on_all_sides(show, size):
    """As wide at the edge of the picture, where half a line would be cut off."""
    block = builders.comparison([np.arange(1.0, 1 + size)], [np.ones(size)])
    page = show(builders.report(block))
    page.locator(".gl canvas.map").nth(2).press("w")  # the last cell
    driver.settle(page)

    across = page.evaluate(PIN, True)
    ends = [i for i, drawn in enumerate(across) if drawn]
    cell = len(across) // size
    left, right = [i for i in ends if i < ends[0] + cell / 2], ends
    assert ends[0] == len(across) - cell
    assert ends[-1] == len(across) - 1
    assert sum(i > ends[0] + cell / 2 for i in right) == len(left) == 3


def test_both_are_not_all_two(show):
    """Two entries agree: both of them."""
    page = show(gl.check(lambda x: x @ x, np.ones(2), grad=lambda x: 2 * x))

    driver.shows(page, ".gl .status", "both entries agree")


def test_probes_are_not_called_entries(show):
    """Random directions of an input of thousands were measured, and that is said."""
    x = np.linspace(1, 2, 3000)
    page = show(gl.check(lambda x: x @ x, x, grad=lambda x: 2 * x, coverage="probe"))

    driver.shows(page, ".gl .status", "probes agree")


def test_inputs_that_were_moved_together_say_so(show):
    """Two rows with one and the same number would look like a mistake."""
    ones = np.ones(60)
    page = show(
        gl.check(
            lambda x, y: x @ x + (y**3).sum(),
            *(ones, ones),
            grad=lambda x, y: (2 * x, 3 * y**2),
            coverage="probe",
        )
    )

    driver.shows(page, ".gl .status", "moved together with another input")


def test_a_sample_in_lines_says_of_how_many(show):
    """Forty of 200 coordinates, folded into lines."""
    x = np.linspace(0.1, 1, 200)
    report = gl.check(lambda x: np.sin(x).sum(), x, grad=np.cos, coverage="sample")
    page = show(report)

    seen = sum(report["x"].counts)
    assert seen < 200
    driver.shows(page, ".gl figure", f"{seen} of 200 entries, in lines")


def test_an_input_without_entries_has_no_bar(show):
    """Its row has a verdict, and no error that a bar could show."""
    report = gl.check(
        lambda x, y: x.sum() + y @ y,
        np.zeros((0, 3)),
        np.ones(2),
        grad=lambda x, y: (x, 2 * y),
    )
    page = show(report)

    expect(page.locator(".gl .rows .track i").nth(0)).to_be_visible()
    expect(page.locator(".gl .rows .track i").nth(1)).to_be_hidden()


def test_a_name_from_right_to_left_leaves_what_follows_in_order(show):
    """The count of wrong entries, and the index, stand behind the name."""
    name = "\N{ARABIC LETTER WAW}\N{ARABIC LETTER ZAIN}\N{ARABIC LETTER NOON}"
    block = builders.comparison([[2.0, 4.0, 6.0]], [[1.0, 2.0, 3.0]], name=name)
    page = show(builders.report(block))

    boxes = page.locator(".gl .status > *").evaluate_all(
        "parts => parts.map(part => part.getBoundingClientRect().left)"
    )
    assert boxes == sorted(boxes)
    first = page.evaluate(
        """() => {
          const head = document.querySelector('.gl .entry h4');
          const index = head.querySelector('.nowrap'), range = document.createRange();
          range.setStart(head.firstChild, 1); range.setEnd(head.firstChild, 2);
          return [index.textContent, index.getBoundingClientRect().left,
            range.getBoundingClientRect().left];
        }"""
    )
    assert first[0] == "[2]"
    assert first[1] > first[2]


def test_an_index_stays_in_one_line(show):
    """A name may break at its dots and bars, an index not between its numbers."""
    name = (
        "encoder.attention.key_value_combined_weight_matrix_parametrization.original0"
    )
    block = builders.comparison([[2.0] * 12], [[1.0] * 12], name=name, shape=(3, 4))
    page = show(builders.report(block))

    lines = []
    for width in range(360, 560, 20):
        page.set_viewport_size({"width": width, "height": 900})
        driver.settle(page)
        lines += page.locator(".gl .entry .nowrap").evaluate_all(
            "parts => parts.map(part => part.getClientRects().length)"
        )
    assert len(lines) == 20  # in the heading, and below it
    assert set(lines) == {1}


def test_where_nothing_stands_out_no_error_is_told(show):
    """At a kink any slope between both sides is right: no relative error of 0, or 1."""
    x = np.array([0.0, 1.0])
    report = gl.check(
        lambda x, y: np.maximum(x, 0) + y,
        x,
        x,
        jac=lambda x, y: (np.diag(1.0 * (x > 0)), np.eye(2)),
    )
    page = show(report)

    row = page.locator(".gl .brow[role]", has=page.locator(".name", has_text="x"))
    expect(row.locator(".worst")).to_have_text("–")
    assert "error" not in row.get_attribute("aria-label")
    row.click()
    expect(page.locator(".gl .entry")).to_contain_text(
        "the difference lies within the error bar"
    )


def test_a_number_has_an_only_entry_and_no_worst(show):
    """Of one there is no worst."""
    page = show(gl.check(lambda x: x**3, 2.0, grad=lambda x: 2 * x**2))

    expect(page.locator(".gl .entry")).to_contain_text("the only entry")
    expect(page.locator(".gl .entry")).not_to_contain_text("the worst")


def test_the_bar_of_a_layer_stands_beside_what_it_is_of(show):
    """The measurement has one of its own; a number that names a layer is called so."""
    rows = [
        builders.layer("0", "Linear", "right"),
        builders.layer("1", "Swish", "wrong", 0.45, parents=("0",)),
    ]
    report = builders.tutorial(np.random.default_rng(7))
    audit = builders.audit_of(rows, ["1"])
    page = show(dataclasses.replace(report, layers=audit))

    told = page.locator(".gl .ldetail")
    expect(told).to_contain_text(f"relative error 0.45 ± 1e{driver.MINUS}10")
    expect(told).to_contain_text("its input comes from layer 0")


def test_one_number_on_both_sides_that_is_undecided_says_why(show):
    """Both are the same, and yet the error bar allows for more than the tolerance."""
    block = builders.comparison([[1.0, 2.0]], [[1.0, 2.0]], bar=1e-9)
    page = show(builders.report(block))
    driver.shows(page, ".gl .entry", "both sides are the same number")
    expect(page.locator(".gl .entry")).not_to_contain_text("blurred")
    page.locator(".gl input[type=range]").fill("-12")

    driver.shows(
        page,
        ".gl .entry",
        "undecided",
        "both sides are the same number; the numeric side is too blurred to tell",
    )


def test_a_column_of_a_sample_has_its_place_in_the_matrix(show):
    """Not that among the columns that were looked at; how many they are is said."""
    numeric = np.arange(1.0, 9.0).reshape(2, 4)
    analytic = numeric + np.array([[0, 0, 0, 0], [0, 0, 5, 0]])
    few = np.array([3, 11, 17, 29])
    block = builders.comparison(
        analytic, numeric, "W", (4, 10), ("out", (2,)), columns=few, coverage="sample"
    )
    page = show(builders.report(block))

    driver.shows(page, ".gl .entry", "W[1, 7]", "J[1, 17]")
    driver.shows(page, ".gl", "2 outputs ↓ × 4 of 40 entries →")


def test_small_entries_are_read_by_their_own_size(show):
    """Of 1e-3 and 3e-3 beside 1e9 no digit agrees, however pale their cell is."""
    block = builders.comparison([[1e9, 3e-3]], [[1e9, 1e-3]], bar=1e-9)
    page = show(builders.report(block))
    page.locator(".gl canvas.map").nth(2).press("ArrowRight")

    driver.shows(page, ".gl .entry", "relative error 0.5", "digits that agree 0.3")
    driver.shows(page, ".gl .entry", f"beside the largest 2e{driver.MINUS}04")


def test_entries_of_a_sampled_sweep_are_named(show):
    """The map of a sweep names the entry, not its number among those swept."""
    report = gl.check(
        lambda W: (W**3).sum(),
        np.linspace(1, 2, 600).reshape(20, 30),
        grad=lambda W: 3 * W**2 * (1 + (np.arange(600).reshape(20, 30) == 400)),
    )
    page = show(gl.sweep(report, coverage="sample"))
    columns = gl.sweep(report, coverage="sample")["W"].columns
    place = int(np.flatnonzero(columns == 400)[0])
    box = driver.bring(page, ".gl figure canvas").bounding_box()

    page.mouse.move(
        box["x"] + box["width"] * (place + 0.5) / len(columns),
        box["y"] + box["height"] / 2,
    )
    driver.shows(page, ".gl figure .keys", "W[13, 10]: ")


def test_on_a_narrow_page_nothing_is_cut_off(show):
    """Five methods take two lines; the head of a list says how many are wrong."""
    sweep = gl.sweep(
        lambda x: np.exp(x).sum(),
        np.ones(2),
        grad=np.exp,
        methods=("central", "forward", "backward", "complex-step", "five-point"),
    )
    page = show(sweep, width=300)
    buttons = page.locator(".gl .set button").all()

    assert len(buttons) == 5
    assert max(b.bounding_box()["x"] + b.bounding_box()["width"] for b in buttons) < 300

    page = show("tutorial", width=300)
    assert page.inner_text(".gl .bhead > span:nth-child(2)").strip() == "1 wrong"
