"""The comparison behind Chainer's checks: one number for each side, then the report."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.checks import check
from gradlab.compat.chainer_engines import plain
from gradlab.compat.chainer_numeric import numerical_grad
from gradlab.compat.torch_machinery import as_tuple
from gradlab.errors import GradientMismatchError, InputError, SubjectError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.compat.chainer_engines import Engine
    from gradlab.report import Report

__all__ = ["Options", "compare", "is_floating", "matched"]

_SPREAD = 0.01  # no part of the direction is below 0.1 / sqrt(n): nothing is left out
_SECOND_LOOK = "10s"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Options:
    """What decides, as in Chainer."""

    eps: float
    atol: float
    rtol: float
    no_grads: tuple[bool, ...]
    dtype: np.dtype[Any] | None
    detect: bool
    seed: int


def matched(ys: Sequence[Any], y_grad: Any) -> tuple[NDArray[Any] | None, ...]:
    """Pair output gradients with outputs, by Chainer's rules.

    Raises
    ------
    InputError
        If their number, or a shape or dtype, differs.
    """
    if y_grad is None:
        if len(ys) != 1 or ys[0] is None or ys[0].shape != ():
            shapes = [None if y is None else y.shape for y in ys]
            raise InputError(
                "y_grad may be None only for exactly one output of shape (), got "
                f"outputs of shapes {shapes}"
            )
        return (np.ones((), dtype=ys[0].dtype),)
    seeds = tuple(plain(g) for g in as_tuple(y_grad))
    if len(seeds) != len(ys):
        raise InputError(
            f"y_grad must have one entry for each of the {len(ys)} outputs, got "
            f"{len(seeds)}"
        )
    for k, (y, g) in enumerate(zip(ys, seeds, strict=True)):
        if g is None:
            continue
        if y is None:
            if g.any():
                raise InputError(f"output {k} is None, but y_grad[{k}] is not zero")
            continue
        if (y.shape, y.dtype) != (g.shape, g.dtype):
            raise InputError(
                f"y_grad[{k}] must have the shape and dtype of output {k}, which are "
                f"{y.shape} and {y.dtype}, got {g.shape} and {g.dtype}"
            )
    return seeds


def compare(
    engine: Engine,
    xs: Sequence[Any],
    y_grad: Any,
    options: Options,
    words: str = "check_backward",
) -> None:
    """Compare both sides along one random direction.

    Raises
    ------
    GradientMismatchError
        With both numbers, and a report on every entry.
    InputError, SubjectError
        If the arguments do not fit the function.
    """
    gys = matched(engine.outputs(xs), y_grad)
    wanted = [
        x is not None and not skip for x, skip in zip(xs, options.no_grads, strict=True)
    ]
    gxs, gparams = engine.gradients(
        xs,
        [None if g is None else g.copy() for g in gys],
        [is_floating(x) for x in xs],
    )
    for k, (skip, gradient) in enumerate(zip(options.no_grads, gxs, strict=True)):
        if skip and gradient is not None:
            raise SubjectError(
                f"input {k} is marked as without gradient (no_grads), but backward "
                f"gave it one"
            )
    params = engine.parameters()
    direction = _direction(
        [x for x, w in zip(xs, wanted, strict=True) if w] + params, options.seed
    )
    chosen = [g for g, w in zip(gxs, wanted, strict=True) if w] + gparams
    odd = [
        f"a gradient has shape {g.shape}, what it belongs to {d.shape}"
        for g, d in zip(chosen, direction, strict=True)
        if g is not None and g.shape != d.shape
    ]
    if odd:
        report = _report(engine, xs, gys, wanted, params)
        raise GradientMismatchError(_story(f"{words}: {odd[0]}", report), report)
    backward = sum(
        float(np.sum(np.asarray(g, dtype=np.float64) * d))
        for g, d in zip(chosen, direction, strict=True)
        if g is not None
    )
    numeric = _numeric(engine, xs, gys, wanted, params, direction, options)
    allowed = options.atol + options.rtol * abs(backward)
    if abs(numeric - backward) <= allowed:
        return
    report = _report(engine, xs, gys, wanted, params)
    raise GradientMismatchError(
        _told(words, options, (numeric, backward, allowed), report), report
    )


def is_floating(x: Any) -> bool:
    """Whether an input can have a gradient, by Chainer's rules."""
    return x is not None and np.dtype(x.dtype).kind == "f"


