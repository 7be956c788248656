"""Widgets on a site: where it is asked for, a page comes along that needs no kernel."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

HTML = "text/html"


@pytest.fixture
def report():
    """Return a report with something wrong in it."""
    return gl.check(lambda x: (x**3).sum(), np.ones(2), grad=lambda x: 2 * x**2)


@pytest.mark.parametrize("live", [lambda r: r.explore(), lambda r: r.sweep().explore()])
def test_a_site_gets_the_page_of_what_the_widget_shows(monkeypatch, report, live):
    """Under GRADLAB_PAGES there is HTML beside the widget; otherwise none is stored."""
    widget = live(report)
    plain, _ = widget._repr_mimebundle_()
    monkeypatch.setenv("GRADLAB_PAGES", "1")
    paged, _ = widget._repr_mimebundle_()

    assert HTML not in plain
    assert "<script" in paged[HTML]
    assert set(paged) == {*plain, HTML}


def test_a_game_has_no_page(monkeypatch):
    """What lives on its kernel alone stays as it is."""
    monkeypatch.setenv("GRADLAB_PAGES", "1")

    assert HTML not in gl.BugHunt()._repr_mimebundle_()[0]


@pytest.mark.parametrize(
    ("live", "way"),
    [
        (lambda r: r.explore(), "the report itself shows it"),
        (lambda r: gl.BugHunt(), "hunt.source() is the broken code"),
    ],
)
def test_where_no_window_opens_the_text_says_how_to_go_on(report, live, way):
    """Without a widget manager there is the text alone."""
    data, _ = live(report)._repr_mimebundle_()

    assert way in data["text/plain"]
