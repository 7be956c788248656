"""Pages of sweeps and layer audits as files: no kernel, no network."""

from __future__ import annotations

import contextlib
import types

import builders
import driver
import numpy as np
import pytest
from playwright.sync_api import expect

import gradlab as gl
from gradlab.comparison.verdict import Verdict
from gradlab.presentation import html
from gradlab.presentation.packing_results import pack_layers, pack_sweep

pytestmark = pytest.mark.browser


@pytest.fixture
def show(tabs, tmp_path):
    """Open a packed result as a file, with the network blocked."""
    pages = []

    def _show(packed, **options):
        path = tmp_path / "page.html"
        path.write_text(html.document(html.island(packed, ""), "t"), encoding="utf-8")
        page = lent.enter_context(tabs.lend(**options))
        pages.append(page)
        page.goto(path.as_uri())
        page.wait_for_selector(".gl")
        driver.settle(page, 100)
        return page

    with contextlib.ExitStack() as lent:
        yield _show
        problems = [problem for page in pages for problem in page.problems]
    assert problems == []


@pytest.fixture
def sweep():
    """A sweep with two wrong inputs, two doubtful ones and a right one."""
    return builders.sweep(np.random.default_rng(7))


def cursor(page):
    """Return the step at the cursor, as its label says it."""
    driver.settle(page, 0)
    text = page.get_attribute(".gl .cursor", "aria-valuetext")
    return float(text.replace(driver.MINUS, "-"))


@pytest.mark.parametrize("width", [500, 1100])
def test_the_cursor_covers_no_tick(show, sweep, width):
    """Wherever the handle is dragged, the numbers of the axis stay legible."""
    page = show(pack_sweep(sweep), width=width)

    handle = page.locator(".gl .cursor rect").last.bounding_box()
    tops = page.eval_on_selector_all(
        ".gl svg text.mute[text-anchor=middle]",
        """texts => texts.filter(text => /^10[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+$/.test(text.textContent))
          .map(text => text.getBoundingClientRect().top)""",
    )
    assert len(tops) > 2
    assert handle["y"] + handle["height"] <= min(tops) + 2  # air above the digits


@pytest.mark.parametrize("level", [-10.6, -11.8])
def test_names_of_the_branches_stay_off_the_cursor(show, sweep, level):
    """A steep branch that is short below the valley is named by its power alone."""
    valley = -5.0  # where the cursor stands at first
    sweep.theory["central"] = [
        ("truncation ~ h²", 2, level - 2 * valley),
        ("rounding ~ u/h", -1, level + valley),
    ]
    sweep.methods = ("central",)
    sweep.curve = lambda *_: types.SimpleNamespace(best_step=1e-5, floor=2e-11)
    page = show(pack_sweep(sweep), width=1100)

    line = page.locator(".gl .cursor line").bounding_box()
    names = page.eval_on_selector_all(
        ".gl svg g text.mute",
        """texts => texts.filter(text => text.textContent.includes('~'))
          .map(text => text.getBoundingClientRect().toJSON())""",
    )
    assert len(names) == 2
    for name in names:
        assert not name["left"] - 1 < line["x"] < name["right"] + 1


@pytest.mark.parametrize("width", [500, 1100])
def test_names_of_short_branches_stay_off_the_line_of_the_best_step(show, sweep, width):
    """Of a valley at the foot of the plot the branches are named above it."""
    valley, level = -5.0, -13.0
    sweep.theory["central"] = [
        ("truncation ~ h²", 2, level - 2 * valley),
        ("rounding ~ u/h", -1, level + valley),
    ]
    sweep.methods = ("central",)
    sweep.curve = lambda *_: types.SimpleNamespace(best_step=1e-5, floor=10**level)
    page = show(pack_sweep(sweep), width=width)

    best, names = page.evaluate(
        """() => {
          const box = node => node.getBoundingClientRect().toJSON();
          const texts = [...document.querySelectorAll('.gl svg text.mute')];
          const best = texts.find(text => text.textContent.startsWith('best h'));
          return [box(best.previousSibling), texts
            .filter(text => text.textContent.includes('~')).map(box)];
        }"""
    )
    assert len(names) == 2
    for name in names:
        assert not name["left"] - 1 < best["x"] < name["right"] + 1


