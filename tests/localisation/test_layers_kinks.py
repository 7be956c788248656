"""Where derivatives are delicate: kinks, branches, flat places, tiny and large numbers.

All these layers are right; a checker that trusts one step size accuses them.
"""

from __future__ import annotations

import pytest

from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from gradlab.blaming import blame  # noqa: E402
from gradlab.localisation.layers.audited import LayerState  # noqa: E402
from tests.sizes import drawn  # noqa: E402
from tests.specimens.functions import Spoiled  # noqa: E402

pytestmark = pytest.mark.untraced


class Own(nn.Module):
    """A user's layer around one function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def _sorted_top(x):
    return x.sort(-1).values[..., :2] * x.topk(2).values


FUNCTIONS = {
    "relu": torch.relu,
    "abs": torch.abs,
    "max": lambda x: x.max(-1).values,
    "maximum of equals": lambda x: torch.maximum(x, x.flip(-1)),
    "sorted": _sorted_top,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "floor": lambda x: torch.floor(x) + x,
    "sign": lambda x: torch.sign(x) * x**2,
    "norm": lambda x: x.norm(dim=-1),
    "where": lambda x: torch.where(x > 0, x**2, x),
    "hard": nn.functional.hardtanh,
    "huge": lambda x: 1e12 * x + 1e12,
    "tiny": lambda x: 1e-15 * torch.sin(x),
    "constant": lambda x: x * 0 + 3.0,
    "softmax": lambda x: (50 * x).softmax(-1),
    "log": lambda x: torch.log(x.abs() + 1e-9),
    "exp": lambda x: torch.exp(8 * x),
    "sum of softmax": lambda x: x.softmax(-1).sum(-1),
    "wiggly": lambda x: torch.sin(300 * x),
    "single inside": lambda x: (x.float() ** 2).to(x.dtype),
    "half inside": lambda x: (x.bfloat16() * 2).to(x.dtype),
}
POINTS = {
    "random": lambda: torch.randn(6, 8),
    "zeros": lambda: torch.zeros(6, 8),
    "some zeros": lambda: torch.relu(torch.randn(6, 8)),
    "equal": lambda: torch.ones(6, 8),
    "corners": lambda: torch.full((6, 8), 0.5),
    "integers": lambda: torch.randint(-2, 3, (6, 8)).float(),
    "one entry": lambda: torch.zeros(1, 1),
    "many orders": lambda: torch.logspace(-9, 3, 48).reshape(6, 8),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_layer_at_a_delicate_point_is_not_accused(name, point, dtype):
    """Neither a kink nor rounding is taken for a mistake."""
    torch.manual_seed(0)
    x = POINTS[point]().to(dtype).requires_grad_()
    if name in {"max", "sorted"} and x.shape[-1] < 2:
        pytest.skip("needs two entries in a row")

    audit = blame(Own(FUNCTIONS[name]), x)

    assert [row.reason for row in audit.rows if row.state is LayerState.WRONG] == []


def _one_entry(g):
    g.view(-1)[5] *= 1.1
    return g


@pytest.mark.thinned(2)
@pytest.mark.parametrize("point", ["random", "some zeros", "integers", "zeros"])
@pytest.mark.parametrize("name", ["relu", "abs", "max", "clamp", "softmax"])
@pytest.mark.parametrize(
    "slip", [lambda g: 1.001 * g, _one_entry], ids=["0.1 %", "one entry"]
)
def test_mistake_behind_a_kink_is_found(name, point, slip):
    """Kinks do not hide mistakes: the wrong piece beside them is still named."""
    torch.manual_seed(0)
    x = POINTS[point]().double().requires_grad_()
    wrong = Own(lambda x: Spoiled.apply(x, slip))
    net = nn.Sequential(Own(FUNCTIONS[name]), wrong)

    assert blame(net, x).culprits == ("1",)


@pytest.mark.parametrize("share", [1.001, 0.0], ids=["0.1 %", "lost"])
def test_mistake_in_a_layer_with_kinks_is_found(share):
    """A relu whose backward is wrong is found although many inputs are exactly zero."""
    relu = with_backward(lambda x: x.clamp(min=0), lambda x, g: share * g * (x > 0))

    torch.manual_seed(0)
    x = torch.relu(torch.randn(6, 8, dtype=torch.float64)).requires_grad_()

    assert blame(Own(relu), x).culprits == ("Own",)


@pytest.mark.parametrize("entries", [10, 1000, 100_000])
def test_one_wrong_entry_among_many_is_found(entries):
    """A single entry of a weight's gradient, wrong by 10 %, is found in any size."""

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(entries))

        def forward(self, x):
            return x * Spoiled.apply(self.weight, _one_entry)

    torch.manual_seed(0)
    x = torch.randn(2, entries, dtype=torch.float64)

    assert blame(Scale().double(), x).culprits == ("Scale",)


class Octaves(nn.Module):
    """Sines of ever more waves, as encodings of positions have them."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        """Give fourteen octaves; the gradient is multiplied by a factor."""
        phase = x[..., None] * (2.0 ** torch.arange(14, dtype=x.dtype) * torch.pi)
        waves = torch.cat([torch.sin(phase), torch.cos(phase)], -1).flatten(-2)
        kept = (1 - self.factor) * waves  # the same values, a gradient times the factor
        return waves - kept + kept.detach() if self.factor != 1 else waves


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("factor", [1.0, 0.8])
def test_waves_shorter_than_a_step_are_not_taken_for_a_plateau(factor, dtype):
    """Over many waves differences are zero at every long step, and mean nothing."""
    torch.manual_seed(3)
    x = (2 * torch.rand(16, 3) - 1).to(dtype).requires_grad_()

    found = (
        blame(Octaves(factor), x, seed=seed).culprits for seed in range(drawn(6, 20))
    )

    if factor == 1.0:
        assert set(found) == {()}
    else:
        assert ("Octaves",) in found  # asked until it is: a wrong one takes longer


class Masked(torch.autograd.Function):
    """A relu that gives zeros the slope of either side, as it is asked."""

    @staticmethod
    def forward(ctx, x, at_zero):
        ctx.save_for_backward((x > 0) + at_zero * (x == 0))
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        (mask,) = ctx.saved_tensors
        return grad * mask, None


@pytest.mark.parametrize("at_zero", [0.0, 0.5, 1.0])
def test_kinks_that_cancel_are_no_mistake(at_zero):
    """Some bend up and some down: both sides of a direction may look alike."""
    x = torch.tensor([[0.0, 0.7, 0.0, -0.4, 0.0, 0.0]], dtype=torch.float64)
    weights = torch.tensor([1.0, 0.8, -1.1, 0.5, 0.9, -0.8], dtype=torch.float64)
    model = Own(lambda x: Masked.apply(x, at_zero))

    def loss(out):
        return (out * weights).sum()

    for seed in range(drawn(20, 100)):
        assert blame(model, x.requires_grad_(), loss=loss, seed=seed).culprits == ()


def test_what_is_wrong_at_zeros_that_are_no_kinks_is_found():
    """The slope of sin is 1 there, on either side."""
    sine = with_backward(
        lambda x: x.sin(), lambda x, grad: grad * torch.where(x == 0, 0.5, x.cos())
    )

    x = torch.tensor([[0.0, 0.7, 0.0, -0.4, 0.0, 0.0]], dtype=torch.float64)

    assert blame(Own(sine), x.requires_grad_()).culprits == ("Own",)
