"""Networks with custom Functions in odd places, hooks, state, kinks, precisions."""

from __future__ import annotations

import torch
from torch import nn

from tests.localisation.networks import SLIPS, Case, Swish, entropy, network, swish


@network
def function_in_root(slip):
    """A custom Function in the root's own forward."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.b(swish(self.a(x), slip))

    return Case(Net(), (torch.randn(4, 5),), "Net", loss=entropy())


@network
def function_in_container(slip):
    """Custom Functions in a container's own forward."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, 5)

        def forward(self, x):
            return swish(self.fc(x), slip) + swish(x, "right")

    net = nn.Sequential(nn.Linear(5, 5), Block(), nn.Linear(5, 3))
    return Case(net, (torch.randn(4, 5),), "1", loss=entropy())


@network
def many_inputs_and_outputs(slip):
    """Several inputs and outputs, an integer index, a string."""

    class Mixed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b, index, label):
            ctx.save_for_backward(a, b, index)
            return a * b, (a + b * b)[index]

        @staticmethod
        def backward(ctx, g, h):
            a, b, index = ctx.saved_tensors
            spread = torch.zeros_like(a).index_add_(0, index, h)
            right = g * a + 2 * b * spread
            return g * b + spread, SLIPS[slip](right, b, g), None, None

    class Mix(nn.Module):
        def forward(self, a, b, index):
            return Mixed.apply(a, b, index, "label")

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.mix = nn.Linear(5, 3), nn.Linear(5, 3), Mix()

        def forward(self, x, index):
            first, second = self.mix(self.a(x), self.b(x), index)
            return first.sum(0) + second.sum(0)

    return Case(Net(), (torch.randn(4, 5), torch.tensor([0, 2, 2])), "mix")


@network
def hand_written_linear(slip):
    """A layer of one's own whose weight gradient is wrong."""

    class LinearFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            ctx.save_for_backward(x, weight)
            return x @ weight.T + bias

        @staticmethod
        def backward(ctx, g):
            x, weight = ctx.saved_tensors
            return g @ weight, SLIPS[slip](g.T @ x, weight, weight * 0 + 1), g.sum(0)

    class Linear(nn.Module):
        def __init__(self, n, m):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(m, n) / n**0.5)
            self.bias = nn.Parameter(torch.zeros(m))

        def forward(self, x):
            return LinearFunction.apply(x, self.weight, self.bias)

    net = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), Linear(6, 6), nn.Linear(6, 3))
    return Case(net, (torch.randn(4, 5),), "2", loss=entropy())


@network
def frozen_teacher(slip):
    """A frozen layer under no_grad."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.teacher = nn.Linear(5, 5).requires_grad_(False)
            self.student, self.act = nn.Linear(5, 5), Swish(slip)

        def forward(self, x):
            with torch.no_grad():
                goal = self.teacher(x)
            return (self.act(self.student(x)) - goal).square()

    return Case(Net(), (torch.randn(4, 5),), "act", loss=lambda out: out.mean())


@network
def monitored(slip):
    """A layer that detaches for a log, whose result nobody needs."""

    class Monitor(nn.Module):
        def forward(self, x):
            return x.detach().abs().mean()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.act, self.monitor = nn.Linear(5, 3), Swish(slip), Monitor()
            self.spare = nn.Linear(3, 3)
            self.seen = []

        def forward(self, x):
            h = self.act(self.a(x))
            self.seen.append(self.monitor(h).item())
            with torch.no_grad():
                self.spare(h)
            return h

    return Case(Net(), (torch.randn(4, 5),), "act", loss=entropy())


@network
def keeps_its_state(slip):
    """A module that remembers its last output."""

    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.act = nn.Linear(5, 5), Swish(slip)
            self.state, self.calls = None, 0

        def forward(self, x):
            self.calls += 1
            if self.state is not None:
                x = x + 0.1 * self.state
            self.state = self.act(self.fc(x)) * self.calls
            return self.state

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.memory = Memory()

        def forward(self, xs):
            self.memory.state, self.memory.calls = None, 0
            for x in xs:
                out = self.memory(x)
            return out

    return Case(Net(), (torch.randn(3, 4, 5),), "memory.act")


@network
def zeros_everywhere(slip):
    """Inputs that sit exactly on kinks."""
    net = nn.Sequential(
        nn.Linear(5, 8),
        nn.ReLU(),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Linear(4, 3),
        Swish(slip),
    )
    x = torch.randn(4, 5)
    x[0] = 0
    with torch.no_grad():
        net[0].bias.zero_()
    return Case(net, (x,), "5", loss=entropy())


@network
def harmless_hooks(slip):
    """Hooks that change nothing, or change the forward."""
    net = nn.Sequential(nn.Linear(5, 8), Swish(slip), nn.Linear(8, 3))
    net[0].register_forward_hook(lambda m, i, o: o * 2)
    net[1].register_full_backward_hook(lambda m, gi, go: None)
    net[2].register_forward_pre_hook(lambda m, i: (i[0] + 1,))
    net[2].weight.register_hook(lambda g: None)
    return Case(net, (torch.randn(4, 5),), "1", loss=entropy())


@network
def complex_numbers(slip):
    """A spectrum in the middle."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.act = nn.Linear(5, 4), Swish(slip)

        def forward(self, x):
            spectrum = torch.fft.rfft(self.act(self.fc(x)))
            return (spectrum * spectrum.conj()).real.sqrt()

    return Case(Net(), (torch.randn(4, 5),), "act")


@network
def mixed_precision(slip):
    """A norm that computes in float32 inside."""

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(6))

        def forward(self, x):
            y = x.float()
            y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)
            return y.type_as(x) * self.weight

    net = nn.Sequential(nn.Linear(5, 6), Norm(), Swish(slip), nn.Linear(6, 3))
    return Case(net, (torch.randn(4, 5),), "2", loss=entropy())
