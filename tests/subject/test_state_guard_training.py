"""`StateGuard` around what training does: optimisers, generators, custom functions."""

from __future__ import annotations

import pytest

from gradlab.subject.guarding.random_state import RandomFreeze
from gradlab.subject.state_guard import HiddenState, StateGuard
from tests.specimens.guarded import bits, names

torch = pytest.importorskip("torch")
nn = torch.nn


@pytest.fixture
def net():
    """A small module in training mode, with statistics and randomness."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))


def test_optimiser_state_is_restored():
    """A step in the body moves neither weights nor momenta nor the step count."""
    w = torch.ones(2, requires_grad=True)
    optimiser = torch.optim.Adam([w], lr=0.1)
    w.sum().backward()
    optimiser.step()
    before = bits(w), bits(optimiser.state[w]["exp_avg"])
    fn = lambda: (optimiser.zero_grad(), w.sum().backward(), optimiser.step())

    with StateGuard(fn):
        fn()
        optimiser.param_groups[0]["lr"] = 5.0

    assert (bits(w), bits(optimiser.state[w]["exp_avg"])) == before
    assert optimiser.state[w]["step"].item() == 1.0
    assert optimiser.param_groups[0]["lr"] == 0.1


def test_first_optimiser_step_is_undone():
    """State that the body created is removed."""
    w = torch.ones(2, requires_grad=True)
    w.grad = torch.ones(2)
    optimiser = torch.optim.Adam([w], lr=0.1)

    with StateGuard(optimiser):
        optimiser.step()

    assert not optimiser.state
    assert w.tolist() == [1.0, 1.0]


def test_torch_generator_is_frozen():
    """A ``torch.Generator`` in a closure and the global one are told apart."""
    generator = torch.Generator().manual_seed(1)
    fn = lambda: torch.rand(2, generator=generator)
    freeze = RandomFreeze(fn)

    first = fn()

    assert freeze.consumed() == ("generator",)
    freeze.restore(only=("generator",))
    assert torch.equal(fn(), first)


def test_dropout_frozen_to_one_draw(net):
    """Rewinding torch's generator before each forward makes dropout a function."""
    x = torch.ones(4, 3)
    freeze = RandomFreeze(net, x)
    state = HiddenState(net, x)
    first = net(x)
    consumed, _ = freeze.consumed(), state.changes()

    for _ in range(3):
        freeze.restore(only=consumed)
        state.restore()
        assert torch.equal(net(x), first)
    state.restore()
    assert net[1].num_batches_tracked.item() == 0


def test_custom_function_with_state_on_its_class():
    """A cache that a ``Function`` keeps on itself is found through its global name."""

    class Square(torch.autograd.Function):
        calls = 0
        saved = torch.zeros(2)

        @staticmethod
        def forward(ctx, x):
            Square.calls += 1
            Square.saved.copy_(x.detach())
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return grad * 2 * ctx.saved_tensors[0]

    fn = lambda x: Square.apply(x)  # noqa: PLW0108 - the user's way of writing it
    x = torch.ones(2, requires_grad=True)
    with StateGuard(fn, keep_tallies=False) as guard:
        fn(x).sum().backward()

    assert Square.calls == 0
    assert Square.saved.tolist() == [0.0, 0.0]
    assert ("attribute", "Square.calls") in names(guard)


def test_lazy_module_is_lazy_again():
    """A first forward in the body decides no shape: class, hooks and weight return."""
    net = nn.Sequential(nn.LazyLinear(3))
    assert isinstance(net[0].weight, nn.UninitializedParameter)

    with StateGuard(net) as guard:
        net(torch.ones(2, 4))

    assert guard.remarks == ()
    assert type(net[0]) is nn.LazyLinear
    assert net(torch.ones(2, 7)).shape == (2, 3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_device_memory_and_generator_are_restored():
    """What holds on the CPU holds on an accelerator."""
    x = torch.ones(5, device="cuda")
    state = torch.cuda.get_rng_state()

    with StateGuard(x, names=["x"]) as guard:
        x.normal_()

    assert x.eq(1).all()
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert {change.where for change in guard.changes()} == {"x", "torch.cuda[0]"}
