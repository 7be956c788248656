"""Figures: what is drawn is asserted on artists and words, never on pixels."""

from __future__ import annotations

import dataclasses
import sys

import builders
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import gradlab as gl
from gradlab.errors import InputError
from gradlab.presentation.figures import png
from gradlab.presentation.palettes import ANY_PAPER, INK, LIGHT
from gradlab.presentation.plots import JacobianDisplay, LayersDisplay, plot_report


@pytest.fixture
def special(compare, rng):
    """One block that has everything: right, wrong, equal, nan, inf, undecided."""
    numeric = rng.normal(size=(6, 8)) + 3
    analytic = numeric * (1 + 1e-9)
    analytic[0, 0] = np.nan
    analytic[0, 1] = np.inf
    analytic[1] *= 2
    analytic[2] = numeric[2]
    bar = np.full((6, 8), 1e-12)
    bar[3] = 2.0
    return compare("W", analytic, numeric, shape=(2, 4), output="y", bar=bar)


class TestJacobianDisplay:
    """Three heat maps with one story."""

    def test_tight_boxes_keep_the_headline(self, tutorial):
        """What notebooks crop to (bbox_inches="tight") holds the verdict too."""
        figure = plot_report(tutorial).figure_
        figure.canvas.draw()
        title = figure.get_suptitle()
        box = figure.get_tightbbox(figure.canvas.get_renderer())

        assert title.startswith("✗ W1 disagrees")
        assert box.y1 >= figure.get_figheight()

    def test_three_panels_in_order(self, tutorial):
        """analytic, numeric and error, each with its title."""
        display = plot_report(tutorial)

        assert list(display.axes_) == ["analytic", "numeric", "error"]
        titles = [ax.get_title(loc="left") for ax in display.axes_.values()]
        assert titles == ["analytic", "numeric", "error"]

    def test_the_title_of_a_number_names_no_entry(self, compare):
        """There is one, and nothing to be counted."""
        display = JacobianDisplay(compare("x", [[8.0]], [[12.0]]))

        assert display.title == "✗ x disagrees: analytic 8, numeric 12"

    def test_title_gives_the_verdict_in_words(self, tutorial):
        """The worst block is drawn by default, and its title says what is wrong."""
        display = plot_report(tutorial)
        title = display.figure_.get_suptitle()

        assert title.startswith("✗ W1 disagrees in 40 of 40 entries")

    @pytest.mark.parametrize(
        ("analytic", "word"), [(1.0, "✓ w agrees"), (np.nan, "! w is undecided")]
    )
    def test_other_verdicts(self, compare, analytic, word):
        """Agreeing and undecided blocks are called so."""
        display = JacobianDisplay(compare("w", [[analytic]], [[analytic]]))

        assert display.title.startswith(word)

    def test_values_share_one_scale(self, tutorial):
        """A doubled gradient must look different: one norm for both sides."""
        images = plot_report(tutorial, "W1").images_
        norms = [images[side].norm for side in ("analytic", "numeric")]

        assert norms[0].vmax == norms[1].vmax == -norms[0].vmin
        assert np.array_equal(
            images["analytic"].get_array(), tutorial["W1"].analytic.reshape(4, 10)
        )

    def test_error_is_logarithmic(self, compare, rng):
        """Half of the larger value is drawn at log10(1/2)."""
        numeric = rng.normal(size=(1, 40))
        block = compare("W1", 2 * numeric, numeric, shape=(4, 10))
        data = JacobianDisplay(block).plot().images_["error"].get_array()

        assert np.allclose(data, np.log10(0.5))
        assert data.shape == (4, 10)

    def test_tolerance_is_marked_on_the_bar(self, tutorial):
        """The colour bar has a tick and a line at log10(tolerance)."""
        bar = plot_report(tutorial).colorbars_["error"]
        labels = [label.get_text() for label in bar.ax.get_xticklabels()]

        assert "tol" in labels
        assert bar.get_ticks()[labels.index("tol")] == pytest.approx(-6)
        assert bar.ax.lines[-1].get_xdata()[0] == pytest.approx(-6)
        assert "1e-06" in bar.ax.get_xlabel()

    def test_ramps_meet_at_the_tolerance(self, compare):
        """Just below it the colour is quiet, just above it is loud."""
        display = JacobianDisplay(compare("w", [[1.0]], [[1.0]])).plot()
        image = display.images_["error"]
        below, above = (to_hex(image.cmap(image.norm(-6 + d))) for d in (-1e-3, 1e-3))

        assert below == LIGHT.below[-1]
        assert above == LIGHT.above[0]

    def test_categories_have_their_own_colours(self, special):
        """nan, inf, undecided and exact equality are not on the ramp."""
        display = JacobianDisplay(special).plot()
        ramp = display.images_["error"].get_array()
        codes = display.categories_["error"].get_array()

        assert ramp.mask[0, 0]
        assert ramp.mask[0, 1]
        assert (codes[0, 0], codes[0, 1]) == (3, 2)
        assert codes[2].tolist() == [0] * 8
        assert codes[3].tolist() == [1] * 8
        assert codes.mask[4:].all()

    def test_legend_names_the_categories(self, special):
        """Colour is never the only cue: a legend names what occurs, and only that."""
        display = JacobianDisplay(special).plot()
        words = [text.get_text() for text in display.legend_.get_texts()]

        assert words == ["exactly equal", "undecided", "inf", "NaN"]

    def test_no_legend_without_categories(self, tutorial):
        """Nothing special, no legend."""
        assert plot_report(tutorial, "W1").legend_ is None

    def test_one_wrong_entry_among_a_million(self, compare):
        """It is drawn, in the right place, with a ring around it."""
        numeric = np.ones((1000, 1000))
        analytic = numeric + 1e-9
        analytic[613, 271] = 1.5
        display = JacobianDisplay(compare("W", analytic, numeric)).plot()
        data = display.images_["error"].get_array()

        assert max(data.shape) <= 240
        assert (data > -6).sum() == 1
        assert display.rings_.get_xydata().tolist() == [[271.0, 613.0]]
        assert display.images_["error"].get_extent() == [-0.5, 999.5, 999.5, -0.5]

    def test_large_cells_need_no_rings(self, tutorial):
        """What is seen anyway is not ringed."""
        assert plot_report(tutorial, "W1").rings_ is None

    def test_parameter_shape(self, tutorial):
        """A gradient is drawn as the parameter, with its axes named."""
        display = plot_report(tutorial, "W2")

        assert display.images_["numeric"].get_array().shape == (10, 3)
        assert display.axes_["analytic"].get_ylabel() == "row of W2"

    def test_own_axes(self, tutorial):
        """With ax= the error panel goes there, and no figure is made."""
        figure = Figure(figsize=(4, 4))
        FigureCanvasAgg(figure)
        ax = figure.add_subplot()

        display = plot_report(tutorial, "W1", ax)

        assert display.ax_ is ax
        assert display.figure_ is figure
        assert ax.get_title(loc="left").startswith("✗ W1 disagrees")
        assert len(ax.images) == 2

    def test_plot_twice(self, tutorial):
        """A display can be drawn again, elsewhere."""
        display = plot_report(tutorial)
        first = display.figure_

        assert display.plot().figure_ is not first

    def test_empty_block(self, compare):
        """Nothing to draw is said in the panel."""
        block = compare("w", np.zeros((1, 0)), np.zeros((1, 0)), shape=(0,))
        display = JacobianDisplay(block).plot()

        assert "no entries" in display.ax_.texts[0].get_text()

    def test_all_zero(self, compare):
        """A gradient of zeros everywhere is drawn without a warning."""
        display = JacobianDisplay(compare("w", np.zeros((1, 4)), np.zeros((1, 4))))

        assert png(display.plot().figure_)

    def test_unseen_entries_show_hatched_paper(self, compare):
        """What was not looked at is transparent, hatched, and named in the legend."""
        block = compare("W", [[1.0, 2.0]], [[1.0, 5.0]], shape=(2, 3))
        block = dataclasses.replace(block, columns=np.array([1, 5]), coverage="sample")
        display = JacobianDisplay(block).plot()

        assert display.ax_.patch.get_hatch()
        assert display.images_["error"].get_array().mask.sum() == 5
        assert "not looked at" in [t.get_text() for t in display.legend_.get_texts()]

    def test_a_sparse_sample_is_drawn_coarsely(self, compare, rng):
        """Forty of a million entries: pixels large enough to be seen."""
        columns = np.sort(rng.choice(1_000_000, 40, replace=False))
        block = compare("W", np.ones((1, 40)), np.ones((1, 40)), shape=(1000, 1000))
        block = dataclasses.replace(block, columns=columns, coverage="sample")
        data = JacobianDisplay(block).plot().images_["numeric"].get_array()

        assert data.shape == (48, 48)
        tiles = {(c // 1000 * 48 // 1000, c % 1000 * 48 // 1000) for c in columns}
        assert abs(int((~data.mask).sum()) - len(tiles)) <= 2

    def test_unknown_block(self, tutorial):
        """A misspelt name is answered with those that exist."""
        with pytest.raises(InputError, match="W1"):
            plot_report(tutorial, "W9")

    def test_report_without_blocks(self, report_of):
        """Nothing compared, nothing to draw."""
        with pytest.raises(InputError, match="nothing to draw"):
            plot_report(report_of())


class TestShowing:
    """Displays show themselves exactly once, on any paper, and leak nothing."""

    def test_bundle_is_a_png_and_a_text(self, tutorial):
        """Sharp pixels, shown at the size the figure was laid out for."""
        data, metadata = plot_report(tutorial)._repr_mimebundle_()

        assert data["image/png"].startswith(b"\x89PNG")
        assert "W1 disagrees" in data["text/plain"]
        assert metadata["image/png"]["width"] == 960

    def test_pyplot_is_never_imported(self, tutorial):
        """No global figure list: nothing leaks, nothing is shown twice."""
        before = "matplotlib.pyplot" in sys.modules
        plot_report(tutorial)._repr_mimebundle_()

        assert ("matplotlib.pyplot" in sys.modules) == before

    def test_a_figure_of_pyplot_is_left_to_pyplot(self, tutorial):
        """Axes of a figure with a manager are shown by whoever manages it."""
        figure = Figure()
        canvas = FigureCanvasAgg(figure)
        canvas.manager = object()
        display = plot_report(tutorial, None, figure.add_subplot())

        assert list(display._repr_mimebundle_()[0]) == ["text/plain"]

    def test_not_yet_drawn(self, tutorial):
        """A display at the end of a cell draws itself."""
        display = JacobianDisplay(tutorial["W1"])

        assert "image/png" in display._repr_mimebundle_()[0]

    def test_paper_is_transparent_and_ink_is_grey(self, tutorial):
        """The figure reads on light and dark pages alike."""
        display = plot_report(tutorial)

        assert display.figure_.patch.get_alpha() == 0
        for ax in display.axes_.values():
            assert ax.patch.get_alpha() == 0
            assert ax.xaxis.label.get_color() == INK


class TestLayersDisplay:
    """The network with the guilty layer lit."""

    def test_the_guilty_layer_is_lit(self):
        """Its label, bar and node are red; the title names it."""
        rows = [
            builders.layer("a", "Linear", "right"),
            builders.layer("b", "Linear", "wrong", 0.3),
            builders.layer("c", "Linear", "right"),
        ]
        display = LayersDisplay(builders.audit_of(rows, ["b"])).plot()
        labels = display.ax_.get_yticklabels()

        assert display.title.startswith("✗ b (Linear, model.py:31) is wrong itself")
        assert labels[1].get_text().startswith("✗ b")
        assert labels[1].get_color() == ANY_PAPER[2]
        assert display.bars_.patches[1].get_width() == pytest.approx(0.3)
        sizes = display.nodes_.get_sizes()
        assert sizes[1] > sizes[0] == sizes[2]
        assert to_hex(display.nodes_.get_facecolors()[1]) == ANY_PAPER[2]

    def test_runs_of_right_layers_are_one_row(self):
        """Forty right layers and one wrong: three rows."""
        rows = [builders.layer(f"l{i}", "Linear", "right") for i in range(20)]
        rows += [builders.layer("bad", "Linear", "wrong", 0.5)]
        rows += [builders.layer(f"m{i}", "Linear", "right") for i in range(20)]
        display = LayersDisplay(builders.audit_of(rows, ["bad"])).plot()
        labels = [t.get_text() for t in display.ax_.get_yticklabels()]

        assert len(labels) == 3
        assert labels[0].startswith("✓ 20 layers")
        assert "left out" not in display.ax_.get_xlabel()

    def test_rows_that_find_no_room_are_told(self):
        """Of 140 rows sixty are drawn: how many are missing stands in the figure."""
        rows = [
            builders.layer(f"l{i}", "Linear", ("right", "wrong")[i % 2], 0.1)
            for i in range(140)
        ]
        display = LayersDisplay(builders.audit_of(rows, ["l1"])).plot()

        assert len(display.ax_.get_yticklabels()) == 60
        assert "(rows left out: 80)" in display.ax_.get_xlabel()

    def test_branches(self):
        """Recorded parents make the links; without any, the order of execution does."""
        rows = [
            builders.layer("stem", "Linear", "right"),
            builders.layer("left", "Linear", "wrong", parents=("stem",)),
            builders.layer("right", "Linear", "wrong", parents=("stem",)),
            builders.layer("head", "Linear", "right", parents=("left", "right")),
        ]
        chain = [
            builders.layer(name, "Linear", state)
            for name, state in zip("abc", ["right", "wrong", "right"], strict=True)
        ]
        branched = LayersDisplay(builders.audit_of(rows, ["left"])).plot()
        straight = LayersDisplay(builders.audit_of(chain, ["b"])).plot()

        assert branched.links_ == [(0, 1), (0, 2), (1, 3), (2, 3)]
        assert straight.links_ == [(0, 1), (1, 2)]

    def test_a_link_over_many_layers_stays_inside_of_the_figure(self):
        """From the first of twenty layers to the last: its arc leaves no axes."""
        rows = [builders.layer("l0", "Linear", "wrong", 0.1)]
        for k in range(1, 20):
            before = (f"l{k - 1}", "l0") if k == 19 else (f"l{k - 1}",)
            rows.append(builders.layer(f"l{k}", "Linear", "wrong", 0.1, 0, before))
        display = LayersDisplay(builders.audit_of(rows, ["l0"])).plot()
        display.figure_.canvas.draw()

        assert (0, 19) in display.links_
        left = display.graph_.get_window_extent().x0
        for arrow in display.graph_.patches:
            assert arrow.get_path().get_extents(arrow.get_transform()).x0 >= left

    def test_unchecked_layer_has_no_bar(self):
        """nan is not drawn as an error."""
        rows = [builders.layer("drop", "Dropout", "unchecked", np.nan)]
        display = LayersDisplay(builders.audit_of(rows)).plot()

        assert display.bars_.patches[0].get_width() == 0

    def test_own_axes(self):
        """With ax= only the bars are drawn, there."""
        ax = Figure().add_subplot()
        rows = [builders.layer("a", "Linear", "right")]
        display = LayersDisplay(builders.audit_of(rows)).plot(ax)

        assert display.ax_ is ax
        assert display.graph_ is None


def test_long_headlines_stay_on_the_paper(compare):
    """A verdict with long names is broken into lines instead of cut off."""
    name = "encoder.blocks.11.attention.output.projection.weight"
    block = compare(name, [[2.0, 1.0]], [[1.0, 1.0]], output="logits")
    display = JacobianDisplay(block).plot()
    words = display.figure_.get_suptitle()

    assert "\n" in words
    assert words.replace("\n", " ") == display.title


def test_a_taylor_test_says_no_more_over_axes_than_they_have_room_for():
    """In somebody's figure a long verdict goes on in the next line."""
    ax = Figure(figsize=(4, 3)).add_subplot()
    test = gl.taylor_test(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)

    assert "\n" in test.plot(ax).ax_.get_title(loc="left")
