"""What live views measure on demand: methods, precisions, layers by themselves."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest

import gradlab as gl
from gradlab.presentation.widgets.precision import in_precision


def ask(widget, **message):
    """Ask a widget as the page does; returns words and planes of the answer."""
    sent = []
    widget.send = lambda content, buffers: sent.append((content, buffers))
    widget._on_message(widget, {"id": 3, **message}, [])
    ((content, buffers),) = sent
    return content, dict(zip(content["names"], buffers, strict=True))


@pytest.fixture
def cubes():
    """A right gradient of x cubed and a halved one of y squared."""
    x, y = np.arange(1.0, 5.0), np.array([[1.0, 2.0]])
    report = gl.check(
        lambda x, y: (x**3).sum() + (y**2).sum(),
        x,
        y,
        grad=lambda x, y: (3 * x**2, y),
    )
    return report.sweep().explore()


class TestSweptFunctions:
    """A sweep of a function, without a check before it."""

    def test_measures_again_like_that_of_a_report(self, cubes):
        """Other methods, the other precision, and a Jacobian at the cursor's step."""
        x, y = np.arange(1.0, 5.0), np.array([[1.0, 2.0]])
        f = lambda x, y: (x**3).sum() + (y**2).sum()
        sweep = gl.sweep(f, x, y, grad=lambda x, y: (3 * x**2, y))
        for widget in (sweep.explore(), gl.EpsilonSweep(sweep)):
            assert widget.can_recompute
            assert widget.page["more"] == cubes.page["more"]

        assert "error" not in ask(widget, type="method", method="adaptive")[0]
        assert min(widget.page["curves"]["adaptive"][1]) == pytest.approx(1 / 3)
        inner, _ = ask(widget, type="jacobian", input="y", h=1e-3, method="central")
        assert inner["page"]["blocks"][0]["counts"] == [0, 0, 2]
        assert "error" not in ask(widget, type="dtype", dtype="float32")[0]
        assert widget.sweep.blocks[0].dtype == "float32"

    def test_travels_without_its_function(self):
        """A lambda cannot be pickled; the numbers go, and the view is still."""
        sweep = gl.sweep(lambda x: np.exp(x).sum(), np.ones(2), grad=np.exp)

        sent = pickle.loads(pickle.dumps(sweep))

        assert sent.reading == sweep.reading
        assert not sent.explore().can_recompute


class TestAdaptive:
    """The method without a ladder, among those that have one."""

    def test_is_a_level_per_input(self, cubes):
        """Right: an error near rounding at every step; wrong by half: 1/3."""
        ask(cubes, type="method", method="adaptive")

        right, wrong = cubes.page["curves"]["adaptive"]
        assert cubes.method == "adaptive"
        assert max(right) < 1e-11
        assert min(wrong) == pytest.approx(1 / 3)
        assert len(right) == len(cubes.page["steps"])
        assert "adaptive" not in cubes.page["more"]

    def test_says_which_steps_it_chose(self, cubes):
        """The steps are those of a check by that method."""
        ask(cubes, type="method", method="adaptive")

        (chosen, _) = cubes.page["adaptive"]
        block = gl.check(
            lambda x: (x**3).sum(),
            np.arange(1.0, 5.0),
            grad=lambda x: 3 * x**2,
            method="adaptive",
        )["x"]
        assert chosen["low"] == pytest.approx(float(block.step.min()))
        assert chosen["high"] == pytest.approx(float(block.step.max()))

    def test_stays_when_another_method_is_measured(self, cubes):
        """Four methods side by side, each measured once."""
        for name in ("adaptive", "forward", "complex-step"):
            ask(cubes, type="method", method=name)

        methods = cubes.page["methods"]
        assert set(methods) == {"central", "adaptive", "forward", "complex-step"}
        assert cubes.page["more"] == []

    def test_opens_its_jacobian(self, cubes):
        """A click on a name then checks by the adaptive method, without a step."""
        words, planes = ask(
            cubes, type="jacobian", input="x", h=None, method="adaptive"
        )

        (meta,) = words["page"]["blocks"]
        assert "adaptive" in meta["method"]
        numeric = np.frombuffer(planes["0/n"], "<f4") * meta["unit"]
        np.testing.assert_allclose(numeric, [3, 12, 27, 48], rtol=1e-6)


