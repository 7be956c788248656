"""Accusations at the edge of where f is defined, of gradients that are right inside.

At a probability of one torch's binary cross-entropy raises beyond, has a slope before,
and a gradient of zero, for a clamp that keeps it from infinity. A derivative has two
sides; what a formula gives where there is one is a convention. Where the gradient a
millionth inside is the slope that f has there, the formula is right, and the edge open.

Entries that f does not let anybody move, and whose gradient is zero. A Cholesky factor
has zeros above its diagonal, and a distribution that is given one raises where they are
anything else. Such entries are no variables: f is not defined beside them, on either
side, however short the step. A gradient of zero is what they are given everywhere, and
nothing else could be meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import NOTHING_TO_DO, BugKind, Finding
from gradlab.differentiation.analytic.gradients_elsewhere import gradients_at
from gradlab.differentiation.noise.analytic_noise import rows_together
from gradlab.differentiation.smoothness import Smoothness
from gradlab.errors import GradlabError
from gradlab.pipeline.blocks import label_of
from gradlab.subject.subject import unit_vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Judged
    from gradlab.subject.subject import Subject

__all__ = ["accept_held_in_place", "leave_edges_open"]

_INSIDE = (2.0**-20, 2.0**-16)  # of the sizes: how far inside gradients are asked for
_COARSE = 16.0  # units of round-off, that this is at least
_LIKE = 1e-3  # relative difference of slopes at the edge and so close to it


def leave_edges_open(judged: Judged) -> Iterator[Finding]:
    """Leave accusations open at an edge where the gradient right inside is right.

    Two gradients of each input that is accused at an edge, and of more outputs than fit
    at a time two of each lot, while the first ones are right.
    """
    if judged.outcome.stopped:
        return
    for block in judged.wrong:
        edge = block.wrong & (block.kinds == Smoothness.EDGE)
        right = _right_inside(judged.subject, block, edge, judged.meter)
        if right.any():
            block.leave_open(right)
            yield _told(judged.subject, block, right)


def _right_inside(
    subject: Subject, block: Block, edge: NDArray[np.bool_], meter: Meter
) -> NDArray[np.bool_]:
    """Tell where the gradient inside is the slope at the edge, a few rows at a time."""
    right = np.zeros_like(edge)
    together = rows_together(subject, meter)
    accused = np.flatnonzero(edge.any(axis=1))
    for rows in np.split(accused, range(together, len(accused), together)):
        if not rows.size:
            break
        right[rows] = edge[rows]
        for by in _INSIDE:
            meter.owe(1)
            gradient = _gradient_inside(subject, block, edge, rows, by)
            right[rows] &= _is_slope(block, gradient, rows)
        if not right[rows].any():  # nor are the others
            break
    return right


def _gradient_inside(
    subject: Subject,
    block: Block,
    edge: NDArray[np.bool_],
    rows: NDArray[np.intp],
    by: float,
) -> NDArray[np.float64] | None:
    """Give some rows with all coordinates that stand at an edge moved inside."""
    columns = np.flatnonzero(edge.any(axis=0))
    ahead = (edge & np.isfinite(block.right))[:, columns].any(axis=0)
    by = max(by, _COARSE * subject.epsilon)
    point = subject.point(block.which).copy()
    moves = np.where(ahead, by, -by) * block.scales[columns]
    point[block.positions[columns]] += moves
    cotangents = unit_vectors(len(block.height), rows)
    try:
        pulled = gradients_at(subject, {block.which: point}, cotangents)
    except GradlabError:  # outside after all
        return None
    return None if pulled is None else pulled[block.which][:, block.positions]


def _is_slope(
    block: Block, gradient: NDArray[np.float64] | None, rows: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Whether a gradient inside is the slope that f has at the edge, for each entry."""
    slope = block.value[rows]
    if gradient is None:
        return np.zeros(slope.shape, dtype=bool)
    with np.errstate(all="ignore"):
        allowed = _LIKE * np.abs(slope) + SAFETY * block.error[rows]
        # and bars may not be what makes them alike
        near = np.abs(gradient - slope) <= np.minimum(allowed, 0.1 * block.gap[rows])
    return np.asarray(near & np.isfinite(allowed))  # no slope is like an infinite one


def _told(subject: Subject, block: Block, edge: NDArray[np.bool_]) -> Finding:
    row, column = (int(i) for i in np.argwhere(edge)[0])
    label = label_of(subject, block, column)
    count, total = int(edge.any(axis=0).sum()), edge.shape[1]
    return Finding(
        BugKind.NONDIFFERENTIABLE,
        "warning",
        block.name,
        0.85,
        f"{count:,} of {total:,} entries of {block.name} stand at the edge of where f "
        f"is defined, such as {label}: slope {block.value[row, column]:.6g} from "
        f"inside, analytic {block.analytic[row, column]:.6g}; a millionth inside the "
        f"gradient is that slope.",
        "Nothing is wrong inside. To have these entries compared, move the point off "
        "the edge by a millionth, as clamp(1e-6, 1 - 1e-6) does.",
    )


def accept_held_in_place(judged: Judged) -> Iterator[Finding]:
    """Accept gradients of zero where f raises on both sides, on every ladder's step."""
    outcome = judged.outcome
    if (
        not judged.meter.raised
        or outcome.stopped
        or not np.isfinite(outcome.base).all()
    ):
        return
    for block in outcome.blocks:
        if block.settled or not (block.verdicts == Verdict.UNDECIDED).any():
            continue
        held = block.looked & ~np.isfinite(block.value).any(axis=0)
        held &= (block.formula == 0).all(axis=0)
        if not held.any() or held.all():  # nothing can be moved: nothing was compared
            continue
        block.excuse(held)
        yield Finding(
            BugKind.NONFINITE,
            "note",
            block.name,
            0.8,
            f"{held.sum():,} of {held.size:,} entries of {block.name} cannot be moved: "
            f"f raises on both sides, or is no number, however short the step. The "
            f"gradient is zero there, as of what is no variable.",
            NOTHING_TO_DO,
        )
