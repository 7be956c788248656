"""All kinds of subject, right and wrong, through the one front door."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import gradlab as gl


def correct(report):
    """Assert that everything agrees and nothing is accused."""
    assert report.verdict == gl.Verdict.AGREES, str(report)
    assert report.ok
    assert report.culprits == ()
    assert not [f for f in report.findings if f.severity == "error"]


def wrong(report, *names):
    """Assert that exactly these inputs are accused, and the story is told."""
    assert report.verdict == gl.Verdict.DISAGREES, str(report)
    assert not report.ok
    assert set(report.culprits) == set(names)
    with pytest.raises(gl.GradientMismatchError) as caught:
        report.raise_if_failed()
    sentences = [s for s in str(caught.value).splitlines() if s[:3] != " " * 3]
    assert len(sentences) <= 10
    assert any(name in str(caught.value) for name in names)
    assert caught.value.report is report


@pytest.fixture
def x(rng):
    """A matrix without zeros."""
    return rng.normal(size=(3, 2))


class TestNumPy:
    """Hand-written gradients in their four forms."""

    @pytest.mark.parametrize("factor", [1.0, 1.01])
    def test_loss_and_grads(self, x, factor):
        """A function of a dict of parameters that returns a dict of gradients."""

        def loss_and_grads(p):
            return float(np.sin(p["w"]).sum() * p["b"]), {
                "w": factor * np.cos(p["w"]) * p["b"],
                "b": np.sin(p["w"]).sum(),
            }

        report = gl.check(loss_and_grads, {"w": x, "b": np.array(0.7)})

        correct(report) if factor == 1 else wrong(report, "w")

    def test_nested_names(self, x):
        """Nested containers are named by their paths."""
        Pair = namedtuple("Pair", "left right")  # noqa: PYI024 - a user's type

        def loss_and_grads(p):
            loss = (p["cell"]["h"] ** 2).sum() + (p["xs"][0] * p["pair"].left).sum()
            zero = np.zeros_like(x)
            return loss, {
                "cell": {"h": 2 * p["cell"]["h"]},
                "xs": [p["pair"].left, zero],
                "pair": Pair(p["xs"][0], zero),
            }

        tree = {"cell": {"h": x}, "xs": [x + 1, x + 2], "pair": Pair(x - 1, x)}
        report = gl.check(loss_and_grads, tree)

        correct(report)
        names = {c.input.name for c in report.comparisons}
        assert names == {"cell.h", "xs.0", "xs.1", "pair.left", "pair.right"}

    @pytest.mark.parametrize("factor", [1.0, 1 + 1e-5])
    def test_grad_callable(self, x, factor):
        """A uniform error of 1e-5 in a smooth function is found."""
        report = gl.check(
            lambda x: np.sin(x).sum(), x, grad=lambda x: factor * np.cos(x)
        )
        correct(report) if factor == 1 else wrong(report, "x")

    def test_gradients_already_held(self, x):
        """A mapping of gradients, or one array, is judged as it is."""
        held = 2 * x
        correct(gl.check(lambda x: (x**2).sum(), x, grad={"x": held}))
        correct(gl.check(lambda x: (x**2).sum(), x, grad=held))
        wrong(gl.check(lambda x: (x**2).sum(), x, grad={"x": 10 * held}), "x")
        p = {"x": x}
        correct(gl.check(lambda: 1.0 * (p["x"] ** 2).sum(), params=p, grad={"x": held}))

    @pytest.mark.parametrize("flat", [True, False])
    def test_jacobian(self, x, flat):
        """A Jacobian is taken 2-D or of shape output + input."""

        def jac(x):
            full = np.zeros((2, 3, 3, 2))
            for i in range(3):
                for j in range(2):
                    full[j, i, i, j] = np.cos(x[i, j])
            return full.reshape(6, 6) if flat else full

        correct(gl.check(lambda x: np.sin(x).T, x, jac=jac))
        wrong(gl.check(lambda x: np.sin(x).T, x, jac=lambda x: 2 * jac(x)), "x")

    def test_forward_backward_pair(self, x, rng):
        """A layer with a cache, its backward read out row by row."""
        w, b = rng.normal(size=(2, 4)), rng.normal(size=4)

        def forward(x, w, b):
            return x @ w + b, (x, w)

        def backward(dout, cache):
            x, w = cache
            return dout @ w.T, x.T @ dout, dout.sum(axis=0)

        def forgetful(dout, cache):
            return (*backward(dout, cache)[:2], dout[0])

        correct(gl.check(forward, x, w, b, backward=backward))
        wrong(gl.check(forward, x, w, b, backward=forgetful), "b")

    def test_backward_that_scribbles_on_its_cache(self, x):
        """A backward that overwrites its cache is fed a fresh one each time."""

        def forward(x):
            return np.exp(x), np.exp(x)

        def backward(dout, cache):
            cache *= dout
            return cache

        correct(gl.check(forward, x, backward=backward))

    def test_integers_pass_through(self, x):
        """Index arrays and other objects reach the function as they are."""
        rows = np.array([0, 2])

        def forward(x, rows, mode):
            assert rows.dtype.kind == "i"
            assert mode == "fast"
            return (x[rows] ** 2).sum()

        def gradient(x, rows, mode):
            g = np.zeros_like(x)
            g[rows] = 2 * x[rows]
            return g

        correct(gl.check(forward, x, rows, "fast", grad=gradient))

    @pytest.mark.parametrize(
        "make",
        [
            np.asfortranarray,
            lambda x: np.repeat(x, 2, axis=0)[::2, ::-1],
            lambda x: x[0, 0],
            lambda x: np.array(x[0, 0]),
            lambda x: float(x[0, 0]),
            lambda x: x[:0],
            lambda x: x.ravel().tolist(),
        ],
        ids=["fortran", "strided", "scalar", "0-d", "float", "empty", "list"],
    )
    def test_layouts(self, x, make):
        """Any memory layout, 0-d, empty, numbers and lists of numbers."""
        value = make(x)
        correct(gl.check(lambda x: np.sum(np.asarray(x) ** 3), value, grad=_cubic))
        report = gl.check(
            lambda x: np.sum(np.asarray(x) ** 3), value, grad=lambda x: 2 * _cubic(x)
        )
        assert report.ok is (np.size(value) == 0)

    def test_complex(self, rng):
        """Real function of complex input, torch's convention; conjugates are told."""
        z = rng.normal(size=3) + 1j * rng.normal(size=3)
        weight = np.array([1.0, 2.0, 3.0])
        correct(gl.check(lambda z: np.abs(z) ** 2 @ weight, z, grad=_abs2))
        wrong(
            gl.check(
                lambda z: np.abs(z) ** 2 @ weight, z, grad=lambda z: _abs2(z).conj()
            ),
            "z",
        )
        correct(gl.check(np.exp, z, jac=lambda z: np.diag(np.exp(z)), names=["z"]))

    def test_infinite_entries_are_left_out(self):
        """An infinite coordinate cannot be displaced; the report says so."""
        x = np.array([0.3, np.inf])
        report = gl.check(
            lambda x: np.tanh(x).sum(), x, grad=lambda x: 1 - np.tanh(x) ** 2
        )
        correct(report)
        assert report["x"].shape == (1, 1)
        assert any("infinite" in remark for remark in report.remarks)