class TestPrecision:
    """The same sweep in float32."""

    def test_a_step_is_not_taken_along(self, cubes):
        """A step that was good in float64 is noise in float32: none is chosen."""
        cubes.h = 1e-6
        ask(cubes, type="dtype", dtype="float32")

        assert (cubes.h, cubes.page["dtype"]) == (0.0, "float32")
        cubes.h = 1e-2
        ask(cubes, type="method", method="forward")
        assert cubes.h == 1e-2

    def test_python_turns_the_page_as_well(self, cubes):
        """Setting `dtype` shows what was measured in it, with a method that was."""
        ask(cubes, type="dtype", dtype="float32")
        ask(cubes, type="method", method="forward")
        cubes.dtype = "float64"

        assert (cubes.page["dtype"], cubes.method) == ("float64", "central")
        assert cubes.page["methods"] == ["central"]

    def test_the_valley_of_single_precision_is_shallow(self, cubes):
        """Rounding u / h with u = 6e-8: nothing below 1e-6, in float64 1e-9."""
        x_error = lambda: cubes.sweep.errors["central", "x"]
        fine = np.nanmin(x_error())

        ask(cubes, type="dtype", dtype="float32")

        assert cubes.dtype == "float32"
        assert cubes.page["dtype"] == "float32"
        assert fine < 1e-8
        assert np.nanmin(x_error()) > 1e-6
        assert cubes.sweep.steps.min() >= 1e-7

    def test_going_back_measures_nothing(self, cubes):
        """Both sweeps are kept."""
        first = cubes.sweep
        ask(cubes, type="dtype", dtype="float32")
        ask(cubes, type="dtype", dtype="float64")

        assert cubes.sweep is first

    def test_data_that_the_function_reads_is_cast_too(self):
        """A float64 array in a closure would turn everything into float64 again."""
        data = np.linspace(0.1, 1, 6)
        seen = set()

        def loss(w):
            seen.add((w * data).dtype.name)
            return ((w * data) ** 3).sum()

        report = gl.check(loss, np.ones(6), grad=lambda w: 3 * data**3 * w**2)
        seen.clear()
        given = in_precision(report, "float32").live.arguments
        given["fn"](*given["inputs"])

        assert seen == {"float32"}
        assert data.dtype == np.float64

    def test_parameters_in_place_are_left_as_they_were(self):
        """Copies stand in for them while it is measured."""
        weights = {"W": np.arange(1.0, 7.0).reshape(2, 3)}
        before = weights["W"]
        content = before.tobytes()
        report = gl.check(
            lambda: ((weights["W"] ** 3).sum(), {"W": 3 * weights["W"] ** 2}),
            params=weights,
        )
        widget = report.sweep().explore()

        words, _ = ask(widget, type="dtype", dtype="float32")

        assert "error" not in words
        assert widget.sweep.blocks[0].dtype == "float32"
        assert np.nanmin(widget.sweep.errors["central", "W"]) > 1e-7
        assert weights["W"] is before
        assert before.tobytes() == content

    def test_modules_are_copied(self):
        """A torch module stays in float64; its copy is swept in float32."""
        torch = pytest.importorskip("torch")
        net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh()).double()
        x = torch.randn(4, 3, dtype=torch.float64)
        widget = gl.check(net, x, loss=lambda y: (y**2).sum()).sweep().explore()

        ask(widget, type="dtype", dtype="float32")

        assert widget.sweep.blocks[0].dtype == "float32"
        assert {p.dtype for p in net.parameters()} == {torch.float64}

    def test_what_cannot_be_cast_is_told(self):
        """Tensors that a closure holds cannot be replaced: a sentence, no sweep."""
        torch = pytest.importorskip("torch")
        w = torch.ones(3, dtype=torch.float64, requires_grad=True)
        report = gl.check(lambda: w @ w, params={"w": w})
        widget = report.sweep().explore()

        words, _ = ask(widget, type="dtype", dtype="float32")

        assert "cannot be replaced" in words["error"]
        assert widget.dtype == "float64"

    def test_complex_parameters_keep_their_imaginary_part(self):
        """Of a module the whole numbers are rounded to single precision."""
        torch = pytest.importorskip("torch")

        class Turn(torch.nn.Module):
            def __init__(self):
                super().__init__()
                turn = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex128)
                self.turn = torch.nn.Parameter(turn)

            def forward(self, z):
                return (self.turn * z).abs()

        z = torch.tensor([0.5 + 1j, 1 - 0.25j], dtype=torch.complex128)
        report = gl.check(Turn(), z)

        given = in_precision(report, "float32").live.arguments

        assert given["fn"].turn.dtype is torch.complex64
        assert given["fn"].turn.tolist() == [1 + 2j, 3 - 1j]

    def test_one_block_is_recomputed_in_float32(self):
        """Central differences in float32 are off by 1e-4, in float64 by 1e-10."""
        report = gl.check(
            lambda x: (x**3).sum(), np.arange(1.0, 5.0), grad=lambda x: 3 * x**2
        )
        explorer = report.explore()

        ask(explorer, type="recompute", key="x", method="central", step=1e-3, dtype="")
        fine = explorer.comparison.max_rel_error
        words, _ = ask(
            explorer,
            type="recompute",
            key="x",
            method="central",
            step=1e-3,
            dtype="float32",
        )

        assert words["words"] == "central: agrees"
        assert explorer.comparison.max_rel_error > 10 * fine
        assert report["x"].max_rel_error < 1e-8

    def test_a_sweep_without_its_function_offers_no_other_precision(self, cubes):
        """There is nothing to measure with."""
        widget = gl.EpsilonSweep(dataclasses.replace(cubes.sweep, report=None))

        assert widget.page["dtypes"] == ["float64"]
        assert widget.page["more"] == []


