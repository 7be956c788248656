"""Mistakes that no layer makes: hooks, detached code, the loss; and where they are."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from gradlab.blaming import blame  # noqa: E402
from gradlab.localisation.layers.audited import LayerState  # noqa: E402


@pytest.fixture
def x():
    torch.manual_seed(1)
    return torch.randn(4, 5, dtype=torch.float64)


def entropy(out):
    return F.cross_entropy(out, torch.tensor([0, 1, 2, 0]))


def series():
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def only(audit):
    """The one culprit's sentence."""
    assert len(audit.culprits) == 1, audit.culprits
    return audit.culprits[0], audit.findings[0].evidence


class Custom(nn.Module):
    """A root with two layers and some code of its own between them."""

    def __init__(self, between):
        super().__init__()
        self.a, self.b, self.between = nn.Linear(5, 6), nn.Linear(6, 3), between
        self.double()

    def forward(self, x):
        return self.b(self.between(self.a(x)))


def test_backward_hook_that_scales_is_told(x):
    """A forgotten full backward hook makes its module wrong, and is named."""
    net = series()

    def forgotten(module, grad_input, grad_output):
        return tuple(None if g is None else 2 * g for g in grad_input)

    net[1].register_full_backward_hook(forgotten)
    name, sentence = only(blame(net, x, loss=entropy))

    assert name == "1"
    assert "hook `forgotten`" in sentence
    assert "2 times the derivative" in sentence


def test_backward_pre_hook_is_told(x):
    """A backward pre-hook that changes the incoming gradient is found as well."""
    net = series()
    net[1].register_full_backward_pre_hook(lambda m, go: tuple(-g for g in go))

    name, sentence = only(blame(net, x, loss=entropy))

    assert name == "1"
    assert "hook" in sentence


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_parameter_hook_is_told(x, dtype):
    """A hook on a parameter falls on the module that owns it; nobody else suffers."""
    net = series().to(dtype)
    net[0].weight.register_hook(lambda g: 0.5 * g)

    audit = blame(net, x.to(dtype), loss=entropy)
    name, sentence = only(audit)

    assert name == "0"
    assert "hook" in sentence
    assert "0.5 times" in sentence
    assert audit.contaminated == ()


def test_of_two_hooks_the_one_that_changes_is_told(x):
    """A hook on a module that only looks does not cover for one on its parameter."""
    net = series()
    net[0].register_full_backward_hook(lambda m, gi, go: None)
    net[0].weight.register_hook(lambda g: 0.5 * g)

    _, sentence = only(blame(net, x, loss=entropy))

    assert "on its parameter" in sentence


class Cut(nn.Module):
    """Wrong by itself: the second term of ``wx + (wx)**2`` is detached."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(1.0, 4.0))

    def forward(self, x):
        scaled = self.weight * x
        return scaled + scaled.detach() ** 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_hook_that_only_looks_is_not_blamed(x, dtype):
    """A hook that logs gradients does not answer for the layer it listens to."""
    net = nn.Sequential(nn.Linear(5, 3), Cut()).to(dtype)
    norms = []
    net[1].weight.register_hook(lambda g: norms.append(float(g.norm())))

    audit = blame(net, x.to(dtype), loss=entropy)
    name, sentence = only(audit)

    assert name == "1"
    assert "hook" not in sentence
    assert "hook" not in audit.findings[0].advice


def test_hook_on_container_is_told(x):
    """A hook on a Sequential, which has no code of its own, is no layer's fault."""
    net = nn.Sequential(series(), nn.Linear(3, 3)).double()
    net[0].register_full_backward_hook(lambda m, gi, go: tuple(3 * g for g in gi))
    x.requires_grad_()

    name, sentence = only(blame(net, x, loss=entropy))

    assert name == "0"
    assert "hook" in sentence


class Modulus(nn.Module):
    def forward(self, x):
        return x.abs()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_hook_on_input_is_told(x, dtype):
    """A hook on the user's own input tensor is outside all modules, and is told."""
    x = x.to(dtype).requires_grad_()
    x.register_hook(lambda g: 2 * g)

    audit = blame(nn.Sequential(Modulus(), *series()), x, loss=entropy)

    assert audit.culprits == ("input 0",)
    assert "multiplies its gradient by 2" in audit.findings[0].evidence


def test_forward_hook_is_part_of_its_module(x):
    """A forward hook that changes the output is differentiated with its module."""
    net = series()
    net[1].register_forward_hook(lambda m, i, o: o * 3)

    assert blame(net, x, loss=entropy).culprits == ()


def test_forward_hook_that_detaches_is_told(x):
    """A forward hook that cuts the graph is named, and not its module's formula."""
    net = series()
    net[1].register_forward_hook(lambda m, i, o: o.detach())

    name, sentence = only(blame(net, x, loss=entropy))

    assert name == "1"
    assert "hook" in sentence


def _scaled_by_hook(h):
    h.register_hook(lambda g: 2 * g)
    return h


OWN_CODE = {
    "tensor hook": (_scaled_by_hook, "scale"),
    "detach": (lambda h: h.detach(), "detached"),
    "data": (lambda h: h.data * 1.0, "detached"),
    "numpy": (lambda h: torch.from_numpy(h.detach().numpy()), "detached"),
    "half detached": (lambda h: h + h.detach() ** 2, "detached"),
    "straight-through": (lambda h: h + (h.sin() - h).detach(), "detached"),
    "reversal": (lambda h: -h + 2 * h.detach(), "sign"),
}


