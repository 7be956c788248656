"""Jacobians of which most entries are zero: found out, compressed, never trusted.

An elementwise function, a row-wise softmax, a convolution: each output looks at few
coordinates of an input. Coordinates that no output sees together are displaced in one
evaluation (Curtis, Powell and Reid, J. Inst. Maths Applics 13, 1974). Which ones those
are is a guess, made in one of two ways, and a random direction, which knows nothing of
the pattern, has to agree with the result. Where it does not, the guess is thrown away.

The first guess costs nothing: the zeros of the analytic side. A gradient that drops an
entry, or puts it into a wrong place, does not survive it: what the random direction
sees of the entries outside, their slopes as well as kinks that a central difference
averages away, must be too little to matter to any of them.

The second asks the function (`gradlab.differentiation.dependence`). Either way, what an
output may depend on is bounded by a product of sets, one per axis of the input.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.colouring import Colouring, colouring_of
from gradlab.differentiation.dependence import (
    Case,
    axes_of,
    hidden_by_rounding,
    seen_everywhere,
    stirred,
    touched_by,
    touched_in,
)
from gradlab.differentiation.finite_difference import scales_of, step_sizes
from gradlab.differentiation.quotients import Pattern, Quotients

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.evaluation import Meter
    from gradlab.subject.subject import Subject

__all__ = ["compressed"]

_FEWEST_COLUMNS = 8  # with fewer there is nothing to save
_FEWEST_ROWS = 4  # one colour serves at most as many columns as there are rows
_WORTHWHILE = 0.7  # of the evaluations of a dense Jacobian
_SAFETY = 8.0  # error bars by which the directional derivative may be off
_TOLD = 2e-8  # of the largest effect on an output: zeros with such a bar are settled
_FEW_GROUPS = 8  # of rows that depend on the same: each is asked by itself
_DEVIATIONS = 4.0  # of the rounding seen along a direction: as much may be hidden
_LEAST_SHARE = 0.1  # of the rounding that bars allow for: never less is believed
_SHORTEST = 0.5  # of its step: what a random direction moves any coordinate at least
_ROUND_OFF = 4.0  # as in `finite_difference.central`


def compressed(
    subject: Subject,
    which: int,
    base: NDArray[np.float64],
    meter: Meter,
    *,
    seed: int = 0,
    guess: NDArray[np.float64] | None = None,
) -> Quotients | None:
    """Central differences of all coordinates of one input, several at a time.

    Parameters
    ----------
    subject
        At its point; it is there again afterwards.
    which
        Number of the input.
    base
        f at the point, shape (rows,).
    meter
        Charged for every evaluation.
    seed
        Of the displacements and of the direction that verifies.
    guess
        A matrix that may be zero where the Jacobian is, shape (rows, coordinates).

    Returns
    -------
    Quotients or None
        The same numbers as `central` gives one coordinate at a time, entries outside
        of the pattern being 0 with the bar of a difference that did not move; None
        where the pattern is not sparse enough to pay, or was found to be wrong.

    Examples
    --------
    >>> from gradlab.building import Sides, build_subject
    >>> from gradlab.differentiation.evaluation import Meter, base_row
    >>> x = np.linspace(0.1, 1.0, 100)
    >>> subject = build_subject(np.sin, (x,), Sides(jac=np.cos))
    >>> meter = Meter()
    >>> found = compressed(subject, 0, base_row(subject, meter), meter)
    >>> bool(np.allclose(np.diag(found.value), np.cos(x))), meter.evaluations < 50
    (True, True)
    """
    variable = subject.inputs[which]
    n, rows = variable.coordinates, len(base)
    if n < _FEWEST_COLUMNS or rows < _FEWEST_ROWS or not np.isfinite(base).all():
        return None
    if not np.isfinite(subject.point(which)).all() or not _affordable(meter, n):
        return None
    rng = np.random.default_rng([seed, which, 13])
    idle = np.zeros(rows)
    case = Case(subject, which, base, scales_of(subject, which), meter, rng, idle)
    axes = axes_of(variable.shape, n, is_complex=variable.is_complex)
    if guess is not None:
        colouring = colouring_of(touched_by(guess, axes), axes)
        found = _as_guessed(case, colouring) if _pays(colouring) else None
        if found is not None:
            return found
    if seen_everywhere(case):
        return None
    colouring = colouring_of(touched_in(case, axes), axes)
    return _measured(case, colouring) if _pays(colouring) else None


def _pays(colouring: Colouring) -> bool:
    """Whether the colours are few enough."""
    n = len(colouring.colours)
    return 2 * colouring.count + 2 <= _WORTHWHILE * 2 * n


def _affordable(meter: Meter, n: int) -> bool:
    """Whether the dense Jacobian still fits after everything that is tried here."""
    count, budget = 5 * n + 64, meter.budget
    if (
        budget.evaluations is not None
        and meter.evaluations + count > budget.evaluations
    ):
        return False
    each = meter.seconds / max(meter.evaluations, 1)
    return budget.seconds is None or meter.seconds + count * each <= budget.seconds


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Slopes:
    """Of the columns that each row may depend on, side by side; shape (rows, k)."""

    columns: NDArray[np.intp]
    valid: NDArray[np.bool_]
    value: NDArray[np.float64]
    error: NDArray[np.float64]
    bend: NDArray[np.float64]
    step: NDArray[np.float64]  # of every coordinate, (n,)

    def along(
        self, direction: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the derivative along a direction, (rows,), and its bars, (rows, k)."""
        there = direction[self.columns]
        expected = np.where(self.valid, self.value * there, 0.0).sum(axis=1)
        return expected, np.where(self.valid, self.error * np.abs(there), 0.0)