def _direction(arrays: Sequence[Any], seed: int) -> list[NDArray[np.float64]]:
    """Draw a unit vector over all arrays together, no component nearly zero."""
    count = sum(a.size for a in arrays)
    if count == 0:
        return [np.zeros(a.shape) for a in arrays]
    drawn = np.random.default_rng(seed).normal(size=count)
    squares = (1 - _SPREAD) * drawn**2 / np.sum(drawn**2) + _SPREAD / count
    unit = np.where(drawn < 0, -1.0, 1.0) * np.sqrt(squares)
    ends = np.cumsum([a.size for a in arrays])[:-1]
    parts = np.split(unit, ends)
    return [part.reshape(a.shape) for part, a in zip(parts, arrays, strict=True)]


def _numeric(
    engine: Engine,
    xs: Sequence[Any],
    gys: Sequence[Any],
    wanted: Sequence[bool],
    params: Sequence[NDArray[Any]],
    direction: Sequence[NDArray[np.float64]],
    options: Options,
) -> float:
    """Slope of ``sum(y * gy)`` along the direction."""
    delta = np.zeros(())

    def cast(moved: NDArray[np.float64], like: NDArray[Any]) -> NDArray[Any]:
        return moved.astype(options.dtype or like.dtype)

    def along() -> tuple[Any, ...]:
        parts = iter(direction)
        here = []
        for x, want in zip(xs, wanted, strict=True):
            if want:
                here.append(cast(x.astype(np.float64) + delta * next(parts), x))
            elif is_floating(x):
                here.append(cast(x.astype(np.float64), x))
            else:
                here.append(x)
        moved = [cast(p.astype(np.float64) + delta * next(parts), p) for p in params]
        return tuple(engine.outputs(here, moved))

    (slope,) = numerical_grad(
        along,
        (delta,),
        gys,
        eps=options.eps,
        detect_nondifferentiable=options.detect,
        diff_atol=0,
        diff_rtol=options.rtol,
    )
    return float(slope)


# ------------------------------------------------------------------ the story
def _report(
    engine: Engine,
    xs: Sequence[Any],
    gys: Sequence[Any],
    wanted: Sequence[bool],
    params: Sequence[NDArray[Any]],
) -> Report | None:
    """Let `gradlab.check` find where and why; None if the function does not let it."""
    where = [k for k, want in enumerate(wanted) if want]
    names = [f"x{k}" if len(xs) > 1 else "x" for k in where]
    names += [f"param{k}" for k in range(len(params))]
    point = [xs[k].astype(np.float64) for k in where]
    point += [p.astype(np.float64) for p in params]
    counted = [k for k, g in enumerate(gys) if g is not None]

    def placed(values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        full = list(xs)
        for k, value in zip(where, values, strict=False):
            full[k] = value
        return full, list(values[len(where) :])

    def forward(*values: Any) -> tuple[Any, ...]:
        ys = engine.outputs(*placed(values))
        return tuple(ys[k] for k in counted if ys[k] is not None)

    def vjp(cotangents: Any, *values: Any) -> tuple[Any, ...]:
        seeds: list[Any] = [None] * len(gys)
        for k, cotangent in zip(counted, as_tuple(cotangents), strict=True):
            seeds[k] = np.asarray(cotangent)
        full, moved = placed(values)
        reachable = [is_floating(x) for x in full]
        gxs, gparams = engine.gradients(full, seeds, reachable, moved)
        return (*(gxs[k] for k in where), *gparams)

    for diagnose in (True, False):
        try:
            return check(
                forward,
                *point,
                vjp=vjp,
                names=names,
                budget=_SECOND_LOOK,
                diagnose=diagnose,
            )
        except Exception:  # noqa: BLE001, S112 - a bonus, never a new failure
            continue
    return None


def _told(
    words: str,
    options: Options,
    numbers: tuple[float, float, float],
    report: Report | None,
) -> str:
    numeric, backward, allowed = numbers
    head = [
        (
            f"{words}: numeric and backward derivative differ along a random direction "
            f"(eps={options.eps:g}, atol={options.atol:g}, rtol={options.rtol:g})"
        ),
        f"  numeric    {numeric:.9g}",
        f"  backward   {backward:.9g}",
        f"  difference {abs(numeric - backward):.3g}; allowed {allowed:.3g}",
    ]
    told = _story("\n".join(head), report)
    if report is not None and report.ok:
        told += (
            "\n  gradlab.check finds nothing wrong: the difference with this eps, or "
            "this dtype, is what is off; try dtype='d' or another eps"
        )
    return told


def _story(head: str, report: Report | None) -> str:
    if report is None:
        return f"{head}\n  gradlab.check could not run the function in float64"
    from gradlab.presentation.text import failure_text

    return f"{head}\n{failure_text(report)}"
