"""Models that are called, built or called from in unusual ways."""

from __future__ import annotations

import pytest

from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from gradlab.blaming import blame  # noqa: E402
from gradlab.errors import InputError  # noqa: E402
from gradlab.localisation.layers.audited import LayerState  # noqa: E402
from tests.specimens.slips import Slipping  # noqa: E402
from tests.specimens.torch_sides import randn  # noqa: E402


class Own(nn.Module):
    """A root with one linear layer and a forward given from outside."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        for name, part in parts.items():
            setattr(self, name, part)
        self.run = forward
        self.double()

    def forward(self, *args):
        return self.run(self, *args)


def _wrong(audit):
    return [
        (row.name, row.reason) for row in audit.rows if row.state is LayerState.WRONG
    ]


def _gradient_inside(net, x):
    x = x.detach().requires_grad_()
    u = net.fc(x).tanh()
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    return u, slope


def _doubled_weights(net, x):
    twice = {name: 2 * p for name, p in net.fc.named_parameters()}
    return torch.func.functional_call(net.fc, twice, (x,))


def _noise_of_its_own(net, x):
    return net.fc(x) + torch.randn(3, generator=net.draws, dtype=x.dtype)


def _list_of_parameters(net, x):
    for weight in net.weights:
        x = x @ weight
    return net.fc(x)


RIGHT = {
    "gradient inside the forward": (_gradient_inside, {}),
    "functional_call": (_doubled_weights, {}),
    "vmap": (lambda net, x: torch.func.vmap(net.fc)(x), {}),
    "forward called directly": (lambda net, x: net.fc.forward(x), {}),
    "weights of a layer that is not called": (
        lambda net, x: F.linear(x, net.fc.weight),
        {},
    ),
    "generator of its own": (_noise_of_its_own, {"draws": torch.Generator()}),
    "parameters in a plain list": (
        _list_of_parameters,
        {"weights": [nn.Parameter(randn(3, 3)) for _ in range(2)]},
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_unusual_right_model_is_right(name):
    """Nobody is accused, and the root itself was checked."""
    forward, parts = RIGHT[name]

    audit = blame(Own(forward, **parts), randn(4, 3))

    assert _wrong(audit) == []
    assert audit.rows[0].state is LayerState.RIGHT


@pytest.mark.parametrize("name", sorted(set(RIGHT) - {"vmap"}))
def test_unusual_wrong_model_is_wrong(name):
    """The same with a hook on the output that the root's code registers."""
    forward, parts = RIGHT[name]

    def spoilt(net, x):
        out = forward(net, x)
        first = out[0] if isinstance(out, tuple) else out
        first.register_hook(lambda g: 1.01 * g)
        return out

    assert blame(Own(spoilt, **parts), randn(4, 3)).culprits == ("Own",)


def test_packed_sequences_pass():
    """What torch's recurrent layers take and return is looked into."""
    packed = nn.utils.rnn.pack_padded_sequence(randn(5, 3, 4), [5, 3, 2])

    audit = blame(nn.LSTM(4, 5).double(), packed)

    assert [row.state for row in audit.rows] == [LayerState.RIGHT]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_compiled_layers_pass():
    """A scripted layer is a piece of its own; its insides are not called by Python."""
    inner = torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double())

    audit = blame(nn.Sequential(inner, nn.Linear(3, 2).double()), randn(4, 3))

    assert _wrong(audit) == []
    assert next(r for r in audit.rows if r.name == "0").state is LayerState.RIGHT


@pytest.mark.parametrize(
    ("options", "state"),
    [
        ({"padding_idx": 0}, LayerState.RIGHT),
        ({"sparse": True}, LayerState.RIGHT),
        ({"scale_grad_by_freq": True}, LayerState.UNCHECKED),
    ],
    ids=str,
)
def test_embeddings_of_torch_are_not_accused(options, state):
    """What torch leaves out or rescales on purpose is no mistake."""
    net = nn.Embedding(6, 3, **options).double()

    audit = blame(net, torch.tensor([[0, 1, 1], [4, 0, 5]]))

    assert audit.rows[0].state is state
    assert audit.ok


