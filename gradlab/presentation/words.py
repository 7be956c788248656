"""Small words: numbers, errors, counts and columns as people write them."""

from __future__ import annotations

import os
import re
import unicodedata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "NAME",
    "WIDTH",
    "across",
    "brief",
    "distinct",
    "duration",
    "kind_in_words",
    "middle",
    "number",
    "often",
    "one_line",
    "painted",
    "pair",
    "shape_in_words",
    "tabulate",
    "wrapped",
]

WIDTH = 79  # columns of a line of prose: the least that a terminal has
NAME = 100  # letters of a name that stands alone; what it loses may be what tells it
# What no line breaks in: an index, a number with its side, an error bar, an arrow,
# seconds.
_UNBROKEN = re.compile(
    r"\[[^][]*\]|\b(?:analytic|numeric|seed) [-+\d]|± \S|-> \S|\w = [-+\d]"
    r"|\d (?:s|ms|min)\b"
)
_TIE = "\N{NO-BREAK SPACE}"


def number(value: Any, digits: int = 6) -> str:
    """Write a number for people: few digits, no negative zero, complex as ``a+bj``.

    Examples
    --------
    >>> number(-0.0), number(1 / 3, 3), number(2 + 1j), number(float("nan"))
    ('0', '0.333', '2+1j', 'nan')
    """
    value = complex(value)
    real = f"{value.real + 0.0:.{digits}g}"
    if value.imag == 0:
        return real
    return f"{real}{value.imag:+.{digits}g}j"


def pair(analytic: Any, numeric: Any, least: int = 6) -> tuple[str, str]:
    """Write two numbers with as many digits as it takes to see them differ.

    Examples
    --------
    >>> pair(1.0, 2.0), pair(1.0, 1.00000002)
    (('1', '2'), ('1', '1.00000002'))
    """
    digits = least
    while digits < 17 and analytic != numeric:
        if number(analytic, digits) != number(numeric, digits):
            break
        digits += 1
    if digits > least:
        digits = min(digits + 1, 17)
    return number(analytic, digits), number(numeric, digits)


def brief(value: float) -> str:
    """Write an error: two digits and an exponent, 0 as ``0``.

    Examples
    --------
    >>> brief(1 / 3), brief(0.0), brief(float("inf"))
    ('3.3e-01', '0', 'inf')
    """
    return "0" if value == 0 else f"{value:.1e}"


def duration(seconds: float) -> str:
    """Write how long something took, in the units that people count in.

    Examples
    --------
    >>> duration(0.0054), duration(0.3), duration(8.83), duration(161.2)
    ('5.4 ms', '300 ms', '8.8 s', '2 min 41 s')
    """
    if seconds < 0.9995:
        return f"{float(f'{1e3 * seconds:.{1 if seconds < 0.01 else 0}f}'):g} ms"
    if seconds < 119.5:
        return f"{seconds:.1f} s" if seconds < 99.5 else f"{seconds:.0f} s"
    return f"{round(seconds) // 60} min {round(seconds) % 60} s"


def often(ratio: float) -> str:
    """Write how many times in two digits, in full as far as anybody counts.

    Examples
    --------
    >>> often(1.84), often(333_333.3), often(4e12)
    ('1.8', '330,000', '4.0e+12')
    """
    return f"{float(f'{ratio:.2g}'):,.10g}" if ratio < 1e9 else brief(ratio)


def kind_in_words(kind: str, evidence: str = "") -> str:
    """Name a kind of finding as a heading: "unknown" alone says nothing of what is.

    And where the user's code raised, the cause is known: `evidence` tells it.

    Examples
    --------
    >>> kind_in_words("wrong_mask"), kind_in_words("unknown")
    ('wrong_mask', 'unknown cause')
    """
    if kind != "unknown":
        return str(kind)
    return "raised an error" if " raised " in evidence else "unknown cause"


def one_line(text: object, width: int = 400) -> str:
    r"""Put any text on one line, cut at `width` characters, control codes removed.

    Examples
    --------
    >>> one_line("two\nlines")
    'two lines'
    """
    flat = " ".join(str(text).split())
    flat = "".join(c if c.isprintable() else "?" for c in flat)  # no stray ANSI codes
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def middle(text: object, width: int) -> str:
    """Put a name on one line; a long one loses its middle, since both ends tell.

    Examples
    --------
    >>> middle("encoder.layers.11.attention.weight[3, 2]", 24)
    'encoder.lay…weight[3, 2]'
    """
    flat = one_line(text, 10_000)
    if len(flat) <= width:
        return flat
    tail = width // 2
    return f"{flat[: width - tail - 1]}…{flat[len(flat) - tail :]}"