@pytest.mark.parametrize("case", OWN_CODE)
def test_code_of_the_root_is_blamed_by_its_class(case, x):
    """What the root's forward does between its layers is told to be there."""
    between, kind = OWN_CODE[case]
    net = Custom(between)

    audit = blame(net, x, loss=entropy)
    name, sentence = only(audit)

    assert name == "Custom"
    assert "in its own code" in sentence
    assert str(audit.findings[0].kind) == kind
    assert set(audit.contaminated) == {"a.weight", "a.bias"}


def test_no_grad_around_trainable_layers_is_told(x):
    """Layers under no_grad get no gradient; the code around them is to blame."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.act, self.b = nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)

        def forward(self, x):
            with torch.no_grad():
                h = self.act(self.a(x))
            return self.b(h)

    audit = blame(Net().double(), x, loss=entropy)

    assert audit.culprits == ("Net",)
    assert {"a.weight", "a.bias"} <= set(audit.contaminated)


def test_module_that_detaches_inside_is_blamed_itself(x):
    """A layer that detaches its own output is the culprit, not its caller."""

    class Cut(nn.Module):
        def forward(self, x):
            return x.detach().tanh()

    net = nn.Sequential(nn.Linear(5, 6), Cut(), nn.Linear(6, 3)).double()

    audit = blame(net, x, loss=entropy)

    assert audit.culprits == ("1",)
    assert str(audit.findings[0].kind) == "detached"
    assert set(audit.contaminated) == {"0.weight", "0.bias"}


def test_parameter_used_detached_is_blamed(x):
    """A layer that uses its weight without gradient is wrong in that weight alone."""

    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 6))

        def forward(self, x):
            return x @ self.weight.data

    net = nn.Sequential(nn.Linear(5, 6), Fixed(), nn.Linear(6, 3)).double()
    audit = blame(net, x, loss=entropy)

    assert audit.culprits == ("1",)
    assert next(row for row in audit.rows if row.name == "1").piece == "weight"
    assert audit.contaminated == ()


def test_wrong_loss_is_a_piece_of_its_own(x):
    """A loss with a wrong backward is named "loss"; all parameters are contaminated."""

    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, out):
            ctx.save_for_backward(out)
            return out.square().mean()

        @staticmethod
        def backward(ctx, g):
            (out,) = ctx.saved_tensors
            return g * 2 * out  # forgets to divide by the number of entries

    audit = blame(series(), x, loss=Loss.apply)

    assert audit.culprits == ("loss",)
    assert len(audit.contaminated) == 4
    states = {row.name: row.state for row in audit.rows}
    assert states["loss"] is LayerState.WRONG
    assert states["loss:Loss"] is LayerState.WRONG
    assert states["0"] is LayerState.CONTAMINATED


def test_loss_that_detaches_is_told(x):
    """A loss that cuts the graph leaves no gradient at all, and is named."""
    audit = blame(series(), x, loss=lambda out: entropy(out.detach()))

    assert audit.culprits == ("loss",)
    assert str(audit.findings[0].kind) == "detached"


def test_loss_with_a_penalty_on_parameters_is_right(x):
    """A loss that uses the parameters themselves is differentiated by them, too."""
    net = series()

    def penalised(out):
        return entropy(out) + 0.1 * sum((p**2).sum() for p in net.parameters())

    assert blame(net, x, loss=penalised).culprits == ()


def test_several_culprits_come_nearest_to_the_loss_first(x):
    """Of independent culprits the one whose backward runs first is named first."""

    class Slip(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return g

    class Act(nn.Module):
        def forward(self, x):
            return Slip.apply(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.late, self.early, self.fc = Act(), Act(), nn.Linear(5, 3)

        def forward(self, x):
            return self.late(self.fc(self.early(x))).tanh()

    x.requires_grad_()
    audit = blame(Net().double(), x, loss=entropy)

    assert audit.culprits == ("late", "early")
    assert audit.contaminated[:2] == ("fc.weight", "fc.bias")


def test_what_the_loss_does_not_need_is_not_wrong(x):
    """A detached side branch that never reaches the loss is nobody's mistake."""

    class Side(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.seen = nn.Linear(5, 3), nn.Linear(5, 3)

        def forward(self, x):
            return self.fc(x), self.seen(x).detach()

    audit = blame(Side().double(), x, loss=lambda out: entropy(out[0]))

    assert audit.culprits == ()
    assert audit.ok


def test_shared_wrong_layer_is_one_culprit_with_a_row_per_call(x):
    """A module called twice is named once; each call has its row."""

    class Act(nn.Module):
        def forward(self, x):
            y = x.sin()
            y.register_hook(lambda g: 1.5 * g)
            return y

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.act = nn.Linear(5, 5), Act()

        def forward(self, x):
            return self.act(self.fc(self.act(self.fc(x))))

    audit = blame(Net().double(), x)

    assert audit.culprits == ("act",)
    assert [row.call for row in audit.rows if row.name == "act"] == [0, 1]


def test_sentence_is_the_promised_one(x):
    """The finding says what, where in the file, how wrong, and who only suffers."""

    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(x)
            return 1.001 * g * (s + x * s * (1 - s))

    class Act(nn.Module):
        def forward(self, x):
            return Swish.apply(x)

    net = nn.Sequential(nn.Linear(5, 6), Act(), nn.Linear(6, 3)).double()
    line = Swish.backward.__code__.co_firstlineno

    sentence = blame(net, x, loss=entropy).findings[0].evidence

    assert sentence == (
        f"`1` (Swish, test_layers_elsewhere.py:{line}) is wrong: its backward is 1.001 "
        "times the derivative; the 2 gradients upstream are only contaminated by it."
    )
