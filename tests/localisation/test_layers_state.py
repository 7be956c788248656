"""What an audit leaves behind (nothing), and what it refuses."""

from __future__ import annotations

import copy
import random
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from gradlab.blaming import blame  # noqa: E402
from gradlab.errors import (  # noqa: E402
    GradlabError,
    InputError,
    InputTypeError,
    SubjectError,
)
from gradlab.localisation.layers.audited import LayerState  # noqa: E402
from gradlab.localisation.layers.checking import check as layer_check  # noqa: E402


class Everything(nn.Module):
    """Buffers, dropout, in-place layers, a counter, a list, hooks, an LSTM."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(5, 6, batch_first=True)
        self.norm, self.drop = nn.BatchNorm1d(6), nn.Dropout(0.3)
        self.relu, self.fc = nn.ReLU(inplace=True), nn.Linear(6, 3)
        self.calls, self.log, self.last = 0, [], None

    def forward(self, x):
        self.calls += 1
        self.log.append(self.calls)
        h = self.rnn(x)[0][:, -1] + random.random() + float(np.random.rand())
        self.last = h
        h = self.relu(self.drop(self.norm(h)))
        return self.fc(h)


def entropy(out):
    return F.cross_entropy(out, torch.tensor([0, 1, 2, 0]))


def _bytes(tensor):
    return (
        None
        if tensor is None
        else tensor.detach().clone().contiguous().numpy().tobytes()
    )


def _entries():
    """Through which torch calls modules and Functions; since 2.14 these are in C."""
    apply = torch.autograd.Function.__dict__["apply"]
    code = getattr(getattr(apply, "__func__", None), "__code__", None)
    return torch.nn.Module.__call__, apply, code


def _state(net, x):
    """Everything that must be the same afterwards."""
    return {
        "torch": _entries(),
        "values": {k: _bytes(v) for k, v in net.state_dict().items()},
        "objects": [id(t) for t in (*net.parameters(), *net.buffers())],
        "versions": [t._version for t in (*net.parameters(), *net.buffers(), x)],
        "grads": [(id(p.grad), _bytes(p.grad)) for p in net.parameters()],
        "asks": [p.requires_grad for p in net.parameters()],
        "flat": [id(p) for p in net.rnn._flat_weights],
        "modes": [m.training for m in net.modules()],
        "hooks": [
            [len(v) for k, v in vars(m).items() if "_hooks" in k] for m in net.modules()
        ],
        "counters": (net.calls, list(net.log), id(net.log), net.last),
        "x": (_bytes(x), x.grad),
        "random": (
            _bytes(torch.get_rng_state()),
            random.getstate(),
            str(np.random.get_state()),
        ),
        "switches": (
            torch.is_grad_enabled(),
            torch.backends.mha.get_fastpath_enabled(),
        ),
    }


@pytest.fixture
def everything():
    torch.manual_seed(0)
    net = Everything().double()
    net.fc.register_forward_hook(lambda m, i, o: None)
    x = torch.randn(4, 7, 5, dtype=torch.float64)
    entropy(net(x)).backward()
    net.last = None
    net.norm.eval()
    net.rnn.weight_hh_l0.requires_grad_(False)
    return net, x


def test_audit_leaves_no_trace(everything):
    """Parameters, buffers, .grad, modes, hooks, counters, random states: untouched."""
    net, x = everything
    before = _state(net, x)

    audit = blame(net, x, loss=entropy)

    assert audit.ok
    assert _state(net, x) == before


def _was_interrupted(net, x, **options):
    """Audit; was it ended, or cut short with the rest of the layers unchecked?"""
    try:
        audit = blame(net, x, loss=entropy, **options)
    except KeyboardInterrupt:
        return True
    return any("interrupted" in row.reason for row in audit.rows)


@pytest.mark.parametrize("moment", range(1, 14, 3))
def test_interrupted_audit_leaves_no_trace(everything, moment):
    """An interrupt at any piece, while parameters are exchanged, leaves no trace."""
    net, x = everything
    before = _state(net, x)
    calls = 0

    def interrupt(self, args):
        nonlocal calls
        calls += 1
        if calls == moment:
            raise KeyboardInterrupt

    handle = net.fc.register_forward_pre_hook(interrupt)
    with_hook = _state(net, x)

    assert any(_was_interrupted(net, x) for _ in range(14))

    assert _state(net, x) == with_hook
    handle.remove()
    assert _state(net, x) == before


def test_interrupt_between_pieces_leaves_no_trace(everything):
    """An interrupt from the progress callback leaves no trace."""
    net, x = everything
    before = _state(net, x)

    def progress(done, total):
        if done == 4:
            raise KeyboardInterrupt

    assert _was_interrupted(net, x, progress=progress)

    assert _state(net, x) == before


def test_input_that_the_model_overwrites_survives():
    """A model that works in place on its input works on a copy."""
    x = torch.randn(4, 5)
    before = x.clone()

    blame(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 3)), x)

    assert torch.equal(x, before)


def test_progress_counts_all_calls():
    """Progress ends at the number of rows that were called."""
    seen = []
    net = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))

    audit = blame(net, torch.randn(4, 5), progress=lambda *at: seen.append(at))

    assert seen[-1] == (len(audit.rows), len(audit.rows))


def test_model_without_parameters_is_refused():
    """Nothing to differentiate: one sentence that says what to do."""
    with pytest.raises(InputError, match=r"has no parameters.*requires_grad_"):
        blame(nn.Sequential(nn.ReLU()), torch.randn(3))


def test_model_without_parameters_is_audited_by_its_input():
    """An input that requires grad is enough."""
    assert blame(nn.Tanh(), torch.randn(3, requires_grad=True)).ok


def test_frozen_model_is_refused():
    """All parameters frozen is not the same as none."""
    with pytest.raises(InputError, match="all 2 parameters of Linear are frozen"):
        blame(nn.Linear(2, 2).requires_grad_(False), torch.randn(3, 2))


def test_loss_of_several_entries_is_refused():
    """The message names the shape."""
    with pytest.raises(InputError, match=r"must be a scalar, got shape \(3, 2\)"):
        blame(nn.Linear(2, 2), torch.randn(3, 2), loss=lambda out: out)


def test_loss_that_is_no_tensor_is_refused():
    """A loss that called .item() is told to leave it."""
    with pytest.raises(InputTypeError, match=r"got float.*item"):
        blame(nn.Linear(2, 2), torch.randn(3, 2), loss=lambda out: out.sum().item())


def test_loss_that_raises_is_told():
    """What the user's loss raised is in the message, and chained."""
    with pytest.raises(SubjectError, match="loss raised KeyError") as caught:
        blame(nn.Linear(2, 2), torch.randn(3, 2), loss=lambda out: {}["y"])

    assert isinstance(caught.value.__cause__, KeyError)