@pytest.mark.parametrize(("floor", "told"), [(1e-13, "1e−13"), (0.0, "0")])
def test_a_floor_below_the_plot_is_not_drawn_as_a_level(show, sweep, floor, told):
    """A plateau ends the plot at 1e-6: what is below is told, with an arrow."""
    level = np.full_like(sweep.errors["central", "fc1.weight"], 1e-2)
    sweep.errors = dict.fromkeys(sweep.errors, level)
    sweep.theory["central"] = [("rounding ~ u/h", -1, -18.5)]
    sweep.methods = ("central",)
    sweep.curve = lambda *_: types.SimpleNamespace(best_step=1e-5, floor=floor)
    page = show(pack_sweep(sweep), width=480)
    marked = int(floor > 0)  # the best step; where no step has an error none is best

    floor = page.locator(".gl svg text", has_text="floor")
    expect(floor).to_have_text(f"↓ floor ≈ {told}")
    lines = page.locator(".gl svg line[stroke='var(--ok)']")
    expect(lines).to_have_count(marked)
    name = page.locator(".gl svg text", has_text="u/h").bounding_box()
    box = floor.bounding_box()  # in the other corner than the name of the branch
    assert name["x"] + name["width"] < box["x"] or box["y"] > name["y"] + name["height"]


def test_every_curve_is_drawn_and_the_worst_is_read(show, sweep):
    """One line per input; the first wrong one is singled out with its reading."""
    page = show(pack_sweep(sweep))

    assert page.locator(".gl .curve").count() == len(sweep.inputs)
    assert "plateau at 1" in driver.read(page, ".gl .finding")


def test_keys_move_the_cursor_along_measured_steps(show, sweep):
    """Arrows go one rung, Home and End to the ends; the chips follow."""
    page = show(pack_sweep(sweep))
    page.locator(".gl .cursor").focus()
    before = cursor(page)

    page.keyboard.press("ArrowRight")
    assert cursor(page) == pytest.approx(before * 10**0.5, rel=0.1)
    page.keyboard.press("Home")
    assert cursor(page) == pytest.approx(1e-14)
    text = driver.read(page, ".gl .chip >> nth=4").replace(driver.MINUS, "-")
    expected = sweep.errors["forward", "fc2.weight"][0]
    assert float(text.split()[-1]) == pytest.approx(expected, rel=0.1)


def test_method_buttons_change_the_curves(show, sweep):
    """Another method draws other lines."""
    page = show(pack_sweep(sweep))
    before = page.get_attribute(".gl .curve >> nth=0 >> path >> nth=0", "d")

    page.get_by_role("button", name="central").click()

    driver.settle(page)
    after = page.get_attribute(".gl .curve >> nth=0 >> path >> nth=0", "d")
    assert after != before
    button = page.get_by_role("button", name="central")
    assert button.get_attribute("aria-pressed") == "true"


def test_heat_map_turns_from_truncation_to_clean_to_noise(show, sweep):
    """The error matrix of a right input: loud at 1, quiet in the valley, loud at 0."""
    page = show(pack_sweep(sweep))
    page.locator(".gl .chip", has_text="fc2.weight").click()
    page.locator(".gl .cursor").focus()
    loud = """() => {
      const map = document.querySelector('.gl figure canvas');
      const data = map.getContext('2d').getImageData(0, 0, map.width, map.height).data;
      let n = 0;
      for (let i = 0; i < data.length; i += 4) n += data[i] > data[i + 2] + 60;
      return n / (data.length / 4);
    }"""
    page.keyboard.press("End")
    driver.settle(page)
    truncated = page.evaluate(loud)
    while cursor(page) > 3e-8:
        page.keyboard.press("ArrowLeft")
    driver.settle(page)
    clean = page.evaluate(loud)
    page.keyboard.press("Home")
    driver.settle(page)
    noisy = page.evaluate(loud)

    assert truncated > 0.8
    assert clean < 0.05
    assert noisy > 0.8


