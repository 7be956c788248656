"""Layers of a course on deep learning, forward and backward by hand, with slips."""

from __future__ import annotations

import numpy as np

from tests.diagnosis.pieces import Program
from tests.specimens.activations import sigmoid, softmax


def conv2d(rng, slip):
    """Naive convolution with padding 1, as loops over the kernel."""
    n, c, f, h, w = 2, 2, 3, 4, 5
    pad = ((0, 0), (0, 0), (1, 1), (1, 1))

    def forward(x, w_, b):
        xp = np.pad(x, pad)
        out = np.zeros((n, f, h, w), x.dtype)
        for i in range(3):
            for j in range(3):
                patch = xp[:, :, i : i + h, j : j + w]
                out += np.einsum("nchw,fc->nfhw", patch, w_[:, :, i, j])
        return out + b[:, None, None], (xp, w_)

    def backward(dout, cache):
        xp, w_ = cache
        dxp, dw = np.zeros_like(xp), np.zeros_like(w_)
        for i in range(2 if slip == "dw loop short" else 3):
            for j in range(3):
                patch = xp[:, :, i : i + h, j : j + w]
                if slip == "dw no offset":
                    patch = xp[:, :, :h, :w]
                dw[:, :, i, j] = np.einsum("nfhw,nchw->fc", dout, patch)
        for i in range(3):
            for j in range(3):
                k = w_[:, :, 2 - i, 2 - j] if slip == "dx flipped" else w_[:, :, i, j]
                piece = np.einsum("nfhw,fc->nchw", dout, k)
                if slip == "dx overwrites":
                    dxp[:, :, i : i + h, j : j + w] = piece
                else:
                    dxp[:, :, i : i + h, j : j + w] += piece
        db = dout.sum((0, 2, 3))
        dx = dxp[:, :, 1:-1, 1:-1]
        match slip:
            case "crop":
                dx = dxp[:, :, :-2, :-2]
            case "db over space":
                db = dout.sum((2, 3))[0]
            case "db mean":
                db = dout.mean((0, 2, 3))
            case "dw last sample":
                last = np.zeros_like(dout)
                last[-1] = dout[-1]
                return dx, np.stack(
                    [np.einsum("nfhw,nchw->fc", last, xp[:, :, i : i + h, j : j + w])
                     for i in range(3) for j in range(3)], -1,
                ).reshape(w_.shape), db  # fmt: skip
            case "channel swapped":
                dx = dx[:, ::-1]
            case "dw border":
                dw[:, :, 0] *= 0.5
        return dx, dw, db

    arrays = (
        rng.normal(size=(n, c, h, w)), rng.normal(size=(f, c, 3, 3)),
        rng.normal(size=f),
    )  # fmt: skip
    return Program(forward, arrays, {"backward": backward})


