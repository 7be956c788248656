"""Figures through matplotlib's object API: nothing registered, nothing leaked.

pyplot keeps every figure in a global list, draws it a second time at the end of a
notebook cell, and is not safe in the threads in which widget callbacks run. Here a
figure belongs to the object that made it. Paper is transparent and ink is grey, because
a figure cannot know whether the page around it is light or dark.
"""

from __future__ import annotations

import abc
import io
import textwrap
import threading
import warnings
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, fontManager, get_font
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from gradlab.errors import InputTypeError
from gradlab.presentation.palettes import INK
from gradlab.presentation.screens import shows_words_only

if TYPE_CHECKING:
    from matplotlib.font_manager import FontProperties

__all__ = [
    "DRAWING",
    "NARROW",
    "Display",
    "figure_of",
    "headline",
    "inches",
    "ink",
    "new_figure",
    "own_title",
    "png",
]

# Callbacks of widgets draw in threads of their own, and matplotlib is not thread-safe.
DRAWING = threading.RLock()
_SCREEN = 100  # CSS pixels per inch
NARROW = 3.6  # inches: axes in somebody's figure that have to do with fewer words
_LETTERS = 12  # of nine points, in an inch
_SHARP = 1.6  # device pixels per CSS pixel: sharp on most screens, small enough to keep
# Families with many letters, of the usual systems; the last comes with matplotlib.
_WIDE_FONTS = (
    *("Noto Sans", "Source Han Sans", "WenQuanYi", "Droid Sans Fallback"),
    *("PingFang", "Hiragino", "Apple SD Gothic", "Arial Unicode"),
    *("Microsoft YaHei", "SimHei", "Yu Gothic", "Meiryo", "Malgun Gothic"),
    "STIXGeneral",
)


def new_figure(width: float, height: float) -> Figure:
    """Make an empty figure of so many inches, unknown to pyplot.

    Examples
    --------
    >>> new_figure(4, 3).get_size_inches().tolist()
    [4.0, 3.0]
    """
    figure = Figure(figsize=(width, height), dpi=_SCREEN, layout="constrained")
    FigureCanvasAgg(figure)
    figure.patch.set_alpha(0.0)
    return figure


def figure_of(ax: Any) -> Figure:
    """Return the whole figure behind axes, whatever subfigures are in between.

    Examples
    --------
    >>> figure = new_figure(4, 3)
    >>> figure_of(figure.add_subplot()) is figure
    True
    """
    if not isinstance(ax, Axes):
        msg = (
            f"ax must be one Axes of matplotlib, as figure.add_subplot() makes, got "
            f"{type(ax).__name__}"
        )
        raise InputTypeError(msg)
    figure = ax.figure
    while not isinstance(figure, Figure):
        figure = figure.figure
    return figure


def headline(figure: Figure, words: str, colour: str) -> None:
    """Put the verdict over a figure, flush left, on as many lines as it takes.

    Examples
    --------
    >>> figure = new_figure(4, 3)
    >>> headline(figure, "✓ agrees", "#5b82b8")
    >>> figure.get_suptitle()
    '✓ agrees'
    """
    width, height = (float(inches) for inches in figure.get_size_inches())
    room = int(11 * width)  # characters of bold 10.5 points
    words = textwrap.fill(words, room, break_on_hyphens=False)
    title = figure.suptitle(
        words,
        x=0.01,
        y=1 - 0.04 / height,
        ha="left",
        va="top",
        fontsize=10.5,
        weight="bold",
        color=colour,
    )
    # the layout engine lets panels of equal aspect slip under a title: keep them off
    title.set_in_layout(False)
    # ... which also hides it from bbox_inches="tight": an unseen sheet keeps it there
    sheet = Rectangle((0, 0), 1, 1, transform=figure.transFigure, fill=False, lw=0)
    figure.add_artist(sheet)
    strip = (0.2 + 0.17 * (words.count("\n") + 1)) / height
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(rect=(0, 0, 1, 1 - strip))


def inches(ax: Axes) -> tuple[float, float]:
    """Width and height of axes in inches, as far as they are known before drawing.

    Examples
    --------
    >>> inches(Figure(figsize=(4, 3)).add_axes((0, 0, 0.5, 1)))
    (2.0, 3.0)
    """
    box, dpi = ax.get_window_extent(), figure_of(ax).dpi
    return float(box.width / dpi), float(box.height / dpi)


