"""What a plain function calls, custom Functions and modules, is named where wrong."""

from __future__ import annotations

import functools

import pytest

import gradlab as gl
from gradlab.localisation.layers.of_function import as_module

torch = pytest.importorskip("torch")


class Cube(torch.autograd.Function):
    """x**3, whose backward takes the slope of 2 x**2."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x**2 * g


class Squashed(torch.autograd.Function):
    """Tanh, whose backward forgets a square."""

    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1 - y)


class Spike(torch.autograd.Function):
    """A step, with the slope of an arctangent."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g / (1 + (3 * x) ** 2)


class Right(torch.autograd.Function):
    """Exp."""

    @staticmethod
    def forward(ctx, x):
        y = torch.exp(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class Layer(torch.nn.Module):
    """A linear layer and an activation."""

    def __init__(self, activation):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4, dtype=torch.float64)
        self.activation = activation

    def forward(self, x):
        return self.activation.apply(self.linear(x))


def _x(rows=5, columns=4):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    return x.requires_grad_()


def _net(activation):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 4, dtype=torch.float64), Layer(activation), torch.nn.Tanh()
    )


def _membrane(step, x):
    """Leaky integration over the rows of x, of which a step subtracts."""
    potential, out = torch.zeros(x.shape[1], dtype=x.dtype), 0.0
    for current in x:
        potential = 0.9 * potential + current
        fired = step.apply(potential - 0.5)
        potential = potential - 0.5 * fired
        out = out + fired.sum() + potential.pow(2).sum()
    return out


def test_a_function_applied_in_a_loop_is_looked_at_by_itself():
    report = gl.check(functools.partial(_membrane, Squashed), _x())
    (told,) = report.findings
    assert report.culprits == ("x",)
    assert (told.kind, told.where) == ("wrong_derivative", "x")
    assert "The Function `Squashed` (test_called.py:" in told.evidence


def test_a_step_inside_is_a_surrogate():
    report = gl.check(functools.partial(_membrane, Spike), _x())
    (told,) = report.findings
    assert (told.kind, report.culprit) == ("surrogate", "x")
    assert "`Spike`" in told.evidence


def test_a_module_in_the_closure_has_its_layer_named():
    net = _net(Squashed)
    report = gl.check(lambda x: net(x).pow(2).sum(), _x())
    assert report.culprits == ("x",)
    assert report.diagnosis == "wrong_derivative"
    assert "in `net.1` is wrong" in report.findings[0].evidence


def test_so_has_one_that_a_bound_method_reaches():
    report = gl.check(_net(Squashed).forward, _x(), names=["x"])
    assert report.diagnosis == "wrong_derivative"
    assert "in `self.1` is wrong" in report.findings[0].evidence


def test_a_sure_cause_keeps_its_sentence_and_gets_the_place():
    weights = _x().detach()[:4]
    report = gl.check(lambda x: torch.tanh(Cube.apply(x) @ weights).sum(), _x())
    (told,) = report.findings
    assert told.kind == "scale"
    assert told.evidence.startswith("analytic = 0.666667 (2/3) x numeric")
    assert "The Function `Cube` (test_called.py:" in told.evidence


def test_what_the_function_does_itself_is_blamed_on_no_call():
    report = gl.check(lambda x: (x.detach() * Right.apply(x).sin()).sum(), _x())
    assert report.culprits == ("x",)
    assert all("Right" not in f.evidence for f in report.findings)


def test_nor_is_what_it_does_beside_a_wrong_call():
    # of 5 x**4 come 2 x**4 through the Function and x**4 past it
    report = gl.check(lambda x: (x.detach() * Cube.apply(x) * x).sum(), _x())
    (told,) = report.findings
    assert told.evidence.startswith("analytic = 0.6 (3/5) x numeric")
    assert "`Cube`" not in told.evidence


@pytest.mark.parametrize("mode", ["alone", "net", "loop"])
def test_right_calls_are_right(mode):
    net = _net(Right)
    f = {
        "alone": lambda x: Right.apply(x).sin(),
        "net": lambda x: net(x).sum(),
        "loop": functools.partial(_membrane, Right),
    }[mode]
    report = gl.check(f, _x() / 4)
    assert report.verdict.name == "AGREES"
    assert report.findings == ()


def test_a_function_that_calls_nothing_is_run_once_more(monkeypatch):
    calls = []

    def f(x):
        calls.append(1)
        return (torch.sin(x) * x.detach()).sum()

    def count():
        calls.clear()
        assert gl.check(f, _x()).diagnosis == "detached"
        return len(calls)

    audited = count()
    monkeypatch.setattr(
        "gradlab.pipeline.called.told_by_calls", lambda report, *_: report
    )
    assert audited == count() + 1


def test_whatever_is_reached_stays_as_it_was():
    net, x = _net(Squashed), _x()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    state = torch.get_rng_state()
    gl.check(lambda x: net(x).sum(), x)
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert x.grad is None
    assert all(p.grad is None for p in net.parameters())
    assert not any("_hook" in key and value for key, value in vars(net[1]).items())


def test_modules_are_named_as_the_function_writes_them():
    layers = [torch.nn.ReLU(), _net(Right)]
    module = as_module(lambda x: layers[1](layers[0](x)), lambda x: x)
    names = [name for name, _ in module.named_children()]
    assert names == ["layers[0]", "layers[1]"]


def test_the_input_of_a_module_whose_own_function_is_wrong_needs_no_cause():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.linear = torch.nn.Linear(4, 4, dtype=torch.float64)

        def forward(self, x):
            return _membrane(Squashed, self.linear(x))

    report = gl.check(Net(), _x())
    assert report.culprit == "Net"
    assert [f.kind for f in report.findings] == ["wrong_derivative"]


class NoOneHot(torch.autograd.Function):
    """Cross-entropy, whose backward leaves the true class out."""

    @staticmethod
    def forward(ctx, scores, labels):
        p = scores.softmax(1)
        ctx.save_for_backward(p)
        return -p[torch.arange(len(labels)), labels].log().mean()

    @staticmethod
    def backward(ctx, g):
        (p,) = ctx.saved_tensors
        return g * p / len(p), None


def test_a_guess_that_its_call_confirms_is_told_once():
    """The whole looks as the one call in it does, and as likely: that is one error."""
    torch.manual_seed(0)
    scores = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 3, 1, 1, 2, 0])

    report = gl.check(lambda scores: NoOneHot.apply(scores, labels), scores)

    (error,) = [finding for finding in report.findings if finding.severity == "error"]
    assert error.kind == "missing_term"
    assert "`NoOneHot`" in error.evidence


def test_what_the_whole_shows_is_kept_where_the_call_shows_no_more():
    """A Huber loss with the threshold of another: which entries are wrong is said."""

    class Huber(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            size = x.abs()
            return torch.where(size < 0.5, x * x, size - 0.25).mean()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * torch.where(x.abs() < 1, 2 * x, x.sign()) / x.numel()

    x = torch.tensor([0.2, -0.3, 0.7, -0.8, 1.5, -2.0], dtype=torch.float64)
    report = gl.check(lambda x: 2 * Huber.apply(x), x)

    (finding,) = report.findings
    if str(finding.kind) == "unknown":
        assert finding.doubts
    assert "entries 2 and 3 of x" in finding.evidence
    assert "The Function `Huber` (test_called.py:" in finding.evidence
    assert "Compare its backward" in finding.advice or str(finding.kind) != "unknown"
