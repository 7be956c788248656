"""Numbers in the cells of a small heat map: colour is not their only carrier."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage
    from matplotlib.text import Text
    from numpy.typing import NDArray

__all__ = ["MINUS", "write_cells"]

MINUS = "\N{MINUS SIGN}"
_SIZE = 7.0  # points: the smallest that reads in print
_LETTER = 0.62 * _SIZE  # width of a digit of DejaVu Sans, in points
_MOST = (16, 12)  # rows and columns: more numbers are a table, and no picture
_LEFT = 0.6  # of the height of new axes: what titles and colour bars leave of it


def _odd(value: float) -> str | None:
    """Words for what has no digits."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else f"{MINUS}inf"
    return "0" if value == 0 else None


def _power(value: float) -> str:
    digit, exponent = f"{value:.0e}".split("e")
    return f"{digit}e{int(exponent)}"


def _value_words(values: NDArray[np.float64], decimals: int) -> list[str]:
    """Write values with the same decimals, so that their sizes can be compared.

    Parameters
    ----------
    values
        Of one panel, in any shape, in the units of the derivative.
    decimals
        Digits behind the point; what vanishes among them is written as a power.

    Examples
    --------
    >>> _value_words(np.array([15.3, -0.21, 1e-4, 0.0]), 1)
    ['15.3', '−0.2', '1e−4', '0']
    """
    told = []
    for value in map(float, values.ravel()):
        words = _odd(value)
        if words is None:
            words = f"{value:.{decimals}f}"
            words = words if float(words) else _power(value)
        told.append(words.replace("-", MINUS))
    return told


def _error_words(errors: NDArray[np.float64], decimals: int) -> list[str]:
    """Write errors: above a hundredth as decimals, below as a power of ten.

    Examples
    --------
    >>> _error_words(np.array([0.333, 4e-9, 0.0, np.nan]), 2)
    ['0.33', '4e−9', '0', 'NaN']
    """
    told = []
    for error in map(float, errors.ravel()):
        words = _odd(error)
        if words is None:
            words = f"{error:.{decimals}g}" if error >= 0.01 else _power(error)
        told.append(words.replace("-", MINUS))
    return told


def _forms(values: NDArray[np.float64], top: float | None) -> list[list[str]]:
    """Ways to write the numbers, the one with more digits first."""
    if top is None:
        return [_error_words(values, 2), _error_words(values, 1)]
    if top == 0:
        return [_value_words(values, 0)]
    if not 1e-2 <= top < 1e4:  # zeros before or behind all digits tell nothing
        return []
    first = 1 - math.floor(math.log10(top))
    return [_value_words(values, min(max(first + more, 0), 3)) for more in (1, 0)]


def write_cells(
    ax: Axes,
    values: NDArray[np.float64],
    images: tuple[AxesImage, ...],
    top: float | None = None,
) -> list[Text]:
    """Write the number of each cell into it, if all of them find room.

    All or none: some here and some there would look like a message.

    Parameters
    ----------
    ax
        Axes of the panel; the size that they have now decides.
    values
        What is written, shape (down, across); cells that no image covers are left out.
    images
        The images whose colours lie under the numbers.
    top
        Largest size of all panels, so that they have the same decimals; default None,
        for errors.

    Returns
    -------
    list of matplotlib.text.Text
        Empty where the cells are too small, or too many.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> image = ax.imshow([[1.0, 2.0]])
    >>> [t.get_text() for t in write_cells(ax, np.ones((1, 2)), (image,), 1.0)]
    ['1.00', '1.00']
    """
    down, across = values.shape
    box, points = ax.get_window_extent(), 72 / float(ax.figure.dpi)
    wide, high = box.width * points / across, _LEFT * box.height * points / down
    if ax.get_aspect() == 1:
        wide = high = min(wide, high)
    if down > _MOST[0] or across > _MOST[1] or high < 1.6 * _SIZE:
        return []
    words = next(
        (w for w in _forms(values, top) if max(map(len, w)) * _LETTER <= wide - 3), None
    )
    if words is None:
        return []
    texts = []
    for position, text in enumerate(words):
        row, column = divmod(position, across)
        colour = _ink(images, row, column)
        if colour is not None:
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": _SIZE}
            texts.append(ax.text(column, row, text, color=colour, **style))
    return texts


def _ink(images: tuple[AxesImage, ...], row: int, column: int) -> str | None:
    """Black or white, whichever stands out; None where there is only paper."""
    for image in images:
        value = np.ma.asarray(image.get_array())[row, column]
        if value is not np.ma.masked:
            red, green, blue, _ = image.to_rgba(np.atleast_1d(value))[0]
            return "#111111" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.55 else "w"
    return None