class TestLayers:
    """A layer, checked by itself."""

    @pytest.fixture
    def widget(self):
        """Audit a network whose activation forgets the factor 2."""
        torch = pytest.importorskip("torch")
        from tests.specimens.squares import HalfSquare

        torch.manual_seed(0)
        layers = (torch.nn.Linear(4, 6), HalfSquare(), torch.nn.Linear(6, 2))
        net = torch.nn.Sequential(*layers).double()
        x = torch.randn(1, 4, dtype=torch.float64)
        return gl.blame(net, x, loss=lambda y: y.sum()).explore()

    def test_opens_the_local_jacobian_of_the_culprit(self, widget):
        """d x^2 / dx is diagonal; the analytic side has half of it."""
        words, planes = ask(widget, type="layer", name="1", call=0)

        (meta,) = words["page"]["blocks"]
        assert words["page"]["headline"].startswith("Disagrees")
        analytic, numeric = (
            np.frombuffer(planes[f"0/{side}"], "<f4").reshape(6, 6) for side in "an"
        )
        assert np.count_nonzero(numeric) == 6
        np.testing.assert_allclose(2 * analytic, numeric, atol=1e-6)
        assert meta["verdict"] == 2

    def test_opens_all_blocks_of_a_right_layer(self, widget):
        """A linear layer: its input, weight and bias, all right."""
        words, _ = ask(widget, type="layer", name="2", call=0)

        names = {meta["name"] for meta in words["page"]["blocks"]}
        assert names == {"weight", "bias", "input"}
        assert words["page"]["verdict"] == 0

    def test_a_second_click_measures_nothing(self, widget):
        """Local reports are kept, and at hand in Python."""
        first = widget.local("1", 0)
        ask(widget, type="layer", name="1", call=0)

        assert widget.local("1", 0) is first
        assert first.culprit == "x"

    def test_an_unknown_layer_is_a_sentence(self, widget):
        """What does not exist is told by name."""
        words, _ = ask(widget, type="layer", name="7", call=0)

        assert "'7'" in words["error"]
