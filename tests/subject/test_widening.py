"""Losses that read a float32 module's parameters in place are compared in float64."""

from __future__ import annotations

import copy

import pytest

import gradlab as gl
from gradlab.comparison.verdict import Verdict
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")
nn = torch.nn

LAYERS = {
    "perceptron": lambda: [nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)],
    "batch norm": lambda: [nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh()],
    "layer norm": lambda: [
        nn.Linear(6, 8),
        nn.GELU(),
        nn.LayerNorm(8),
        nn.Linear(8, 3),
    ],
}


# A square whose backward is one percent off.
square = with_backward(lambda z: z * z, lambda z, cotangent: 2.02 * z * cotangent)


class Remembering(nn.Module):
    """Multiplies by what it wrote to a buffer a moment ago, off the graph."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("last", torch.zeros(3, 4))

    def forward(self, x):
        y = self.linear(x)
        self.last.copy_(y.detach())
        return (y * self.last.sum()).mean()


def checked(model, x, loss=lambda out: (out - 0.3).square().mean()):
    """Check a loss of a model with respect to its parameters, where they are."""
    return gl.check(lambda x: loss(model(x)), x, params=model.named_parameters())


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("seed", range(2))
def test_right_gradients_agree_in_float32(kind, seed):
    """Differences of a mean square in float32 tell little: those in float64 do."""
    torch.manual_seed(seed)
    report = checked(nn.Sequential(*LAYERS[kind]()), torch.randn(5, 6))
    assert report.verdict == Verdict.AGREES
    assert "evaluated in float64" in str(report)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("slip", [1.0, 1.05])
def test_gradients_that_training_left_in_float32(kind, slip):
    """What stands in ``.grad`` is compared in float64; 5 % of one entry show."""
    torch.manual_seed(0)
    model, x = nn.Sequential(*LAYERS[kind]()), torch.randn(5, 6)

    def loss():
        return (model(x) - 0.3).square().mean()

    loss().backward()
    held = {name: p.grad.clone() for name, p in model.named_parameters()}
    flat = held["0.weight"].view(-1)
    flat[flat.abs().argsort()[flat.numel() // 2]] *= slip

    report = gl.check(loss, params=model, grad=held)

    assert report.verdict == (Verdict.AGREES if slip == 1 else Verdict.DISAGREES)
    assert "evaluated in float64" in str(report)
    assert model[0].weight.dtype is torch.float32


@pytest.mark.parametrize("asked", ["with the loss", "as grad="])
@pytest.mark.parametrize("slip", [1.0, 1.05])
def test_steps_that_call_backward_themselves(asked, slip):
    """They run in float64, `.grad` and all; the model's own is as it was."""
    torch.manual_seed(0)
    model, x = nn.Sequential(*LAYERS["perceptron"]()), torch.randn(5, 6)

    def loss():
        return (model(x) - 0.3).square().mean()

    def gradients():
        model.zero_grad()
        value = loss()
        value.backward()
        held = {name: p.grad for name, p in model.named_parameters()}
        return value.item(), {**held, "2.weight": slip * held["2.weight"]}

    params = dict(model.named_parameters())
    if asked == "as grad=":
        report = gl.check(loss, params=params, grad=lambda: gradients()[1])
    else:
        report = gl.check(gradients, params=params)

    assert report.verdict == (Verdict.AGREES if slip == 1 else Verdict.DISAGREES)
    assert report.culprits == (() if slip == 1 else ("2.weight",))
    assert "evaluated in float64" in str(report)
    assert all(p.grad is None for p in model.parameters())


def test_one_percent_is_told_in_float32():
    """The wrong backward of a custom function shows through its parameters."""
    torch.manual_seed(0)
    report = checked(nn.Linear(4, 4), torch.randn(3, 4), lambda z: square(z).mean())
    assert report.verdict == Verdict.DISAGREES