def test_model_that_raises_is_told():
    """What the model raised is in the message."""
    with pytest.raises(SubjectError, match=r"Linear raised RuntimeError.*shapes"):
        blame(nn.Linear(2, 2), torch.randn(3, 7))


def test_what_is_no_module_is_refused():
    """A function is sent to gradlab.check."""
    with pytest.raises(InputTypeError, match=r"got function.*gradlab.check"):
        blame(lambda x: x, torch.randn(3))


def test_memory_bound_is_kept():
    """A layer too large for the bound is named, with what it takes."""
    net = nn.Sequential(nn.Linear(100, 100), nn.Linear(100, 1000))

    with pytest.raises(InputError, match=r"layer `1` takes about .* MiB"):
        blame(net, torch.randn(3, 100), memory_bound=100_000)


@pytest.mark.parametrize("kind", ["system random", "clock"])
def test_forward_that_cannot_be_repeated_is_refused(kind):
    """A layer that is different each time is named; nothing is accused of it."""
    ticks = iter(range(10_000))

    class Noisy(nn.Module):
        def forward(self, x):
            drawn = random.SystemRandom().uniform(0, 20)  # hardly twice nearly the same
            return x * (2**drawn if kind != "clock" else 1 + next(ticks))

    net = nn.Sequential(nn.Linear(5, 5), Noisy(), nn.Linear(5, 3))
    before = copy.deepcopy(net.state_dict())

    with pytest.raises(
        SubjectError, match=r"`1` \(Noisy.*gives another result"
    ) as caught:
        blame(net, torch.randn(4, 5))

    assert isinstance(caught.value, GradlabError)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


def test_layer_that_is_not_called_says_so():
    """A submodule that the run did not reach is unchecked, with the reason."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x):
            return self.used(x)

    audit = blame(Net(), torch.randn(4, 3))
    spare = next(row for row in audit.rows if row.name == "spare")

    assert (spare.state, spare.reason) == (
        LayerState.UNCHECKED,
        "was not called in this run",
    )
    assert audit.ok


def test_output_that_is_not_finite_is_not_checked():
    """A layer that returned nan is unchecked, and not wrong."""

    class Root(nn.Module):
        def forward(self, x):
            return (x - x.max() - 1).sqrt()

    audit = blame(nn.Sequential(nn.Linear(5, 5), Root()), torch.randn(4, 5))
    row = next(row for row in audit.rows if row.name == "1")

    assert row.state is LayerState.UNCHECKED
    assert "nan or infinity" in row.reason


def test_warnings_of_the_model_are_given_once():
    """A model that warns warns in the recorded run only, not in every repetition."""

    class Warns(nn.Module):
        def forward(self, x):
            warnings.warn("look here", UserWarning, stacklevel=1)
            return x.tanh()

    with pytest.warns(UserWarning, match="look here") as caught:
        blame(nn.Sequential(nn.Linear(5, 5), Warns()), torch.randn(4, 5))

    assert len(caught) == 1


def test_torch_is_put_back_after_an_interrupt(monkeypatch):
    """An interrupt inside gradlab's own code leaves torch as it was."""
    before = _entries()

    def broken(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(layer_check, "quick", broken)
    audit = blame(nn.Linear(2, 2), torch.randn(3, 2))
    assert any("interrupted" in row.reason for row in audit.rows)

    assert _entries() == before


def test_same_seed_same_audit():
    """Two audits with one seed measure the same numbers."""
    net, x = nn.Sequential(nn.Linear(5, 6), nn.Tanh()), torch.randn(4, 5)
    first, second = blame(net, x, seed=3), blame(net, x, seed=3)

    assert [row.error for row in first.rows][1:] == [row.error for row in second.rows][
        1:
    ]
