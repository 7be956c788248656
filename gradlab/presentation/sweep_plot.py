"""Error against step on logarithmic axes."""

from __future__ import annotations

import functools
import math
import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

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
from gradlab.presentation.palettes import ANY_PAPER, INK
from gradlab.presentation.sweep_text import sweep_headline
from gradlab.presentation.views import worst_curves
from gradlab.presentation.words import distinct, middle, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gradlab.sweeps import Sweep

__all__ = ["SweepDisplay"]

_LOWEST, _HIGHEST = 1e-17, 30.0  # relative errors end at 1; the rest is room
_LINE = 16.0  # points
_COLUMNS = 122  # characters of 8.5 points across the figure
_INSIDE = 3  # names in small axes
_HALF = 0.25  # inches: half of the name of a line of theory, and a little more
_STYLES: dict[Verdict, dict[str, Any]] = {
    Verdict.AGREES: {"linewidth": 1.2, "linestyle": "-"},
    Verdict.UNDECIDED: {"linewidth": 1.7, "linestyle": (0, (5, 2))},
    Verdict.DISAGREES: {"linewidth": 2.8, "linestyle": "-"},
}
_MARKERS = {Verdict.AGREES: "o", Verdict.UNDECIDED: "s", Verdict.DISAGREES: "D"}
# One method is one panel's worth of lines; further ones are drawn lighter and broken.
_DASHES: tuple[Any, ...] = (
    "-",
    (0, (1, 1.2)),
    (0, (4, 1.5, 1, 1.5)),
    (0, (6, 3)),
    (0, (1, 3)),
)


