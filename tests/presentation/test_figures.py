"""Pictures of names in any letters."""

from __future__ import annotations

import pytest

from gradlab.presentation.figures import new_figure, png


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
