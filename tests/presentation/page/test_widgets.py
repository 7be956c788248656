"""The live views, driven through their traits and messages; see tests/browser too."""

from __future__ import annotations

import gc
import time
import weakref

import builders
import numpy as np
import pytest
import traitlets

import gradlab as gl
from gradlab.comparison.comparison import Comparison
from gradlab.presentation import tiles
from gradlab.presentation.widgets import progress
from gradlab.presentation.widgets.layers import LayerBlame
from gradlab.subject.subject import Variable
from tests.clocks import VirtualClock


def cubes(params):
    """Return a loss whose gradient of `b` is wrong by a factor 2."""
    loss = float((params["a"] ** 3).sum() + (params["b"] ** 2).sum())
    return loss, {"a": 3 * params["a"] ** 2, "b": params["b"]}


@pytest.fixture
def report():
    """Check two parameters, one of them wrong."""
    return gl.check(cubes, {"a": np.arange(1.0, 5.0), "b": np.array([[1.0, 2.0]])})


@pytest.fixture
def asked(monkeypatch):
    """Ask a widget as the page does, and return the answer."""

    def _ask(widget, **message):
        sent = []
        monkeypatch.setattr(
            type(widget),
            "send",
            lambda _, content, buffers: sent.append((content, buffers)),
        )
        widget._on_message(widget, {"id": 7, **message}, [])
        ((content, buffers),) = sent
        assert content["id"] == 7
        return content, dict(zip(content["names"], buffers, strict=True))

    return _ask


def test_explorer_opens_at_the_wrong_block(report):
    """Without being told, the explorer shows `b`."""
    explorer = report.explore()

    assert explorer.param == "b"
    assert explorer.block["key"] == "b"
    assert explorer.tol is None
    assert explorer.report is report


def test_choosing_a_block_sends_its_numbers(report):
    """Setting `param` replaces the block by the numbers of the other one."""
    explorer = gl.JacobianExplorer(report)

    explorer.param = "a"

    sent = np.frombuffer(explorer.block["planes"]["n"], "<f4")
    unit = explorer.block["meta"]["unit"]
    np.testing.assert_allclose(sent * unit, [3, 12, 27, 48], rtol=1e-6)


def test_the_numbers_of_a_chosen_block_travel_once(report, asked):
    """The page sets `param` and asks: the trait brings them, and the answer none."""
    explorer = gl.JacobianExplorer(report)
    explorer.set_state({"param": "a"})

    content, planes = asked(explorer, type="block", key="a")

    assert explorer.block["key"] == "a"
    assert not planes
    assert "error" not in content
    assert asked(explorer, type="block", key="b")[1]


def test_unknown_block_is_refused_by_name(report):
    """A block that does not exist is an error that lists those that do."""
    explorer = report.explore()

    with pytest.raises(traitlets.TraitError, match=r"'c'.*'a'"):
        explorer.param = "c"
    assert explorer.param == "b"


def test_recompute_uses_the_method_and_updates_the_report(report):
    """A forward difference of a coarse step changes numbers, bars and table."""
    explorer = report.explore()

    block = explorer.recompute("forward", 1e-2, "a")

    # (x + h)^3: forward difference is 3x^2 + 3xh + h^2
    x = np.arange(1.0, 5.0)
    expected = 3 * x**2 + 3 * x * 1e-2 + 1e-4
    np.testing.assert_allclose(block.numeric[0], expected, rtol=1e-9)
    assert explorer.report["a"] is block
    assert report["a"] is not block


def test_page_asks_for_a_recomputation(report, asked):
    """The message of the button does the same and answers in words."""
    explorer = report.explore()

    words, _ = asked(explorer, type="recompute", key="a", method="forward", step=None)

    assert words["words"] == "forward: agrees"
    assert explorer.report["a"].method == "forward"


def test_errors_become_sentences(report, asked):
    """What cannot be done is told in the page, by type and reason."""
    words, planes = asked(
        report.explore(), type="recompute", key="a", method="adaptive", step=1e-3
    )

    assert words["error"].startswith("'adaptive' takes no step of its own")
    assert planes == {}


