"""NumPy networks with hand-written gradients, and ways to spoil one entry of them."""

from __future__ import annotations

import itertools

import numpy as np

# 657,409 parameters, the size at which torch's fast mode misses an entry times 10,000
LARGE = (256, 512, 512, 512, 1)
MEDIUM = (128, 256, 256, 256, 1)  # 164,865 parameters
SMALL = (20, 30, 25, 4)


def parameters(rng, sizes):
    """Weights of the usual size, biases that are not zero."""
    params = {}
    for i, (m, n) in enumerate(itertools.pairwise(sizes)):
        params[f"W{i}"] = rng.normal(size=(m, n)) / np.sqrt(m)
        params[f"b{i}"] = 0.1 * rng.normal(size=n)
    return params


def network(rng, sizes, *, relu=False, batch=8):
    """Parameters, and a function of them that returns loss and gradients.

    With ``gradients=False`` it returns the loss alone, in a quarter of the time.
    """
    params = parameters(rng, sizes)
    x, y = rng.normal(size=(batch, sizes[0])), rng.normal(size=(batch, sizes[-1]))
    layers = len(sizes) - 1

    def loss_and_grads(params, *, gradients=True):
        hidden = [x]
        for i in range(layers):
            z = hidden[-1] @ params[f"W{i}"] + params[f"b{i}"]
            if i < layers - 1:
                z = np.maximum(z, 0) if relu else np.tanh(z)
            hidden.append(z)
        residual = hidden[-1] - y
        loss = 0.5 * (residual**2).sum() / batch
        if not gradients:
            return loss
        upstream, grads = residual / batch, {}
        for i in reversed(range(layers)):
            grads[f"W{i}"] = hidden[i].T @ upstream
            grads[f"b{i}"] = upstream.sum(axis=0)
            if i:
                back = upstream @ params[f"W{i}"].T
                upstream = back * ((hidden[i] > 0) if relu else 1 - hidden[i] ** 2)
        return loss, grads

    return params, loss_and_grads


SLIPS = {
    "10 %": lambda value: 1.1 * value,
    "1 %": lambda value: 1.01 * value,
    "0.1 %": lambda value: 1.001 * value,
    "dropped": lambda value: 0.0,
    "flipped": lambda value: -value,
}


def spoil(rng, grads, slip, count=1):
    """Spoil random entries in place; return their (name, index), as a set."""
    names = list(grads)
    sizes = np.array([grads[name].size for name in names])
    spoilt = set()
    while len(spoilt) < count:
        flat = int(rng.integers(sizes.sum()))
        which = int(np.searchsorted(np.cumsum(sizes), flat, side="right"))
        name = names[which]
        index = np.unravel_index(flat - sizes[:which].sum(), grads[name].shape)
        place = (name, tuple(int(i) for i in index))
        if grads[name][index] != 0 and place not in spoilt:
            grads[name][index] = SLIPS[slip](grads[name][index])
            spoilt.add(place)
    return spoilt
