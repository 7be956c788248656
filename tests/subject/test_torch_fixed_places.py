"""Modules that count on where their parameters lie, as some do on a GPU."""

from __future__ import annotations

import copy
import warnings

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")

from gradlab.subject.tensors.calling.fixed_places import free_places  # noqa: E402
from tests.specimens.slips import Slipping  # noqa: E402


class Moving(torch.nn.LSTM):
    """Moves its weights to other memory whenever it meets others, as cuDNN does."""

    def flatten_parameters(self):
        """Move them."""
        if len(self._flat_weights) == len(self._flat_weights_names):
            for weight in self._flat_weights:
                weight.data = weight.data.clone()


def squares(out):
    """Reduce to a loss."""
    out = out[0] if isinstance(out, tuple) else out
    return (out**2).sum()


def recurrent():
    """Build a recurrent module, and a sequence for it."""
    torch.manual_seed(0)
    module = Moving(3, 4, batch_first=True).double()
    return module, torch.randn(2, 5, 3, dtype=torch.float64)


@pytest.mark.parametrize("coverage", ["full", "probe"])
def test_weights_that_are_moved_are_moved_for_nobody_else(coverage):
    """What stands in for them stays where entries are written, and so do they."""
    module, x = recurrent()
    weights = [(w, w.data_ptr()) for w in module.parameters()]

    assert gl.check(module, x, loss=squares, coverage=coverage).ok

    assert [(w, w.data_ptr()) for w in module.parameters()] == weights
    pairs = zip(module._flat_weights, module.parameters(), strict=True)
    assert all(one is other for one, other in pairs)
    assert "flatten_parameters" not in vars(module)


def test_audit_leaves_weights_where_they_are():
    """The same of a module's audit."""
    module, x = recurrent()
    places = [weight.data_ptr() for weight in module.parameters()]

    assert not gl.blame(module, x, loss=squares).culprits

    assert [weight.data_ptr() for weight in module.parameters()] == places


def test_warning_of_weights_apart_is_kept_quiet_and_no_other():
    """Filters are as they were, and what else is said is said."""
    module, _ = recurrent()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        with free_places(module):
            warnings.warn(
                "RNN module weights are not part of single contiguous chunk of memory",
                stacklevel=1,
            )
            warnings.warn("RNN module weights are heavy", stacklevel=1)
        assert warnings.filters == before
    assert [str(each.message) for each in seen] == ["RNN module weights are heavy"]


# -------------------------------------------------------------- CUDA graphs
def make_graphed_callables(func, replay):
    """Put a forward on a module as ``torch.cuda.make_graphed_callables`` does."""

    def make_graphed_forward(func, graph_training_state, graphed, orig_fwd):
        def new_fwd(*user_args, **user_kwargs):
            if func.training == graph_training_state:
                return graphed(*user_args, **user_kwargs)
            return orig_fwd(*user_args, **user_kwargs)

        return new_fwd

    func.forward = make_graphed_forward(func, func.training, replay, func.forward)
    return func


def graphed(*middle):
    """Build a network that replays kernels on memory that nobody else writes to."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(3, 4), torch.nn.Tanh(), *middle
    net = torch.nn.Sequential(*layers).double()
    recorded, own = copy.deepcopy(net), list(net.parameters())

    class Replay(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *_parameters):
            with torch.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = recorded(ctx.x)
            return ctx.y.detach()

        @staticmethod
        def backward(ctx, g):
            ends = [ctx.x, *recorded.parameters()]
            return torch.autograd.grad(ctx.y, ends, g)

    make_graphed_callables(net, lambda x: Replay.apply(x, *own))
    return net, torch.randn(5, 3, dtype=torch.float64)


@pytest.mark.parametrize("coverage", ["full", "probe"])
def test_module_that_replays_a_graph_runs_as_it_was_written(coverage):
    """A replay does not move with parameters: it was accused of all its gradient."""
    net, x = graphed()
    forward = net.forward

    report = gl.check(net, x, loss=squares, coverage=coverage)

    assert report.verdict == gl.Verdict.AGREES
    assert net.forward is forward
    assert not gl.blame(net, x, loss=squares).culprits
    assert net.forward is forward


@pytest.mark.parametrize("coverage", ["full", "probe"])
def test_wrong_layer_of_a_graph_is_named(coverage):
    """Its twin with a wrong layer, which the whole was blamed for."""
    net, x = graphed(Slipping())

    assert gl.check(net, x, loss=squares, coverage=coverage).culprit == "2"
    assert gl.blame(net, x, loss=squares).culprits == ("2",)
