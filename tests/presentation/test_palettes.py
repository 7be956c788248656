"""Colours that carry a meaning stay apart for every reader."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from gradlab.comparison.verdict import Verdict
from gradlab.presentation.html import script_path
from gradlab.presentation.palettes import ANY_PAPER, DARK, INK, LIGHT

# Complete dichromacy in linear RGB: Machado, Oliveira and Fernandes, "A
# physiologically-based model for simulation of color vision deficiency", IEEE TVCG 15
# (2009), severity 1.0.
VISION = {
    "normal": np.eye(3),
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
# sRGB primaries to XYZ (IEC 61966-2-1), and the D65 white point.
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
WHITE = np.array([0.95047, 1.0, 1.08883])

THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
EYES = pytest.mark.parametrize("eyes", VISION)


def rgb(colour):
    """Red, green and blue, from 0 to 1."""
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255


def linear(colour):
    """Light emitted, from the sRGB transfer curve."""
    c = rgb(colour)
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(colour, eyes="normal"):
    """CIELAB of what such eyes make of a colour."""
    seen = np.clip(np.array(VISION[eyes]) @ linear(colour), 0, 1)
    x = TO_XYZ @ seen / WHITE
    f = np.where(x > (6 / 29) ** 3, np.cbrt(x), x / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(one, other, eyes):
    """CIE 1976 colour difference; 2.3 is just noticeable side by side."""
    return float(np.linalg.norm(lab(one, eyes) - lab(other, eyes)))


def ramp(stops, count=33):
    """Interpolate stops in sRGB, as every drawing library does."""
    values = np.array([rgb(stop) for stop in stops])
    at = np.linspace(0, len(stops) - 1, count)
    mixed = [np.interp(at, range(len(stops)), values[:, c]) for c in range(3)]
    return [
        "#" + "".join(f"{round(255 * float(c)):02x}" for c in colour)
        for colour in zip(*mixed, strict=True)
    ]


def contrast(one, other):
    """WCAG 2 contrast ratio."""
    light, dark = sorted(
        (float(TO_XYZ[1] @ linear(colour)) for colour in (one, other)), reverse=True
    )
    return (light + 0.05) / (dark + 0.05)


def test_simulation_leaves_greys_alone():
    """Rows of the matrices sum to one: white stays white for all eyes."""
    for matrix in VISION.values():
        assert np.sum(matrix, axis=1) == pytest.approx(np.ones(3), abs=2e-6)


@EYES
@THEMES
def test_passing_and_failing_never_look_alike(theme, eyes):
    """Any colour below the tolerance is far from any colour above it."""
    pairs = itertools.product(ramp(theme.below), ramp(theme.above))

    assert min(distance(a, b, eyes) for a, b in pairs) > 30


@EYES
@THEMES
def test_the_join_is_seen(theme, eyes):
    """The two ramps jump at the tolerance."""
    assert distance(theme.below[-1], theme.above[0], eyes) > 40


@EYES
@THEMES
def test_signs_are_told_apart(theme, eyes):
    """A value and its negative differ, at every size."""
    for one, other in zip(theme.signed[:3], theme.signed[:-4:-1], strict=True):
        assert distance(one, other, eyes) > 38


@THEMES
def test_ramp_above_is_monotone_in_lightness(theme):
    """Larger errors are always darker on light paper, lighter on dark."""
    lightness = np.diff([lab(colour)[0] for colour in ramp(theme.above)])

    assert (lightness < 0).all() or (lightness > 0).all()


@EYES
@THEMES
def test_categories_stand_out(theme, eyes):
    """nan, inf and undecided are apart from each other and from what agrees."""
    loud = [theme.nan, theme.inf, theme.undecided]
    for one, other in itertools.combinations([*loud, theme.exact], 2):
        assert distance(one, other, eyes) > 25
    for one, other in itertools.product(loud, ramp(theme.below)):
        assert distance(one, other, eyes) > 18
    for one, other in itertools.product(loud, ramp(theme.above)):
        assert distance(one, other, eyes) > 11


@EYES
@THEMES
def test_good_news_never_looks_like_bad_news(theme, eyes):
    """The colour of "agrees" is far from the other two, which differ by line style."""
    agrees = theme.verdict(Verdict.AGREES)

    for verdict in (Verdict.UNDECIDED, Verdict.DISAGREES):
        assert distance(agrees, theme.verdict(verdict), eyes) > 40


@pytest.mark.parametrize(("theme", "paper"), [(LIGHT, "#ffffff"), (DARK, "#111418")])
def test_verdicts_are_readable_as_text(theme, paper):
    """Coloured words keep a contrast of 4.4 to 1 on their paper."""
    for colour in theme.verdicts:
        assert contrast(colour, paper) >= 4.4


@pytest.mark.parametrize("paper", ["#ffffff", "#111111"])
def test_ink_reads_on_any_paper(paper):
    """A figure does not know the theme: its ink reads on white and on dark."""
    assert contrast(INK, paper) >= 4.1


@pytest.mark.parametrize("paper", ["#ffffff", "#111111"])
def test_titles_read_on_any_paper(paper):
    """Verdict colours of figures keep 3 to 1, the limit for large bold text."""
    for colour in ANY_PAPER:
        assert contrast(colour, paper) >= 3.0


def _script():
    return script_path().read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "theme"), [("light", LIGHT), ("dark", DARK)])
def test_the_page_has_the_same_colours(name, theme):
    """What is proved above of the palettes holds for the script's ramps as well."""
    text = re.search(rf"  {name}: {{(.*?)\n  }},", _script(), re.DOTALL)[1]
    found = {
        key: tuple(re.findall(r"#[0-9a-f]{6}", stops))
        for key, stops in re.findall(r"(\w+): (\[[^\]]*\]|\"[^\"]*\")", text)
    }

    assert found["pass"] == theme.below
    assert found["fail"] == theme.above
    assert found["signed"] == theme.signed
    assert (found["equal"], found["nan"], found["inf"]) == (
        (theme.exact,),
        (theme.nan,),
        (theme.inf,),
    )


@EYES
@pytest.mark.parametrize(
    ("selector", "paper"), [(".gl{", "#ffffff"), (".gl.dark{", "#111418")]
)
def test_words_of_the_page_are_told_apart_and_read(selector, paper, eyes):
    """Agrees, undecided, disagrees: readable on paper and on their own tint."""
    style = re.search(re.escape(selector) + "(.*?)}", _script(), re.DOTALL)[1]
    colour = dict(re.findall(r"--(\w+):(#[0-9a-f]{6})", style))

    for word in ("ok", "warn", "bad"):
        assert contrast(colour[word], paper) >= 4.4
        assert contrast(colour[word], colour[f"{word}soft"]) >= 4.4
    for word in ("warn", "bad"):
        assert distance(colour["ok"], colour[word], eyes) > 35


def test_stripes_of_the_page_stand_out():
    """The stripe of "undecided" differs from the ramps for all eyes."""
    for theme, stripe in ((LIGHT, "#7474e8"), (DARK, "#22a38b")):
        assert stripe in _script()
        for eyes in VISION:
            assert min(distance(stripe, c, eyes) for c in ramp(theme.above)) > 11
