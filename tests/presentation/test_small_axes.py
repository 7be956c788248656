"""Drawings in small axes: nothing leaves them, and nothing is squeezed.

Names are as long as those of a transformer.
"""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import gradlab as gl
from tests.presentation.page import builders

LONG = "encoder.layers.11.self_attention.query_projection.weight"


@pytest.fixture(scope="module")
def results():
    """A report, a sweep and an audit with a mistake and long names."""
    rng = np.random.default_rng(0)
    names = [LONG, LONG.replace("query", "key"), "b"]
    params = {name: rng.normal(size=(3, 4)) for name in names}

    def loss_and_grads(p):
        grads = {n: v * (4 if n == LONG else 2) for n, v in p.items()}
        return sum((v**2).sum() for v in p.values()), grads

    report = gl.check(loss_and_grads, params)
    sweep = report.sweep(methods=("central", "forward"))
    return {"report": report, "sweep": sweep, "audit": builders.audit(4)}


def words_of(ax, renderer):
    """Boxes of all that is written in, over and beside axes, in pixels."""
    texts = [ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label, *ax.texts]
    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(axis.get_view_interval())
        texts += [
            t.label1 for t in axis.get_major_ticks() if low <= t.get_loc() <= high
        ]
    texts += ax.get_legend().get_texts() if ax.get_legend() else []
    return [t.get_window_extent(renderer) for t in texts if t.get_text()]


@pytest.mark.parametrize("what", ["report", "sweep", "audit"])
def test_three_in_a_row_leave_each_other_alone(results, what):
    """In a figure of a page's width each keeps to its third of it."""
    figure = Figure(figsize=(7, 2.6), layout="constrained")
    axes = figure.subplots(1, 3)
    for ax in axes:
        results[what].plot(ax=ax)
    figure.draw_without_rendering()  # a warning of the layout is an error here
    renderer, third = FigureCanvasAgg(figure).get_renderer(), figure.bbox.width / 3

    for number, ax in enumerate(axes):
        boxes = words_of(ax, renderer)
        assert min(box.x0 for box in boxes) >= number * third - 3
        assert max(box.x1 for box in boxes) <= (number + 1) * third + 3
        assert ax.get_window_extent().width >= 0.45 * third


@pytest.mark.parametrize("what", ["report", "sweep", "audit"])
def test_a_small_figure_holds_all_words(results, what):
    """Nothing is cut off at the edges of the paper, and half of it is the picture."""
    figure = Figure(figsize=(3.2, 2.4), layout="constrained")
    ax = figure.add_subplot()
    results[what].plot(ax=ax)
    figure.draw_without_rendering()
    boxes = words_of(ax, FigureCanvasAgg(figure).get_renderer())

    assert min(box.x0 for box in boxes) >= -2
    assert max(box.x1 for box in boxes) <= figure.bbox.width + 2
    assert max(box.y1 for box in boxes) <= figure.bbox.height + 2
    assert ax.get_window_extent().width >= 0.5 * figure.bbox.width


def test_small_axes_name_what_is_wrong_and_count_the_rest(results):
    """A legend in a corner, with the name that disagrees."""
    ax = Figure(figsize=(3.2, 2.4)).add_subplot()
    display = results["sweep"].plot(ax=ax)
    told = [text.get_text() for text in display.labels_]

    assert told[0].startswith("✗ encoder")
    assert told[1] == "✓ 2 others"


def test_no_plateau_strikes_out_the_best_step():
    """An error of 1 is the highest there is; the words stand above it, inside."""
    sweep = gl.sweep(
        lambda x: np.exp(x).sum(),
        np.ones(2),
        grad=lambda x: -np.exp(x),
        methods=("forward", "central"),
    )
    figure = Figure(figsize=(2.6, 2.2), layout="constrained")
    display = sweep.plot(ax=figure.subplots())
    figure.draw_without_rendering()
    renderer, ax = FigureCanvasAgg(figure).get_renderer(), display.ax_
    words = next(t for t in ax.texts if t.get_text().startswith("best h"))
    box = words.get_window_extent(renderer)

    assert box.y0 > ax.transData.transform((sweep.best_step["x"], 1.0))[1]
    assert ax.bbox.x0 <= box.x0
    assert box.x1 <= ax.bbox.x1