def _measured(case: Case, colouring: Colouring) -> Quotients | None:
    """Measure by a pattern that the function itself has told.

    A random direction is walked along in the same batch; None where it disagrees.
    """
    direction = _direction(case)
    slopes, ends = _displaced(case, colouring, np.array([direction, -direction]))
    # of what is outside: what moving a whole mask, by more than a central difference
    # would, cannot have hidden
    outside = hidden_by_rounding(case)
    off, bars = _left_over(slopes, direction, ends)
    with np.errstate(all="ignore"):
        bars = bars.sum(axis=1) + outside * (np.abs(direction) / case.scales).sum()
        holds = off <= _SAFETY * bars + _truncation(case, ends)
    return _spread_out(case, slopes, outside) if holds.all() else None


def _as_guessed(case: Case, colouring: Colouring) -> Quotients | None:
    """Measure by a pattern that nobody has confirmed; None where it is not.

    Along one random direction, at its full length and at half of it: the slope has to
    be that of the entries inside, and the second difference has to shrink to a quarter.
    That of a kink, whose slope may be zero, shrinks to a half. Outputs so flat that
    rounding could hide an entry of theirs have to stand still besides, far away.
    """
    direction = _direction(case)
    lengths = np.array([1.0, -1.0, 0.5, -0.5])
    slopes, ends = _displaced(case, colouring, np.multiply.outer(lengths, direction))
    if not np.isfinite(ends).all():
        return None
    off, bars = _left_over(slopes, direction, ends)
    with np.errstate(all="ignore"):
        slack = _truncation(case, ends)
        far, near = (ends[k] - case.base + (ends[k + 1] - case.base) for k in (0, 2))
        holds = (off <= _SAFETY * bars.sum(axis=1) + slack) & (
            np.abs(far - 4 * near) <= 2 * slack
        )
        if not holds.all():
            return None
        reach = _SHORTEST * step_sizes(np.ones(1), case.epsilon, 2)
        outside = (off + _unseen(case, off, bars, ends)) / reach
        effects = np.abs(slopes.value * case.scales[slopes.columns])
        effect = np.where(slopes.valid, effects, 0.0).max(axis=1, initial=0.0)
        least = np.where(effect > 0, effect, np.minimum(1.0, np.abs(case.base)) / 4)
        doubt = ~(outside <= _TOLD * least)
    if doubt.any() and not _still_outside(case, colouring, doubt):
        return None
    outside = np.where(doubt, hidden_by_rounding(case), outside)
    return _spread_out(case, slopes, outside)


