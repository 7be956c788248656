"""The page as text: complete, escaped, and small. What it does: tests/browser."""

from __future__ import annotations

import base64
import html.parser
import json
import re
import types

import builders
import markdown_it
import numpy as np
import pytest

import gradlab as gl

pytestmark = pytest.mark.untraced


class Tags(html.parser.HTMLParser):
    """Collects the tags that a browser would see."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def handle_starttag(self, tag, attrs):
        """Remember a tag and its attributes."""
        self.seen.append((tag, dict(attrs)))


def tags(text):
    """Return the tags of a page."""
    parser = Tags()
    parser.feed(text)
    return parser.seen


def test_bundle_has_page_picture_and_text(rng):
    """A notebook can choose: HTML, PNG, plain text."""
    bundle = builders.tutorial(rng)._repr_mimebundle_()

    assert base64.b64decode(bundle["image/png"])[:4] == b"\x89PNG"
    assert "W1" in bundle["text/plain"]
    assert bundle["text/html"].startswith("<div data-gl=")


@pytest.mark.parametrize("make", [builders.tutorial, builders.zoo, builders.hostile])
def test_page_goes_through_markdown_as_it_is(make, rng):
    """As nbconvert writes it: neither the text nor the script is read as Markdown."""
    page = make(rng)._repr_mimebundle_()["text/html"]

    rendered = markdown_it.MarkdownIt("commonmark", {"html": True}).render(
        f"Some words.\n\n{page}\n\nMore."
    )

    def inside(text, tag):
        return re.search(f"<{tag}.*?</{tag}>", text, re.DOTALL).group()

    for tag in ("pre", "script"):
        assert inside(rendered, tag) == inside(page, tag)
    assert [tag for tag, _ in tags(rendered)] == [
        "p",
        *(tag for tag, _ in tags(page)),
        "p",
    ]


@pytest.mark.parametrize(
    ("make", "title"),
    [
        (builders.tutorial, "✗ disagrees: W1 is wrong (1 of 4 gradients disagrees)"),
        (builders.hostile, "✗ disagrees: &lt;img src=x"),
        (lambda _: builders.audit(), "✗ blocks.1.act (Swish, model.py:31) is wrong"),
    ],
)
def test_tab_of_a_page_tells_the_answer(make, title, rng):
    """Of many tabs that are open one is found again; no name comes out as markup."""
    page = make(rng).to_html()

    assert f"<title>{title}" in page


@pytest.mark.parametrize("notebook", [True, False])
def test_ipython_in_a_terminal_waits_for_no_picture(rng, notebook, monkeypatch):
    """Nobody would see page and picture there; IPython shows the repr instead."""
    shell = types.SimpleNamespace(**{"kernel": object()} if notebook else {})
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    report = builders.tutorial(rng)
    data, _ = report.plot()._repr_mimebundle_()

    assert bool(report._repr_mimebundle_()) is notebook
    assert ("image/png" in data) is notebook


def test_text_picture_and_page_say_the_same(rng):
    """The verdict in words is the first line of the text and stands in the page."""
    bundle = builders.tutorial(rng)._repr_mimebundle_()
    first = bundle["text/plain"].splitlines()[0]

    assert first[2:] in bundle["text/html"]


def test_without_scripts_the_next_step_is_one_that_can_be_taken(rng):
    """A notebook is trusted, or its cell run again; a saved page is neither."""
    report = builders.tutorial(rng)

    assert "Trust the notebook" in report._repr_mimebundle_()["text/html"]
    assert "Scripts are switched off here" in report.to_html()
    assert "Trust the notebook" not in report.to_html()


def test_page_refers_to_nothing_outside(rng):
    """No script, style, font or picture is fetched from anywhere."""
    text = builders.zoo(rng).to_html()

    for _, attributes in tags(text):
        for name in ("src", "href"):
            assert str(attributes.get(name, "data:")).startswith("data:")
    assert "import(" not in text
    assert "fetch(" not in text


def test_markup_in_names_stays_text(rng):
    """Names full of markup add no tag to the page."""
    harmless = tags(builders.report(*builders.hostile(rng).comparisons[:0]).to_html())
    text = builders.hostile(rng).to_html()

    assert {tag for tag, _ in tags(text)} - {tag for tag, _ in harmless} <= {"img"}
    images = [a for tag, a in tags(text) if tag == "img"]
    assert all("onerror" not in a and a["src"].startswith("data:") for a in images)
    assert text.count("</script>") == 1


def test_json_in_the_page_is_strict_and_escaped(rng):
    """The state can be read back, and holds no character that HTML would read."""
    text = builders.hostile(rng)._repr_mimebundle_()["text/html"]
    found = re.search(r"mountStatic\(node,(\{.*?\}),\{\"", text)

    assert found
    assert not set("<>&") & set(found[1])
    state = json.loads(found[1])
    assert state["page"]["blocks"][0]["name"].startswith("<img")


def test_file_is_written_where_asked(rng, tmp_path):
    """`to_html(path)` writes what it returns, as UTF-8."""
    path = tmp_path / "report.html"
    text = builders.tutorial(rng).to_html(path)

    assert path.read_text(encoding="utf-8") == text


def test_a_hundred_parameters_stay_below_two_megabytes(rng):
    """A model with 100 parameters is a small page."""
    assert len(builders.right(rng, 100).to_html()) < 2e6


def test_a_million_entries_stay_below_two_megabytes(rng):
    """A large block is reduced to what the budget allows."""
    assert len(builders.large(rng, 1000).to_html()) < 2.2e6


def test_every_copy_has_its_own_identity(rng):
    """Two outputs of one report do not mount into each other."""
    report = builders.tutorial(rng)
    first, second = (report._repr_mimebundle_()["text/html"] for _ in range(2))

    name = re.compile(r'data-gl="(\w+)"')
    assert name.search(first)[1] != name.search(second)[1]


def test_report_without_blocks_has_a_page():
    """Nothing to draw is no error."""
    report = builders.report()

    assert "image/png" not in report._repr_mimebundle_()
    assert "doctype" in report.to_html()


def test_sweeps_and_audits_write_their_pages_as_reports_do(tmp_path):
    """Whatever is held in hand, ``to_html(path)`` makes a file of it."""
    report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: 2 * x)

    for number, held in enumerate([report, report.sweep(), builders.audit(2)]):
        text = held.to_html(tmp_path / str(number))
        assert text.startswith("<!doctype html>")
        assert (tmp_path / str(number)).read_text(encoding="utf-8") == text