def test_hostile_names_stay_text(show, sweep):
    """Names and readings full of markup run nothing, in sweeps and in layers."""
    name = '<img src=x onerror="window.pwned=1">'
    swap = {"fc1.weight": name}
    sweep.inputs = tuple(swap.get(n, n) for n in sweep.inputs)
    for field in ("verdicts", "reading", "analytic", "shapes"):
        values = getattr(sweep, field)
        setattr(sweep, field, {swap.get(k, k): v for k, v in values.items()})
    for field in ("errors", "matrices"):
        values = getattr(sweep, field)
        setattr(sweep, field, {(m, swap.get(k, k)): v for (m, k), v in values.items()})
    page = show(pack_sweep(sweep))
    driver.settle(page)

    assert page.evaluate("window.pwned") is None
    assert name in driver.read(page, ".gl")


@pytest.mark.parametrize("width", [320, 360, 480, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_sticks_out(show, sweep, width, dark):
    """Sweeps and layers fit every width, in both themes."""
    for packed in (pack_sweep(sweep), pack_layers(builders.audit(40))):
        page = show(packed, width=width, dark=dark)
        driver.settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [360, 1400])
def test_a_long_name_fits_into_its_button(show, width):
    """It takes two lines where it must, and the button is as tall as these."""
    name = "encoder.layers.0.self_attention.projection_of_queries.weight"
    point = {name: np.ones(3), "b": np.ones(2)}
    sweep = gl.sweep(
        lambda p: (sum((v**2).sum() for v in p.values()), {k: p[k] for k in p}), point
    )
    page = show(pack_sweep(sweep), width=width)
    driver.settle(page)

    heights = page.eval_on_selector_all(
        ".gl .chip",
        """chips => chips.map(chip => {
          const [name, whole] = [chip.querySelector('.name'), chip]
            .map(part => part.getBoundingClientRect());
          return [name.top - whole.top, whole.bottom - name.bottom];
        })""",
    )
    assert len(heights) == 2
    assert min(map(min, heights)) >= 0


def test_remarks_are_told(show, sweep):
    """What was sampled or frozen stands in the page too."""
    sweep.remarks = ("random numbers are frozen to one draw",)
    page = show(pack_sweep(sweep))
    page.get_by_text("How this was checked").click()

    assert page.get_by_text("frozen to one draw").is_visible()


def test_names_that_find_no_room_are_not_called_right(show, sweep):
    """Forty wrong inputs: those without a label are counted without a tick."""
    sweep.verdicts = dict.fromkeys(sweep.verdicts, Verdict.DISAGREES)
    names = tuple(f"w{i}" for i in range(40))
    for field in ("verdicts", "reading", "shapes"):
        first = next(iter(getattr(sweep, field).values()))
        setattr(sweep, field, dict.fromkeys(names, first))
    curve = sweep.errors["central", "fc1.weight"]
    sweep.errors = {(m, n): curve for m in sweep.methods for n in names}
    sweep.matrices, sweep.inputs = {}, names
    page = show(pack_sweep(sweep))

    others = page.locator(".gl svg text", has_text="others").text_content()
    assert not others.startswith("✓")


def test_two_hundred_layers_fold(show):
    """Runs of right layers are one line; the wrong layer is in view, and opened."""
    page = show(pack_layers(builders.audit(100)), height=700)

    assert page.locator(".gl .lrow").count() < 20
    opened = page.locator(".gl .lrow[aria-expanded=true]")
    assert "blocks.1.act" in opened.inner_text()
    assert opened.is_visible()
    page.locator(".gl .fold").click()
    driver.settle(page)
    assert page.locator(".gl .lrow").count() > 190


def test_a_reader_that_listens_hears_of_layers_and_curves(show, sweep):
    """Rows that open are buttons: in a list box nothing but its options is read out."""
    page = show(pack_layers(builders.audit(4)))
    opened = page.get_by_role("group").get_by_role("button", expanded=True)
    expect(opened).to_have_attribute("title", "blocks.1.act")
    assert page.get_by_role("option").count() == 0

    assert show(pack_sweep(sweep)).locator(".gl :not(ul) > li").count() == 0


def test_layers_are_walked_by_keyboard(show):
    """Arrow keys go from layer to layer and open each."""
    page = show(pack_layers(builders.audit(4)))
    page.locator(".gl .lrow[aria-expanded=true]").focus()

    page.keyboard.press("ArrowUp")

    assert "blocks.1.fc" in driver.read(page, ".gl .lrow[aria-expanded=true]")
    assert page.locator(".gl .ldetail").count() == 1


def test_all_controls_carry_the_keyboard_guard(show, sweep):
    """Everything that takes the focus keeps its keys from the notebook."""
    for packed in (pack_sweep(sweep), pack_layers(builders.audit(40))):
        page = show(packed)
        bare = page.evaluate(
            """() => [...document.querySelectorAll('.gl *')]
              .filter(node => node.tabIndex >= 0
                && node.getAttribute('data-lm-suppress-shortcuts') !== 'true')
              .map(node => node.outerHTML.slice(0, 80))"""
        )
        assert bare == []


def test_long_names_fit_beside_the_plot(show, sweep):
    """At 700 pixels the labels of long names end inside of the picture."""
    swap = {n: builders.LONG.format(i) for i, n in enumerate(sweep.inputs)}
    sweep.inputs = tuple(swap.values())
    for field in ("verdicts", "reading", "analytic", "shapes"):
        values = getattr(sweep, field)
        setattr(sweep, field, {swap[k]: v for k, v in values.items()})
    for field in ("errors", "matrices"):
        values = getattr(sweep, field)
        setattr(sweep, field, {(m, swap[k]): v for (m, k), v in values.items()})
    page = show(pack_sweep(sweep), width=700)

    ends = page.eval_on_selector_all(
        ".gl svg[role=group] text",
        "all => all.map(t => t.getBoundingClientRect().right)",
    )
    labels = page.eval_on_selector_all(
        ".gl svg[role=group] text",
        "all => all.map(t => t.lastChild.textContent).filter(t => /[✓✗!] …/.test(t))",
    )
    assert max(ends) <= 700
    assert len(labels) == len(set(labels)) == len(sweep.inputs)


def test_lanes_of_a_branch(show):
    """Block 2 is fed by its layer and by the block before: both lanes reach it."""
    page = show(pack_layers(builders.audit(3)))

    reached = page.eval_on_selector_all(
        ".gl .lrow[role] .rail",
        """rails => rails.map(rail => {
          const x = rail.querySelector('circle').getAttribute('cx');
          return [...rail.querySelectorAll('path')]
            .map(path => path.getAttribute('d'))
            .filter(d => d.includes('C') || d === `M${x} -60V13.5`).length;
        })""",
    )
    names = page.locator(".gl .lrow[role] .name").all_inner_texts()

    assert names[:4] == ["stem", "blocks.0.fc", "blocks.0.act", "blocks.1.fc"]
    assert reached[:4] == [0, 1, 2, 1]
    # from the culprit up, a wrong gradient colours the lanes; below it none does
    spoiled = page.eval_on_selector_all(
        ".gl .lrow[role]",
        "rows => rows.map(row => row.querySelectorAll('.spoiled').length > 0)",
    )
    assert names[4] == "blocks.1.act"
    assert spoiled == [False, *4 * [True], *(len(spoiled) - 5) * [False]]


def test_a_method_keeps_the_focus(show, sweep):
    """Enter on a method draws its curves and leaves the focus where it is."""
    page = show(pack_sweep(sweep))
    page.get_by_role("button", name="central").focus()
    page.keyboard.press("Enter")

    assert page.evaluate("document.activeElement.innerText") == "central"


def test_unfolding_layers_keeps_the_focus(show):
    """Enter on a folded run: the first of its layers has the focus, arrows go on."""
    page = show(pack_layers(builders.audit(100)), height=700)
    page.locator(".gl .fold").first.focus()
    page.keyboard.press("Enter")

    held = "document.activeElement.getAttribute('aria-label')"
    first = page.evaluate(held)
    page.keyboard.press("ArrowDown")
    assert "right" in first or "contaminated" in first
    assert page.evaluate(held) not in (first, None)
