"""Custom functions of torch with slips: several inputs, several outputs, complex."""

from __future__ import annotations

import torch
from torch.nn import functional

from tests.diagnosis.pieces import Program
from tests.diagnosis.tensors import _function, _tensor


def several(rng, slip):
    """Two outputs, two inputs: (sin(a) b, a + b**2)."""

    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return torch.sin(a) * b, a + b**2

        @staticmethod
        def backward(ctx, u, v):
            a, b = ctx.saved_tensors
            da, db = u * torch.cos(a) * b + v, u * torch.sin(a) + v * 2 * b
            match slip:
                case "second ignored":
                    da, db = u * torch.cos(a) * b, u * torch.sin(a)
                case "second not multiplied":
                    da = u * torch.cos(a) * b + 1
                case "ups exchanged":
                    da = v * torch.cos(a) * b + u
                case "order":
                    da, db = db, da
                case "power":
                    db = u * torch.sin(a) + v * b
                case "sin for cos":
                    da = u * torch.sin(a) * b + v
            return da, db

    return Program(Two.apply, (_tensor(rng, 3, 4), _tensor(rng, 3, 4)))


def softmax_function(rng, slip):
    backwards = {
        "": lambda up, x, y: y * (up - (up * y).sum(-1, keepdim=True)),
        "no sum": lambda up, x, y: y * up,
        "diagonal": lambda up, x, y: y * (1 - y) * up,
        "dim": lambda up, x, y: y * (up - (up * y).sum(0, keepdim=True)),
        "all": lambda up, x, y: y * (up - (up * y).sum()),
        "of x": lambda up, x, y: x * (up - (up * x).sum(-1, keepdim=True)),
    }
    call = _function(lambda x: torch.softmax(x, -1), backwards[slip])
    return Program(call, (_tensor(rng, 3, 5),))


def cross_entropy(rng, slip):
    n, k = 5, 4
    y = torch.tensor(rng.integers(0, k, n))

    def back(up, x, out):
        p, hot = torch.softmax(x, 1), functional.one_hot(y, k)
        match slip:
            case "sum":
                return up * (p - hot)
            case "sign":
                return up * (hot - p) / n
            case "log":
                return up * (torch.log_softmax(x, 1) - hot) / n
            case "shifted":
                return up * (p - hot.roll(1, 1)) / n
            case "ignores":
                return (p - hot) / n
            case "no label":
                return up * p / n
        return up * (p - hot) / n

    call = _function(lambda x: functional.cross_entropy(x, y), back)
    return Program(call, (_tensor(rng, n, k),))


def scan(rng, slip):
    """Cumulative sum, or exponential decay."""
    backwards = {
        "": lambda up, x, y: up.flip(-1).cumsum(-1).flip(-1),
        "not reversed": lambda up, x, y: up.cumsum(-1),
        "identity": lambda up, x, y: up,
        "total": lambda up, x, y: up.sum(-1, keepdim=True).expand_as(up),
        "dim": lambda up, x, y: up.flip(0).cumsum(0).flip(0),
        "exclusive": lambda up, x, y: up.flip(-1).cumsum(-1).flip(-1) - up,
    }
    call = _function(lambda x: x.cumsum(-1), backwards[slip])
    return Program(call, (_tensor(rng, 3, 5),))


def normed(rng, slip):
    """x / |x|, row by row."""

    def back(up, x, y):
        r = x.norm(dim=-1, keepdim=True)
        inner = (up * y).sum(-1, keepdim=True)
        match slip:
            case "constant norm":
                return up / r
            case "not divided":
                return up - y * inner
            case "x for y":
                return (up - x * inner) / r
            case "plus":
                return (up + y * inner) / r
            case "inner only":
                return -y * inner / r
        return (up - y * inner) / r

    call = _function(lambda x: x / x.norm(dim=-1, keepdim=True), back)
    return Program(call, (_tensor(rng, 3, 4),))


def rotary(rng, slip):
    """Rotation of pairs by angles."""
    angle = torch.tensor(rng.normal(size=(4, 1)))
    c, s = torch.cos(angle), torch.sin(angle)

    def forward(x):
        a, b = x[:, :2], x[:, 2:]
        return torch.cat([a * c - b * s, a * s + b * c], 1)

    def back(up, x, y):
        u, v = up[:, :2], up[:, 2:]
        match slip:
            case "same rotation":
                return torch.cat([u * c - v * s, u * s + v * c], 1)
            case "halves swapped":
                return torch.cat([-u * s + v * c, u * c + v * s], 1)
            case "sin lost":
                return torch.cat([u * c, v * c], 1)
        return torch.cat([u * c + v * s, -u * s + v * c], 1)

    return Program(_function(forward, back), (_tensor(rng, 4, 4),))