def _cubic(x):
    return 3 * np.asarray(x) ** 2


def _abs2(z):
    return 2 * z * np.array([1.0, 2.0, 3.0])


class TestTorch:
    """Tensors, custom functions and modules."""

    def test_outputs_of_all_kinds(self):
        """Integer, None and complex outputs anywhere among the others."""
        torch = pytest.importorskip("torch")
        a = torch.randn(2, 3, dtype=torch.float64)

        def fn(a):
            return a.argmax(), {"s": (a * a).sum(), "n": None}, (a + 1j * a**2,)

        report = gl.check(fn, a)

        correct(report)
        assert report["out.1.s", "a"].shape == (1, 6)
        with pytest.raises(gl.GradlabError, match="stands for"):
            report["a"]

    def test_module(self):
        """Every trainable parameter by name; frozen ones and plain inputs are not."""
        torch = pytest.importorskip("torch")
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)).double()
        net[0].bias.requires_grad_(False)
        x = torch.randn(5, 3, dtype=torch.float64)

        report = gl.check(net, x, loss=lambda out: (out**2).mean())

        correct(report)
        names = {c.input.name for c in report.comparisons}
        assert names == {"0.weight", "1.weight", "1.bias"}

    def test_gradients_left_in_grad(self):
        """What a training loop left in .grad is judged as it is."""
        torch = pytest.importorskip("torch")
        net = torch.nn.Linear(3, 2).double()
        x = torch.randn(5, 3, dtype=torch.float64)
        for _ in range(2):  # never zeroed
            (net(x) ** 2).mean().backward()
        held = {name: p.grad for name, p in net.named_parameters()}

        report = gl.check(net, x, loss=lambda out: (out**2).mean(), grad=held)
        wrong(report, "weight", "bias")

        half = {name: g / 2 for name, g in held.items()}
        correct(gl.check(net, x, loss=lambda out: (out**2).mean(), grad=half))

    def test_parameters_in_place(self):
        """A closure over a module, its parameters perturbed where they are."""
        torch = pytest.importorskip("torch")
        net = torch.nn.Linear(3, 2).double()
        x = torch.randn(5, 3, dtype=torch.float64)
        before = net.weight.detach().clone()

        correct(gl.check(lambda: torch.mean(net(x) ** 2), params=net))

        assert torch.equal(net.weight, before)
        assert net.weight.grad is None

    def test_vjp_on_tensors(self):
        """A hand-written VJP on tensors is read like any other."""
        torch = pytest.importorskip("torch")
        x = torch.randn(4, dtype=torch.float64)
        correct(gl.check(torch.sin, x, vjp=lambda ct, x: ct * x.cos()))
        wrong(gl.check(torch.sin, x, vjp=lambda ct, x: ct * x.sin(), names=["x"]), "x")


