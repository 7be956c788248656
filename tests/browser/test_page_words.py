"""What the page says: numbers as people write them, once, and no more than is so."""

from __future__ import annotations

import dataclasses

import builders
import driver
import numpy as np
import pytest
from playwright.sync_api import expect

import gradlab as gl

pytestmark = pytest.mark.browser

LISTEN = """() => {
  window.written = [];
  const draw = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    window.written.push(text);
    return draw.call(this, text, ...rest);
  };
}"""


def written(page):
    """All that is written into pictures when the page is drawn again, in the dark."""
    page.evaluate(LISTEN)
    page.emulate_media(color_scheme="dark")
    expect(page.locator(".gl.dark")).to_have_count(1)
    driver.settle(page)
    return [text.replace(driver.MINUS, "-") for text in page.evaluate("written")]


def test_the_same_words_about_several_places_are_one_card(show):
    """Two inputs with one and the same slip: one card that names both."""
    report = builders.tutorial(np.random.default_rng(7))
    twin = dataclasses.replace(report.findings[0], where="W2")
    other = dataclasses.replace(report.findings[0], where="b1", evidence="Another.")
    page = show(dataclasses.replace(report, findings=(*report.findings, twin, other)))

    cards = page.locator(".gl .finding")
    expect(cards).to_have_count(2)
    driver.shows(page, ".gl .finding", "in W1, W2")
    driver.shows(page, ".gl .finding:nth-child(2)", "in b1")


@pytest.mark.parametrize(
    ("named", "card"),
    [
        ("act", "in act (Swish, model.py:5) — its backward is twice"),
        ("net", "in act — net (Swish, model.py:5) is wrong: its backward is twice"),
    ],
)
def test_a_layer_is_named_once_by_its_finding(show, named, card):
    """What is wrong is the place itself, unless the evidence names another one."""
    report = builders.tutorial(np.random.default_rng(7))
    evidence = f"`{named}` (Swish, model.py:5) is wrong: its backward is twice that."
    finding = dataclasses.replace(report.findings[0], where="act", evidence=evidence)
    page = show(dataclasses.replace(report, findings=(finding,)))

    driver.shows(page, ".gl .finding", card)


def test_a_note_that_asks_for_nothing_stands_at_the_foot(show):
    """No card before the answer; told where the page says how it was checked."""
    report = builders.tutorial(np.random.default_rng(7))
    said = "The function rounds."
    note = gl.Finding("low_precision", "note", "", 0.9, said, "Nothing to do.")
    page = show(dataclasses.replace(report, findings=(*report.findings, note)))

    expect(page.locator(".gl .finding")).to_have_count(1)
    page.get_by_text("How this was checked").click()
    expect(page.get_by_text(said)).to_be_visible()


def test_numbers_in_cells_are_decimals_where_these_fit(show):
    """A matrix up to 15 has 0.4 in it, not 4e-1, and digits enough to see a factor."""
    numeric = np.array([[8.21, -2.07, 0.41], [10.6, 0.034, -15.3]])
    page = show(builders.report(builders.comparison(numeric, numeric, shape=(3,))))
    seen = written(page)

    for text in ("8.2", "-2.1", "0.4", "0.03", "10.6", "-15.3"):
        assert text in seen
    assert not [text for text in seen if "e-" in text]


def test_how_far_apart_is_a_number_of_bars(show):
    """130 error bars, not 1.3e02."""
    numeric = np.full((1, 3), 0.5)
    bar = np.full((1, 3), 1e-9)
    block = builders.comparison(numeric + 1.3e-7, numeric, rtol=1e-3, bar=bar)
    page = show(builders.report(block))

    driver.shows(page, ".gl .entry", "the difference is 130 error bars")


def test_hundreds_are_written_out(show):
    """The ends of a scale are -490 and +490, not 4.9e02."""
    numeric = np.array([[485.0, -12.0]])
    page = show(builders.report(builders.comparison(numeric, numeric)))

    assert {"-490", "+490"} <= set(written(page))


def test_a_gradient_that_is_not_there_is_none_and_not_nan(show):
    """As in the text: nan would say that nan was returned, and it is that elsewhere."""
    square = (lambda x: (x**2).sum(), np.ones(3))
    for grad in (lambda x: x[:2], lambda x: np.outer(np.ones(4), x)):
        page = show(gl.check(*square, grad=grad))
        driver.shows(page, ".gl .entry", "analytic", "none")
        assert "NaN" not in driver.read(page, ".gl")
        assert "NaN" not in written(page)

    page = show(gl.check(*square, grad=lambda x: x * np.nan))
    driver.shows(page, ".gl .entry", "NaN")


