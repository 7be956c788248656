"""Three ways to evaluate a function and to pull gradients back, behind one protocol.

A function of NumPy arrays comes with its ``vjp``; torch's autograd needs nothing; and
anything that has Chainer's ``Variable`` protocol (``array``, ``grad``, ``grad_var``,
``cleargrad``, ``backward``, and the operators ``reshape``, ``@``, ``+``) is adapted
through that alone: chainer is never imported, its class is found where the user's own
import has put it.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gradlab.compat.torch_machinery import as_tuple, machinery
from gradlab.errors import InputError
from gradlab.subject.numpy_values import as_numpy
from gradlab.subject.tensors.values import is_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

__all__ = [
    "Engine",
    "NumpyEngine",
    "TorchEngine",
    "VariableEngine",
    "engine_for",
    "plain",
    "pull",
]


class Engine(Protocol):
    """How to run one kind of function; arrays in and out are NumPy's."""

    def outputs(
        self, xs: Sequence[Any], params: Sequence[Any] | None = None
    ) -> list[Any]:
        """Evaluate; outputs as arrays or None. `params` replace the user's."""

    def gradients(
        self,
        xs: Sequence[Any],
        gys: Sequence[Any],
        wanted: Sequence[bool],
        params: Sequence[Any] | None = None,
    ) -> tuple[list[Any], list[Any]]:
        """Pull `gys` back to the inputs and to the parameters; None where unused."""

    def parameters(self) -> list[NDArray[Any]]:
        """Copy the parameters; known once the function has been evaluated."""


def plain(value: Any) -> Any:
    """Read an array, tensor, variable or number as a NumPy array; None stays None.

    Raises
    ------
    InputError
        If the numbers are complex, which Chainer knows nothing of.
    """
    inner = value if isinstance(value, np.ndarray) else getattr(value, "array", value)
    if inner is None:
        return None
    if not isinstance(inner, np.ndarray):
        known = hasattr(inner, "dtype")
        inner = as_numpy(inner, "an array") if known else np.asarray(inner)
    if inner.dtype.kind == "c":
        raise InputError(
            f"Chainer's checks are for real numbers, got {inner.dtype}; use "
            "gradlab.check, which takes complex ones"
        )
    return inner


def engine_for(
    func: Callable[..., Any],
    xs: Sequence[Any],
    params: Sequence[Any],
    vjp: Callable[..., Any] | None,
) -> Engine:
    """Choose how to run a function by what it is fed.

    Raises
    ------
    InputError
        If nothing tells where gradients could come from, or a parameter is none.
    """
    for value in params:
        if not (hasattr(value, "dtype") or hasattr(value, "array")):
            raise InputError(
                "params must be a tuple of arrays, tensors or variables, got "
                f"{type(value).__name__}; those of a module are "
                "tuple(module.parameters())"
            )
        plain(value)
    if vjp is not None:
        return NumpyEngine(func, vjp, params)
    if any(is_torch(value) for value in (*xs, *params)):
        return TorchEngine(func, params, xs)
    kinds = [type(v) for v in (*xs, *params) if hasattr(v, "backward")]
    chainer = sys.modules.get("chainer")
    if kinds or chainer is not None:
        variable = chainer.Variable if chainer is not None else kinds[0]
        return VariableEngine(func, params, variable)
    raise InputError(
        "nothing says how to differentiate the function: pass vjp= for a function of "
        "NumPy arrays, tensors for a torch function, or import chainer first"
    )


class NumpyEngine:
    """A function of arrays, with ``vjp(cotangents, *inputs)``; parameters in place."""

    def __init__(
        self,
        func: Callable[..., Any],
        vjp: Callable[..., Any],
        params: Sequence[NDArray[Any]],
    ) -> None:
        self._func, self._vjp, self._params = func, vjp, list(params)

    def parameters(self) -> list[NDArray[Any]]:
        """Copy the parameters, see `Engine`."""
        return [p.copy() for p in self._params]

    def outputs(
        self, xs: Sequence[Any], params: Sequence[Any] | None = None
    ) -> list[Any]:
        """Evaluate, see `Engine`."""
        found = self._with(params, lambda: as_tuple(self._func(*xs)))
        return [plain(y) for y in found]

    def gradients(
        self,
        xs: Sequence[Any],
        gys: Sequence[Any],
        wanted: Sequence[bool],  # noqa: ARG002 - the vjp returns what it returns
        params: Sequence[Any] | None = None,
    ) -> tuple[list[Any], list[Any]]:
        """Pull back, see `Engine`."""
        seeds = gys[0] if len(gys) == 1 else tuple(gys)
        found = self._with(params, lambda: as_tuple(self._vjp(seeds, *xs)))
        count = len(xs) + len(self._params)
        if len(found) != count:
            raise InputError(
                f"vjp must return one gradient for each of the {len(xs)} inputs and "
                f"{len(self._params)} params, got {len(found)}"
            )
        arrays = [plain(g) for g in found]
        return arrays[: len(xs)], arrays[len(xs) :]

    def _with(self, params: Sequence[Any] | None, call: Callable[[], Any]) -> Any:
        """Call with other values in the parameters' memory, then put theirs back."""
        if params is None:
            return call()
        before = self.parameters()
        try:
            for own, value in zip(self._params, params, strict=True):
                own[...] = value
            return call()
        finally:
            for own, value in zip(self._params, before, strict=True):
                own[...] = value


