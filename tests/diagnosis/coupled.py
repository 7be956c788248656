"""More pieces that can slip: gathers, masks, convolution, attention, recurrence."""

from __future__ import annotations

import numpy as np

from tests.diagnosis.pieces import Program, sizes
from tests.specimens.activations import softmax


def embedding(rng, slip):
    v, d = sizes(rng, 2, 4, 6)
    index = rng.integers(0, v, size=7)
    index[3] = index[0]
    index[5] = (index[0] + 1) % v

    def forward(E):
        return E[index], None

    def backward(up, _):
        g = np.zeros((v, d))
        match slip:
            case "assign":
                g[index] = up
            case "in place add":
                g[index] += up
            case "off by one":
                np.add.at(g, (index + 1) % v, up)
            case "half":
                np.add.at(g, index, up / 2)
            case _:
                np.add.at(g, index, up)
        return g

    return Program(forward, (rng.normal(size=(v, d)),), {"backward": backward})


def maxpool(rng, slip):
    n, k = sizes(rng, 2, 3, 6)

    def forward(x):
        return x.max(1), x

    def backward(up, x):
        mask = x == x.max(1, keepdims=True)
        match slip:
            case "everywhere":
                mask = np.ones_like(x)
            case "minimum":
                mask = x == x.min(1, keepdims=True)
            case "axis":
                mask = x == x.max(0, keepdims=True)
        return mask * up[:, None]

    return Program(forward, (rng.normal(size=(n, k)),), {"backward": backward})


def dropout(rng, slip):
    n, k = sizes(rng, 2, 4, 6)
    keep = rng.random((n, k)) < 0.6
    keep[0, 0], keep[0, 1], keep[1, 0], keep[1, 1] = True, False, False, True

    def forward(x):
        return x * keep / 0.6, None

    def backward(up, _):
        match slip:
            case "no mask":
                return up / 0.6
            case "other mask":
                return up * np.roll(keep, 1, 0) / 0.6
            case "no scale":
                return up * keep
            case "flipped":
                return up * ~keep / 0.6
        return up * keep / 0.6

    return Program(forward, (rng.normal(size=(n, k)),), {"backward": backward})


def conv1d(rng, slip):
    c, o = sizes(rng, 2, 2, 4)
    width, length, n = 3, 7, 2

    def windows(x):
        return np.stack([x[:, :, i : i + length - 2] for i in range(width)], -1)

    def forward(x, w, b):
        return np.einsum("nclk,ock->nol", windows(x), w) + b[:, None], (x, w)

    def backward(up, cache):
        x, w = cache
        dw = np.einsum("nclk,nol->ock", windows(x), up)
        dx = np.zeros_like(x)
        part = np.einsum("nol,ock->nclk", up, w)
        for i in range(width):
            if slip == "dx assign":
                dx[:, :, i : i + length - 2] = part[..., i]
            elif slip == "dx flipped":
                dx[:, :, i : i + length - 2] += part[..., width - 1 - i]
            else:
                dx[:, :, i : i + length - 2] += part[..., i]
        db = up.sum((0, 2))
        match slip:
            case "dw flipped":
                dw = dw[..., ::-1].copy()
            case "dw mean":
                dw = dw / n
            case "db over batch":
                db = up[0].sum(1)
            case "db mean":
                db = up.mean((0, 2))
            case "dx negative":
                dx = -dx
        return dx, dw, db

    arrays = (
        rng.normal(size=(n, c, length)),
        rng.normal(size=(o, c, width)),
        rng.normal(size=o),
    )
    return Program(forward, arrays, {"backward": backward})


def attention(rng, slip):
    t, d = sizes(rng, 2, 3, 5)
    c = 1 / np.sqrt(d)

    def forward(q, k, v):
        s = q @ k.T * c
        p = softmax(s)
        return p @ v, (q, k, v, p)

    def backward(up, cache):
        q, k, v, p = cache
        dv, dp = p.T @ up, up @ v.T
        ds = p * (dp - (dp * p).sum(1, keepdims=True))
        if slip == "no sum":
            ds = p * dp
        if slip == "axis":
            ds = p * (dp - (dp * p).sum(0, keepdims=True))
        factor = 1.0 if slip == "no scale" else c
        dq, dk = ds @ k * factor, ds.T @ q * factor
        match slip:
            case "dv by p":
                dv = p @ up
            case "dk by ds":
                dk = ds @ q * c
            case "dq negative":
                dq = -dq
            case "dk zero":
                dk = 0 * dk
        return dq, dk, dv

    arrays = tuple(rng.normal(size=(t, d)) for _ in range(3))
    return Program(forward, arrays, {"backward": backward})


def rnn(rng, slip):
    """All hidden states of a tanh recurrence, batch of one sample per row."""
    t, d, h = 4, *sizes(rng, 2, 2, 4)

    def forward(x, Wx, Wh, b):
        states = [np.zeros(h)]
        for i in range(t):
            states.append(np.tanh(x[i] @ Wx + states[-1] @ Wh + b))
        return np.stack(states[1:]), (x, Wx, Wh, states)

    def backward(up, cache):
        x, Wx, Wh, states = cache
        dx, dWx, dWh, db = (np.zeros_like(a) for a in (x, Wx, Wh, states[0]))
        carry = np.zeros(h)
        for i in reversed(range(t)):
            total = up[i] + (0 if slip == "truncated" else carry)
            da = total * (1 - states[i + 1] ** 2)
            dx[i] = da @ Wx.T
            if slip == "assign Wx":
                dWx = np.outer(x[i], da)
            else:
                dWx += np.outer(x[i], da)
            dWh += np.outer(states[i + 1] if slip == "next state" else states[i], da)
            if slip == "assign b":
                db = da
            else:
                db += da
            carry = da @ (Wh if slip == "carry by Wh" else Wh.T)
        if slip == "Wh over t":
            dWh /= t
        return dx, dWx, dWh, db

    arrays = (
        rng.normal(size=(t, d)),
        rng.normal(size=(d, h)),
        rng.normal(size=(h, h)),
        rng.normal(size=h),
    )
    return Program(forward, arrays, {"backward": backward})


def normalise(rng, slip):
    n, d = sizes(rng, 2, 3, 6)

    def forward(x):
        r = np.sqrt((x * x).sum(1, keepdims=True))
        return x / r, (x, r)

    def backward(up, cache):
        x, r = cache
        y = x / r
        match slip:
            case "constant norm":
                return up / r
            case "axis":
                return (up - y * (up * y).sum(0, keepdims=True)) / r
            case "not divided":
                return up - y * (up * y).sum(1, keepdims=True)
        return (up - y * (up * y).sum(1, keepdims=True)) / r

    return Program(forward, (rng.normal(size=(n, d)),), {"backward": backward})


def residual(rng, slip):
    n, d = sizes(rng, 2, 3, 5)

    def forward(x, W):
        z = x @ W
        return x + np.tanh(z), (x, W, z)

    def backward(up, cache):
        x, W, z = cache
        dz = up * (1 - np.tanh(z) ** 2)
        match slip:
            case "no skip":
                return dz @ W.T, x.T @ dz
            case "skip twice":
                return 2 * up + dz @ W.T, x.T @ dz
            case "no slope":
                return up + up @ W.T, x.T @ up
            case "W transposed":
                return up + dz @ W, x.T @ dz
            case "only skip":
                return up, x.T @ dz
        return up + dz @ W.T, x.T @ dz

    arrays = rng.normal(size=(n, d)), rng.normal(size=(d, d))
    return Program(forward, arrays, {"backward": backward})
