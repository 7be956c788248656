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

The second asks the function (`dependence`). Either way, what an output may depend on is
bounded by a product of sets, one per axis of the input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.noise.noise import ULPS
from gradlab.differentiation.sizes.scales import scales_of, step_sizes
from gradlab.differentiation.sparse.colouring import Colouring, colouring_of
from gradlab.differentiation.sparse.dependence import (
    Case,
    axes_of,
    hidden_by_rounding,
    near_by,
    seen_everywhere,
    signs,
    touched_by,
    touched_in,
)
from gradlab.differentiation.sparse.entries import Entries
from gradlab.differentiation.sparse.packed_slopes import (
    Slopes,
    differences,
    spread_out,
)
from gradlab.differentiation.sparse.zero_bars import (
    asked_from_afar,
    open_zeros,
    stirred_outside,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.quotients import Quotients
    from gradlab.subject.subject import Subject

__all__ = ["affordable", "compressed", "compressed_together"]

_FEWEST_COLUMNS = 8  # with fewer there is nothing to save
_FEWEST_ROWS = 4  # one colour serves at most as many columns as there are rows
_WORTHWHILE = 0.7  # of the evaluations of a dense Jacobian
_SAFETY = 8.0  # error bars by which the directional derivative may be off
_DEVIATIONS = 4.0  # of the rounding seen along a direction: as much may be hidden
_LEAST_SHARE = 0.1  # of the rounding that bars allow for: never less is believed
_SHORTEST = 0.5  # of its step: what a random direction moves any coordinate at least
_TOGETHER = 2**18  # numbers that displace several inputs in one batch: 2 MiB
_MORE = 8  # evaluations at most that verify a pattern
_PART = 4  # of the memory: what such a batch may take
_PATIENCE = 1.0  # seconds that such a batch may take: of it, nothing is kept


def compressed(
    subject: Subject,
    which: int,
    base: NDArray[np.float64],
    meter: Meter,
    *,
    seed: int = 0,
    guess: NDArray[np.float64] | Entries | None = None,
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
    >>> from gradlab.differentiation.evaluation import base_row
    >>> from gradlab.differentiation.metering.meter import Meter
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
    if not np.isfinite(subject.point(which)).all() or not affordable(meter, n):
        return None
    rng = np.random.default_rng([seed, which, 13])
    idle = np.zeros(rows)
    case = Case(subject, (which,), base, scales_of(subject, which), meter, rng, idle)
    axes = axes_of(variable.shape, n, is_complex=variable.is_complex)
    guessed = None if guess is None else _guessed(guess, axes)
    if guessed is not None and _fits(meter, guessed, rows):
        found = _as_guessed(case, [guessed])[0]
        if found is not None:
            return found
    if seen_everywhere(case):
        return None
    colouring = colouring_of(touched_in(case, axes), axes)
    fits = _pays(colouring.count, n) and _fits(meter, colouring, rows)
    return _measured(case, [colouring]) if fits else None


def compressed_together(
    subject: Subject,
    guesses: Mapping[int, NDArray[np.float64] | Entries],
    base: NDArray[np.float64],
    meter: Meter,
    *,
    seed: int = 0,
) -> dict[int, Quotients | None]:
    """Central differences of all coordinates of several small inputs, in one batch.

    As `compressed` with a guess, for all of them in one batch of evaluations.

    Parameters
    ----------
    subject, base, meter, seed
        As for `compressed`.
    guesses
        By input: a matrix that may be zero where the Jacobian is, (rows, coordinates).

    Returns
    -------
    dict
        As of `compressed`, by input; None of a guess that was found to be wrong, or
        too dense to pay. Inputs are missing that were not looked at.
    """
    rows, colourings = len(base), dict[int, Colouring]()
    dense: dict[int, Quotients | None] = {}
    if len(guesses) < 2 or rows < _FEWEST_ROWS or not np.isfinite(base).all():
        return {}
    dtype = subject.inputs[next(iter(guesses))].dtype
    for which, guess in guesses.items():
        variable, point = subject.inputs[which], subject.point(which)
        shape, n = variable.shape, variable.coordinates
        axes = axes_of(shape, n, is_complex=variable.is_complex)
        if n and axes and variable.dtype == dtype and np.isfinite(point).all():
            colouring = _guessed(guess, axes)
            if colouring is None:  # nor would it pay alone
                dense[which] = None
            elif _pays(colouring.count, n, more=4):
                colourings[which] = colouring
    inputs = tuple(colourings)
    n = sum(len(colouring.colours) for colouring in colourings.values())
    count = 2 * sum(2 + colouring.count for colouring in colourings.values())
    small = count * n <= _TOGETHER and count * meter.each <= _PATIENCE
    if len(inputs) < 2 or not small or not affordable(meter, n):
        return dense
    scales = np.concatenate([scales_of(subject, which) for which in inputs])
    rng = np.random.default_rng([seed, 13])
    case = Case(subject, inputs, base, scales, meter, rng, np.zeros(rows))
    found = _as_guessed(case, list(colourings.values()))
    return dense | dict(zip(inputs, found, strict=True))


def _pays(count: int, n: int, more: int = 2) -> bool:
    """Whether so many colours of n columns, and more evaluations, are few enough."""
    return 2 * count + more <= _WORTHWHILE * 2 * n


def _fits(meter: Meter, colouring: Colouring, rows: int) -> bool:
    """Whether displacements and values of one batch are a part of the memory."""
    count, n = 2 * colouring.count + _MORE, len(colouring.colours)
    return meter.memory is None or 8 * count * (n + rows) <= meter.memory // _PART


def affordable(meter: Meter, n: int) -> bool:
    """Whether the dense Jacobian still fits after everything that is tried here."""
    count, budget = 5 * n + 64, meter.budget
    if (
        budget.evaluations is not None
        and meter.evaluations + count > budget.evaluations
    ):
        return False
    each = meter.seconds / max(meter.evaluations, 1)
    return budget.seconds is None or meter.seconds + count * each <= budget.seconds


def _measured(case: Case, colourings: list[Colouring]) -> Quotients | None:
    """Measure by a pattern that the function itself has told.

    A random direction is walked along in the same batch; None where it disagrees.
    """
    direction = _direction(case)
    slopes, ends = differences(case, colourings, np.array([direction, -direction]))
    # of what is outside: what moving a whole mask, by more than a central difference
    # would, cannot have hidden
    outside = hidden_by_rounding(case)[:, None]
    off, bars = _left_over(slopes, direction, ends[:, :, None])
    with np.errstate(all="ignore"):
        bars = slopes.each(np.add, bars)
        bars += outside * (np.abs(direction) / case.scales).sum()
        holds = off <= _SAFETY * bars + _truncation(case, ends)
    if not holds.all():
        return None
    outside = asked_from_afar(case, colourings, slopes, outside)
    return spread_out(case, slopes, outside)[0]


def _guessed(
    guess: NDArray[np.float64] | Entries, axes: tuple[NDArray[np.intp], ...]
) -> Colouring | None:
    """Colour the columns of a matrix that may be zero where the Jacobian is.

    None where that takes too many colours: as many at least as rows have entries.
    """
    rows, n = guess.shape
    if isinstance(guess, Entries):
        known, count = guess, guess.count
    else:
        known, count = None, int(np.count_nonzero(guess != 0))
    if not _pays(count // rows, n):
        return None
    colouring = colouring_of(touched_by(guess, axes), axes, known)
    return colouring if _pays(colouring.count, n) else None


def _as_guessed(case: Case, colourings: list[Colouring]) -> list[Quotients | None]:
    """Measure by patterns that nobody has confirmed, by input; None where it fails.

    Along one random direction in the space of each input, at its full length and at
    half of it: the slope has to be that of the entries inside, and the second
    difference has to shrink to a quarter. That of a kink, whose slope may be zero,
    shrinks to a half. Outputs so flat that rounding could hide an entry of theirs have
    to stand still besides, far away.
    """
    direction, lengths = _direction(case), np.array([1.0, -1.0, 0.5, -0.5])
    walks = np.zeros((len(lengths), len(case.inputs), len(direction)))
    for k, slot in enumerate(case.slots):
        walks[:, k, slot] = np.multiply.outer(lengths, direction[slot])
    slopes, values = differences(case, colourings, walks.reshape(-1, len(direction)))
    base = case.base[:, None]
    ends = values.reshape(len(lengths), len(case.inputs), -1).swapaxes(1, 2)
    off, bars = _left_over(slopes, direction, ends)
    with np.errstate(all="ignore"):
        slack = _truncation(case, ends)
        far, near = (ends[k] - base + (ends[k + 1] - base) for k in (0, 2))
        holds = off <= _SAFETY * slopes.each(np.add, bars) + slack
        holds &= np.abs(far - 4 * near) <= 2 * slack
        told: NDArray[np.bool_] = np.asarray(holds.all(axis=0))
        told = told & np.isfinite(ends).all(axis=(0, 1))
        if not told.any():
            return [None] * len(told)
        reach = _SHORTEST * step_sizes(np.ones(1), case.epsilon, 2)
        unseen = _unseen(case, off, slopes.each(np.add, bars**2), ends)
        outside = (off + unseen) / reach
        doubt = open_zeros(case, slopes, outside) & told
    if doubt.any():
        stirs = stirred_outside(case, colourings, doubt, near_by(case))
        told &= ~stirs.any(axis=0)
        outside = np.where(doubt, hidden_by_rounding(case)[:, None], outside)
        outside = np.where(told, outside, 0.0)
        outside = asked_from_afar(case, colourings, slopes, outside)
    made = spread_out(case, slopes, outside)
    return [each if kept else None for each, kept in zip(made, told, strict=True)]


def _left_over(
    slopes: Slopes, direction: NDArray[np.float64], ends: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what the entries inside do not explain, (rows, inputs), and their bars."""
    expected, bars = slopes.along(direction)
    with np.errstate(all="ignore"):
        return np.abs((ends[0] - ends[1]) / 2 - expected), bars


def _unseen(
    case: Case,
    off: NDArray[np.float64],
    squares: NDArray[np.float64],
    ends: NDArray[np.float64],
) -> NDArray[np.float64]:
    """How much of the movement along a direction rounding may hide, (rows, inputs).

    Rounding errors of many values add up like their squares, and how large they really
    are is told by what is left over in all rows together.
    """
    base = case.base[:, None]
    moved = (ends != base).any(axis=0)
    digits = np.where(moved, 2 * ULPS, 0.5) * case.epsilon
    noise = np.sqrt(squares) + digits * np.abs(base)
    heard = noise > 0
    seen = np.where(heard, off / np.where(heard, noise, 1.0), 0.0)
    share = np.sqrt((seen**2).sum(axis=0) / np.maximum(heard.sum(axis=0), 1))
    return np.asarray(np.clip(_DEVIATIONS * share, _LEAST_SHARE, 1.0) * noise)


def _direction(case: Case) -> NDArray[np.float64]:
    """Displace every coordinate by half its step or more, at random."""
    direction = step_sizes(case.scales, case.epsilon, 2)
    direction *= signs(case.rng, len(direction))
    return direction * case.rng.uniform(_SHORTEST, 1.0, len(direction))


def _truncation(case: Case, ends: NDArray[np.float64]) -> float:
    """Movement of f by what neither bar nor bend shows.

    The third derivative, that is, which moves f by a rounding of its own scale: that
    of all rows, since a row may be small where it is.
    """
    scale = float(np.abs(ends).max(initial=0.0))
    return _SAFETY * ULPS * case.epsilon * scale
