"""Analytic, numeric and error of one block, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import (
    AsinhNorm,
    LinearSegmentedColormap,
    ListedColormap,
    TwoSlopeNorm,
)
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from gradlab.comparison.relative_errors import RELATIVE_FLOOR, relative_error
from gradlab.comparison.verdict import Verdict
from gradlab.presentation.cell_numbers import MINUS, write_cells
from gradlab.presentation.figures import (
    Display,
    figure_of,
    headline,
    inches,
    ink,
    new_figure,
    own_title,
)
from gradlab.presentation.palettes import (
    ANY_PAPER,
    ERROR_CEILING,
    ERROR_FLOOR,
    INK,
    LIGHT,
)
from gradlab.presentation.pictures import Picture, picture
from gradlab.presentation.views import log_error, worst_entry
from gradlab.presentation.words import brief, middle, number, pair

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.image import AxesImage
    from matplotlib.legend import Legend
    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison

__all__ = ["JacobianDisplay"]

_PIXELS = 240  # a panel of the default figure is a little larger than this
_SPARSE = 0.05  # share of entries looked at, below which single ones are not seen
_COARSE = 48  # pixels of such a picture
_RING_BELOW = 4.0  # points on paper under which a failing cell is overlooked
_RINGS = 60  # more would hide what they point at
_PANELS = ("analytic", "numeric", "error")

_RAMPS = {"below": LIGHT.below, "above": LIGHT.above}
_ERRORS = ListedColormap(
    np.vstack(
        [
            LinearSegmentedColormap.from_list(*ramp)(np.linspace(0, 1, 256))
            for ramp in _RAMPS.items()
        ]
    ),
    name="gradlab_error",
)
_SIGNED = LinearSegmentedColormap.from_list("gradlab_signed", LIGHT.signed)
# Codes of what is no number on the ramp, in the order of the legend.
_CATEGORIES = ("exactly equal", "undecided", "inf", "NaN")
_CATEGORY_COLOURS = ListedColormap(
    [LIGHT.exact, LIGHT.undecided, LIGHT.inf, LIGHT.nan], name="gradlab_category"
)


def _category_of_error(view: Picture) -> NDArray[np.float64]:
    """Category of each pixel of the error panel; nan where it has a colour."""
    code = np.full(view.error.shape, np.nan)
    code[view.error == 0] = 0
    code[view.verdicts == Verdict.UNDECIDED] = 1
    code[np.isinf(view.error)] = 2
    code[np.isnan(view.error)] = 3
    code[view.verdicts < 0] = np.nan
    return code


def _category_of_value(values: NDArray[np.float64]) -> NDArray[np.float64]:
    code = np.full(values.shape, np.nan)
    code[np.isinf(values)] = 2
    code[np.isnan(values)] = 3
    return code


class JacobianDisplay(Display):
    """Heat maps of one block: analytic | numeric | error.

    Holds the numbers; `plot` draws them, as often as one likes. Every pixel shows the
    worst entry of its tile, the same entry in all three panels.

    Parameters
    ----------
    comparison
        The block.
    name
        What to call it; default the input's name.

    Attributes
    ----------
    figure_
        The figure.
    ax_
        Axes of the error panel.
    axes_
        Axes by panel; only "error" if `plot` was given axes.
    picture_
        The planes that are drawn, a `Picture`.
    images_
        Images by panel: ramps only, categories are masked.
    categories_
        Images of what is no number on the ramp (exactly equal, undecided, inf, NaN).
    colorbars_
        Colour bars, "values" and "error".
    rings_
        Rings around small failing spots, or None.
    legend_
        Names of the categories that occur, or None.

    Examples
    --------
    >>> report = gl.check(lambda W: (W**2).sum(), np.ones((3, 4)), grad=lambda W: W)
    >>> report.plot("W").ax_.get_title(loc="left")
    'error'
    """

    ax_: Axes
    axes_: dict[str, Axes]
    picture_: Picture
    images_: dict[str, AxesImage]
    categories_: dict[str, AxesImage]
    colorbars_: dict[str, Colorbar]
    rings_: Line2D | None
    legend_: Legend | None

    def __init__(self, comparison: Comparison, name: str | None = None) -> None:
        self.comparison = comparison
        self.name = comparison.input.name if name is None else name

    @property
    def title(self) -> str:
        """The verdict in words, with the worst entry."""
        block = self.comparison
        verdict, place = block.verdict, worst_entry(block)
        words = f"{verdict.glyph} {middle(self.name, 50)} {verdict.words}"
        if verdict == Verdict.UNDECIDED:
            words = f"{verdict.glyph} {middle(self.name, 50)} is undecided"
        if place is None:
            return f"{words}: no entries"
        count, total = block.counts[verdict], sum(block.counts)
        worst = middle(block.label(*place), 50)
        some = block.columns is not None and block.tally is None
        looked = " looked at" if some else ""
        if verdict == Verdict.AGREES:
            view = picture(block, (1, 1))
            largest = brief(float(view.error[0, 0]))
            return f"{words}: largest error {largest}, tolerance {view.tolerance:.0e}"
        left, right = pair(block.analytic[place], block.numeric[place], 4)
        if verdict == Verdict.UNDECIDED:
            right += f" ± {brief(float(block.numeric_error[place]))}"
        where = f" in {count:,} of {total:,} entries{looked}; {worst}"
        where = where if total > 1 or looked else ""
        return f"{words}{where}: analytic {left}, numeric {right}"

    # ------------------------------------------------------------------ drawing
    def plot(
        self, ax: Axes | None = None, *, ring_kwargs: Mapping[str, Any] | None = None
    ) -> JacobianDisplay:
        """Draw three panels into a new figure, or the error panel into `ax`.

        Parameters
        ----------
        ax
            Axes of your own; the error panel goes there, with its colour bar.
        ring_kwargs
            Style of the rings, over the defaults (`matplotlib.lines.Line2D`).

        Returns
        -------
        JacobianDisplay
            Itself.
        """
        self.images_, self.categories_, self.colorbars_ = {}, {}, {}
        self.rings_, self.legend_ = None, None
        colour = ANY_PAPER[self.comparison.verdict]
        if ax is None:
            self.picture_ = picture(self.comparison, self._pixels())
            down, across = self.picture_.shape
            square = 0.25 <= down / max(across, 1) <= 2 and down > 1
            height = 3.4 if down > 1 else 2.4
            if square:  # as high as square cells make the panels, and no higher
                height = min(2.75 * down / across, 2.6) + 1.5
            if np.isfinite(_category_of_error(self.picture_)).any():
                height += 0.3  # the legend
            self.figure_ = new_figure(9.6, height)
            axes = self.figure_.subplots(1, 3, sharex=True, sharey=True, squeeze=False)
            self.axes_ = dict(zip(_PANELS, axes[0], strict=True))
            headline(self.figure_, self.title, colour)
        else:
            self.figure_ = figure_of(ax)
            box = ax.get_window_extent()
            out = (max(int(box.height), 16), max(int(box.width), 16))
            self.picture_ = picture(self.comparison, out)
            self.axes_ = {"error": ax}
            own_title(ax, self.title, colour)
            square = False
        self.ax_ = self.axes_["error"]
        if 0 in self.picture_.shape:
            self._empty()
            return self
        for panel in self.axes_:
            self._panel(panel, square=square)
            self._numbers(panel)
        self._bars()
        self._legend()
        self._rings(ring_kwargs or {})
        return self

    def _pixels(self) -> tuple[int, int]:
        """Choose how fine a picture: coarser where few entries were looked at."""
        columns = self.comparison.columns
        if self.comparison.tally is not None:
            return (_PIXELS, _PIXELS)
        entries = self.comparison.input.size
        sparse = columns is not None and columns.size < _SPARSE * max(entries, 1)
        return (_COARSE, _COARSE) if sparse else (_PIXELS, _PIXELS)

    def _empty(self) -> None:
        for panel, ax in self.axes_.items():
            ink(ax)
            ax.set(xticks=[], yticks=[])
            ax.text(0.5, 0.5, f"{panel}: no entries", ha="center", color=INK)

    def _panel(self, panel: str, *, square: bool) -> None:
        view, ax = self.picture_, self.axes_[panel]
        down, across = view.shape
        if panel == "error":
            join = float(np.log10(view.tolerance))
            values, codes = log_error(view.error), _category_of_error(view)
            ceiling = max(ERROR_CEILING, join + 1)
            norm: Any = TwoSlopeNorm(join, vmin=ERROR_FLOOR, vmax=ceiling)
            values = np.clip(values, ERROR_FLOOR, ceiling)
            colours: Any = _ERRORS
        else:
            values = getattr(view, panel)
            codes = _category_of_value(values)
            top = view.scale or 1.0
            norm, colours = AsinhNorm(top / 100, vmin=-top, vmax=top), _SIGNED
        common: dict[str, Any] = {
            "extent": (-0.5, across - 0.5, down - 0.5, -0.5),
            "interpolation": "nearest",
            "aspect": "equal" if square else "auto",
        }
        hidden = np.isfinite(codes) | (view.verdicts < 0) | np.isnan(values)
        # paper shows through where nothing was looked at
        ax.patch.set(hatch="/////", facecolor="none", edgecolor=LIGHT.line, linewidth=0)
        self.images_[panel] = ax.imshow(
            np.ma.masked_array(values, hidden), norm=norm, cmap=colours, **common
        )
        self.categories_[panel] = ax.imshow(
            np.ma.masked_invalid(codes),
            cmap=_CATEGORY_COLOURS,
            vmin=-0.5,
            vmax=len(_CATEGORIES) - 0.5,
            **common,
        )
        ink(ax)
        if (view.verdicts >= 0).all():
            ax.patch.set_hatch("")
        if len(self.axes_) > 1:
            words = f"|{panel}|" if view.magnitude and panel != "error" else panel
            ax.set_title(words, loc="left", fontsize=9.5, weight="bold", color=INK)
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
        ax.yaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
        most = [max(12, min(int(11 * length), 40)) for length in inches(ax)]  # letters
        ax.set_xlabel(middle(view.xlabel, most[0]))
        if panel in ("analytic", next(iter(self.axes_))):
            ax.set_ylabel(middle(view.ylabel, most[1]))
        if down == 1:
            ax.set_yticks([])

    def _numbers(self, panel: str) -> None:
        """Write small matrices out; errors as tables have them, sizes without."""
        view = self.picture_
        under = (self.categories_[panel], self.images_[panel])
        if panel != "error":
            write_cells(self.axes_[panel], getattr(view, panel), under, view.scale)
        elif not view.magnitude:
            floor = RELATIVE_FLOOR * view.scale
            error = relative_error(view.analytic, view.numeric, floor)
            error = np.where(np.isinf(view.error), np.inf, error)  # not inf / inf
            write_cells(self.axes_[panel], error, under)

    def _bars(self) -> None:
        """One bar for both values, one for the error with the tolerance marked."""
        view = self.picture_
        style: dict[str, Any] = {"location": "bottom", "pad": 0.03}
        if view.shape[0] == 1:  # low panels: a bar is measured in their height
            style |= {"fraction": 0.45, "pad": 0.15}
        if "analytic" in self.axes_:
            both = [self.axes_["analytic"], self.axes_["numeric"]]
            bar = self.figure_.colorbar(
                self.images_["analytic"], ax=both, shrink=0.5, aspect=40, **style
            )
            top = view.scale or 1.0
            words = [f"{MINUS}{number(top, 3)}", "0", number(top, 3)]
            first = int(view.magnitude)  # sizes are never below zero
            bar.set_ticks([-top, 0.0, top][first:], labels=words[first:])
            bar.ax.set_xlim([-top, 0.0][first], top)
            bar.ax.minorticks_off()
            bar.set_label("derivative; the scale is logarithmic away from zero")
            self.colorbars_["values"] = bar
        bar = self.figure_.colorbar(
            self.images_["error"], ax=self.ax_, shrink=0.95, aspect=20, **style
        )
        join = float(np.log10(view.tolerance))
        top = float(bar.norm.vmax or ERROR_CEILING)
        # ticks that would touch the one of the tolerance are left out
        low, high = join - (join - ERROR_FLOOR) / 4, join + (top - join) / 3
        decades = [d for d in (-16.0, -12.0, -8.0, -4.0, 0.0) if not low <= d <= high]
        ticks = sorted([*decades, join])
        labels = ["tol" if t == join else f"$10^{{{round(t)}}}$" for t in ticks]
        bar.set_ticks(ticks, labels=labels)
        bar.ax.axvline(join, color="#000000", linewidth=1.4)
        bar.set_label(f"relative error, tolerance {view.tolerance:.0e}")
        self.colorbars_["error"] = bar
        for drawn in self.colorbars_.values():
            drawn.outline.set_visible(False)
            ink(drawn.ax)
            drawn.ax.xaxis.label.set_fontsize(8)

    def _legend(self) -> None:
        """Name the categories that occur."""
        view = self.picture_
        codes: list[Any] = [
            np.ma.asarray(i.get_array()) for i in self.categories_.values()
        ]
        found = {int(c) for code in codes for c in code.compressed()}
        handles = [
            Patch(facecolor=_CATEGORY_COLOURS(code), edgecolor=INK, label=words)
            for code, words in enumerate(_CATEGORIES)
            if code in found
        ]
        if (view.verdicts < 0).any():
            blank = Patch(
                facecolor="none", edgecolor=INK, hatch="////", label="not looked at"
            )
            handles.append(blank)
        if handles:
            place: dict[str, Any] = {"loc": "lower right"}
            if len(self.axes_) > 1:
                place = {"loc": "outside lower left", "ncols": len(handles)}
            owner: Any = self.figure_ if len(self.axes_) > 1 else self.ax_
            self.legend_ = owner.legend(
                handles=handles,
                fontsize=8,
                frameon=False,
                labelcolor=INK,
                handlelength=1.0,
                handleheight=1.0,
                **place,
            )

    def _rings(self, style: Mapping[str, Any]) -> None:
        """Ring failing spots that are too small to be noticed."""
        view = self.picture_
        rows, columns = view.failing
        box = self.ax_.get_window_extent()
        points = min(box.width / view.shape[1], box.height / view.shape[0])
        if not 0 < rows.size <= _RINGS or points > _RING_BELOW:
            return
        defaults: dict[str, Any] = {
            "markersize": 11,
            "markerfacecolor": "none",
            "markeredgecolor": ANY_PAPER[Verdict.DISAGREES],
            "markeredgewidth": 1.5,
            "linestyle": "none",
            "marker": "o",
            "clip_on": False,
        }
        self.rings_ = Line2D(columns, rows, **(defaults | dict(style)))
        self.ax_.add_line(self.rings_)