class TorchEngine:
    """A torch function; parameters are tensors that it reads where they are."""

    def __init__(
        self, func: Callable[..., Any], params: Sequence[Any], xs: Sequence[Any]
    ) -> None:
        self._func, self._params = func, list(params)
        self._devices = [x.device if is_torch(x) else None for x in xs]

    def parameters(self) -> list[NDArray[Any]]:
        """Copy the parameters, see `Engine`."""
        return [as_numpy(p.detach().clone(), "a parameter") for p in self._params]

    def outputs(
        self, xs: Sequence[Any], params: Sequence[Any] | None = None
    ) -> list[Any]:
        """Evaluate, see `Engine`."""
        with self._given(params):
            leaves = self._leaves(xs)
            return [plain(y) for y in as_tuple(self._func(*leaves))]

    def gradients(
        self,
        xs: Sequence[Any],
        gys: Sequence[Any],
        wanted: Sequence[bool],
        params: Sequence[Any] | None = None,
    ) -> tuple[list[Any], list[Any]]:
        """Pull back, see `Engine`."""
        torch = machinery().torch
        with self._given(params):
            leaves = self._leaves(xs)
            ys = as_tuple(self._func(*leaves))
            used = [k for k, want in enumerate(wanted) if want]
            targets = [leaves[k] for k in used]
            targets += [p for p in self._params if p.requires_grad]
            pairs = [
                (y, torch.as_tensor(g, dtype=y.dtype, device=y.device))
                for y, g in zip(ys, gys, strict=True)
                if g is not None and is_torch(y) and y.requires_grad
            ]
            found: list[Any] = [None] * len(targets)
            if pairs and targets:
                found = list(
                    torch.autograd.grad(
                        [y for y, _ in pairs],
                        targets,
                        [g for _, g in pairs],
                        allow_unused=True,
                    )
                )
            arrays = [plain(g) for g in found]
        gxs: list[Any] = [None] * len(xs)
        for k, gradient in zip(used, arrays, strict=False):
            gxs[k] = gradient
        rest = iter(arrays[len(used) :])
        return gxs, [next(rest) if p.requires_grad else None for p in self._params]

    def _given(
        self, values: Sequence[Any] | None
    ) -> contextlib.AbstractContextManager[None]:
        """Put other data into the parameters, without the graph noticing."""
        if values is not None:
            tensor = machinery().torch.tensor
            pairs = zip(self._params, values, strict=True)
            values = [tensor(value, device=own.device) for own, value in pairs]
        return _lent(self._params, "data", values)

    def _leaves(self, xs: Sequence[Any]) -> list[Any]:
        torch = machinery().torch
        leaves = []
        for x, device in zip(xs, self._devices, strict=True):
            if x is None or device is None:
                leaves.append(x)
                continue
            leaf = torch.tensor(x, device=device)
            leaves.append(leaf.requires_grad_(leaf.is_floating_point()))
        return leaves


@contextlib.contextmanager
def _lent(
    owners: Sequence[Any], attribute: str, values: Sequence[Any] | None
) -> Iterator[None]:
    """Give parameters other values for a while; None leaves them as they are."""
    if values is None:
        yield
        return
    before = [getattr(owner, attribute) for owner in owners]
    try:
        for owner, value in zip(owners, values, strict=True):
            setattr(owner, attribute, value)
        yield
    finally:
        for owner, value in zip(owners, before, strict=True):
            setattr(owner, attribute, value)


class VariableEngine:
    """Functions and links of Chainer, by the protocol of its variables."""

    def __init__(
        self, func: Callable[..., Any], params: Sequence[Any], variable: Any
    ) -> None:
        self._func, self._params, self.variable = func, list(params), variable

    def parameters(self) -> list[NDArray[Any]]:
        """Copy the parameters, see `Engine`."""
        return [np.array(p.array) for p in self._params]

    def outputs(
        self, xs: Sequence[Any], params: Sequence[Any] | None = None
    ) -> list[Any]:
        """Evaluate, see `Engine`."""
        with _lent(self._params, "array", params):
            return [plain(y) for y in as_tuple(self._func(*self.variables(xs)))]

    def gradients(
        self,
        xs: Sequence[Any],
        gys: Sequence[Any],
        wanted: Sequence[bool],  # noqa: ARG002 - backward reaches them all
        params: Sequence[Any] | None = None,
    ) -> tuple[list[Any], list[Any]]:
        """Pull back, see `Engine`."""
        with _lent(self._params, "array", params):
            given = self.variables(xs)
            ys = as_tuple(self._func(*given))
            for variable in (*given, *self._params):
                if variable is not None:
                    variable.cleargrad()  # what the function itself has left
            pull(ys, [None if g is None else self.variable(g) for g in gys])
            gxs = [None if v is None else plain(v.grad) for v in given]
            return gxs, [plain(p.grad) for p in self._params]

    def variables(self, xs: Sequence[Any]) -> list[Any]:
        """Wrap arrays; only floating ones require grad."""
        return [
            None
            if x is None
            else self.variable(np.array(x), requires_grad=np.dtype(x.dtype).kind == "f")
            for x in xs
        ]


def pull(ys: Sequence[Any], gys: Sequence[Any], *, again: bool = False) -> None:
    """Run one backward pass for all outputs together: that of ``sum(y * gy)``.

    Parameters
    ----------
    ys, gys
        Variables; a None on either side leaves the pair out.
    again
        Whether the gradients are to be differentiated themselves.
    """
    total = None
    for y, gy in zip(ys, gys, strict=True):
        if y is None or gy is None or plain(y).size == 0:
            continue
        seed = gy
        if plain(gy).dtype != plain(y).dtype:
            seed = type(gy)(plain(gy).astype(plain(y).dtype))
        part = y.reshape((-1,)) @ seed.reshape((-1,))
        total = part if total is None else total + part
    if total is not None:
        total.backward(enable_double_backprop=again)
