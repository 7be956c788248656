"""Colours: two ramps joined at the tolerance, a signed ramp, verdicts.

Below the tolerance errors are a quiet grey-blue, above it a loud ramp that is monotone
in lightness, so that the join is seen without hue. Exact equality, nan and inf are
categories with colours of their own. All pairs that carry a meaning stay apart under
simulated protanopia, deuteranopia and tritanopia (tests/presentation/test_palettes.py).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradlab.comparison.verdict import Verdict

__all__ = [
    "ANY_PAPER",
    "DARK",
    "ERROR_CEILING",
    "ERROR_FLOOR",
    "INK",
    "LIGHT",
    "Palette",
]

# Fixed ends of the error scale (decimal logarithms), so that a colour means the same
# in every figure; the top moves up if the tolerance comes near it.
ERROR_FLOOR, ERROR_CEILING = -17.0, 2.0
# Reads on white paper (4.5:1) and on JupyterLab's dark theme (4.2:1): a figure does
# not know on which of them it will stand.
INK = "#767676"
# Agrees, undecided, disagrees: for titles and thick lines on either paper (3:1).
ANY_PAPER = ("#5b82b8", "#a97616", "#d5473c")


@dataclasses.dataclass(frozen=True, slots=True)
class Palette:
    """Colours of one theme, as ``#rrggbb``.

    Parameters
    ----------
    below, above
        Stops of the error ramp below and above the tolerance.
    signed
        Stops from the most negative to the most positive value; the middle is zero.
    exact, nan, inf, undecided
        Categories: no error at all, not a number, infinite, cannot be told. What was
        not looked at has no colour: the hatched paper shows through.
    verdicts
        Agrees, undecided, disagrees: for text and lines.
    line
        Frames, grids and hatching.
    """

    below: tuple[str, ...]
    above: tuple[str, ...]
    signed: tuple[str, ...]
    exact: str
    nan: str
    inf: str
    undecided: str
    verdicts: tuple[str, str, str]
    line: str

    def verdict(self, verdict: Verdict) -> str:
        """Colour of a verdict, for text and lines."""
        return self.verdicts[verdict]


LIGHT = Palette(
    below=("#f7f8fa", "#dfe5ee", "#b9c6d8", "#93a7c4"),
    above=("#fdc776", "#f28e2b", "#d6453d", "#9c1458", "#4b0c6b"),
    signed=(
        *("#08306b", "#2b72b8", "#8ec1e6", "#f7f7f7"),
        *("#f2b48c", "#c4542e", "#6b1d08"),
    ),
    exact="#ffffff",
    nan="#000000",
    inf="#ff4df2",
    undecided="#2a2ae0",
    verdicts=("#3d5a80", "#8a5a00", "#b3261e"),
    line="#c9ced6",
)

DARK = Palette(
    below=("#20242b", "#2c3440", "#3b4a5e", "#4f6685"),
    above=("#7a3b12", "#c2571a", "#f28e2b", "#fdc04d", "#fff3a3"),
    signed=(
        *("#9bd0ff", "#4a90d9", "#1f4470", "#16181d"),
        *("#6b3019", "#d9733f", "#ffc9a3"),
    ),
    exact="#16181d",
    nan="#ffffff",
    inf="#c800bb",
    undecided="#20c0a0",
    verdicts=("#9db8dc", "#f4bf60", "#ff8a7a"),
    line="#4b525e",
)
