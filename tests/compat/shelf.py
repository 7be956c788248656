"""Functions of every kind for gradcheck: right, wrong, complex, sparse, odd.

`SHELF` maps a name to ``(function, make_inputs)``.
"""

from __future__ import annotations

import pytest

from tests.specimens.squares import squared

torch = pytest.importorskip("torch")
SHELF = {}


def normal(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def _shelve(name, func, *makers):
    """Put a function on the shelf, with one maker for each input."""
    SHELF[name] = (func, lambda: tuple(make() for make in makers))


def _real(*shape):
    return lambda: normal(*shape)


def _complex(*shape):
    return lambda: normal(*shape, dtype=torch.complex128)


def _raising(error):
    def backward(x, g):
        raise error

    return backward


def _hooked(factor):
    def func(x):
        y = x**2
        y.register_hook(lambda g: factor * g)
        return y

    return func


# ---------------------------------------------------------------- plain functions
for _name in (
    *("sin", "cos", "exp", "tanh", "sigmoid", "relu", "abs", "erf", "floor", "sign"),
    *("square", "atan", "sinh", "expm1", "sum", "prod", "cumsum0", "norm"),
):
    _axis = _name.endswith("0")
    _fn = getattr(torch, _name.rstrip("0"))
    _shelve(_name, (lambda x, f=_fn: f(x, 0)) if _axis else _fn, _real(3))
for _name in ("sin", "exp", "sqrt", "abs", "conj", "angle", "real"):
    _shelve(f"complex {_name}", getattr(torch, _name), _complex(2))
_shelve("matmul", torch.matmul, _real(2, 3), _real(3, 2))
_shelve("inverse", torch.linalg.inv, _real(2, 2))
_shelve("max", lambda x: x.max(0), _real(3))
_shelve("sort", lambda x: x.sort(), _real(3))
_shelve("where", lambda x: torch.where(x > 0, x, x**2), _real(3))
_shelve("dropout", lambda x: torch.dropout(x, 0.5, train=True), _real(5))
_shelve("identity", lambda x: x, _real(3))
_shelve("views", lambda x: x.chunk(2), _real(4))
_shelve("steep", lambda x: 1e6 * x**3, _real(3))
_shelve("flat", lambda x: 1e-7 * x**2, _real(3))
_shelve("infinite", lambda x: x / 0, _real(3))
_shelve("nan", lambda x: (x - 10).sqrt(), _real(3))
_shelve("scalar", torch.sin, _real())
_shelve("empty", torch.sin, _real(0))
_shelve("at a kink", torch.relu, lambda: torch.zeros(2).double().requires_grad_())
_shelve("complex from real", lambda x: torch.complex(x, x**2), _real(2))
_shelve("mixed", lambda z, x: (z * x, x * 2), _complex(2), _real(2))

# ------------------------------------------------------------------ wrong, or odd
for _name, _backward in {
    "right": lambda x, g: 2 * x * g,
    "scaled": lambda x, g: 3 * x * g,
    "slightly scaled": lambda x, g: 2 * x * g * (1 + 1e-5),
    "sign": lambda x, g: -2 * x * g,
    "zero": lambda x, g: torch.zeros_like(x),
    "none": lambda x, g: None,
    "not multiplied": lambda x, g: 2 * x,
    "added": lambda x, g: 2 * x * g + 1,
    "nan backward": lambda x, g: 2 * x * g * float("nan"),
    "single precision": lambda x, g: (2 * x * g).float(),
    "wrong shape": lambda x, g: (2 * x * g)[:1],
    "raises": _raising(ValueError("bad")),
    "raises RuntimeError": _raising(RuntimeError("bad")),
    "detached": lambda x, g: 2 * x.detach() * g,
    "random": lambda x, g: 2 * x * g + torch.rand_like(x) * 1e-3,
}.items():
    _shelve(f"backward {_name}", squared(_backward), _real(3))
_shelve("wirtinger right", squared(lambda x, g: 2 * x.conj() * g), _complex(2))
_shelve("wirtinger wrong", squared(lambda x, g: 2 * x * g), _complex(2))
_shelve("hook wrong", _hooked(1.5), _real(3))
_shelve("hook right", _hooked(1.0), _real(3))
_shelve("in place", lambda x: x.mul_(2), _real(3))
_shelve("integer output last", lambda x: (x**2, x.argsort()), _real(3))
_shelve("detached", lambda x: x.detach() * 2, _real(3))
_shelve("constant", lambda x: torch.zeros(2).double(), _real(3))
_shelve("list of outputs", lambda x: [x**2, x], _real(3))
_shelve("raises", lambda x: 1 / 0, _real(3))

# ----------------------------------------------------------------------- inputs
_shelve("float32", torch.sin, lambda: normal(3, dtype=torch.float32))
_shelve("bfloat16", torch.sin, lambda: normal(3, dtype=torch.bfloat16))
_shelve("no grad", torch.sin, lambda: torch.ones(3).double())
_shelve("one without grad", torch.mul, _real(3), lambda: torch.ones(3).double())
_shelve("number", torch.pow, _real(3), lambda: 3)
_shelve("expanded", torch.sin, lambda: torch.ones(1).expand(3).double().clone())
_shelve("strided", torch.sin, lambda: torch.randn(6).double()[::2].requires_grad_(True))
_shelve("overlapping", torch.sin, lambda: normal(1).detach().expand(3).requires_grad_())
_shelve("not a leaf", torch.sin, lambda: normal(3) * 2)

# ---------------------------------------------------------------------- layouts
_CONVERT = {
    "coo": lambda a: a.to_sparse(),
    "csr": lambda a: a.to_sparse_csr(),
    "csc": lambda a: a.to_sparse_csc(),
    "bsr": lambda a: a.to_sparse_bsr((2, 2)),
    "bsc": lambda a: a.to_sparse_bsc((2, 2)),
}


def _sparse(layout):
    def make():
        dense = torch.randn(4, 4, dtype=torch.float64) * (torch.rand(4, 4) > 0.4)
        return _CONVERT[layout](dense).requires_grad_()

    return make


for _layout in _CONVERT:
    _shelve(f"{_layout} to dense", lambda s: s.to_dense(), _sparse(_layout))
    _shelve(
        f"{_layout} masked", lambda s: s.to_dense(masked_grad=True), _sparse(_layout)
    )
    _shelve(
        f"{_layout} unmasked",
        lambda s: s.to_dense(masked_grad=False),
        _sparse(_layout),
    )
    _shelve(f"{_layout} output", lambda s: s * 2, _sparse(_layout))
