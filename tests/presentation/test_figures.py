"""Pictures: of names in any letters, drawn once."""

from __future__ import annotations

import io

import pytest
from matplotlib.figure import Figure

from gradlab.presentation.figures import headline, new_figure, png
from gradlab.presentation.palettes import INK


def picture(words):
    """Draw one line of words."""
    figure = new_figure(3, 1)
    figure.suptitle(words)
    return png(figure)


@pytest.mark.parametrize("name", ["权重", "ベクトル", "가중치", "\ue000"])
def test_letters_that_no_font_has_raise_no_warning(name):
    """A box in a picture is enough: no warning in the cell, no error where they are."""
    assert picture(name)[:4] == b"\x89PNG"  # the suite turns warnings into errors


def test_letters_of_another_font_are_drawn_and_not_boxed():
    """Two letters that only another font has look different; boxes would be alike."""
    assert picture("\N{MATHEMATICAL BOLD SMALL THETA}") != picture(
        "\N{MATHEMATICAL BOLD SMALL LAMDA}"
    )


def test_a_picture_is_drawn_once(monkeypatch):
    """To the byte what `savefig` writes, which draws all of it once more, unseen."""
    draw, drawn = Figure.draw, []
    monkeypatch.setattr(
        Figure, "draw", lambda *given: drawn.append(given) or draw(*given)
    )

    def figure():
        empty = new_figure(4, 3)
        ax = empty.add_subplot()
        ax.plot([1.0, 1e5], [3.0, -2e3])
        ax.set_xlabel("step")
        headline(empty, "agrees", INK)
        return empty

    mine, saved = figure(), io.BytesIO()
    made = png(mine, 1.2)

    assert len(drawn) == 1
    assert mine.dpi == 100
    figure().savefig(saved, format="png", dpi=120)
    assert made == saved.getvalue()
