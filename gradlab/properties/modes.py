"""Forward against reverse, the dot-product test, and the value with and without AD."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.building import Sides, build_subject
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.evaluation import Meter, line_rows
from gradlab.differentiation.finite_difference import scales_of
from gradlab.errors import GradlabError, InputError
from gradlab.localisation.conditions import first_evaluation
from gradlab.properties.curvature import split_flat
from gradlab.subject.state_guard import StateGuard
from gradlab.subject.subject import block_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from gradlab.subject.subject import Subject

__all__ = ["ModeRow", "ModesCheck", "compare_modes"]

_ROUNDINGS = 5e3  # of both modes, in units of epsilon, as in `comparison.judge`
_LOST = 64.0  # units of round-off of the largest effect, where terms cancel
_STEP = 1e-5  # of the difference that says which mode is wrong
_WORST = {True: Verdict.DISAGREES, False: Verdict.AGREES}


@dataclasses.dataclass(frozen=True, slots=True)
class ModeRow:
    """One block: an output against an input, both modes contracted at random.

    Parameters
    ----------
    output, input
        Names.
    forward, reverse
        ``<w, J v>`` and ``<J.T w, v>`` where they differ most.
    numeric
        The same by differences, where the modes differ; else nan.
    allowed
        Round-off that is forgiven.
    """

    output: str
    input: str
    forward: float
    reverse: float
    numeric: float
    allowed: float

    @property
    def verdict(self) -> Verdict:
        """Whether the modes agree."""
        if np.isnan(self.forward) and np.isnan(self.reverse):
            return Verdict.UNDECIDED
        return _WORST[not abs(self.forward - self.reverse) <= self.allowed]

    @property
    def wrong(self) -> str:
        """Which mode is further from the differences; "" if they agree."""
        if self.verdict != Verdict.DISAGREES:
            return ""
        gaps = [abs(self.forward - self.numeric), abs(self.reverse - self.numeric)]
        if np.isnan(self.numeric) or max(gaps) < 10 * min(gaps):
            return "one of them" if np.isnan(self.numeric) else "both"
        return "forward" if not gaps[0] <= gaps[1] else "reverse"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ModesCheck:
    """Result of `gradlab.compare_modes`.

    Parameters
    ----------
    rows
        One for each (output, input) block.
    values
        Largest difference of the value of f under each kind of evaluation ("reverse
        mode", "forward mode", "no_grad") from that of a plain call.
    value_allowed
        Round-off forgiven to these.
    probes
        Random pairs tried for each block.

    Examples
    --------
    >>> A = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> found = gl.compare_modes(
    ...     lambda x: A @ x, np.ones(2), jvp=lambda x, v: A @ v, vjp=lambda w, x: A @ w
    ... )
    >>> found.verdict.name, found.rows[0].wrong
    ('DISAGREES', 'reverse')
    """

    rows: tuple[ModeRow, ...]
    values: dict[str, float]
    value_allowed: float
    probes: int

    @property
    def verdict(self) -> Verdict:
        """The worst of all blocks and values."""
        wrong = any(not gap <= self.value_allowed for gap in self.values.values())
        return max(_WORST[wrong], *(row.verdict for row in self.rows))

    @property
    def ok(self) -> bool:
        """Whether nothing wrong was found."""
        return self.verdict < Verdict.DISAGREES

    @property
    def reading(self) -> str:
        """What was found, in sentences."""
        told = [
            f"The value under {kind} differs by {gap:.2g}."
            for kind, gap in self.values.items()
            if not gap <= self.value_allowed
        ]
        told += [
            f"d {row.output} / d {row.input}: <w, J v> = {row.forward:.8g}, "
            f"<J.T w, v> = {row.reverse:.8g}; by differences {row.wrong} is wrong."
            for row in self.rows
            if row.verdict == Verdict.DISAGREES
        ]
        if told:
            return " ".join(told)
        if self.verdict == Verdict.UNDECIDED:
            return "Both modes give nan."
        same = ", and so do the values" if self.values else ""
        return f"Forward and reverse agree along {self.probes} random pairs{same}."

    @property
    def table(self) -> pd.DataFrame:
        """One row per block: both numbers, by differences, allowed, which is wrong."""
        from gradlab.presentation.small_tables import rows_table

        columns = ["output", "input", "forward", "reverse", "numeric", "allowed"]
        columns += ["verdict", "wrong"]
        rows = [
            {name: getattr(row, name) for name in columns}
            | {"verdict": row.verdict.name}
            for row in self.rows
        ]
        return rows_table(rows, columns)

    def __repr__(self) -> str:
        from gradlab.presentation.small_text import told

        return told(self.verdict, self.reading)


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
        Random pairs for each block.
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

    Examples
    --------
    >>> import torch
    >>> gl.compare_modes(torch.sin, torch.ones(3, dtype=torch.float64)).verdict.name
    'AGREES'
    """
    if isinstance(probes, bool) or not isinstance(probes, int) or probes < 1:
        raise InputError(f"probes must be an integer >= 1, got {probes!r}")
    sides = Sides(None, grad, jac, backward, vjp, loss, wrt, names)
    given = (*inputs, fn, jvp, vjp, jac, grad, backward, loss)
    roots = tuple(root for root in given if root is not None)
    with StateGuard(*roots):
        subject = build_subject(fn, inputs, sides)
        meter = Meter()
        base, _ = first_evaluation(subject, roots, meter)
        push = _pusher(subject, jvp)
        tolerance = _ROUNDINGS * subject.epsilon if rtol is None else float(rtol)
        rng = np.random.default_rng([seed, 17])
        found = [
            _probe(subject, push, rng, tolerance, meter, base) for _ in range(probes)
        ]
        worst = [max(same, key=_excess) for same in zip(*found, strict=True)]
        size = float(np.abs(base[np.isfinite(base)]).max(initial=0.0))
        return ModesCheck(
            tuple(worst), _values(subject, push, base), tolerance * size, probes
        )


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
        if not hasattr(subject, "program"):
            raise InputError("pass jvp= (Jacobian times vector) for a NumPy function")
        from gradlab.subject.torch_forward import push

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
    if hasattr(subject, "program"):
        raise InputError("jvp= is for NumPy functions; torch brings its own")
    if any(variable.is_complex for variable in subject.inputs):
        raise InputError("jvp= goes with real inputs; these are complex")
    given = jvp

    def pushed(which: int, tangent: NDArray[np.float64]) -> NDArray[np.float64]:
        flat = [np.zeros(variable.coordinates) for variable in subject.inputs]
        flat[which] = tangent
        shaped = [f.reshape(v.shape) for f, v in zip(flat, subject.inputs, strict=True)]
        if subject.reset is not None:
            subject.reset()
        result = given(*subject.fresh_arguments(), *shaped)
        try:
            row = subject.reader.row(_as_output(result))
        except GradlabError as cause:
            wanted = ", ".join(map(str, subject.reader.shapes))
            msg = (
                f"jvp= must return one tangent per output, of shape {wanted}, got "
                f"shape {np.shape(result)}"
            )
            raise InputError(msg) from cause
        return np.asarray(row, dtype=np.float64)

    return pushed


def _as_output(result: Any) -> Any:
    return float(result) if isinstance(result, int) else result


def _probe(
    subject: Subject,
    push: Callable[[int, NDArray[np.float64]], NDArray[np.float64]],
    rng: np.random.Generator,
    tolerance: float,
    meter: Meter,
    base: NDArray[np.float64],
) -> list[ModeRow]:
    """Compare both modes along one random pair, block by block."""
    rows = len(base)
    w = rng.normal(size=rows)
    v = rng.normal(size=sum(variable.coordinates for variable in subject.inputs))
    tangents = split_flat(v, subject.inputs)
    slices = block_slices(subject.outputs)
    seeds = np.zeros((len(slices), rows))
    for seed, part in zip(seeds, slices, strict=True):
        seed[part] = w[part]
    if subject.analytic is None:
        return []
    pulled = subject.analytic.pull(seeds)
    columns = [push(k, tangent) for k, tangent in enumerate(tangents)]
    # where terms cancel, as in front of a normalisation, round-off of the others stays
    largest = [
        max(float(np.abs(w[part] * column[part]).sum()) for column in columns)
        for part in slices
    ]
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
                tolerance * size + _LOST * subject.epsilon * largest[number],
            )
            if row.verdict == Verdict.DISAGREES:
                slope = _difference(subject, which, tangent, meter)
                told = float(np.dot(w[part], slope[part]))
                row = dataclasses.replace(row, numeric=told)
            result.append(row)
    return result


def _difference(
    subject: Subject, which: int, tangent: NDArray[np.float64], meter: Meter
) -> NDArray[np.float64]:
    """Differentiate along a tangent, to a few digits: enough to tell who is wrong."""
    scale = float(np.median(scales_of(subject, which))) if tangent.size else 1.0
    step = scale * max(_STEP, 2 * subject.epsilon ** (1 / 3))
    directions: list[NDArray[np.float64] | None] = [None] * len(subject.inputs)
    directions[which] = tangent
    up, down = line_rows(subject, directions, [step, -step], meter)
    with np.errstate(all="ignore"):
        return np.asarray((up - down) / (2 * step))


def _values(
    subject: Any,
    push: Callable[[int, NDArray[np.float64]], NDArray[np.float64]],
    base: NDArray[np.float64],
) -> dict[str, float]:
    """Compare the value of f under both modes, and without any, with a plain call."""
    if not hasattr(subject, "program"):
        return {}
    from gradlab.subject.torch_outputs import to_row

    seen: dict[str, NDArray[np.float64] | None] = {}
    subject.analytic.pull(np.zeros((1, len(base))))
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