def own_title(ax: Axes, words: str, colour: str) -> None:
    r"""Put the verdict over axes in somebody's figure, no wider than they are.

    Examples
    --------
    >>> ax = Figure(figsize=(4, 3)).add_axes((0, 0, 0.5, 1))
    >>> own_title(ax, "✗ the gradient of weight disagrees", "#000000")
    >>> ax.get_title(loc="left")
    '✗ the gradient of weight\ndisagrees'
    """
    room = max(12, int(_LETTERS * inches(ax)[0]))
    lines = textwrap.wrap(
        words, room, break_on_hyphens=False, max_lines=3, placeholder=" …"
    )
    ax.set_title("\n".join(lines), loc="left", fontsize=9, color=colour)


def ink(ax: Axes, *, grid: bool = False) -> None:
    """Draw frame, ticks and labels of axes in an ink that reads on any paper.

    Examples
    --------
    >>> ax = new_figure(4, 3).add_subplot()
    >>> ink(ax)
    >>> ax.xaxis.label.get_color()
    '#767676'
    """
    ax.patch.set_alpha(0.0)
    ax.tick_params(colors=INK, which="both", labelsize=8)
    for spine in ax.spines.values():
        spine.set_color(INK)
        spine.set_linewidth(0.6)
    for label in (ax.xaxis.label, ax.yaxis.label):
        label.set_color(INK)
        label.set_fontsize(9)
    if grid:
        ax.grid(visible=True, color=INK, linewidth=0.4, alpha=0.3)
        ax.set_axisbelow(True)


def png(figure: Figure, sharpness: float = _SHARP) -> bytes:
    r"""Render a figure as PNG, at `sharpness` pixels per CSS pixel.

    Examples
    --------
    >>> png(new_figure(1, 1))[:4]
    b'\x89PNG'
    """
    with DRAWING, warnings.catch_warnings():
        _spell_out(figure)
        # what no font here can draw is a box in the picture, and stands in the text
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        return _printed(figure, _SCREEN * sharpness)


def _printed(figure: Figure, dpi: float) -> bytes:
    """Draw a figure as `savefig` does, but once: that draws all of it to lay it out."""
    canvas, usual = figure.canvas, figure.dpi
    buffer = io.BytesIO()
    try:
        figure.dpi = dpi
        FigureCanvasAgg(figure).print_png(buffer)  # type: ignore[no-untyped-call]
    finally:
        figure.dpi = usual
        figure.set_canvas(canvas)
    return buffer.getvalue()


def _spell_out(figure: Figure) -> None:
    """Add other fonts to texts with letters that matplotlib's own font does not have.

    Names of parameters may be Chinese, Japanese or Korean, and dicts take any letters.

    Examples
    --------
    >>> figure = new_figure(4, 3)
    >>> title = figure.suptitle("\N{MATHEMATICAL BOLD SMALL THETA}")
    >>> _spell_out(figure)
    >>> title.get_fontfamily()[-1]
    'STIXGeneral'
    """
    for text in figure.findobj(Text):
        if text.get_text().isascii():
            continue
        style = text.get_fontproperties().copy()
        missing = _missing(text.get_text(), style)
        if not missing:
            continue
        able = []
        for name in sorted({font.name for font in fontManager.ttflist}):
            style.set_family(name)
            wide = name.startswith(_WIDE_FONTS)
            if wide and len(_missing(missing, style)) < len(missing):
                able.append(name)
        text.set_fontfamily([*text.get_fontfamily(), *able])


def _missing(words: str, style: FontProperties) -> str:
    """Letters that the font of a style does not have."""
    have = get_font(findfont(style))
    return "".join(c for c in words if c != "\n" and not have.get_char_index(ord(c)))


class Display(abc.ABC):
    """A figure that shows itself at the end of a cell: the picture, and its title.

    A figure that pyplot knows is shown by pyplot there; showing it here as well would
    show it twice.
    """

    figure_: Figure

    @property
    @abc.abstractmethod
    def title(self) -> str:
        """What the figure says, in words."""

    @abc.abstractmethod
    def plot(self, ax: Axes | None = None) -> Display:
        """Draw into a new figure, or into `ax`; return itself."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.title})"

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, Any], dict[str, Any]]:
        if not hasattr(self, "figure_"):
            self.plot()
        figure, bundle = self.figure_, {"text/plain": repr(self)}
        if shows_words_only() or getattr(figure.canvas, "manager", None) is not None:
            return bundle, {}
        width, height = figure.get_size_inches() * _SCREEN
        size = {"width": round(float(width)), "height": round(float(height))}
        return bundle | {"image/png": png(figure)}, {"image/png": size}