class SweepDisplay(Display):
    """Error against step, one line per input, coloured by its verdict.

    A right gradient makes a V, a wrong one a plateau. Thin broken lines are the theory:
    truncation ``h**p`` and rounding ``u/h``, fitted to the first method.

    Parameters
    ----------
    sweep
        What `gradlab.sweep` returned.

    Attributes
    ----------
    figure_, ax_
        The figure and the axes.
    lines_
        Lines by (method, input).
    theory_
        Theory lines of the first method.
    best_
        Line at the best step, or None.
    labels_
        Names at the right edge; in small axes those of a legend.

    Examples
    --------
    >>> sweep = gl.sweep(lambda x: np.exp(x).sum(), np.ones(2), grad=np.exp)
    >>> sweep.plot().ax_.get_xscale()
    'log'
    """

    ax_: Axes
    lines_: dict[tuple[str, str], Line2D]
    theory_: list[Line2D]
    best_: Line2D | None
    labels_: list[Any]

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    @property
    def title(self) -> str:
        """The verdict in words."""
        return sweep_headline(self.sweep)

    def plot(self, ax: Axes | None = None) -> SweepDisplay:
        """Draw into a new figure, or into `ax`.

        Parameters
        ----------
        ax
            Axes of your own.

        Returns
        -------
        SweepDisplay
            Itself.
        """
        colour = ANY_PAPER[self.sweep.verdict]
        if ax is None:
            self.figure_ = new_figure(8.6, 4.4)
            self.ax_ = self.figure_.add_subplot()
            headline(self.figure_, self.title, colour)
            self._subtitle()
        else:
            self.figure_, self.ax_ = figure_of(ax), ax
            own_title(ax, self.title, colour)
        self._axes()
        self._theory()
        self._curves()
        self._best()
        if inches(self.ax_)[0] > NARROW:
            self._labels()
            self._methods()
        else:  # beside the axes there is no room
            self._labels_inside()
        return self

    # ------------------------------------------------------------------ parts
    def _subtitle(self) -> None:
        """Put the readings of the worst inputs under the headline."""
        reading, verdicts = self.sweep.reading, self.sweep.verdicts
        worst = self._worst
        loud = [name for name in worst if verdicts[name] > Verdict.AGREES] or worst
        words: list[str] = []
        for name in loud[:3]:
            sentence = f"{verdicts[name].glyph} {middle(name, 24)}: {reading[name]}"
            words += textwrap.wrap(
                one_line(sentence), _COLUMNS, subsequent_indent="    "
            )
        self.ax_.set_title("\n".join(words), loc="left", fontsize=8.5, color=INK)

    def _axes(self) -> None:
        ax, steps = self.ax_, self.sweep.steps
        ax.set_xscale("log")
        ax.set_yscale("log")
        ends = steps[[0, -1]] * ([0.5, 2] if steps.size == 1 else [1, 1])
        ax.set_xlim(*ends)
        known = [curve[np.isfinite(curve) & (curve > 0)] for curve in self._errors()]
        least = min((float(k.min()) for k in known if k.size), default=1e-12)
        # a quarter of the height below the valley, where theory has its names; in small
        # axes those of the inputs are there
        wide, high = inches(ax)
        room = (_HIGHEST / least) ** (1 / 3 if wide > NARROW else 2 / 3)
        low = max(_LOWEST if wide > NARROW else 1e-26, min(least / room, 1e-6))
        line = _LINE / max(72 * high - _LINE, _LINE)  # of words, above an error of 1
        ax.set_ylim(low, max(_HIGHEST, low**-line))
        ink(ax, grid=True)
        ax.yaxis.set_major_locator(LogLocator(numticks=max(3, min(int(3 * high), 8))))
        ax.xaxis.set_major_locator(LogLocator(numticks=max(3, min(int(2 * wide), 9))))
        if np.ptp(np.floor(np.log10(ends))) < 2:  # one power of ten or none is no scale
            marks = np.unique(steps[[0, -1]])
            ax.set_xticks(marks, [f"{mark:.1e}" for mark in marks])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_minor_locator(NullLocator())
        ax.set_xlabel("step h" + ", in the units of the input" * (wide > NARROW))
        formula = " |a - n| / (|a| + |n|)" * (high > 3.2)  # as long as that
        ax.set_ylabel("worst relative error" + formula)

    def _errors(self) -> list[Any]:
        return list(self.sweep.errors.values())

    @functools.cached_property
    def _worst(self) -> list[str]:
        """Names of the curves that are drawn in full, worst first."""
        return worst_curves(self.sweep, self.sweep.methods[0])

    def _theory(self) -> None:
        """Lines h**p and u/h, each named along itself, below the valley."""
        ax, method = self.ax_, self.sweep.methods[0]
        self.theory_ = []
        ends = np.array(ax.get_xlim())
        low, high = ax.get_ylim()
        wide, tall = inches(ax)
        # inches of a decade
        across = wide / math.log10(ends[1] / ends[0])
        up = tall / math.log10(high / low)
        for label, power, height in self.sweep.theory[method]:
            levels = height + power * np.log10(ends)
            values = 10.0 ** np.clip(levels, -300, 300)
            (line,) = ax.plot(
                ends, values, color=INK, linewidth=0.9, linestyle=(0, (2, 3)), zorder=1
            )
            self.theory_.append(line)
            if wide < NARROW:
                continue
            # at the foot of the axes, or where the line leaves them at a side
            foot = np.log10(low) + 0.09 * np.log10(high / low)
            inner = np.log10(ends) + np.array([_HALF, -_HALF]) / across
            x = float(np.clip((foot - height) / power, *inner))
            if not low < 10 ** (height + power * x) < high:
                continue
            # along the line and beside it: a label across it would be struck out
            slope = math.atan2(power * up, across)
            ax.annotate(
                "~ " + label.split("~ ")[-1],
                (10**x, 10 ** (height + power * x)),
                xytext=(-2 * math.sin(slope), 2 * math.cos(slope)),
                textcoords="offset points",
                rotation=math.degrees(slope),
                rotation_mode="anchor",
                ha="center",
                va="bottom",
                fontsize=8,
                color=INK,
            )

    def _curves(self) -> None:
        self.lines_ = {}
        if any((errors == 0).any() for errors in self._errors()):
            # under the axis: a curve that comes down there would cross the words out
            label = f"{self.ax_.get_xlabel()}\n(lower edge: no error at all)"
            self.ax_.set_xlabel(label)
        low = self.ax_.get_ylim()[0]
        order = sorted(self.sweep.inputs, key=lambda name: self.sweep.verdicts[name])
        loud = set(self._worst)
        for number, method in enumerate(self.sweep.methods):
            for name in order:
                verdict = self.sweep.verdicts[name]
                errors = self.sweep.errors[method, name]
                style = dict(_STYLES[verdict])
                style |= {"color": ANY_PAPER[verdict], "alpha": 0.7 if number else 0.95}
                if name not in loud:  # one of a crowd
                    style |= {"linewidth": 0.7, "alpha": 0.35}
                    style |= {"color": INK} if verdict == Verdict.AGREES else {}
                if number:
                    style["linestyle"] = _DASHES[number % len(_DASHES)]
                (line,) = self.ax_.plot(
                    self.sweep.steps,
                    # an error of 0 has no logarithm: it is drawn at the lower edge
                    np.where(errors == 0, low, errors),
                    zorder=2 + int(verdict) + (name in loud) / 2,
                    label=f"{verdict.glyph} {name}",
                    **style,
                )
                self.lines_[method, name] = line
                best = self.sweep.curve(method, name).best_step
                if np.isfinite(best) and name in loud:
                    place = int(np.argmin(np.abs(np.log(self.sweep.steps / best))))
                    line.set_marker(_MARKERS[verdict])
                    line.set_markevery([place])
                    line.set_markersize(5)

    def _best(self) -> None:
        """Mark the best step of the inputs that have one."""
        method = self.sweep.methods[0]
        curves = [self.sweep.curve(method, name) for name in self.sweep.inputs]
        # a function without truncation has its best step wherever the ladder ends
        valleys = [c for c in curves if np.isfinite(c.truncation)] or curves
        # where both sides are equal at every step, none is better than another
        found = [c.best_step for c in valleys if np.isfinite(c.best_step) and c.floor]
        self.best_ = None
        if not found:
            return
        best = sorted(found)[(len(found) - 1) // 2]  # one that somebody really has
        # further methods have best steps of their own, where their dots are
        several = len(self.sweep.methods) > 1 and inches(self.ax_)[0] > NARROW
        whose = f", {method}" * several
        right = best > np.sqrt(self.sweep.steps[0] * self.sweep.steps[-1])
        self.best_ = self.ax_.axvline(
            best, color=INK, linewidth=0.8, linestyle=(0, (1, 3))
        )
        self.ax_.annotate(
            f"best h ≈ {best:.0e}{whose}",
            (best, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if right else 4, -10),
            textcoords="offset points",
            ha="right" if right else "left",
            fontsize=8,
            color=INK,
        )

    def _labels(self) -> None:
        """Names at the right edge, spread so that none covers another."""
        ax, method = self.ax_, self.sweep.methods[0]
        verdicts = self.sweep.verdicts
        shown = self._worst
        low, high = np.log10(ax.get_ylim())
        ends = []
        for name in shown:
            errors = self.sweep.errors[method, name]
            known = errors[np.isfinite(errors)]
            last = float(known[-1]) if known.size else np.inf  # nothing is drawn
            level = np.log10(max(last, 10**low))
            ends.append(((level - low) / (high - low), name))
        ends.sort()
        gap = 0.052
        places: list[float] = []
        for height, _ in ends:
            level = min(height, 0.98)
            places.append(max(level, places[-1] + gap if places else 0.02))
        over = (places[-1] - 0.98) if places else 0.0
        if over > 0:  # pushed over the top: all move down together, keeping distance
            places = [place - over for place in places]
        self.labels_ = []
        for place, (height, name) in zip(places, ends, strict=True):
            verdict = verdicts[name]
            drawn = np.isfinite(height)
            words = "" if drawn else ": no curve"
            label = ax.annotate(
                f"{verdict.glyph} {middle(name, 26 - len(words))}{words}",
                (1, min(height, 1.0)),
                xycoords="axes fraction",
                xytext=(1.035, place),
                textcoords="axes fraction",
                va="center",
                fontsize=8.5,
                color=ANY_PAPER[verdict],
                fontweight="bold" if verdict == Verdict.DISAGREES else "normal",
                arrowprops={
                    "arrowstyle": "-",
                    "color": INK,
                    "linewidth": 0.5,
                    "relpos": (0, 0.5),  # to the name, not through it
                }
                if drawn
                else None,
            )
            self.labels_.append(label)
        rest = Counter(verdicts[name] for name in {*verdicts}.difference(shown))
        for number, verdict in enumerate(sorted(rest, reverse=True), 1):
            words = f"{verdict.glyph} {rest[verdict]} other{'s' * (rest[verdict] > 1)}"
            count = ax.text(1.035, min(places) - gap * number, words, fontsize=8)
            count.set(transform=ax.transAxes, color=INK, va="center")
            self.labels_.append(count)

    def _labels_inside(self) -> None:
        """Name in a corner what does not agree, and count the others."""
        method, verdicts = self.sweep.methods[0], self.sweep.verdicts
        names = sorted(self.sweep.inputs, key=lambda name: -int(verdicts[name]))
        loud = [name for name in names if verdicts[name] > Verdict.AGREES] or names
        shown = loud[:_INSIDE]
        short = distinct(shown, max(8, int(7 * inches(self.ax_)[0])))
        handles = [
            Line2D(
                [],
                [],
                color=self.lines_[method, name].get_color(),
                linewidth=2,
                label=f"{verdicts[name].glyph} {words}",
            )
            for name, words in zip(shown, short, strict=True)
        ]
        if rest := names[len(shown) :]:
            glyph = "✓ " * all(verdicts[name] == Verdict.AGREES for name in rest)
            words = f"{glyph}{len(rest)} other{'s' * (len(rest) > 1)}"
            handles.append(Line2D([], [], linestyle="", label=words))
        legend = self.ax_.legend(
            handles=[*handles, *self._method_handles()],
            loc="lower left",
            fontsize=7,
            frameon=False,
            labelcolor=INK,
            handlelength=1.4,
            borderaxespad=0.2,
        )
        self.labels_ = list(legend.get_texts())[: len(handles)]

    def _method_handles(self) -> list[Line2D]:
        """Lines of the methods, if there are several."""
        methods = self.sweep.methods if len(self.sweep.methods) > 1 else ()
        return [
            Line2D([], [], color=INK, linestyle=_DASHES[i % len(_DASHES)], label=method)
            for i, method in enumerate(methods)
        ]

    def _methods(self) -> None:
        """Name the methods by their dashes, if there are several."""
        if handles := self._method_handles():
            self.ax_.legend(
                handles=handles, fontsize=8, frameon=False, labelcolor=INK, loc="best"
            )
