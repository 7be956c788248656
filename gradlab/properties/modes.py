"""Forward against reverse, the dot-product test, and the value with and without AD."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.building import Sides, build_subject, valid_seed
from gradlab.comparison.tolerance import SAFETY, Tolerance
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.evaluation import line_rows
from gradlab.differentiation.metering.meter import Meter
from gradlab.differentiation.sizes.scales import scales_of
from gradlab.errors import GradlabError, InputError
from gradlab.keywords import spelt
from gradlab.localisation.conditions import first_evaluation
from gradlab.properties.adjoints import ModeRow, ModesCheck
from gradlab.properties.curvature import called, refuse_complex, split_flat
from gradlab.subject.state_guard import StateGuard
from gradlab.subject.subject import (
    analytic_of,
    block_slices,
    input_columns,
    is_torch_subject,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.analytic_sides import Problem
    from gradlab.subject.subject import Subject

__all__ = ["compare_modes"]

_LOST = 64.0  # units of round-off of the largest effect, where terms cancel
_LOST_MOST = 0.1  # of that effect: 64 units of bfloat16 are half of it
_STEP = 1e-5  # of the difference that says which mode is wrong


@spelt
def compare_modes(
    fn: Callable[..., Any],
    *inputs: Any,
    jvp: Callable[..., Any] | None = None,
    vjp: Callable[..., Any] | None = None,
    jac: Callable[..., Any] | None = None,
    grad: Callable[..., Any] | None = None,
    backward: Callable[..., Any] | None = None,
    loss: Callable[..., Any] | None = None,
    wrt: Sequence[str] | str | None = None,
    names: Sequence[str] | Mapping[str, str] | None = None,
    rtol: float | None = None,
    probes: int = 3,
    seed: int = 0,
) -> ModesCheck:
    """Compare forward with reverse mode, and the value with and without AD.

    The dot-product test: for random v and w, ``<w, J v>`` by forward mode must equal
    ``<J.T w, v>`` by reverse mode, to round-off; no finite difference is involved, so a
    slip in the twelfth digit shows. One product of each kind per input, output and
    probe. Both modes may be wrong alike: `gradlab.check` compares with differences.

    Parameters
    ----------
    fn, *inputs, loss, wrt, names
        As in `gradlab.check`. For torch functions both modes are autograd's.
    jvp
        ``jvp(*inputs, *tangents)`` returns the tangent of the output, for NumPy; one
        tangent for each input that is differentiated.
    vjp, jac, grad, backward
        The reverse side, as in `gradlab.check`.
    rtol
        Relative difference forgiven. Default 5000 units of round-off: 1e-12 in float64.
    probes
        Random pairs for each block; default 3, as a slip may hide from one.
    seed
        Of the pairs; the user's random state is never touched.

    Returns
    -------
    ModesCheck
        ``verdict``, ``reading``, ``rows``, ``table``, ``values``.

    Raises
    ------
    InputError, SubjectError
        As `gradlab.check`; also where a torch function has no forward mode.

    References
    ----------
    Claerbout, *Earth Soundings Analysis* (1992), where the dot-product test is from.

    Examples
    --------
    >>> import torch
    >>> gl.compare_modes(torch.sin, torch.ones(3, dtype=torch.float64)).verdict.name
    'AGREES'
    """
    if isinstance(probes, bool) or not isinstance(probes, int) or probes < 1:
        raise InputError(f"probes must be an integer >= 1, got {probes!r}")
    if jvp is not None and not callable(jvp):
        raise InputError(f"jvp= must be a function, got {type(jvp).__name__}")
    rng = np.random.default_rng([valid_seed(seed), 17])
    tolerance = Tolerance(rtol)
    sides = Sides(None, grad, jac, backward, vjp, loss, wrt, names)
    roots = sides.roots(fn, inputs, jvp)
    with StateGuard(*roots) as guard, Meter().watching() as meter:
        subject = build_subject(fn, inputs, sides)
        base, _ = first_evaluation(subject, roots, meter, guard)
        push = _pusher(subject, jvp)
        relative = tolerance.rounding(subject.epsilon)
        found = [
            _probe(subject, push, rng, relative, meter, base) for _ in range(probes)
        ]
        blocks = zip(*(rows for rows, _ in found), strict=True)
        worst = [max(same, key=_excess) for same in blocks]
        odd = dict.fromkeys(each for _, problems in found for each in problems)
        remarks = tuple(f"{each.where}: {each.detail}" for each in odd)
        size = float(np.abs(base[np.isfinite(base)]).max(initial=0.0))
        values = _values(subject, push, base)
        return ModesCheck(tuple(worst), values, relative * size, probes, remarks)


def _excess(row: ModeRow) -> float:
    gap = abs(row.forward - row.reverse)
    return float(np.inf if np.isnan(gap) else gap / max(row.allowed, 1e-300))


def _pusher(
    subject: Any, jvp: Callable[..., Any] | None
) -> Callable[[int, NDArray[np.float64]], NDArray[np.float64]]:
    """Return ``(which, tangent) -> J v`` for a tangent of one input."""
    if subject.analytic is None:
        raise InputError("there is no reverse side: pass vjp=, jac= or backward=")
    if jvp is None:
        if not is_torch_subject(subject):
            raise InputError("pass jvp= (Jacobian times vector) for a NumPy function")
        from gradlab.subject.tensors.gradients.forward import push

        def forward(which: int, tangent: NDArray[np.float64]) -> NDArray[np.float64]:
            try:
                return np.asarray(push(subject, which, tangent[None])[0])
            except GradlabError:
                raise
            except Exception as cause:
                name = subject.inputs[which].name
                msg = f"forward mode failed for {name}: {type(cause).__name__}: {cause}"
                raise InputError(msg) from cause

        return forward
    if is_torch_subject(subject):
        raise InputError("jvp= is for NumPy functions; torch brings its own")
    refuse_complex("jvp= goes", subject.inputs)
    given = jvp

    def pushed(which: int, tangent: NDArray[np.float64]) -> NDArray[np.float64]:
        flat = [np.zeros(variable.coordinates) for variable in subject.inputs]
        flat[which] = tangent
        shaped = [f.reshape(v.shape) for f, v in zip(flat, subject.inputs, strict=True)]
        if subject.reset is not None:
            subject.reset()
        result = called("jvp", given, (*subject.fresh_arguments(), *shaped))
        try:
            row = subject.reader.row(_as_output(result))
        except GradlabError as cause:
            wanted = ", ".join(map(str, subject.reader.shapes))
            listed = isinstance(result, tuple | list)
            got = type(result).__name__ if listed else f"shape {np.shape(result)}"
            got = "None" if result is None else got
            msg = (
                f"jvp= must return one tangent per output, of shape {wanted}, got {got}"
            )
            raise InputError(msg) from cause
        return np.asarray(row, dtype=np.float64)

    return pushed


def _as_output(result: Any) -> Any:
    return float(result) if isinstance(result, int) else result


def _probe(
    subject: Any,  # with an analytic side: `_pusher` has seen to that
    push: Callable[[int, NDArray[np.float64]], NDArray[np.float64]],
    rng: np.random.Generator,
    relative: float,
    meter: Meter,
    base: NDArray[np.float64],
) -> tuple[list[ModeRow], tuple[Problem, ...]]:
    """Compare both modes along one random pair, block by block; tell what is odd."""
    rows = len(base)
    w = rng.normal(size=rows)
    v = rng.normal(size=input_columns(subject.inputs))
    tangents = split_flat(v, subject.inputs)
    slices = block_slices(subject.outputs)
    seeds = np.zeros((len(slices), rows))
    for seed, part in zip(seeds, slices, strict=True):
        seed[part] = w[part]
    pulled = subject.analytic.pull(seeds)
    columns = [push(k, tangent) for k, tangent in enumerate(tangents)]
    # where terms cancel, as in front of a normalisation, round-off of the others stays
    largest = [
        max(float(np.abs(w[part] * column[part]).sum()) for column in columns)
        for part in slices
    ]
    lost = min(_LOST * subject.epsilon, _LOST_MOST)
    result = []
    for which, (variable, tangent) in enumerate(
        zip(subject.inputs, tangents, strict=True)
    ):
        column = columns[which]
        for number, part in enumerate(slices):
            terms = w[part] * column[part]
            other = pulled.values[which][number] * tangent
            size = float(np.abs(terms).sum() + np.abs(other).sum())
            row = ModeRow(
                subject.outputs[number].name,
                variable.name,
                float(terms.sum()),
                float(other.sum()),
                np.nan,
                relative * size + lost * largest[number],
            )
            if row.verdict == Verdict.DISAGREES:
                told, error = _difference(subject, which, tangent, seeds[number], meter)
                if not abs(row.forward - row.reverse) <= SAFETY * error:
                    row = dataclasses.replace(row, numeric=told)
            result.append(row)
    return result, pulled.problems


def _difference(
    subject: Subject,
    which: int,
    tangent: NDArray[np.float64],
    weights: NDArray[np.float64],
    meter: Meter,
) -> tuple[float, float]:
    """Differentiate ``weights . f`` along a tangent; return an error bar as well."""
    scale = float(np.median(scales_of(subject, which))) if tangent.size else 1.0
    step = scale * max(_STEP, 2 * subject.epsilon ** (1 / 3))
    directions: list[NDArray[np.float64] | None] = [None] * len(subject.inputs)
    directions[which] = tangent
    live = weights != 0  # another output may be nan
    steps = [step, -step, 2 * step, -2 * step]
    rows = line_rows(subject, directions, steps, meter)[:, live]
    with np.errstate(all="ignore"):
        up, down, above, below = rows @ weights[live]
        near, far = (up - down) / (2 * step), (above - below) / (4 * step)
        size = np.abs(rows[:2] * weights[live]).sum(axis=1).max()
        bent = (near - far) / 3  # what the longer step adds of the third derivative
        error = abs(bent) / 30 + subject.epsilon * size / step
        return float(near + bent), float(error)


def _values(
    subject: Any,
    push: Callable[[int, NDArray[np.float64]], NDArray[np.float64]],
    base: NDArray[np.float64],
) -> dict[str, float]:
    """Compare the value of f under both modes, and without any, with a plain call."""
    if not is_torch_subject(subject):
        return {}
    from gradlab.subject.tensors.outputs import to_row

    seen: dict[str, NDArray[np.float64] | None] = {}
    analytic_of(subject).pull(np.zeros((1, len(base))))
    seen["reverse mode"] = subject.forward_value
    push(0, np.zeros(subject.inputs[0].coordinates))
    seen["forward mode"] = subject.forward_value
    values = [cell.tensor() for cell in subject.cells]
    try:
        seen["no_grad"] = to_row(subject.evaluate(values, grad=False))
    except GradlabError:
        raise
    except Exception:  # noqa: BLE001 - gradient penalties cannot run without autograd
        seen["no_grad"] = None
    return {
        kind: float(np.abs(_finite_gap(row, base)).max(initial=0.0))
        for kind, row in seen.items()
        if row is not None
    }


def _finite_gap(
    row: NDArray[np.float64], base: NDArray[np.float64]
) -> NDArray[np.float64]:
    same = (row == base) | (np.isnan(row) & np.isnan(base))
    with np.errstate(all="ignore"):
        return np.where(same, 0.0, np.nan_to_num(row - base, nan=np.inf))
