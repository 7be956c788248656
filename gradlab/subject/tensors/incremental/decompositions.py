"""Fused functions of torch as the steps that its documentation gives: LSTM, attention.

Where a weight goes inside of such a function is not seen from outside. Step by step,
with `linear` and what follows it, the same numbers come out, up to their rounding.
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["decompositions"]

_State = tuple[Any, ...]  # the hidden state, and behind it what else a cell remembers


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Give the steps of a function, by function; None for arguments not known here."""
    import torch

    cells: dict[str, Callable[..., _State]] = {
        "rnn_tanh": functools.partial(_plain_cell, torch.tanh),
        "rnn_relu": functools.partial(_plain_cell, torch.relu),
        "lstm": _lstm_cell,
        "gru": _gru_cell,
    }
    found: dict[Any, Callable[..., Any]] = {}
    for name, cell in cells.items():
        found[getattr(torch, name)] = functools.partial(_layers, cell)
        found[getattr(torch, f"{name}_cell")] = functools.partial(_one_step, cell)
    attention = torch.nn.functional.multi_head_attention_forward
    found[attention] = _own_code(attention)
    return found


def _own_code(func: Any) -> Callable[..., Any]:
    """Give a function that torch has in Python, which does not ask modes first."""
    seen = {**func.__globals__, "has_torch_function": lambda _: False}
    made = types.FunctionType(func.__code__, seen, func.__name__, func.__defaults__)
    made.__kwdefaults__ = func.__kwdefaults__
    return made


def _gates(x: Any, hidden: Any, weights: Sequence[Any]) -> tuple[Any, Any]:
    """Give what input and hidden state add to the gates of a cell."""
    import torch

    linear = torch.nn.functional.linear
    from_input, from_hidden, *biases = weights
    first, second = biases or (None, None)
    return linear(x, from_input, first), linear(hidden, from_hidden, second)


def _plain_cell(
    activation: Callable[[Any], Any], x: Any, state: _State, *weights: Any
) -> _State:
    ours, theirs = _gates(x, state[0], weights)
    return (activation(ours + theirs),)


def _lstm_cell(x: Any, state: _State, *weights: Any) -> _State:
    import torch

    ours, theirs = _gates(x, state[0], weights)
    enter, forget, new, out = (ours + theirs).chunk(4, -1)
    memory = torch.sigmoid(forget) * state[1] + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(out) * torch.tanh(memory), memory


def _gru_cell(x: Any, state: _State, *weights: Any) -> _State:
    import torch

    (hidden,) = state
    ours, theirs = _gates(x, hidden, weights)
    width = 2 * hidden.shape[-1]
    reset, keep = torch.sigmoid(ours[..., :width] + theirs[..., :width]).chunk(2, -1)
    new = torch.tanh(ours[..., width:] + reset * theirs[..., width:])
    return (new + keep * (hidden - new),)


def _one_step(cell: Callable[..., _State], x: Any, state: Any, *weights: Any) -> Any:
    """Spell out a cell by itself: its hidden state, or both states of two."""
    if isinstance(state, tuple | list):
        return cell(x, tuple(state), *weights)
    return cell(x, (state,), *weights)[0]


def _layers(cell: Callable[..., _State], *args: Any) -> Any:
    """Spell out layers of cells; None for packed sequences, dropout or projections."""
    import torch

    x, start, weights, biased, layers, dropout, train, two_ways, batch_first = args
    each, ways = 4 if biased else 2, 2 if two_ways else 1
    if not isinstance(biased, bool) or len(weights) != each * layers * ways:
        return None
    if dropout and train:
        return None
    starts = tuple(start) if isinstance(start, tuple | list) else (start,)
    x, finals = x.transpose(0, 1) if batch_first else x, list[_State]()
    for _ in range(layers):
        both = []
        for backwards in range(ways):
            run = len(finals)
            own = weights[each * run : each * (run + 1)]
            state, hidden = tuple(part[run] for part in starts), []
            for step in reversed(range(len(x))) if backwards else range(len(x)):
                state = cell(x[step], state, *own)
                hidden.append(state[0])
            both.append(torch.stack(hidden[::-1] if backwards else hidden))
            finals.append(state)
        x = torch.cat(both, -1)
    last = [torch.stack(parts) for parts in zip(*finals, strict=True)]
    return x.transpose(0, 1) if batch_first else x, *last
