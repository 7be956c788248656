"""Values that leave torch and come back in float32: what autograd misses is told."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")

# How a value that depends on h leaves torch and comes back, a constant to autograd.
TRIPS = {
    "tensor": lambda h: torch.tensor(float(h.pow(2).mean())),
    "listed": lambda h: torch.tensor([h.std().item()]),
    "typed": lambda h: torch.tensor(h.pow(2).mean().item(), dtype=torch.float32),
    "full": lambda h: torch.full((1,), h.pow(2).mean().item()),
    "numpy": lambda h: torch.from_numpy(
        h.detach().numpy().std(keepdims=True).astype("float32")
    ),
    "cast": lambda h: h.float().pow(2).mean().detach(),
    "written": lambda h: torch.zeros(1).fill_(h.pow(2).mean().item()),
    "multiplied": lambda h: torch.ones(1) * h.pow(2).mean().item(),
    "added": lambda h: torch.arange(1.0, 2.0) + h.pow(2).mean().item(),
    "stacked": lambda h: torch.stack(
        [torch.from_numpy(row.astype("float32")).std() for row in h.detach().numpy()]
    ).mean(),
    "widened": lambda h: torch.tensor(
        np.float32(h.pow(2).mean().item()), dtype=torch.float64
    ),
}


class Scaled(nn.Module):
    """Divides by a size of what it computed."""

    def __init__(self, trip):
        super().__init__()
        self.inner, self.outer, self.trip = nn.Linear(6, 6), nn.Linear(6, 2), trip

    def forward(self, x):
        h = self.inner(x).tanh()
        return self.outer(h / (0.5 + self.trip(h)))


def model(trip, dtype, seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(4, 6), Scaled(trip)).to(dtype)
    x, target = torch.randn(5, 4, dtype=dtype), torch.randn(5, 2, dtype=dtype)
    return net, x, lambda out: ((out - target) ** 2).mean()


# An entry by itself asks no more of a trip than a direction does: three kinds of them.
COVERED = [(trip, "probe") for trip in TRIPS]
COVERED += [(trip, "full") for trip in ("tensor", "numpy", "stacked")]


@pytest.mark.thinned(4)
@pytest.mark.parametrize(("trip", "coverage"), COVERED)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_what_leaves_torch_and_comes_back_is_missed(trip, dtype, coverage):
    """What comes before it is wrong, for that path; what comes behind is right."""
    net, x, loss = model(TRIPS[trip], dtype)

    report = gl.check(net, x, loss=loss, coverage=coverage)

    wrong = {"0.weight", "0.bias", "1.inner.weight", "1.inner.bias"}
    verdicts = {c.input.name: c.verdict.name for c in report.comparisons}
    assert {name for name, v in verdicts.items() if v == "DISAGREES"} == wrong
    assert report.diagnosis == "detached"


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_numbers_that_python_holds(dtype, coverage):
    """A number of float32 need not be a tensor; that part of the slope is missing."""
    x = torch.tensor([0.3, -1.2, 0.9], dtype=dtype, requires_grad=True)

    report = gl.check(
        lambda x: (x**2 * float(np.float32(x.norm().item()))).sum(),
        x,
        coverage=coverage,
    )

    assert report.verdict == gl.Verdict.DISAGREES
    assert report.diagnosis == "detached"


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(
    "trip", [name for name in TRIPS if name not in {"numpy", "stacked", "widened"}]
)
def test_audit_names_the_layer(trip, dtype):
    """The layer whose own code does it is the culprit, with the line."""
    net, x, loss = model(TRIPS[trip], dtype)

    audit = gl.blame(net, x, loss=loss)

    assert audit.culprits == ("1",)
    assert str(audit.findings[0].kind) == "detached"
    assert "test_round_trips.py:" in audit.findings[0].evidence


@pytest.mark.thinned(4)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("trip", [name for name in TRIPS if name != "numpy"])
def test_a_search_finds_entries(trip, dtype):
    """Those of parameters before it, as a check does."""
    net, x, loss = model(TRIPS[trip], dtype)

    found = gl.locate(net, x, loss=loss)

    named = {entry.input for entry in found.entries}
    assert named
    assert named <= {"0.weight", "0.bias", "1.inner.weight", "1.inner.bias"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", ["logged", "counted", "halved", "normed"])
def test_a_search_of_right_ones(name, dtype, capsys):
    """It accuses nobody of what comes back without a slope."""
    found = gl.locate(RIGHT[name], torch.tensor([0.3, -1.2, 0.9], dtype=dtype))

    capsys.readouterr()
    assert found.ok


def test_a_loss_that_does_it():
    """The loss is run in float64 as the module is, its own tensors too."""
    torch.manual_seed(0)
    net, x = nn.Linear(3, 2), torch.randn(4, 3)

    def loss(out):
        return (out / torch.tensor(1 + out.pow(2).sum().item())).sum()

    report = gl.check(net, x, loss=loss, coverage="probe")

    assert not report.ok
    assert report.diagnosis == "detached"


# Right ones. By algebra: what comes back has no effect on the value, or the backward
# has its part of the slope.
normed = with_backward(
    lambda x: x * torch.tensor(x.sum().item()),
    lambda x, up: up * x.sum() + (up * x).sum(),
)


def logged(x):
    """Looks at a number, and then uses constants of its own."""
    print(f"{x.norm().item():.3f}", end="")
    return torch.sin(x) * torch.tensor(0.1) + torch.full((3,), 0.7)


def scaled_and_back(x):
    """Divides by a number and multiplies by the same."""
    size = torch.tensor(x.abs().max().item())
    return torch.tanh(x) / size * size


def counted(x):
    """Makes an index of a number, which has no slope."""
    k = torch.tensor(float(int(x.abs().sum().item())))
    return torch.cos(x) * k


def from_data(x):
    """Reads float32 data after a look at the input."""
    assert x.detach().numpy().shape == (3,)
    return x.exp() * torch.linspace(0.1, 0.3, 3, dtype=torch.float32)


def halved(x):
    """Scales by a power of two, which stands still, and by a constant number."""
    size = 2.0 ** float(np.floor(np.log2(x.abs().max().item())))
    return torch.sin(x / size) * 0.25 + torch.ones(3) * 0.1


def peaked(x):
    """Is scaled by a number of the input itself, which float32 holds by chance."""
    size = torch.ones(1) * x.abs().max().item()
    return torch.tanh(2e4 * x / size * size)


FUNCTIONS = (logged, scaled_and_back, counted, from_data, halved, peaked)
RIGHT = {f.__name__: f for f in FUNCTIONS}
RIGHT["normed"] = normed


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", RIGHT)
def test_right_ones(name, dtype, coverage, capsys):
    """What comes back without a slope, or with it in the backward, accuses nobody."""
    x = torch.tensor([0.3, -1.2, 0.9], dtype=dtype, requires_grad=True)

    report = gl.check(RIGHT[name], x, coverage=coverage)

    capsys.readouterr()
    assert report.verdict == gl.Verdict.AGREES
    assert not [f for f in report.findings if f.severity == "error"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", RIGHT)
def test_right_layers(name, dtype, capsys):
    """Nor does an audit."""

    class Layer(nn.Module):
        def forward(self, x):
            return RIGHT[name](x)

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), Layer()).to(dtype)
    x = torch.tensor([0.3, -1.2, 0.9], dtype=dtype)

    audit = gl.blame(net, x, loss=lambda out: (out**2).sum())

    capsys.readouterr()
    assert audit.culprits == ()
    assert audit.verdict == gl.Verdict.AGREES


def test_default_dtype_is_put_back():
    """A copy in float64 changes the default dtype of torch only meanwhile."""
    net, x, loss = model(TRIPS["tensor"], torch.float64)

    gl.check(net, x, loss=loss, coverage="probe")
    gl.blame(net, x, loss=loss)

    assert torch.get_default_dtype() is torch.float32
