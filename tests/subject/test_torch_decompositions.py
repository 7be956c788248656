"""Layers of torch, step by step: the same numbers, up to their rounding."""

from __future__ import annotations

import itertools

import pytest

from gradlab.subject.tensors.incremental.decompositions import decompositions
from tests.specimens.torch_sides import randn

torch = pytest.importorskip("torch")

nn = torch.nn


class _Spelled(torch.overrides.TorchFunctionMode):
    """Puts the other spelling in place, and counts."""

    used = 0

    def __torch_function__(self, func, _, args=(), kwargs=None):
        if func not in decompositions():
            return func(*args, **(kwargs or {}))
        self.used += 1
        return decompositions()[func](*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
@pytest.mark.parametrize(
    ("layers", "bias", "batch_first", "bidirectional"),
    list(itertools.product((1, 2), *3 * [(False, True)])),
)
def test_recurrent_layers(kind, layers, bias, batch_first, bidirectional):
    """Outputs and final states, of several layers and in both directions."""
    torch.manual_seed(0)
    layer = kind(
        *(3, 4, layers),
        bias=bias,
        batch_first=batch_first,
        bidirectional=bidirectional,
    ).double()
    x = randn(2, 5, 3)
    expected, final = layer(x)

    with _Spelled() as mode:
        found, last = layer(x)

    assert mode.used == 1
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(last, final)


@pytest.mark.parametrize("kind", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
def test_cells(kind):
    """One step, of one state or of two."""
    torch.manual_seed(0)
    cell, x = kind(3, 4).double(), randn(2, 3)
    state = randn(2, 4)
    state = (state, state.sin()) if kind is nn.LSTMCell else state
    expected = cell(x, state)

    with _Spelled() as mode:
        found = cell(x, state)

    assert mode.used == 1
    torch.testing.assert_close(found, expected)


def test_relu_instead_of_tanh():
    """The other activation of a plain recurrent layer."""
    torch.manual_seed(0)
    layer, x = nn.RNN(3, 4, nonlinearity="relu").double(), randn(5, 2, 3)

    with _Spelled():
        found = layer(x)

    torch.testing.assert_close(found, layer(x))


@pytest.mark.parametrize("weights", [False, True])
def test_attention(weights):
    """Outputs, and the weights where they are wanted."""
    torch.manual_seed(0)
    layer, x = nn.MultiheadAttention(8, 2).double(), randn(5, 3, 8)
    expected = layer(x, x, x, need_weights=weights)

    with _Spelled() as mode:
        found = layer(x, x, x, need_weights=weights)

    assert mode.used == 1
    torch.testing.assert_close(found, expected)


def test_what_is_not_known_is_left_to_torch():
    """Packed sequences, and projections of the hidden state."""
    torch.manual_seed(0)
    x = nn.utils.rnn.pack_padded_sequence(randn(5, 2, 3), [5, 3])
    seen = []

    class Asked(_Spelled):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func in decompositions():
                seen.append(decompositions()[func](*args, **(kwargs or {})))
            return func(*args, **(kwargs or {}))

    with Asked():
        nn.GRU(3, 4).double()(x)
        nn.LSTM(3, 4, proj_size=2).double()(randn(5, 2, 3))
        nn.LSTM(3, 4, 2, dropout=0.5).double()(randn(5, 2, 3))

    assert seen == [None] * 3