def distinct(names: Sequence[str], width: int) -> list[str]:
    """Shorten names so that those which differ still do: their middle may be the point.

    Examples
    --------
    >>> distinct(["net.blocks.query.weight", "net.blocks.key.weight"], 16)
    ['…query.weight', '…key.weight']
    """
    short = [middle(name, width) for name in names]
    for cut in set(short):
        group = sorted({name for name, s in zip(names, short, strict=True) if s == cut})
        if len(group) == 1:
            continue
        shared = os.path.commonprefix(group)  # noqa: RUF071 - of letters, no paths
        start = 1 + max(shared.rfind(mark) for mark in "./_ ")
        short = [
            f"…{middle(name[start:], width - 1)}" if name in group else s
            for name, s in zip(names, short, strict=True)
        ]
    told = dict(zip(names, short, strict=True))
    return short if len(set(told.values())) == len(told) else list(names)


def shape_in_words(shape: Sequence[int]) -> str:
    """Write a shape as people do.

    Examples
    --------
    >>> shape_in_words((12, 6)), shape_in_words(())
    ('12 x 6', 'scalar')
    """
    return " x ".join(map(str, shape)) if len(shape) else "scalar"


def tabulate(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Align cells in columns, two spaces apart; columns in `right` to the right.

    Examples
    --------
    >>> tabulate([["a", "10"], ["bcd", "7"]], right=[1])
    ['a    10', 'bcd   7']
    """
    if not rows:
        return []
    widths = [max(map(across, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - across(cell))
            cells.append(space + cell if i in right else cell + space)
        lines.append("  ".join(cells).rstrip())
    return lines


def across(text: str) -> int:
    """Columns that a text takes in a terminal: Chinese letters two, accents none.

    Examples
    --------
    >>> across("W1"), across("权重"), across("e\N{COMBINING ACUTE ACCENT}")
    (2, 4, 1)
    """
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def painted(lines: Sequence[str], head: int, codes: Mapping[str, str]) -> list[str]:
    r"""Colour the glyph that a line starts with, and all of the first `head` lines.

    Examples
    --------
    >>> painted(["! so", "- no"], 1, {"!": "33"})
    ['\x1b[33m! so\x1b[0m', '- no']
    """
    told = []
    for i, line in enumerate(lines):
        code = codes.get((lines[0] if i < head else line)[:1])
        end = len(line) if i < head else 1
        plain = code is None or (i >= head and line[1:2] != " ")
        told.append(line if plain else f"\x1b[{code}m{line[:end]}\x1b[0m{line[end:]}")
    return told


def wrapped(
    text: str, indent: str, first: str | None = None, width: int | None = None
) -> list[str]:
    """Break a text into lines, all indented alike but for the `first`.

    Parameters
    ----------
    text, indent, first
        What to break, and what the lines and the first of them begin with.
    width
        Columns of the terminal, of which prose uses at most 79. A name that is longer
        than all of them is broken at its dots; without a terminal (None) it stays
        whole, to be searched for.

    Examples
    --------
    >>> wrapped("some words", "  ")
    ['  some words']
    >>> wrapped("words " * 13, "   ", "1. ")[1]
    '   words'
    >>> wrapped("encoder.layers.11.weight:", "  ", width=18)
    ['  encoder.layers.', '  11.weight:']
    """
    most = min(width or WIDTH, WIDTH)
    tied = _UNBROKEN.sub(lambda m: m[0].replace(" ", _TIE), one_line(text, 2000))
    lines = [indent if first is None else first]
    fresh = True  # nothing but the indent stands in the line
    for piece in tied.split(" "):
        wide = across(indent) + across(piece) > most
        for word in piece.split(_TIE) if wide else [piece]:
            if not fresh and across(lines[-1]) + 1 + across(word) > most:
                lines.append(indent)
                fresh = True
            room = width - across(indent) if width else across(word)
            begin, *rest = _broken(word, room)
            lines[-1] += begin if fresh else f" {begin}"
            lines += [indent + part for part in rest]
            fresh = False
    return [line.replace(_TIE, " ") for line in lines] if tied else []


def _broken(word: str, room: int) -> list[str]:
    """Break a word behind its dots and slashes, or else its underscores, if it must be.

    Examples
    --------
    >>> _broken("a.name", 7), _broken("a.name.of_b", 7), _broken("long_name", 7)
    (['a.name'], ['a.name.', 'of_b'], ['long_', 'name'])
    """
    parts = [word]
    for marks in ("./", "_"):
        parts = [part for whole in parts for part in _at(marks, whole, room)]
    return parts


def _at(marks: str, word: str, room: int) -> list[str]:
    parts = [""]
    for part in re.split(f"(?<=[{marks}])", word) if across(word) > room else [word]:
        if parts[-1] and across(parts[-1] + part) > room:
            parts.append("")
        parts[-1] += part
    return parts
