"""Taylor remainders against the step on logarithmic axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.presentation.figures import (
    Display,
    figure_of,
    headline,
    ink,
    new_figure,
    own_title,
)
from gradlab.presentation.palettes import ANY_PAPER, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from gradlab.properties.remainders import TaylorTest

__all__ = ["TaylorDisplay"]

_MARKERS = ("o", "s", "D")
_NAMES = ("value", "gradient", "second derivative")


class TaylorDisplay(Display):
    """Remainders of each order, and broken lines of the slope expected.

    Parameters
    ----------
    test
        What `gradlab.taylor_test` returned.

    Attributes
    ----------
    figure_, ax_
        The figure and the axes.
    lines_, theory_
        Remainders, and lines of the expected slope, by order.
    floor_
        Line of the round-off.

    Examples
    --------
    >>> test = gl.taylor_test(lambda x: np.exp(x).sum(), np.ones(2), grad=np.exp)
    >>> sorted(test.plot().lines_)
    [0, 1]
    """

    ax_: Axes
    lines_: dict[int, Line2D]
    theory_: dict[int, Line2D]
    floor_: Line2D

    def __init__(self, test: TaylorTest) -> None:
        self.test = test

    @property
    def title(self) -> str:
        """The verdict in words."""
        test = self.test
        return f"{test.verdict.glyph} {test.verdict.words}: {test.reading}"

    def plot(self, ax: Axes | None = None) -> TaylorDisplay:
        """Draw into a new figure, or into `ax`; return itself."""
        colour = ANY_PAPER[self.test.verdict]
        if ax is None:
            self.figure_ = new_figure(7.0, 4.2)
            self.ax_ = self.figure_.add_subplot()
            headline(self.figure_, self.title, colour)
        else:
            self.figure_, self.ax_ = figure_of(ax), ax
            own_title(ax, self.title, colour)
        self.lines_, self.theory_ = {}, {}
        for order in sorted(self.test.residuals):
            self._order(order)
        self._finish()
        return self

    def _order(self, order: int) -> None:
        steps, residuals = self.test.steps, self.test.residuals[order]
        drawn = np.where(residuals > 0, residuals, np.nan)
        found = self.test.derivatives.get(order)
        verdict = Verdict.AGREES if found is None else found.verdict
        rate = self.test.rate[order]
        words = "no rate" if np.isnan(rate) else f"rate {rate:.2f}"
        (self.lines_[order],) = self.ax_.plot(
            steps,
            drawn,
            marker=_MARKERS[order],
            color=INK if found is None else ANY_PAPER[verdict],
            linewidth=2.4 if verdict == Verdict.DISAGREES else 1.4,
            label=f"order {order} ({_NAMES[order]}): {words}",
        )
        heard = np.flatnonzero(self.test.heard[order])
        if heard.size:
            start = heard[0]
            line = drawn[start] * (steps / steps[start]) ** (order + 1)
            (self.theory_[order],) = self.ax_.plot(
                steps,
                line,
                color=INK,
                linewidth=0.8,
                linestyle=(0, (4, 3)),
                label=f"slope {order + 1}",
            )

    def _finish(self) -> None:
        ax = self.ax_
        floors = np.where(self.test.floors > 0, self.test.floors, np.nan)
        (self.floor_,) = ax.plot(
            self.test.steps,
            floors,
            color=INK,
            linewidth=0.8,
            linestyle=":",
            label="round-off",
        )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ink(ax, grid=True)
        ax.set_xlabel("step h, in multiples of the direction")
        ax.set_ylabel("Taylor remainder")
        ax.legend(fontsize=8, frameon=False, labelcolor=INK)