def test_a_sweep_opens_where_some_curve_has_its_valley(show):
    """A linear input is best at the longest step, where all others are worst."""
    point = {"cubic": np.array([0.4, 0.9]), "linear": np.ones(2)}
    sweep = gl.sweep(
        lambda p: (
            (p["cubic"] ** 3).sum() + p["linear"].sum(),
            {"cubic": 3 * p["cubic"] ** 2, "linear": np.full(2, 2.0)},
        ),
        point,
    )
    page = show(sweep)

    log_step = float(page.get_attribute(".gl .cursor", "aria-valuenow"))
    assert -7 < log_step < -4  # eps ** (1 / 3) is 6e-6


def test_what_lies_within_a_wide_bar_is_not_called_too_small(show):
    """0.3 beside 0 with a bar of 1, as at a kink, is no small difference."""
    block = builders.comparison([[0.3, 1.0]], [[0.0, 1.0]], bar=[[1.0, 1e-12]])
    verdicts = np.zeros((1, 2), np.int8)  # between the slopes on either side
    page = show(builders.report(dataclasses.replace(block, verdicts=verdicts)))
    told = driver.read(page, ".gl .entry")

    assert "the difference lies within the error bar" in told
    assert "too small to matter" not in told


def test_a_gradient_of_another_shape_is_told_where_its_numbers_would_stand(show):
    """Of a gradient that could not be read the inspector says the two shapes."""
    x = np.linspace(1, 2, 12).reshape(3, 4)
    report = gl.check(lambda x: (x**2).sum(), x, grad=lambda x: np.ones((2, 5)))
    page = show(report)

    driver.shows(page, ".gl .entry", "has shape (2, 5), expected (3, 4)")
    assert "only one side is a finite number" not in driver.read(page, ".gl .entry")


def test_of_a_sample_it_is_said_what_it_is_a_sample_of(show):
    """Four entries of a matrix of 262,144 are not all its entries."""
    numeric = np.ones((1, 4))
    columns = np.array([3, 77, 1000, 262_143])
    block = builders.comparison(
        *(numeric * 2, numeric, "W", (512, 512)),
        columns=columns,
        coverage="sample",
    )
    page = show(builders.report(block, coverage="sample"))

    driver.shows(page, ".gl .status", "4 of 4 entries looked at disagree")
    driver.shows(page, ".gl .panels figcaption", "4 of 262,144 entries")


def test_a_factor_has_the_sign_of_a_product(show):
    """`2 x numeric` beside an input called x would be read as twice x."""
    page = show("tutorial")

    assert "2.000 × numeric" in driver.read(page, ".gl .finding")


def test_a_sweep_writes_products_and_its_error_out(tabs, tmp_path):
    """The reading says 2 × numeric, and what relative errors are stands below it."""
    x = np.ones(3)
    swept = gl.sweep(lambda x: np.exp(x).sum(), x, grad=lambda x: 2 * np.exp(x))
    path = tmp_path / "sweep.html"
    swept.to_html(path)
    with tabs.lend() as page:
        page.goto(path.as_uri())

        driver.shows(page, ".gl .finding", "× numeric")
        page.get_by_text("How this was checked").click()
        driver.shows(page, ".gl .facts", "|analytic", "/ (|analytic| + |numeric|)")
        assert page.problems == []


@pytest.mark.parametrize("width", [360, 500, 600, 760, 900])
def test_no_heading_of_the_list_is_cut_off(show, width):
    """As in JupyterLab beside its file browser: narrow, but no "2 wr…"."""
    page = show("zoo", width=width)
    driver.settle(page)

    cut = page.eval_on_selector_all(
        ".gl .bhead > *",
        """heads => heads.filter(head => head.scrollWidth > head.clientWidth + 1)
          .map(head => head.textContent)""",
    )
    assert cut == []


def test_what_no_finding_explains_is_told_without_a_click(show):
    """Cut short by a budget: what was done is all that says why it is undecided."""
    rng = np.random.default_rng(0)
    a, x = rng.standard_normal((60, 60)), rng.standard_normal(60)
    jac = lambda x: a * (1 - np.tanh(a @ x) ** 2)[:, None]
    cut = gl.check(lambda x: np.tanh(a @ x), x, jac=jac, budget=20)
    assert (cut.verdict.name, cut.findings) == ("UNDECIDED", ())

    remark = show(cut).locator(".gl .facts dd", has_text=cut.remarks[-1])
    expect(remark).to_be_visible()
    right = gl.check(lambda x: a @ x, x, jac=lambda x: a)
    expect(show(right).locator(".gl .facts")).to_be_hidden()