def test_module_is_as_it_was():
    """Parameters keep their memory, buffers, gradients and random state theirs."""
    torch.manual_seed(0)
    layers = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3)
    model, x = nn.Sequential(*layers), torch.randn(5, 6)
    model[0].weight.grad = torch.ones(8, 6)
    memory = [parameter.data_ptr() for parameter in model.parameters()]
    state, drawn = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    checked(model, x)
    assert memory == [parameter.data_ptr() for parameter in model.parameters()]
    for before, after in zip(state.values(), model.state_dict().values(), strict=True):
        assert before.dtype == after.dtype
        assert torch.equal(before, after)
    assert torch.equal(drawn, torch.get_rng_state())
    assert torch.equal(model[0].weight.grad, torch.ones(8, 6))
    assert model[3].weight.grad is None


def test_what_is_written_to_short_numbers_is_not_lost():
    """A buffer that f writes and reads again is part of f, and cut off."""
    torch.manual_seed(0)
    report = checked(Remembering(), torch.randn(3, 4), lambda out: out)
    assert report.verdict == Verdict.DISAGREES
    assert "evaluated in float64" not in str(report)


def rounding(z):
    """Round to half precision by a cast, and square."""
    return z.half().float().square().sum()


def rounding_wrong(z):
    """Round as well, with a square whose backward is off."""
    return square(z.half().float()).sum()


def under_autocast(z):
    """Multiply in bfloat16, as mixed precision does, and widen."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (z @ torch.eye(4)).float().square().sum()


def under_autocast_cut(z):
    """Multiply so, and lose half of the gradient."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = (z @ torch.eye(4)).float()
        return (y * y.detach()).sum()


@pytest.mark.parametrize("loss", [rounding, under_autocast])
def test_casts_to_half_inside_accuse_nobody(loss):
    """With them f stands still between two numbers; without, it has its gradient."""
    torch.manual_seed(0)
    report = checked(nn.Linear(4, 4), torch.randn(3, 4), loss)
    assert report.verdict == Verdict.AGREES
    assert not [f for f in report.findings if f.severity == "error"]
    assert report.evaluations < 800  # thousands before, and undecided


@pytest.mark.parametrize("loss", [rounding_wrong, under_autocast_cut])
def test_mistakes_beside_casts_to_half_are_told(loss):
    """What the casts round is three digits, not one percent of every gradient."""
    torch.manual_seed(0)
    report = checked(nn.Linear(4, 4), torch.randn(3, 4), loss)
    assert report.verdict == Verdict.DISAGREES
    assert set(report.culprits) >= {"weight", "bias"}


def test_casts_that_lose_nothing_stay_wide():
    """In a float32 model float() is no statement about precision."""
    torch.manual_seed(0)
    report = checked(
        nn.Linear(4, 4), torch.randn(3, 4), lambda z: z.float().square().sum()
    )
    assert report.verdict == Verdict.AGREES
    assert "evaluated in float64" in str(report)


def test_compiled_module_is_compiled_no_more_often():
    """Torch's compiler would trace the exchange along with it, again and again."""
    seen = []

    def backend(graph, _inputs):
        seen.append(graph)
        return graph.forward

    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))
    model, x = torch.compile(layers, backend=backend), torch.randn(5, 6)
    model(x)
    report = checked(model, x)
    assert report.verdict == Verdict.AGREES
    assert "evaluated in float64" in str(report)
    assert len(seen) == 1


@pytest.mark.parametrize("form", ["held", "asked", "stepped"])
def test_right_gradients_under_autocast_are_not_held_to_float64(form):
    """They have the digits of bfloat16, by whichever way they come."""
    torch.manual_seed(0)
    net, x = nn.Linear(4, 1), torch.randn(5, 4)
    names = [name for name, _ in net.named_parameters()]

    def loss():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return net(x).float().square().mean()

    def grads():
        found = torch.autograd.grad(loss(), list(net.parameters()))
        return dict(zip(names, found, strict=True))

    def step():
        net.zero_grad()
        value = loss()
        value.backward()
        return value.item(), {k: p.grad.clone() for k, p in net.named_parameters()}

    options = {"held": {"grad": grads()}, "asked": {"grad": grads}, "stepped": {}}
    fn = step if form == "stepped" else loss
    report = gl.check(fn, params=net, **options[form])

    assert report.verdict == Verdict.UNDECIDED