def test_layers_without_values_are_refused():
    """Lazy and meta parameters have nothing to perturb."""
    with pytest.raises(InputError, match=r"without values.*run the model once"):
        blame(nn.LazyLinear(3), randn(2, 3))
    with pytest.raises(InputError, match="without values"):
        blame(nn.Linear(3, 3, device="meta"), torch.zeros(2, 3))


# Twice x, with a backward that is given from outside.
broken = with_backward(
    lambda x, backward: 2 * x, lambda _x, backward, g: (backward(g), None)
)


def _raises(g):
    raise KeyError("W1")


@pytest.mark.parametrize(
    ("backward", "kind", "words"),
    [
        (_raises, "unknown", "raised KeyError: 'W1'"),
        (lambda g: g.sum(0)[:1], "wrong_shape", "got [1] but expected"),
        (lambda g: g / 0, "nonfinite", "nan or infinite"),
        (lambda g: None, "detached", "hands on no gradient"),
    ],
)
def test_backward_that_cannot_be_compared_is_named(backward, kind, words):
    """Raising, wrong shapes, infinities and None are told as what they are."""
    net = Own(lambda net, x: broken(net.fc(x), backward))

    audit = blame(net, randn(4, 3))

    assert audit.culprits == ("Own",)
    assert str(audit.findings[0].kind) == kind
    assert words in audit.findings[0].evidence


def test_many_calls_of_one_cell_have_a_row_each():
    """A loop over time gives a row per step, all right."""

    def unrolled(net, xs):
        h = xs[0] * 0
        for x in xs:
            h = torch.tanh(net.fc(h) + x)
        return h

    audit = blame(Own(unrolled), randn(60, 2, 3))

    assert [row.call for row in audit.rows if row.name == "fc"] == list(range(60))
    assert {row.state for row in audit.rows} == {LayerState.RIGHT}


def test_frozen_layers_are_passed_through():
    """A frozen layer hands gradients on, and its own weights are left alone."""
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3).requires_grad_(False)).double()

    audit = blame(net, randn(4, 3))

    assert _wrong(audit) == []
    assert audit.rows[2].state is LayerState.RIGHT


def test_rows_know_file_line_parents_and_children():
    """A row says where its forward is, what feeds it, and what is inside."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return self.c(self.a(x) + self.b(x))

    rows = {row.name: row for row in blame(Two().double(), randn(4, 3)).rows}

    assert rows["Two"].line == Two.forward.__code__.co_firstlineno
    assert rows["Two"].file == __file__
    assert rows["Two"].children == ("a", "b", "c")
    assert set(rows["c"].parents) == {"a", "b"}
    assert rows["a"].parameters == ("a.weight", "a.bias")
    assert (rows["Two"].depth, rows["c"].depth) == (0, 1)


def test_hook_after_accumulation_is_warned_of():
    """Such a hook can do anything to .grad, and runs in no audit."""
    net = nn.Linear(3, 3).double()
    ran = []
    net.weight.register_post_accumulate_grad_hook(ran.append)

    audit = blame(net, randn(4, 3))

    assert (audit.ok, ran) == (True, [])
    assert [(f.severity, f.where) for f in audit.findings] == [("warning", "weight")]


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("wrong", [False, True])
def test_compiled_model_is_audited_as_it_was_written(wrong):
    """Torch's compiler traced the audit itself, and stopped in it."""
    net = nn.Sequential(nn.Linear(3, 4), Slipping() if wrong else nn.Tanh()).double()
    compiled = torch.compile(net, backend="eager")
    for rows in (5, 6, 7):  # shapes that change make it trace again
        compiled(randn(rows, 3))
    try:
        audit = blame(compiled, randn(4, 3))
    finally:
        torch._dynamo.reset()

    assert audit.culprits == (("_orig_mod.1",) if wrong else ())