def maxpool2d(rng, slip):
    """2 x 2 maximum with a mask in the cache."""

    def forward(x):
        n, c, h, w = x.shape
        tiles = x.reshape(n, c, h // 2, 2, w // 2, 2)
        out = tiles.max((3, 5))
        return out, (tiles, out)

    def backward(dout, cache):
        tiles, out = cache
        mask = tiles == out[:, :, :, None, :, None]
        spread = dout[:, :, :, None, :, None]
        match slip:
            case "mask missing":
                mask = np.ones_like(mask)
            case "average":
                mask = np.full(mask.shape, 0.25)
            case "minimum":
                mask = tiles == tiles.min((3, 5), keepdims=True)
            case "first":
                mask = np.zeros_like(mask)
                mask[:, :, :, 0, :, 0] = True
            case "neighbour":
                mask = mask[..., ::-1]
            case "upstream ignored":
                spread = 1.0
            case "sign":
                spread = -spread
        dx = (mask * spread).reshape(x_shape(tiles))
        return dx.astype(out.dtype)

    def x_shape(tiles):
        n, c, h, _, w, _ = tiles.shape
        return n, c, 2 * h, 2 * w

    return Program(forward, (rng.normal(size=(2, 2, 4, 6)),), {"backward": backward})


def avgpool(rng, slip):
    def forward(x):
        n, c, h, w = x.shape
        return x.reshape(n, c, h // 2, 2, w // 2, 2).mean((3, 5)), x.shape

    def backward(dout, shape):
        k = {"no quarter": 1.0, "half": 0.5}.get(slip, 0.25)
        dx = dout.repeat(2, 2).repeat(2, 3) * k
        if slip == "one corner":
            dx = np.zeros(shape)
            dx[:, :, ::2, ::2] = dout
        if slip == "tiled":
            dx = np.tile(dout, (1, 1, 2, 2)) * k
        return dx

    return Program(forward, (rng.normal(size=(2, 2, 4, 4)),), {"backward": backward})


def batchnorm(rng, slip):
    n, d = 6, 4

    def forward(x, gamma, beta):
        mu, var = x.mean(0), x.var(0)
        s = 1 / np.sqrt(var + 1e-5)
        xhat = (x - mu) * s
        return gamma * xhat + beta, (xhat, s, gamma, x)

    def backward(dout, cache):
        xhat, s, gamma, x = cache
        dxhat = dout * gamma
        dgamma, dbeta = (dout * xhat).sum(0), dout.sum(0)
        mean, proj = dxhat.mean(0), (dxhat * xhat).mean(0)
        match slip:
            case "eval formula":
                mean = proj = 0
            case "no variance":
                proj = 0
            case "no mean":
                mean = 0
            case "gamma lost":
                dxhat = dout
                mean, proj = dxhat.mean(0), (dxhat * xhat).mean(0)
            case "dgamma of x":
                dgamma = (dout * x).sum(0)
            case "dgamma mean":
                dgamma = dgamma / n
            case "dbeta axis":
                dbeta = dout.sum(1)[:d]
            case "feature mean":
                mean, proj = (
                    dxhat.mean(1, keepdims=True),
                    (dxhat * xhat).mean(1, keepdims=True),
                )
            case "sum for mean":
                mean, proj = n * mean, n * proj
            case "plus":
                proj = -proj
            case "variance for deviation":
                s = s * s
        return s * (dxhat - mean - xhat * proj), dgamma, dbeta

    arrays = (
        rng.normal(size=(n, d)) * 2, rng.normal(size=d), rng.normal(size=d),
    )  # fmt: skip
    return Program(forward, arrays, {"backward": backward})


def lstm_step(rng, slip):
    n, d, h = 3, 2, 4

    def forward(x, prev_h, prev_c, Wx, Wh, b):
        a = x @ Wx + prev_h @ Wh + b
        i, f, o = (sigmoid(a[:, k * h : (k + 1) * h]) for k in range(3))
        g = np.tanh(a[:, 3 * h :])
        c = f * prev_c + i * g
        t = np.tanh(c)
        return (o * t, c), (x, prev_h, prev_c, Wx, Wh, i, f, o, g, t)

    def backward(dout, cache):
        dh, dc = dout
        x, prev_h, prev_c, Wx, Wh, i, f, o, g, t = cache
        inner = dh * o * (1 - t * t)
        dc = dc + inner
        match slip:
            case "cell path lost":
                dc = dc - inner
            case "cell upstream lost":
                dc = inner
        di, df, do, dg = dc * g, dc * prev_c, dh * t, dc * i
        if slip == "gates exchanged":
            di, df = df, di
        da_o = do if slip == "output gate slope" else do * o * (1 - o)
        da_g = dg * (1 - g) if slip == "candidate slope" else dg * (1 - g * g)
        da = np.concatenate([di * i * (1 - i), df * f * (1 - f), da_o, da_g], 1)
        dWh = prev_h.T @ da
        if slip == "Wh of new state":
            dWh = (o * t).T @ da
        dprev_c = dc * f
        if slip == "forget lost":
            dprev_c = dc
        db = da.mean(0) if slip == "db mean" else da.sum(0)
        return da @ Wx.T, da @ Wh.T, dprev_c, x.T @ da, dWh, db

    shapes = (n, d), (n, h), (n, h), (d, 4 * h), (h, 4 * h), (4 * h,)
    arrays = tuple(rng.normal(size=shape) for shape in shapes)
    return Program(forward, arrays, {"backward": backward})


def gru_step(rng, slip):
    n, d, h = 3, 2, 3

    def forward(x, s, Wz, Wr, Wc, Uz, Ur, Uc):
        z, r = sigmoid(x @ Wz + s @ Uz), sigmoid(x @ Wr + s @ Ur)
        c = np.tanh(x @ Wc + (r * s) @ Uc)
        return (1 - z) * s + z * c, (x, s, z, r, c, Wz, Wr, Wc, Uz, Ur, Uc)

    def backward(up, cache):
        x, s, z, r, c, Wz, Wr, Wc, Uz, Ur, Uc = cache
        dz = up * (c - s) * z * (1 - z)
        dc = up * z * (1 - c * c)
        dm = dc @ Uc.T
        dr = dm * s * r * (1 - r)
        ds = up * (1 - z) + dm * r + dz @ Uz.T + dr @ Ur.T
        dx = dz @ Wz.T + dr @ Wr.T + dc @ Wc.T
        dUc = (r * s).T @ dc
        match slip:
            case "carry lost":
                ds = ds - up * (1 - z)
            case "update gate lost":
                ds, dx = ds - dz @ Uz.T, dx - dz @ Wz.T
            case "reset not applied":
                dUc = s.T @ dc
            case "U by itself":
                ds = ds - dr @ Ur.T + dr @ Ur
            case "z for 1 - z":
                ds = ds - up * (1 - z) + up * z
        return dx, ds, x.T @ dz, x.T @ dr, x.T @ dc, s.T @ dz, s.T @ dr, dUc

    shapes = [(n, d), (n, h), *[(d, h)] * 3, *[(h, h)] * 3]
    arrays = tuple(rng.normal(size=shape) for shape in shapes)
    return Program(forward, arrays, {"backward": backward})


def head(rng, slip):
    """Causal self-attention with one head and all projections."""
    t, d = 4, 3

    def forward(x, Wq, Wk, Wv):
        q, k, v = x @ Wq, x @ Wk, x @ Wv
        s = q @ k.T / np.sqrt(d)
        s = np.where(np.tril(np.ones((t, t))) > 0, s, -np.inf)
        p = softmax(s)
        return p @ v, (x, Wq, Wk, Wv, q, k, v, p)

    def backward(up, cache):
        x, Wq, Wk, Wv, q, k, v, p = cache
        dp, dv = up @ v.T, p.T @ up
        ds = p * (dp - (dp * p).sum(1, keepdims=True)) / np.sqrt(d)
        if slip == "softmax sum lost":
            ds = p * dp / np.sqrt(d)
        if slip == "scale lost":
            ds = ds * np.sqrt(d)
        dq, dk = ds @ k, ds.T @ q
        if slip == "p for p.T":
            dv = p @ up
        if slip == "dk untransposed":
            dk = ds @ q
        if slip == "q and k exchanged":
            dq, dk = dk, dq
        dx = dq @ Wq.T + dk @ Wk.T + dv @ Wv.T
        match slip:
            case "value path lost":
                dx = dx - dv @ Wv.T
            case "projection by itself":
                dx = dx - dq @ Wq.T + dq @ Wq
            case "x overwritten":
                dx = dv @ Wv.T
        dWq = x.T @ dq
        if slip == "dWq transposed":
            dWq = dq.T @ x
        return dx, dWq, x.T @ dk, x.T @ dv

    arrays = (rng.normal(size=(t, d)), *(rng.normal(size=(d, d)) for _ in range(3)))
    return Program(forward, arrays, {"backward": backward})


_QKV = ("Wq", "Wk", "Wv", "x")
SLIPS = {
    (conv2d, "dw loop short"): ("wrong_index", ("detached",), ("w_",)),
    (conv2d, "dw no offset"): ("wrong_index", (), ("w_",)),
    (conv2d, "dx flipped"): ("wrong_index", (), ("x",)),
    (conv2d, "dx overwrites"): ("lost_accumulation", (), ("x",)),
    (conv2d, "crop"): ("wrong_index", (), ("x",)),
    (conv2d, "db over space"): ("broadcast_reduction", (), ("b",)),
    (conv2d, "db mean"): ("missing_reduction", (), ("b",)),
    (conv2d, "dw last sample"): (
        "broadcast_reduction", ("lost_accumulation", "detached"), ("w_",),
    ),
    (conv2d, "channel swapped"): ("wrong_index", (), ("x",)),
    (conv2d, "dw border"): ("scale", (), ("w_",)),
    (maxpool2d, "mask missing"): ("wrong_mask", (), ("x",)),
    (maxpool2d, "average"): ("wrong_mask", ("wrong_derivative",), ("x",)),
    (maxpool2d, "minimum"): ("wrong_mask", ("wrong_index",), ("x",)),
    (maxpool2d, "first"): ("wrong_mask", ("wrong_index",), ("x",)),
    (maxpool2d, "neighbour"): ("wrong_mask", ("wrong_index",), ("x",)),
    (maxpool2d, "upstream ignored"): ("ignores_upstream", (), ("x",)),
    (maxpool2d, "sign"): ("sign", (), ("x",)),
    (avgpool, "no quarter"): ("missing_reduction", ("scale",), ("x",)),
    (avgpool, "half"): ("scale", ("missing_reduction",), ("x",)),
    (avgpool, "one corner"): (
        "wrong_mask", ("broadcast_reduction", "wrong_index", "detached"), ("x",),
    ),
    (avgpool, "tiled"): ("wrong_index", (), ("x",)),
    (batchnorm, "eval formula"): ("missing_term", (), ("x",)),
    (batchnorm, "no variance"): ("missing_term", (), ("x",)),
    (batchnorm, "no mean"): ("missing_term", (), ("x",)),
    (batchnorm, "gamma lost"): (
        "missing_term", ("wrong_derivative", "scale"), ("x",),
    ),
    (batchnorm, "dgamma of x"): ("stale_cache", (), ("gamma",)),
    (batchnorm, "dgamma mean"): ("missing_reduction", (), ("gamma",)),
    (batchnorm, "dbeta axis"): ("wrong_axis", (), ("beta",)),
    (batchnorm, "feature mean"): ("wrong_axis", (), ("x",)),
    (batchnorm, "sum for mean"): (
        "missing_reduction", ("extra_term", "wrong_derivative"), ("x",),
    ),
    (batchnorm, "plus"): ("sign", ("wrong_derivative", "extra_term"), ("x",)),
    (batchnorm, "variance for deviation"): (
        "wrong_derivative", ("scale", "stale_cache"), ("x",),
    ),
    (lstm_step, "cell path lost"): ("missing_term", (), ("prev_c", "Wx", "Wh", "b")),
    (lstm_step, "cell upstream lost"): (
        "missing_term", ("detached",), ("prev_c", "Wx", "Wh", "b"),
    ),
    (lstm_step, "gates exchanged"): (
        "wrong_derivative", ("wrong_index", "stale_cache"),
        ("Wx", "Wh", "b", "x", "prev_h"),
    ),
    (lstm_step, "output gate slope"): (
        "wrong_derivative", ("missing_term",), ("Wx", "Wh", "b", "x", "prev_h"),
    ),
    (lstm_step, "candidate slope"): (
        "wrong_derivative", (), ("Wx", "Wh", "b", "x", "prev_h"),
    ),
    (lstm_step, "Wh of new state"): ("stale_cache", (), ("Wh",)),
    (lstm_step, "forget lost"): ("missing_term", ("wrong_derivative",), ("prev_c",)),
    (lstm_step, "db mean"): ("missing_reduction", (), ("b",)),
    (gru_step, "carry lost"): ("missing_term", (), ("s",)),
    (gru_step, "update gate lost"): ("missing_term", (), ("x", "s")),
    (gru_step, "reset not applied"): (
        "stale_cache", ("missing_term", "wrong_derivative"), ("Uc",),
    ),
    (gru_step, "U by itself"): ("transpose", (), ("s",)),
    (gru_step, "z for 1 - z"): (
        "wrong_derivative", ("extra_term", "missing_term"), ("s",),
    ),
    (head, "softmax sum lost"): ("missing_term", (), _QKV),
    (head, "scale lost"): ("scale", (), _QKV),
    (head, "p for p.T"): ("transpose", (), _QKV),
    (head, "dk untransposed"): ("transpose", (), _QKV),
    (head, "q and k exchanged"): ("wrong_index", ("stale_cache",), _QKV),
    (head, "value path lost"): ("missing_term", (), ("x",)),
    (head, "projection by itself"): ("transpose", (), ("x",)),
    (head, "x overwritten"): ("lost_accumulation", ("missing_term",), ("x",)),
    (head, "dWq transposed"): ("transpose", (), ("Wq",)),
}  # fmt: skip

CONTROLS = (conv2d, maxpool2d, avgpool, batchnorm, lstm_step, gru_step, head)