class TestOptions:
    """How a check is made, and told."""

    def test_cost_of_the_default(self, rng):
        """Two evaluations for each coordinate and a shared one."""
        x = rng.normal(size=50)
        report = gl.check(lambda x: (x**2).sum(), x, grad=lambda x: 2 * x)
        assert report.evaluations == 101

    def test_wrt_and_names(self, rng):
        """wrt= restricts, names= renames."""
        x, w = rng.normal(size=3), rng.normal(size=3)
        report = gl.check(
            lambda x, w: (x * w).sum(), x, w, grad=lambda x, w: (w, x),
            names=["input", "weight"], wrt="weight",
        )  # fmt: skip
        assert [c.input.name for c in report.comparisons] == ["weight"]

    @pytest.mark.parametrize(
        "method", ["central", "forward", "backward", "complex-step", "adaptive"]
    )
    def test_methods(self, method, x):
        """Every method tells a right gradient from a wrong one."""
        fn = {"fn": lambda x: np.exp(0.3 * x).sum()}["fn"]
        correct(gl.check(fn, x, grad=lambda x: 0.3 * np.exp(0.3 * x), method=method))
        wrong(
            gl.check(fn, x, grad=lambda x: 0.3 * np.exp(0.31 * x), method=method), "x"
        )

    def test_step_too_large_is_not_an_accusation(self, x):
        """A correct gradient with a step of 0.3 is undecided; the step is blamed."""
        report = gl.check(
            lambda x: np.sin(x).sum(), x, grad=np.cos, method=gl.Central(step=0.3)
        )
        assert report.verdict == gl.Verdict.UNDECIDED
        assert report.ok
        assert "step_size" in {str(f.kind) for f in report.findings}

    def test_budget_is_kept_and_told(self, rng):
        """Too few for the full matrix: directions; too few for these: a sample."""
        x = rng.normal(size=3000)
        words = {"probe": "random directions", "sample": "sample"}
        for budget, coverage in ((500, "probe"), (15, "sample")):
            report = gl.check(
                lambda x: (x**2).sum(), x, grad=lambda x: 2 * x, budget=budget
            )
            assert report.evaluations <= budget
            assert report.coverage == coverage
            assert any(words[coverage] in remark for remark in report.remarks)

    def test_progress_is_moved(self, x):
        """An object with tqdm's update sees every evaluation."""

        class Bar:
            moved = 0

            def update(self, n):
                self.moved += n

        bar = Bar()
        report = gl.check(lambda x: (x**2).sum(), x, grad=lambda x: 2 * x, progress=bar)
        assert bar.moved == report.evaluations
