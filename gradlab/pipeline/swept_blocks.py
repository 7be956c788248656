"""What a sweep keeps of the check that comes before it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.swept import Swept
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.noise.analytic_noise import (
    MOST_ROWS,
    SCATTER,
    analytic_noise,
)
from gradlab.differentiation.noise.noise import rounding_of
from gradlab.pipeline.outcome import Judged
from gradlab.pipeline.taking_back import behind_solvers, joint_kinks, take_back

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Outcome
    from gradlab.subject.subject import Subject

__all__ = ["swept_blocks"]


def swept_blocks(
    origin: Origin, outcome: Outcome, meter: Meter, seed: int
) -> tuple[Swept, ...]:
    """Keep of a check what a sweep needs: values, bars and verdicts.

    Parameters
    ----------
    origin
        The subject, at its point.
    outcome
        Judged; verdicts that a check would take back are changed.
    meter
        Charged for what is asked about accusations, and kinks followed together.
    seed
        Of points beside.
    """
    subject = origin.subject
    judged = Judged(subject, outcome, meter, seed)
    reasons = take_back(judged) + behind_solvers(judged)
    excuses = {f.where: f.evidence for f in reasons}
    kinks = joint_kinks(judged)
    together = {f.where: f.evidence for f in kinks if f.severity == "error"}
    missing = {problem.where: problem.detail for problem in outcome.problems}
    unsteady = 0.0 if outcome.unsteady is None else _largest(outcome.unsteady)
    shown = [  # an input of which nothing was looked at is left out; an empty one not
        found
        for found in outcome.blocks
        if found.positions.size or not subject.inputs[found.which].coordinates
    ]
    blocks = [
        Swept(
            variable=subject.inputs[found.which],
            columns=found.positions,
            analytic=found.analytic,
            reference=found.side.value,
            reference_error=found.side.error,
            verdicts=found.verdicts,
            kinds=found.kinds,
            left=found.left,
            right=found.right,
            epsilon=subject.epsilon,
            rounding=_rounding(origin, found),
            resolution=_resolution(origin, found.scales),
            dtype=_dtype(subject),
            outputs=tuple(subject.outputs),
            excuse=excuses.get(subject.inputs[found.which].name, ""),
            together=together.get(subject.inputs[found.which].name, ""),
            unsteady=unsteady,
            missing=""
            if np.isfinite(found.analytic).any()
            else missing.get(subject.inputs[found.which].name, ""),
        )
        for found in shown
    ]
    return tuple(_with_rests(subject, shown, blocks, seed))


def _with_rests(
    subject: Subject, shown: list[Block], blocks: list[Swept], seed: int
) -> Iterator[Swept]:
    """Tell gradients that no step shows, and that are rounding alone, from others.

    One of ten saturated layers is as small, and stands still where its inputs are moved
    by less than a rounding.
    """
    noise = None
    for found, block in zip(shown, blocks, strict=True):
        size = np.abs(block.analytic)
        asked = block.verdict == Verdict.UNDECIDED and not block.resolved
        if not asked or (block.verdicts > 0).any() or len(size) > MOST_ROWS:
            yield block
            continue
        if noise is None:
            noise = analytic_noise(subject, np.eye(len(size)), seed=seed)
        moves = SCATTER * noise[found.which][:, found.positions]
        rest = float(size.max()) if (size <= moves).all() else 0.0
        yield dataclasses.replace(block, rest=rest)


def _rounding(origin: Origin, found: Block) -> NDArray[np.float64]:
    """Say how much of every output is lost by rounding what it is made of, (rows, 1).

    Of itself, of a number that its last digits show, and of the coordinates.
    """
    subject = origin.subject
    point = np.abs(subject.point(found.which)[found.positions])
    with np.errstate(all="ignore"):
        moved = np.nan_to_num(np.abs(found.analytic) * point, posinf=0.0)
    inside = subject.epsilon * moved.max(axis=1, initial=0.0)
    own = rounding_of(origin.base, subject.epsilon)
    return np.asarray(np.fmax(own, inside)[:, None])


def _largest(values: NDArray[np.float64]) -> float:
    return float(np.max(np.abs(values[np.isfinite(values)]), initial=0.0))


def _resolution(origin: Origin, scales: NDArray[np.float64]) -> float:
    """Estimate the noise of a central difference at its best step, eps^(1/3) wide."""
    size = _largest(origin.base)
    scale = float(np.median(scales)) if scales.size else 1.0
    return float(origin.subject.epsilon ** (2 / 3) * size / scale)


def _dtype(subject: Subject) -> str:
    """Name of the coarsest arithmetic, for people."""
    names = [variable.dtype for variable in (*subject.inputs, *subject.outputs)]
    coarse = {"bfloat16": 0, "float16": 1, "complex32": 1, "float32": 2, "complex64": 2}
    return min(names, key=lambda name: coarse.get(name, 9), default="float64")
