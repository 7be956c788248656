"""The same check in another precision: arguments cast, the user's own left alone."""

from __future__ import annotations

import copy
import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.errors import InputError
from gradlab.presentation.widgets.recompute import arguments_of
from gradlab.report import Live
from gradlab.subject.guarding.reachable import reach
from gradlab.subject.numpy_in_place import StandIns
from gradlab.subject.tensors.values import is_torch, looks_like_module
from gradlab.subject.tree import Tree, flatten

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradlab.report import Report
    from gradlab.sweeps import Sweep

__all__ = ["PRECISIONS", "in_precision", "precision_of"]

# By precision, what real and complex numbers are called in it.
PRECISIONS = {
    "float32": {"f": "float32", "c": "complex64"},
    "float64": {"f": "float64", "c": "complex128"},
}
_CALLED = ("grad", "jac", "backward", "vjp", "loss")
_REAL = {"complex64": "float32", "complex128": "float64"}


def precision_of(sweep: Sweep) -> str:
    """Name the coarsest arithmetic of a sweep, by its real numbers.

    Examples
    --------
    >>> precision_of(gl.sweep(np.sum, np.ones(2), grad=np.ones_like))
    'float64'
    """
    blocks = getattr(sweep, "blocks", ())
    if not blocks:
        return "float64"
    coarse = str(max(blocks, key=lambda block: block.epsilon).dtype)
    return _REAL.get(coarse, coarse)


def in_precision(report: Report, precision: str) -> Report:
    """Return a report whose subject is cast, to sweep it or to check it again.

    Inputs are cast to copies, a module is a deep copy. Arrays that a NumPy function
    reads where they are, parameters and data, stay; cast copies stand in their places
    for the time of each evaluation.

    Parameters
    ----------
    report
        With its subject at hand.
    precision
        "float32" or "float64".

    Returns
    -------
    Report
        The old numbers with the new subject.

    Raises
    ------
    InputError
        If the report was loaded from a file, or its parameters cannot be replaced.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: 2 * x)
    >>> in_precision(report, "float32").sweep().blocks[0].dtype
    'float32'
    """
    if precision not in PRECISIONS:
        msg = f"precision must be float32 or float64, got {precision!r}"
        raise InputError(msg)
    given = dict(arguments_of(report))
    fn, sides, inputs = given["fn"], given["sides"], tuple(given["inputs"])
    given["inputs"] = _cast(inputs, precision)
    changed = {"grad": _cast((sides.grad,), precision)[0]}
    if looks_like_module(fn):
        given["fn"] = _cast_module(fn, precision)
        if looks_like_module(sides.loss):
            changed["loss"] = _cast_module(sides.loss, precision)
    elif not any(is_torch(leaf.value) for leaf in _flat(inputs).leaves):
        around, changed["params"] = _stand_ins(given, precision)
        given["fn"] = around(fn)
        for name in _CALLED:
            if callable(getattr(sides, name)):
                changed[name] = around(getattr(sides, name))
    given["sides"] = dataclasses.replace(sides, **changed)
    return dataclasses.replace(report, live=Live(**given))


def _cast_module(module: Any, precision: str) -> Any:
    twin = copy.deepcopy(module)
    for tensor in (*twin.parameters(), *twin.buffers()):
        # Module.to would drop the imaginary part of what is complex
        tensor.data = _cast_leaf(tensor.data, precision)
    return twin


def _cast(values: tuple[Any, ...], precision: str) -> tuple[Any, ...]:
    tree = _flat(values)
    return tree.rebuild([_cast_leaf(leaf.value, precision) for leaf in tree.leaves])


def _flat(values: tuple[Any, ...]) -> Tree:
    return flatten(values, [str(k) for k in range(len(values))])


def _cast_leaf(value: Any, precision: str) -> Any:
    names = PRECISIONS[precision]
    if is_torch(value):
        torch: Any = sys.modules["torch"]
        kind = "c" if value.is_complex() else "f" if value.is_floating_point() else ""
        if not kind:
            return value
        fresh = value.detach().to(getattr(torch, names[kind]), copy=True)
        return fresh.requires_grad_(value.requires_grad)
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in names:
        return value.astype(names[value.dtype.kind])
    if isinstance(value, float):
        return np.dtype(names["f"]).type(value)
    return value


def _stand_ins(given: dict[str, Any], precision: str) -> tuple[Any, Any]:
    """Cast what a NumPy function reads where it is: ``around(call)``, new params."""
    sides = given["sides"]
    tree = _flat((sides.params,))
    old = [leaf.value for leaf in tree.leaves]
    new = [_cast_leaf(value, precision) for value in old]
    pairs = {id(a): (a, b) for a, b in zip(old, new, strict=True) if a is not b}
    roots = sides.roots(given["fn"], given["inputs"])
    own = StandIns.of(
        [a for a, _ in pairs.values()], [b for _, b in pairs.values()], roots
    )
    if own is None or any(is_torch(value) for value in old):
        msg = (
            "the parameters given as params= cannot be replaced where the function "
            f"reads them; run the check itself in {precision}"
        )
        raise InputError(msg)
    # and its data: a single float64 array would turn the rest into float64 again
    for found in reach(roots).arrays:
        array = found.value
        if isinstance(array, np.ndarray) and id(array) not in pairs:
            cast = _cast_leaf(array, precision)
            pairs[id(array)] = (array, cast)
    moved = [(a, b) for a, b in pairs.values() if a is not b]
    stand_ins = StandIns.of(
        [a for a, _ in moved], [b for _, b in moved], roots, partly=True
    )
    params = None if sides.params is None else tree.rebuild(new)[0]
    around: Callable[[Any], Any] = (
        (lambda call: call) if stand_ins is None else stand_ins.around
    )
    return around, params