def matmul(rng, slip):
    """Batched product of square matrices."""
    backwards = {
        "": lambda up, a, b, y: (up @ b.mT, a.mT @ up),
        "b": lambda up, a, b, y: (up @ b, a.mT @ up),
        "a": lambda up, a, b, y: (up @ b.mT, a @ up),
        "order": lambda up, a, b, y: (b.mT @ up, a.mT @ up),
        "batch summed": lambda up, a, b, y: (
            up @ b.mT, (a.mT @ up).sum(0, keepdim=True).expand_as(b)
        ),
        "detached": lambda up, a, b, y: (up @ b.mT, None),
        "first sample": lambda up, a, b, y: (
            up @ b.mT, torch.cat([(a.mT @ up)[:1], torch.zeros_like(b[1:])])
        ),
    }  # fmt: skip
    call = _function(torch.matmul, backwards[slip])
    return Program(call, (_tensor(rng, 2, 3, 3), _tensor(rng, 2, 3, 3)))


def modulus(rng, slip):
    """Complex functions: z * w, |z|**2."""
    z, w = (
        torch.complex(_tensor(rng, 4).detach(), _tensor(rng, 4).detach()) for _ in "zw"
    )
    z.requires_grad_()
    w.requires_grad_()
    backwards = {
        "": lambda up, z, w, y: (up * w.conj(), up * z.conj()),
        "plain": lambda up, z, w, y: (up * w, up * z),
        "one": lambda up, z, w, y: (up * w.conj(), up * z),
        "up conj": lambda up, z, w, y: (up.conj() * w.conj(), up * z.conj()),
        "doubled": lambda up, z, w, y: (2 * up * w.conj(), up * z.conj()),
        "imag lost": lambda up, z, w, y: (up * w.real, up * z.conj()),
    }
    return Program(_function(lambda z, w: z * w, backwards[slip]), (z, w))


def gather(rng, slip):
    """Rows picked by index, with repetitions."""
    index = torch.tensor([0, 2, 2, 3])

    def back(up, x, y):
        g = torch.zeros_like(x)
        match slip:
            case "assign":
                g[index] = up
            case "plus":
                g[index] += up
            case "shifted":
                g.index_add_(0, (index + 1) % len(x), up)
            case "inverse":
                g[: len(index)] = up
            case "negative":
                g.index_add_(0, index, -up)
            case _:
                g.index_add_(0, index, up)
        return g

    return Program(_function(lambda x: x[index], back), (_tensor(rng, 5, 3),))


def leaky(rng, slip):
    """Clamp, hard tanh and leaky slopes."""
    f, b = {
        "": (lambda x: x.clamp(-1, 1), lambda up, x, y: up * (x.abs() < 1)),
        "clamp through": (lambda x: x.clamp(-1, 1), lambda up, x, y: up),
        "clamp one side": (lambda x: x.clamp(-1, 1), lambda up, x, y: up * (x < 1)),
        "relu6 as relu": (
            lambda x: (3 * x).clamp(0, 1.5), lambda up, x, y: 3 * up * (x > 0),
        ),
        "leak": (
            lambda x: functional.leaky_relu(x, 0.2),
            lambda up, x, y: torch.where(x > 0, up, 0.02 * up),
        ),
        "elu": (
            functional.elu,
            lambda up, x, y: torch.where(x > 0, up, up * x.exp() - up),
        ),
        "abs": (torch.abs, lambda up, x, y: up),
    }[slip]  # fmt: skip
    return Program(_function(f, b), (_tensor(rng, 4, 5),))


def fused_linear(rng, slip):
    """relu(x W' + b) in one function."""

    def back(up, x, W, b, y):
        d = up * (y > 0)
        match slip:
            case "no relu":
                d = up
            case "up mask":
                d = up * (up > 0)
            case "db batch":
                return d @ W, d.mT @ x, d.mean(0)
            case "db scalar":
                return d @ W, d.mT @ x, d.sum().expand(len(b))
            case "dW without mask":
                return d @ W, up.mT @ x, d.sum(0)
            case "dx wrong cache":
                return d @ (W + 0.1), d.mT @ x, d.sum(0)
            case "dW float":
                return d @ W, d.mT.half().to(x.dtype) @ x, d.sum(0)
            case "decay":
                return d @ W, d.mT @ x + 1e-2 * W, d.sum(0)
        return d @ W, d.mT @ x, d.sum(0)

    call = _function(lambda x, W, b: torch.relu(x @ W.mT + b), back)
    return Program(call, (_tensor(rng, 5, 3), _tensor(rng, 4, 3), _tensor(rng, 4)))


def drop(rng, slip):
    """A dropout that forgets its mask."""

    def forward(x):
        torch.manual_seed(3)
        return functional.dropout(x, 0.5)

    def back(up, x, y):
        if slip == "redrawn":
            return up * torch.empty_like(up).bernoulli_(0.5) * 2
        if slip == "seeded otherwise":
            torch.manual_seed(4)
            return functional.dropout(up, 0.5)
        if slip == "half":
            return up * (y != 0)
        return up * (y != 0) * 2

    return Program(_function(forward, back), (_tensor(rng, 4, 5),))