def test_unknown_messages_are_ignored(report, monkeypatch):
    """A message of another kind (or version) is no error, and gets no answer."""
    explorer, sent = report.explore(), []
    monkeypatch.setattr(explorer, "send", lambda *answer: sent.append(answer))
    explorer._on_message(None, {"type": "from the future", "id": 1}, [])

    assert sent == []


def test_page_asks_for_a_tile(rng, asked):
    """A window of a large block comes back at full resolution."""
    report = builders.large(rng, 1100, (613, 271))
    explorer = report.explore()
    assert explorer.block["meta"]["grid"] is not None

    _, planes = asked(explorer, type="tile", key="W", window=[600, 620, 260, 280])

    verdicts = np.frombuffer(planes["v"], "u1").reshape(20, 20)
    assert np.argwhere(verdicts == 2).tolist() == [[13, 11]]


def test_entry_is_swept_by_itself(report, asked):
    """The right entry has a valley; the wrong one stays at 1/3 whatever the step."""
    explorer = report.explore()

    right, _ = asked(explorer, type="entry", key="a", index=[0, 2])
    wrong, _ = asked(explorer, type="entry", key="b", index=[0, 1])

    assert min(right["errors"]) < 1e-9
    assert max(right["errors"]) > 1e-4
    assert min(wrong["errors"]) == pytest.approx(1 / 3, rel=1e-3)
    assert wrong["label"] == "b[0, 1]"


def test_sweeping_an_entry_leaves_the_parameters_alone():
    """After an entry's sweep the user's arrays are bitwise what they were."""
    params = {"a": np.arange(1.0, 5.0), "b": np.array([[1.0, 2.0]])}
    report = gl.check(lambda: cubes(params), params=params)
    before = {name: value.tobytes() for name, value in params.items()}
    explorer = report.explore()

    explorer._on_message(
        None, {"type": "entry", "key": "a", "index": [0, 0], "id": 1}, []
    )

    assert {name: value.tobytes() for name, value in params.items()} == before


def test_loaded_report_can_be_explored_but_not_recomputed(rng, asked):
    """Without its function a report is shown, and says what it cannot do."""
    explorer = builders.tutorial(rng).explore()

    assert not explorer.can_recompute
    words, _ = asked(explorer, type="entry", key="W1", index=[0, 0])
    assert "loaded from a file" in words["error"]


def test_callbacks_compute_with_the_error_handling_of_the_maker(report, asked):
    """np.errstate of the thread that made the widget holds in its callbacks."""
    with np.errstate(over="raise", under="warn"):
        explorer = report.explore()
    seen = []
    explorer._answers["look"] = lambda _: (seen.append(np.geterr()) or {}, {})

    asked(explorer, type="look")

    assert (seen[0]["over"], seen[0]["under"]) == ("raise", "warn")


def test_sweep_widget_shows_the_sweep(rng):
    """Curves and readings are in the page; traits can be set."""
    sweep = builders.sweep(rng)
    widget = gl.EpsilonSweep(sweep, h=1e-3)

    assert widget.h == 1e-3
    assert widget.sweep is sweep
    assert len(widget.page["inputs"]) == len(sweep.inputs)


def test_sweep_opens_the_jacobian_at_the_step(rng, report, asked):
    """With a report at hand, a name opens its block at the cursor's step."""
    widget = gl.EpsilonSweep(builders.sweep(rng), report)

    words, planes = asked(widget, type="jacobian", input="a", h=1e-2, method="forward")

    meta = words["page"]["blocks"][0]
    numeric = np.frombuffer(planes["0/n"], "<f4") * meta["unit"]
    x = np.arange(1.0, 5.0)
    np.testing.assert_allclose(numeric, 3 * x**2 + 3e-2 * x + 1e-4, rtol=1e-6)


def test_sweep_computes_another_method_on_demand(report, asked):
    """The button adds a method: same steps, old curves kept, new ones drawn."""
    widget = report.sweep().explore()
    assert "forward" in widget.page["more"]

    asked(widget, type="method", method="forward")

    assert widget.sweep.methods == ("central", "forward")
    assert widget.method == "forward"
    assert set(widget.page["curves"]) == {"central", "forward"}
    assert "forward" not in widget.page["more"]


