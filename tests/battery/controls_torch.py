"""Correct torch functions that are hard on a gradient checker."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

from tests.battery.shelf import Shelf

CONTROLS = Shelf()
add = CONTROLS.add
rng = np.random.default_rng(13)


def T(*shape, dtype=torch.float64):
    return torch.tensor(rng.normal(size=shape)).to(dtype)


def Z(*shape):
    return torch.complex(T(*shape), T(*shape))


x = T(6)
# --- shapes, layouts, containers
add("several outputs", lambda x, w: (x @ w, (x * x).sum(), torch.sin(w)), T(2, 3),
    T(3, 2))  # fmt: skip
add("integer output beside", torch.sort, T(6))
add("topk", lambda x: x.topk(3), T(7))
add("max with index", lambda x: x.max(dim=1), T(3, 4))
add("dict in, dict out", lambda d: {"y": d["a"] * d["b"], "z": d["a"].sum()},
    {"a": T(3), "b": T(3)})  # fmt: skip
add("list of tensors", lambda parts: torch.stack(parts).prod(0), [T(3), T(3), T(3)])
add("0-d tensors", lambda a, b: a**2 * torch.exp(b), T(), T())
add("empty tensor", lambda x, e: x.sum() * 2 + e.sum(), T(3), T(0))
add("transposed view", lambda x: (x * torch.arange(4.0)).tanh(), T(4, 3).T)
add("strided slice", lambda x: x.cumsum(0), T(9)[::2])
add("expanded bias", lambda x, b: x * b, T(3, 4), T(1, 4).expand(3, 4).clone())
add("channels last", lambda x: F.avg_pool2d(x, 2),
    T(1, 2, 4, 4).contiguous(memory_format=torch.channels_last))  # fmt: skip
add("index tensor", lambda x, i: x[i] ** 2, T(5), torch.tensor([0, 0, 3]))
add("scatter add", lambda x: torch.zeros(3, dtype=x.dtype).index_add(
    0, torch.tensor([0, 1, 1, 2]), x) ** 2, T(4))  # fmt: skip
add("in-place on a copy", lambda x: x.clone().mul_(2).add_(x).relu_(), T(5) + 0.1)
add("rounded, gradient zero", lambda x: torch.round(3 * x), T(4))
add("gather", lambda x: x.gather(1, torch.tensor([[0, 2], [1, 1]])).exp(), T(2, 3))
add("unfold", lambda x: x.unfold(0, 3, 2).prod(1), T(9))
add("only one requires grad", lambda x, w: (x * w).sum(), T(3),
    T(3).requires_grad_())  # fmt: skip
# --- complex and sparse
add("complex product", lambda a, b: a * b.conj(), Z(3), Z(3))
add("complex to real", lambda z: z.abs() ** 3 + z.angle(), Z(4))
add("real to complex", lambda x: torch.exp(1j * x), T(4))
add("fft", lambda x: torch.fft.rfft(x).abs(), T(8))
add("complex64", lambda z: (z**3).real, Z(3).to(torch.complex64))
add("complex inverse", torch.linalg.inv, Z(3, 3) + 3 * torch.eye(3))
add("sparse times dense", torch.sparse.mm,
    torch.sparse_coo_tensor([[0, 1, 2], [1, 0, 2]], T(3), (3, 3),
                            check_invariants=True).coalesce(),
    T(3, 2))  # fmt: skip
# --- special functions, edges, kinks
for name in ("erf", "lgamma", "digamma", "i0", "logit", "erfinv"):
    point = torch.tensor([0.02, 0.4, 0.9], dtype=torch.float64)
    add(f"torch.{name}", getattr(torch.special, name, None) or getattr(torch, name),
        point)  # fmt: skip
add("norm at zero", lambda x: x.norm(), torch.zeros(3, dtype=torch.float64))
add("abs at zero", lambda x: x.abs() + x, torch.tensor([0.0, 1.0, -2.0]).double())
add(
    "relu at zero", lambda x: torch.relu(x) * 3, torch.tensor([0.0, 1.0, -2.0]).double()
)
add("clamp at its edge", lambda x: x.clamp(-1, 1), torch.tensor([1.0, 0.5]).double())
add("max of equals", lambda x: x.amax(), torch.ones(4, dtype=torch.float64))
add("minimum of equals", torch.minimum, torch.ones(2).double(), torch.ones(2).double())
add("hardswish at -3", F.hardswish, torch.tensor([-3.0, 3.0, 0.1]).double())
add("softshrink at its edge", F.softshrink, torch.tensor([0.5, -0.5, 2.0]).double())
add(
    "relu6 chain",
    lambda x: F.relu6(x * 3 + 3).sum(),
    torch.tensor([-1.0, 1.0]).double(),
)
add("prelu at zero", F.prelu, torch.tensor([0.0, -1.0]).double(),
    torch.tensor([0.25]).double())  # fmt: skip
add("sqrt near zero", torch.sqrt, torch.tensor([1e-14, 1e-4, 1.0]).double())
add("cdist of neighbours", lambda a: torch.cdist(a, a + 1e-4), T(3, 2))
add("logsumexp, far apart", lambda x: torch.logsumexp(x, 0),
    torch.tensor([500.0, -500.0, 499.0]).double())  # fmt: skip
add(
    "softplus, large",
    lambda x: F.softplus(x, beta=10),
    torch.tensor([-30.0, 30, 0.1]).double(),
)
add("masked fill -inf", lambda x: F.softmax(
    x.masked_fill(torch.tensor([0, 1, 0, 0]).bool(), -torch.inf), 0), T(4))  # fmt: skip
add("where, nan beside", lambda x: torch.where(x > 0, x, torch.exp(x)), T(5))
add("bce with logits, sure", lambda z: F.binary_cross_entropy_with_logits(
    z, torch.tensor([1.0, 0, 1]).double()),
    torch.tensor([35.0, -30, 2]).double())  # fmt: skip
add("nll, large logits", lambda z: F.cross_entropy(z, torch.tensor([1, 0])),
    300 * T(2, 3))  # fmt: skip
add("cosine similarity", F.cosine_similarity, T(3, 4), T(3, 4))
add("pairwise huge offset", lambda x: F.mse_loss(x, torch.ones(3).double()) + 1e9, T(3))
# --- linear algebra
Q = T(4, 4)
add("cholesky", lambda a: torch.linalg.cholesky(a @ a.T + torch.eye(4)), Q)
add("eigh, values and projector", lambda a: torch.linalg.eigh(a + a.T)[0], Q)
add("qr", torch.linalg.qr, T(4, 3))
add("pinv", torch.linalg.pinv, T(4, 3))
add("slogdet", lambda a: torch.linalg.slogdet(a)[1], Q)
add("matrix exp", torch.linalg.matrix_exp, Q)
add("close eigenvalues", lambda a: torch.linalg.eigvalsh((a + a.T) / 2),
    torch.diag(torch.tensor([1.0, 1 + 1e-3, 3.0])).double()
    + 1e-4 * T(3, 3))  # fmt: skip
add("lstsq", lambda a, b: torch.linalg.lstsq(a, b).solution, T(5, 3), T(5, 1))
# --- lower precision
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    tag = str(dtype).rsplit(".", maxsplit=1)[-1]
    add(f"softmax {tag}", lambda x: F.softmax(x, -1), T(3, 4, dtype=dtype))
    add(f"layer norm {tag}", lambda x: F.layer_norm(x, (8,)), T(3, 8, dtype=dtype))
    add(f"gelu matmul {tag}", lambda x, w: F.gelu(x @ w), T(4, 5, dtype=dtype),
        T(5, 3, dtype=dtype))  # fmt: skip
    add(f"sum of squares {tag}", lambda x: (x**2).sum(), T(30, dtype=dtype))
    add(f"sin(20 x) {tag}", lambda x: torch.sin(20 * x), T(4, dtype=dtype))
    add(f"variance, offset {tag}", lambda x: (x + 10).var(), T(9, dtype=dtype))
add("float32 inside float64", lambda x: (x.float() @ x.float()).double(), T(20))
add("float32, sum of 3000", lambda x: torch.tanh(x).sum(), T(3000, dtype=torch.float32))
add("float32 minus offset", lambda x: (x - 100).exp().sum(),
    (100 + T(5)).float())  # fmt: skip
add("autocast inside", lambda x, w: (x.bfloat16() @ w.bfloat16()).double(), T(2, 3),
    T(3, 2))  # fmt: skip


# --- custom functions
class Exp(torch.autograd.Function):
    """Saves its output instead of its input, as the exponential may."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class TwoOutputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w, (x + w).sin()

    @staticmethod
    def backward(ctx, g, h):
        x, w = ctx.saved_tensors
        both = h * (x + w).cos()
        return g * w + both, g * x + both


class NonDifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        index = x.argsort()
        ctx.mark_non_differentiable(index)
        ctx.save_for_backward(index)
        return x[index], index

    @staticmethod
    def backward(ctx, g, _):
        (index,) = ctx.saved_tensors
        out = torch.empty_like(g)
        out[index] = g
        return out


add("custom exp", Exp.apply, T(4))
add("custom exp float32", Exp.apply, T(4, dtype=torch.float32))
add("custom, two outputs", TwoOutputs.apply, T(3), T(3))
add("custom sort", NonDifferentiable.apply, T(5))
add("custom exp, order 2", Exp.apply, T(3), order=2)
add("matmul, order 2", lambda a, b: (a @ b).tanh(), T(2, 2), T(2, 2), order=2)