def _left_over(
    slopes: _Slopes, direction: NDArray[np.float64], ends: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what the entries inside do not explain, (rows,), and their bars."""
    expected, bars = slopes.along(direction)
    with np.errstate(all="ignore"):
        return np.abs((ends[0] - ends[1]) / 2 - expected), bars


def _unseen(
    case: Case,
    off: NDArray[np.float64],
    bars: NDArray[np.float64],
    ends: NDArray[np.float64],
) -> NDArray[np.float64]:
    """How much of the movement along a direction rounding may hide, (rows,).

    Rounding errors of many values add up like their squares, and how large they really
    are is told by what is left over in all rows together.
    """
    moved = (ends != case.base).any(axis=0)
    digits = np.where(moved, 2 * _ROUND_OFF, 0.5) * case.epsilon
    noise = np.sqrt((bars**2).sum(axis=1)) + digits * np.abs(case.base)
    seen = off[noise > 0] / noise[noise > 0]
    share = float(np.sqrt(np.mean(seen**2))) if seen.size else 0.0
    return np.asarray(min(1.0, max(_DEVIATIONS * share, _LEAST_SHARE)) * noise)


def _still_outside(case: Case, colouring: Colouring, doubt: NDArray[np.bool_]) -> bool:
    """Whether some outputs stay put when all they should not depend on moves far.

    Outputs of different patterns are asked one by one while they are few, else by the
    bits of their number: those of one side stay put while all moves that none of them
    depends on.
    """
    bits = np.packbits(colouring.pattern[doubt], axis=1)
    _, first, group = np.unique(bits, axis=0, return_index=True, return_inverse=True)
    inside = colouring.pattern[np.flatnonzero(doubt)[first]]
    number = np.arange(len(inside))
    asked = number[:, None] == number
    if len(inside) > _FEW_GROUPS:
        digits = (number >> np.arange((len(inside) - 1).bit_length())[:, None]) & 1
        asked = np.concatenate([digits == 0, digits == 1])
    masks = np.array([~inside[some].any(axis=0) for some in asked])
    told = inside.copy()
    for some, mask in zip(asked, masks, strict=True):
        told[some] |= mask
    if not told.all():
        return False
    moved = stirred(case, masks)[:, doubt]
    return not moved[asked[:, group.ravel()]].any()


def _direction(case: Case) -> NDArray[np.float64]:
    """Displace every coordinate by half its step or more, at random."""
    direction = step_sizes(case.scales, case.epsilon, 2)
    direction *= case.rng.choice([-1.0, 1.0], len(direction))
    return direction * case.rng.uniform(_SHORTEST, 1.0, len(direction))


def _truncation(case: Case, ends: NDArray[np.float64]) -> float:
    """Movement of f by what neither bar nor bend shows.

    The third derivative, that is, which moves f by a rounding of its own scale: that
    of all rows, since a row may be small where it is.
    """
    scale = float(np.abs(ends).max(initial=0.0))
    return _SAFETY * _ROUND_OFF * case.epsilon * scale


def _displaced(
    case: Case, colouring: Colouring, more: NDArray[np.float64]
) -> tuple[_Slopes, NDArray[np.float64]]:
    """Displace all columns of a colour together; hand each row to its own column.

    Parameters
    ----------
    more
        Displacements to evaluate in the same batch, shape (count, n).

    Returns
    -------
    slopes
        Of the entries of the pattern.
    ends
        Values of f for the other displacements, shape (count, rows).
    """
    steps = step_sizes(case.scales, case.epsilon, 2)
    own = np.arange(colouring.count)[:, None] == colouring.colours[None, :]
    pairs = np.repeat(np.where(own, steps, 0.0), 2, axis=0)
    pairs[1::2] *= -1
    values = case.values(np.concatenate([pairs, more]))
    point = case.subject.point(case.which)
    dtype = case.subject.inputs[case.which].dtype
    right, left = (_taken(point, sign * steps, dtype) for sign in (1.0, -1.0))
    j, valid = _side_by_side(colouring.pattern)
    width = right - left
    i = np.arange(len(case.base))[:, None]
    up, down = (values[2 * colouring.colours[j] + k, i] for k in (0, 1))
    base = case.base[:, None]
    with np.errstate(all="ignore"):
        bend = (up - base) / right[j] - (down - base) / left[j]
        size = np.maximum(np.maximum(np.abs(up), np.abs(down)), np.abs(base))
        bars = _ROUND_OFF * case.epsilon * size / np.abs(width[j]) * 2 + np.abs(
            bend
        ) * np.sqrt(case.epsilon)
        value = (up - down) / width[j]
    slopes = _Slopes(j, valid, value, bars, bend, width / 2)
    return slopes, values[2 * colouring.count :]


def _spread_out(case: Case, slopes: _Slopes, outside: NDArray[np.float64]) -> Quotients:
    """Hand over the entries, the bar of the zeros, and how to make a matrix of both."""
    pattern = Pattern(
        slopes.columns,
        slopes.valid,
        outside,
        slopes.value,
        slopes.error,
        slopes.bend,
        case.scales,
    )
    # no memory before it is needed
    step, bend = (
        np.broadcast_to(part, pattern.shape) for part in (slopes.step, np.nan)
    )
    return Quotients(
        value=pattern.values,
        error=pattern.errors,
        step=step,
        bend=bend,
        pattern=pattern,
    )


def _side_by_side(
    pattern: NDArray[np.bool_],
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """List the columns of every row; rows with fewer repeat one, which is not valid."""
    # several times as fast as indices of two axes
    i, j = np.divmod(np.flatnonzero(pattern), pattern.shape[1])
    counts = np.bincount(i, minlength=len(pattern))
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    most = max(int(counts.max(initial=0)), 1)
    valid = np.arange(most) < counts[:, None]
    columns = np.zeros((len(pattern), most), dtype=np.intp)
    columns[i, np.arange(len(i)) - first[i]] = j
    columns = np.where(valid, columns, columns[:, :1])
    return columns, valid & (counts > 0)[:, None]


def _taken(
    point: NDArray[np.float64], steps: NDArray[np.float64], dtype: str
) -> NDArray[np.float64]:
    """Displacements as the arithmetic of the input makes them."""
    kinds = {"float32": np.float32, "float16": np.float16, "complex64": np.float32}
    kind = kinds.get(dtype, np.float64)
    there = (point + steps).astype(kind).astype(np.float64)
    return np.asarray(there - point)