_TWO = ("inputs.0", "inputs.1", "a", "b")
_A, _B = ("inputs.0", "a", "z", "x"), ("inputs.1", "b", "w", "W")
_C = ("inputs.2", "b")
SLIPS = {
    (several, "second ignored"): ("missing_term", ("detached",), _TWO),
    (several, "second not multiplied"): ("ignores_upstream", (), _A),
    (several, "ups exchanged"): ("wrong_index", ("stale_cache",), _A),
    (several, "order"): ("wrong_index", (), _TWO),
    (several, "power"): ("scale", ("missing_term", "wrong_derivative"), _B),
    (several, "sin for cos"): ("wrong_derivative", (), _A),
    (softmax_function, "no sum"): ("missing_term", (), _A),
    (softmax_function, "diagonal"): ("missing_term", (), _A),
    (softmax_function, "dim"): ("wrong_axis", (), _A),
    (softmax_function, "all"): ("wrong_axis", ("extra_term",), _A),
    (softmax_function, "of x"): ("stale_cache", ("wrong_derivative",), _A),
    (cross_entropy, "sum"): ("missing_reduction", (), _A),
    (cross_entropy, "sign"): ("sign", (), _A),
    (cross_entropy, "log"): ("wrong_derivative", ("stale_cache",), _A),
    (cross_entropy, "shifted"): ("wrong_index", (), _A),
    (cross_entropy, "ignores"): ("ignores_upstream", (), _A),
    (cross_entropy, "no label"): ("missing_term", (), _A),
    (scan, "not reversed"): ("wrong_index", ("transpose",), _A),
    (scan, "identity"): ("missing_term", ("surrogate", "ignores_upstream"), _A),
    (scan, "total"): ("extra_term", ("wrong_mask", "wrong_index"), _A),
    (scan, "dim"): ("wrong_axis", (), _A),
    (scan, "exclusive"): ("missing_term", (), _A),
    (normed, "constant norm"): ("missing_term", (), _A),
    (normed, "not divided"): ("missing_term", ("scale", "wrong_derivative"), _A),
    (normed, "x for y"): ("stale_cache", ("wrong_derivative",), _A),
    (normed, "plus"): ("sign", ("extra_term", "wrong_derivative"), _A),
    (normed, "inner only"): ("missing_term", (), _A),
    (rotary, "same rotation"): ("transpose", ("sign",), _A),
    (rotary, "halves swapped"): ("wrong_index", (), _A),
    (rotary, "sin lost"): ("missing_term", ("wrong_mask",), _A),
    (matmul, "b"): ("transpose", (), _A),
    (matmul, "a"): ("transpose", (), _B),
    (matmul, "order"): ("wrong_index", ("transpose", "wrong_derivative"), _A),
    (matmul, "batch summed"): ("wrong_axis", ("broadcast_reduction", "extra_term"), _B),
    (matmul, "detached"): ("detached", (), _B),
    (matmul, "first sample"): ("detached", ("wrong_index", "wrong_mask"), _B),
    (modulus, "plain"): ("conjugate", (), (*_TWO, "z", "w")),
    (modulus, "one"): ("conjugate", (), _B),
    (modulus, "up conj"): ("conjugate", (), _A),
    (modulus, "doubled"): ("scale", (), _A),
    (modulus, "imag lost"): ("missing_term", ("conjugate", "dtype"), _A),
    (gather, "assign"): ("lost_accumulation", (), _A),
    (gather, "plus"): ("lost_accumulation", (), _A),
    (gather, "shifted"): ("wrong_index", (), _A),
    (gather, "inverse"): ("wrong_index", (), _A),
    (gather, "negative"): ("sign", (), _A),
    (leaky, "clamp through"): ("wrong_mask", ("surrogate",), _A),
    (leaky, "clamp one side"): ("wrong_mask", (), _A),
    (leaky, "relu6 as relu"): ("wrong_mask", (), _A),
    (leaky, "leak"): ("wrong_derivative", ("scale",), _A),
    (leaky, "elu"): ("wrong_derivative", ("missing_term",), _A),
    (leaky, "abs"): ("sign", ("wrong_mask",), _A),
    (fused_linear, "no relu"): ("wrong_mask", (), (*_A, *_B, *_C)),
    (fused_linear, "up mask"): ("wrong_mask", ("ignores_upstream",), (*_A, *_B, *_C)),
    (fused_linear, "db batch"): ("missing_reduction", (), _C),
    (fused_linear, "db scalar"): ("broadcast_reduction", ("wrong_axis",), _C),
    (fused_linear, "dW without mask"): ("wrong_mask", (), _B),
    (fused_linear, "dx wrong cache"): ("stale_cache", ("extra_term", "unknown"), _A),
    (fused_linear, "decay"): ("regularization", (), _B),
    (drop, "redrawn"): ("nondeterministic", ("wrong_mask",), _A),
    (drop, "seeded otherwise"): ("wrong_mask", (), _A),
    (drop, "half"): ("scale", (), _A),
}  # fmt: skip

CONTROLS = (
    several, softmax_function, cross_entropy, scan, normed, rotary, matmul, modulus,
    gather, leaky, fused_linear, drop,
)  # fmt: skip
