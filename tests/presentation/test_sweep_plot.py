"""Sweeps of the step: what is drawn."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

import gradlab as gl
from gradlab.presentation.packing_results import pack_sweep
from tests.specimens import tanh_network
from tests.specimens.sweeps import exp_sum


@pytest.fixture(scope="module")
def doubled():
    """The tutorial's network: the gradient of W1 is doubled, the others are right."""
    return gl.sweep(*tanh_network.doubled())


class TestDisplay:
    """Text, figure and page of a sweep."""

    def test_text(self, doubled):
        """Verdict first, then a sentence per input, worst first."""
        lines = repr(doubled).splitlines()

        assert lines[0] == "✗ W1 disagrees at every step"
        assert lines[1].split()[:2] == ["✗", "W1"]
        assert "43 steps from 1.0e-14 to 1.0e+00" in repr(doubled)

    def test_one_input_of_it_is_a_line(self, doubled):
        """As a comparison is: size, verdict and the worst entry; no matrices."""
        wrong, right = repr(doubled["W1"]), repr(doubled["b2"])

        assert wrong.startswith("Swept(W1, 1 x 40: disagrees; worst W1[")
        assert "analytic" in wrong
        assert right == "Swept(b2, 1 x 3: agrees)"

    def test_axes(self, doubled):
        """Logarithmic on both sides, labelled."""
        ax = doubled.plot().ax_

        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
        assert "step" in ax.get_xlabel()
        assert "relative error" in ax.get_ylabel()

    def test_lines_carry_the_data(self, doubled):
        """One line per input, coloured and drawn by its verdict."""
        lines = doubled.plot().lines_
        wrong, right = lines["central", "W1"], lines["central", "b1"]

        assert np.array_equal(wrong.get_ydata(), doubled.errors["central", "W1"])
        assert wrong.get_linewidth() > right.get_linewidth()
        assert wrong.get_color() != right.get_color()

    def test_a_gradient_of_nan_is_said_and_not_drawn(self):
        """It has no error: no line, no leader from where none ends, but its name."""
        point = {"w": np.arange(1.0, 4), "b": np.ones(2)}
        grads = {"w": np.array([2.0, np.nan, 6]), "b": np.cos(np.ones(2))}
        f = lambda p: (p["w"] @ p["w"] + np.sin(p["b"]).sum(), grads)
        display = gl.sweep(f, point).plot()

        labels = {label.get_text(): label for label in display.labels_}
        assert np.isnan(display.lines_["central", "w"].get_ydata()).all()
        assert labels["✗ w: no curve"].arrow_patch is None
        assert labels["✓ b"].arrow_patch is not None
        assert "analytic nan, numeric 4" in display.ax_.get_title(loc="left")

    def test_title_and_labels_name_the_culprit(self, doubled):
        """Words, glyph and colour, in that order."""
        display = doubled.plot()
        words = [label.get_text() for label in display.labels_]

        assert display.figure_.get_suptitle() == "✗ W1 disagrees at every step"
        assert "plateau at 0.33" in display.ax_.get_title(loc="left")
        assert "✗ W1" in words
        assert "✓ b2" in words

    def test_labels_do_not_overlap(self):
        """Ten curves that end together: ten labels apart."""
        names = [f"p{i}" for i in range(10)]
        f = lambda *xs: sum(np.exp(x).sum() for x in xs)
        vjp = lambda c, *xs: tuple(c * np.exp(x) for x in xs)
        sweep = gl.sweep(f, *[np.ones(1)] * 10, vjp=vjp, names=names)
        display = sweep.plot()
        heights = sorted(label.xyann[1] for label in display.labels_)

        assert np.diff(heights).min() > 0.04
        assert heights[-1] < 1

    def test_best_step_and_theory_are_drawn(self, doubled):
        """A line at the best step, and the two theory lines."""
        display = doubled.plot()

        assert 1e-7 < display.best_.get_xdata()[0] < 1e-3
        assert len(display.theory_) == 2

    @pytest.mark.parametrize("ends", [(-3.7, -3.2), (-3.7, -2.2), (-5, -5)])
    def test_a_short_ladder_has_its_ends_named(self, ends):
        """Where powers of ten alone would leave an axis without a scale."""
        steps = np.unique(np.logspace(*ends, 9))
        sweep = gl.sweep(exp_sum, np.ones(2), grad=np.exp, steps=steps)
        display = sweep.plot()
        display.figure_.draw_without_rendering()

        words = [t.get_text() for t in display.ax_.get_xticklabels()]
        assert words == [f"{step:.1e}" for step in np.unique(steps[[0, -1]])]

    def test_own_axes(self, doubled):
        """With ax= nothing else is made."""
        ax = Figure().add_subplot()

        assert doubled.plot(ax).ax_ is ax

    def test_several_methods_are_told_apart(self):
        """A legend names the methods by their dashes."""
        sweep = gl.sweep(
            exp_sum, np.ones(2), grad=np.exp, methods=("central", "forward")
        )
        legend = sweep.plot().ax_.get_legend()

        assert [t.get_text() for t in legend.get_texts()] == ["central", "forward"]

    def test_a_best_step_is_told_of_the_method_that_it_belongs_to(self):
        """One-sided differences want a step of 2e-8, central ones of 6e-6."""
        sweep = gl.sweep(
            exp_sum, np.ones(2), grad=np.exp, methods=("forward", "central")
        )
        alone = gl.sweep(exp_sum, np.ones(2), grad=np.exp, methods=("forward",))
        words = [
            [t.get_text() for t in each.plot().ax_.texts] for each in (sweep, alone)
        ]
        page = pack_sweep(sweep).state

        assert f"best h ≈ {sweep.best_step['x']:.0e}, forward" in words[0]
        assert f"best h ≈ {alone.best_step['x']:.0e}" in words[1]
        assert "read from the curves of forward" in repr(sweep)
        assert "read from the curves" not in repr(alone)
        for method in sweep.methods:
            best = sweep.curve(method, "x").best_step
            assert f"best step {best:.0e}" in page["inputs"][0]["reading"][method]

    def test_names_of_the_methods_stand_where_no_curve_is(self):
        """A complex step without round-off runs along the foot of the axes."""
        methods = ("central", "complex-step")
        display = gl.sweep(exp_sum, np.ones(2), grad=np.exp, methods=methods).plot()
        display.figure_.draw_without_rendering()
        legend = display.ax_.get_legend().get_window_extent()

        for line in display.lines_.values():
            drawn = line.get_path().transformed(line.get_transform())
            assert not drawn.intersects_bbox(legend, filled=False)

    def test_names_of_the_branches_stay_inside_the_axes(self):
        """Where a branch leaves at a side its name is no part of the frame or ticks."""
        methods = ("forward", "complex-step")
        sweep = gl.sweep(exp_sum, np.ones(2), grad=np.exp, methods=methods)
        ax = (display := sweep.plot()).ax_
        display.figure_.draw_without_rendering()
        frame = ax.get_window_extent()
        names = [text for text in ax.texts if text.get_text().startswith("~")]

        assert len(names) == 2
        for name in names:
            box = name.get_window_extent()
            assert frame.x0 < box.x0 < box.x1 < frame.x1

    def test_names_of_the_branches_stay_off_the_curve(self):
        """Below the valley there is room for them, left and right of its foot."""
        x = np.array([0.6, 1.0, 1.9])
        display = gl.sweep(np.log, x, jac=lambda x: np.diag(1 / x)).plot()
        display.figure_.draw_without_rendering()
        ((_, line),) = display.lines_.items()
        drawn = line.get_path().transformed(line.get_transform())
        names = [t for t in display.ax_.texts if t.get_text().startswith("~")]
        boxes = [name.get_window_extent().padded(4) for name in names]

        assert len(boxes) == 2
        assert not boxes[0].overlaps(boxes[1])
        assert not any(drawn.intersects_bbox(box, filled=False) for box in boxes)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_names_of_the_branches_run_beside_their_lines(self, dtype):
        """In single precision both are flat: a level name would be struck out."""
        grad = lambda x: np.exp(x).astype(dtype)
        display = gl.sweep(exp_sum, np.ones(3, dtype), grad=grad).plot()
        display.figure_.draw_without_rendering()
        names = [t for t in display.ax_.texts if t.get_text().startswith("~")]

        assert len(names) == len(display.theory_) == 2
        for name, line in zip(names, display.theory_, strict=True):
            x, y = line.get_path().transformed(line.get_transform()).vertices.T
            slope = np.degrees(np.arctan2(y[1] - y[0], x[1] - x[0]))
            box = name.get_window_extent()
            centre = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
            above = centre[1] - np.interp(centre[0], x, y)
            assert name.get_rotation() % 360 == pytest.approx(slope % 360, abs=5)
            assert above * np.cos(np.radians(slope)) > 0.5 * name.get_fontsize()

    def test_everything_equal_can_be_drawn(self):
        """A curve of zeros has no logarithm; what its level means is said below it."""
        sweep = gl.sweep(lambda x: 0 * x.sum(), np.ones(2), grad=np.zeros_like)
        display = sweep.plot()

        assert "image/png" in display._repr_mimebundle_()[0]
        assert "lower edge: no error at all" in display.ax_.get_xlabel()

    def test_nothing_is_said_of_zeros_where_there_are_none(self, doubled):
        """The lower edge means nothing then."""
        assert "edge" not in doubled.plot().ax_.get_xlabel()

    def test_bundle(self, doubled):
        """At the end of a cell: page, picture and text."""
        bundle = doubled._repr_mimebundle_()
        data = bundle[0] if isinstance(bundle, tuple) else bundle

        assert {"text/html", "image/png", "text/plain"} <= set(data)