def test_layers_widget_names_the_layer():
    """The root cause stands in the page and in the text."""
    widget = LayerBlame(builders.audit(3))

    assert "blocks.1.act" in widget.page["headline"]
    assert "blocks.1.act" in repr(widget)


@pytest.mark.untraced
def test_ten_million_entries_open(monkeypatch):
    """3,200 x 3,200 with one wrong entry: found, at its true place.

    Explorer and report in a cell share what they read: the matrices are gone through
    once for the page and once for the picture, which is coarser.
    """
    readings = []
    read = tiles._read
    monkeypatch.setattr(
        tiles, "_read", lambda *given: readings.append(given) or read(*given)
    )
    side, at = 3_200, (2131, 1717)
    numeric = np.ones((side, side))
    analytic = numeric.copy()
    analytic[at] = 1.5
    verdicts = np.zeros((side, side), np.int8)
    verdicts[at] = 2

    def same(value):
        return np.broadcast_to(np.float64(value), (side, side))

    block = Comparison(
        output=Variable("y", (side,)),
        input=Variable("W", (side,)),
        analytic=analytic,
        numeric=numeric,
        numeric_error=same(1e-11),
        allowed=same(1e-6),
        verdicts=verdicts,
        step=same(1e-5),
    )
    report = builders.report(block)
    explorer = report.explore()
    text = repr(explorer)
    bundle = report._repr_mimebundle_()

    sizes = [size for _, size in readings]
    assert len(sizes) == len(set(sizes)) <= 2
    assert "y[2131] / W[1717]" in bundle["text/plain"]
    assert '"index":[2131,1717]' in bundle["text/html"]
    assert len(bundle["text/html"]) < 2e6
    assert explorer.block["meta"]["worst"]["index"] == list(at)
    assert "W is wrong" in text


def test_closed_widgets_leave_no_trace(report):
    """Two hundred updates and a close: the widget can be collected."""
    explorer = report.explore()
    for i in range(200):
        explorer.param = "ab"[i % 2]
    gone = weakref.ref(explorer)
    explorer.close()
    explorer.unobserve_all()
    del explorer
    gc.collect()

    assert gone() is None


def test_progress_counts_and_says_how_far(monkeypatch):
    """The bar carries count, total and words; it is taken away at the end."""
    shown = []
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    monkeypatch.setattr(
        progress.NotebookProgress, "_show", lambda self, text: shown.append(text)
    )

    with progress.NotebookProgress(unit="a < b") as bar:
        bar.reset(40)
        for _ in range(40):
            bar.update(1)
        bar._handle = object()

    assert 'value="40" max="40"' in shown[-2]
    assert "a &lt; b" in shown[-2]
    assert shown[-1] == ""


def test_progress_leaves_no_words_in_a_saved_notebook(monkeypatch):
    """A bar has words for places without HTML, and takes them away with itself."""
    shown = []

    class Handle:
        def update(self, content, raw=False):
            shown.append(content)

    def display(content, **options):
        shown.append(content)
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr(progress, "_EVERY", 0.0)

    with progress.NotebookProgress(total=8) as bar:
        bar.update(5)

    assert "5 of 8 evaluations · 0 s" in shown[0]["text/plain"]
    assert shown[-1] == {"text/html": "", "text/plain": ""}


def test_progress_is_silent_outside_notebooks(capsys):
    """In a script the bar draws nothing; checks use tqdm there."""
    bar = progress.NotebookProgress(total=3)
    bar._last = -1e9
    bar.update(3)
    bar.close()

    assert capsys.readouterr().out == ""
    assert not progress.in_notebook()


def test_in_a_notebook_a_bar_appears_after_a_second(monkeypatch):
    """Nobody asked: nothing is drawn of a quick check, a bar of a slow one."""
    shown = []
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr(
        progress.NotebookProgress, "_show", lambda self, text: shown.append(text)
    )

    clock = VirtualClock()
    monkeypatch.setattr(time, "monotonic", clock.read)

    with progress.progress_bar(None) as bar:
        bar.update(1)
        clock.sleep(0.9)
        bar.update(1)
        quick = list(shown)
        clock.sleep(0.3)
        bar.update(1)
        slow = list(shown)

    assert quick == []
    assert len(slow) == 1
