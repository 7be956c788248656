"""The network as it ran, with the guilty layer lit."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import ConnectionStyle, FancyArrowPatch

from gradlab.comparison.verdict import Verdict
from gradlab.presentation.figures import (
    NARROW,
    Display,
    figure_of,
    headline,
    inches,
    ink,
    new_figure,
    own_title,
)
from gradlab.presentation.layer_text import (
    GLYPHS,
    headline_of,
    runs,
)
from gradlab.presentation.palettes import ANY_PAPER, ERROR_FLOOR, INK
from gradlab.presentation.words import middle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    from gradlab.localisation.layers.audited import LayerAudit, LayerRow

__all__ = ["LayersDisplay"]

_MOST = 60  # rows of a figure; beyond, only what is not right is drawn
_COLOURS = {
    "right": ANY_PAPER[Verdict.AGREES],
    "holds": ANY_PAPER[Verdict.AGREES],
    "wrong": ANY_PAPER[Verdict.DISAGREES],
    "contaminated": ANY_PAPER[Verdict.UNDECIDED],
    "unchecked": INK,
}
_LEGEND = {
    "right": "right by itself",
    "holds": "right by itself, holds a wrong layer",
    "wrong": "wrong itself",
    "contaminated": "contaminated",
    "unchecked": "not checked",
}


class _Line:
    """One line of the picture: a layer, or a run of layers in the same state."""

    def __init__(self, state: str, rows: list[LayerRow]) -> None:
        self.state, self.rows = state, rows
        errors = [row.error for row in rows if not np.isnan(row.error)]
        self.error = max(errors, default=np.nan)

    @property
    def label(self) -> str:
        """Glyph, name and type; never colour alone."""
        first = self.rows[0]
        if len(self.rows) > 1:
            span = f"{middle(first.name, 22)} … {middle(self.rows[-1].name, 22)}"
            return f"{GLYPHS[self.state]} {len(self.rows)} layers: {span}"
        call = f" call {first.call}" if first.call else ""
        name = middle(first.name, 44)
        return f"{GLYPHS[self.state]} {name}{call}  ({middle(first.type, 24)})"


class _Bent(ConnectionStyle.Arc3):
    """An arc to the left that stays inside of its axes, however far it reaches."""

    def __init__(self, ax: Axes, *, straight: bool) -> None:
        super().__init__(0.0 if straight else 0.35)
        self.ax = ax

    def connect(self, posA: Any, posB: Any) -> Path:
        """Return the arc between two places on the screen."""
        # it bulges by half of `rad`, times the distance; nodes stand at 0.7 of the axes
        most = 1.2 * self.ax.get_window_extent().width / max(math.dist(posA, posB), 1)
        return ConnectionStyle.Arc3(min(self.rad, most)).connect(posA, posB)


class LayersDisplay(Display):
    """Layers in execution order, input at the top, each with its own error.

    A layer that is wrong itself is told from one that is only contaminated;
    links show which layer feeds which.

    Parameters
    ----------
    audit
        What `gradlab.blame` returned.

    Attributes
    ----------
    figure_, ax_
        The figure, and the axes with one bar per layer.
    graph_
        Axes with the nodes and links; None if `plot` was given axes.
    bars_
        Bar container of the errors.
    nodes_
        Nodes of the graph, in the order of the bars; None if there is no graph.
    links_
        Pairs of row numbers that are linked.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh()).double()
    >>> gl.blame(net, torch.ones(4, 3).double()).plot().links_
    [(1, 2)]
    """

    ax_: Axes
    graph_: Axes | None
    bars_: Any
    nodes_: PathCollection | None
    links_: list[tuple[int, int]]

    def __init__(self, audit: LayerAudit) -> None:
        self.audit = audit
        lines = [_Line(*run) for run in runs(audit)]
        if len(lines) > _MOST:
            loud = [line for line in lines if line.state in {"wrong", "contaminated"}]
            self._lines = loud[:_MOST] or lines[:_MOST]
        else:
            self._lines = lines
        self._left_out = len(lines) - len(self._lines)

    @property
    def title(self) -> str:
        """Which layer is wrong, in words."""
        return headline_of(self.audit)

    def plot(self, ax: Axes | None = None) -> LayersDisplay:
        """Draw into a new figure, or the bars alone into `ax`.

        Parameters
        ----------
        ax
            Axes of your own.

        Returns
        -------
        LayersDisplay
            Itself.
        """
        self.graph_, self.nodes_ = None, None
        self.links_ = self._find_links()
        colour = ANY_PAPER[self.audit.verdict]
        if ax is None:
            self.figure_ = new_figure(9.0, 1.5 + 0.27 * max(len(self._lines), 1))
            self.graph_, self.ax_ = self.figure_.subplots(1, 2, width_ratios=(1, 9))
            headline(self.figure_, self.title, colour)
        else:
            self.figure_, self.ax_ = figure_of(ax), ax
            own_title(ax, self.title, colour)
        self._bars()
        if self.graph_ is not None:
            self._graph(self.graph_)
        self._legend()
        return self

    def _find_links(self) -> list[tuple[int, int]]:
        """Rows that feed each other: recorded parents, else the order of execution.

        Where rows are left out their links are, too: none is made up.
        """
        place: dict[str, int] = {}
        for number, line in enumerate(self._lines):
            place |= {row.name: number for row in line.rows}
        links: set[tuple[int, int]] = set()
        for number, line in enumerate(self._lines):
            for row in line.rows:
                links |= {
                    (place[parent], number)
                    for parent in row.parents
                    if place.get(parent, number) != number
                }
        if not any(row.parents for row in self.audit.rows):
            links = {(i, i + 1) for i in range(len(self._lines) - 1)}
        return sorted(links)

    def _bars(self) -> None:
        ax, lines = self.ax_, self._lines
        place = np.arange(len(lines))
        floor = 10.0**ERROR_FLOOR
        errors = np.array([line.error for line in lines], dtype=float)
        ends = np.where(np.isnan(errors), floor, np.clip(errors, floor, 1e2))
        self.bars_ = ax.barh(
            place,
            ends - floor,
            left=floor,
            height=0.62,
            color=[_COLOURS[line.state] for line in lines],
            alpha=0.75,
        )
        ax.set_xscale("log")
        ax.set_xlim(floor, 10.0)
        ax.set_ylim(max(len(lines), 1) - 0.4, -0.6)
        wide = inches(ax)[0]
        names = [line.label for line in lines]
        if wide < NARROW:  # no types, and of names as much as leaves room for bars
            most = max(14, int(6 * wide))
            names = [middle(re.split("  \\(|: ", name)[0], most) for name in names]
        ax.set_yticks(place, labels=names)
        ink(ax, grid=True)
        ax.grid(visible=False, axis="y")
        words = "relative error of the layer's own gradient"
        if wide < NARROW:
            words = "own relative error"
        if self._left_out:
            words += f" (rows left out: {self._left_out})"
        ax.set_xlabel(words)
        for tick, line in zip(ax.get_yticklabels(), lines, strict=True):
            tick.set_color(_COLOURS[line.state])
            tick.set_fontsize(8.5)
            tick.set_fontweight("bold" if line.state == "wrong" else "normal")
        ax.tick_params(axis="y", length=0)

    def _graph(self, ax: Axes) -> None:
        lines = self._lines
        place = np.arange(len(lines))
        for start, stop in self.links_:
            arrow = FancyArrowPatch(
                (0.7, start),
                (0.7, stop),
                arrowstyle="-|>",
                connectionstyle=_Bent(ax, straight=abs(stop - start) == 1),
                color=INK,
                linewidth=0.8,
                mutation_scale=7,
                shrinkA=4,
                shrinkB=4,
            )
            ax.add_patch(arrow)
        self.nodes_ = ax.scatter(
            np.full(len(lines), 0.7),
            place,
            s=[90 if line.state == "wrong" else 34 for line in lines],
            color=[_COLOURS[line.state] for line in lines],
            zorder=3,
        )
        ax.set_xlim(0, 1)
        ax.set_ylim(self.ax_.get_ylim())
        ax.set_axis_off()

    def _legend(self) -> None:
        states = [s for s in _LEGEND if any(line.state == s for line in self._lines)]
        handles = [
            Line2D(
                [],
                [],
                linestyle="none",
                marker="o",
                color=_COLOURS[state],
                label=f"{GLYPHS[state]} {_LEGEND[state]}",
            )
            for state in states
        ]
        if not handles or self.graph_ is None:
            return
        self.figure_.legend(
            handles=handles,
            loc="outside lower left",
            ncols=len(handles),
            fontsize=8,
            frameon=False,
            labelcolor=INK,
        )