@pytest.mark.parametrize("wrong", [0, 1, 9])
def test_of_a_crowd_the_worst_are_drawn_in_full(wrong):
    """Of twenty curves the wrong ones, six at most; three of them where all agree."""
    point = {f"w{k}": np.linspace(1, 1.5, 3) for k in range(20)}
    by = {f"w{k}": 2.0 + 0.1 * k * (k < wrong + 1) for k in range(20)}
    f = lambda p: (sum(w @ w for w in p.values()), {k: by[k] * p[k] for k in p})
    sweep = gl.sweep(f, point)
    display = sweep.plot()

    lines = {name: line for (_, name), line in display.lines_.items()}
    full = {name for name, line in lines.items() if line.get_linewidth() > 1}
    worst_first = [f"w{k}" for k in range(wrong, 0, -1)][:6]
    if wrong:
        assert full == set(worst_first)
    assert len(full) == (min(wrong, 6) or 3)
    words = {label.get_text() for label in display.labels_}
    assert f"✓ {20 - wrong - 3 * (not wrong)} others" in words
    assert ("✗ 3 others" in words) == (wrong == 9)
    # a wrong one is red, also where it is thin
    if wrong:
        thin = lines["w1"]
        assert thin.get_color() == lines[worst_first[0]].get_color()
        assert thin.get_color() != lines["w19"].get_color()
