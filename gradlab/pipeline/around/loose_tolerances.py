"""Accusations that shrink with a tolerance of f: a solver's error, and no slip.

An integrator that keeps its steps, an iteration that ends at 1e-4, is smooth as far as
it takes the same number of steps, and no jump tells that it is not what it stands for.
Its tolerance does: where that is made smaller, f runs its lines more often, and the
distance to the gradient of what it stands for becomes less. The distance to a gradient
that is wrong stays what it was.

References
----------
J. Gilbert, *Automatic differentiation and iterative processes*, Optimization Methods
and Software 1 (1992).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.differentiation.metering.timeouts import NotReturnedError
from gradlab.pipeline.around.slight_errors import least_first, off, slope_at, weights
from gradlab.pipeline.around.tolerance_numbers import TENTH, tolerances_of
from gradlab.pipeline.blocks import label_of
from gradlab.pipeline.sides.lines_run import TooLong, way_of
from gradlab.subject.guarding.alone import alone
from gradlab.subject.library_defaults import Default
from gradlab.subject.subject import holds_numbers, unit_vectors
from gradlab.subject.tolerances_off import with_smaller, without_caches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.around.tolerance_numbers import Tolerances
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Judged, Outcome
    from gradlab.subject.subject import Subject

    Place = tuple[int, int]  # row and column of an entry

__all__ = [
    "SHRINKS",
    "leave_to_tolerances",
    "told_at",
    "with_other_numbers",
    "words_of",
]

T = TypeVar("T")
SHRINKS = 4.0  # times less: what is the solver's does, by its order a hundred times
_CLOSE = 0.2  # of a gradient: a tolerance of 1e-3 is good for 0.1
_WITHIN = 1e-2  # of a tolerance, of what moves f most: nobody asked f for so much
_ENTRIES = 4  # whose slopes are measured again
# Of the size of an entry: where nobody else asks, as f may keep its results.
_STEP = 1.0001e-4
_LONG = 0.1  # the same where a short step meets the jumps of a solver


class _Look(NamedTuple):
    """An entry, and how far its sides are apart with a smaller tolerance."""

    block: Block
    place: Place
    left: float


def leave_to_tolerances(judged: Judged) -> Iterator[Finding]:
    """Leave open what comes closer where a tolerance of f is made smaller.

    An evaluation and two for each small number that f has, of the first eight, and
    some eight more where one of them is a tolerance.
    """
    subject, outcome, meter = judged.subject, judged.outcome, judged.meter
    if not judged.exact or outcome.interrupted:
        return
    wrong, rows = _slightly_off(outcome.blocks)
    if not rows.size:
        return

    def ask() -> tuple[Tolerances, list[Block], list[_Look]] | None:
        found = tolerances_of(subject, meter)
        if not found.numbers:
            return None
        with with_smaller(subject, found.numbers, found.factor):
            return found, *_shrinking(subject, wrong, rows, meter, found)

    answer = with_other_numbers(subject, outcome, ask)
    if answer is None:
        return
    found, shrinking, looks = answer
    for block in shrinking:
        i, columns = np.nonzero(off(block)[rows])
        if not i.size:
            continue
        block.leave_open((rows[i], columns))
        own = [look for look in looks if look.block is block]
        if own:
            yield _told(subject, own[0], found)
    yield from _beyond_tolerances(subject, outcome.blocks, found)


def with_other_numbers(
    subject: Subject, outcome: Outcome, ask: Callable[[], T | None]
) -> T | None:
    """Ask what f is with other numbers in it; None where that cannot be.

    Parameters
    ----------
    subject
        Whose numbers are written, where nobody else reads them.
    outcome
        Is told of an interrupt.
    ask
        What to do; whatever it writes it puts back.
    """
    try:
        if not alone():  # numbers are written where other threads read them
            return None
        with without_caches(subject):
            return ask()
    except (BudgetExhausted, TooLong, NotReturnedError):
        return None
    except KeyboardInterrupt as stop:
        outcome.cut_short(stop, "what a smaller tolerance of f does was not measured")
        return None
    except Exception:  # noqa: BLE001 - the user's code may not take such numbers
        return None


def _beyond_tolerances(
    subject: Subject, blocks: list[Block], found: Tolerances
) -> Iterator[Finding]:
    """Leave open what is off by less than f is good for, whatever comes of it."""
    for block in blocks:
        within = _within(block, blocks, found)
        if within.any():
            place = _largest(block, within)
            block.leave_open(within)
            yield _told_within(subject, block, place, found)


def _within(block: Block, blocks: list[Block], found: Tolerances) -> NDArray[np.bool_]:
    """Accusations of so little that f, to its tolerance, is not good for it, (rows, n).

    How samples of a batch share the steps of an integrator comes and goes with them.
    """
    most = [np.abs(b.formula * b.sizes).max(axis=1, initial=0.0) for b in blocks]
    each = weights(block)
    allowed = _WITHIN * found.least * np.max(most, axis=0)
    return np.asarray((each > 0) & (each <= allowed[:, None]))


def _largest(block: Block, mask: NDArray[np.bool_]) -> Place:
    flat = int(np.argmax(np.where(mask, weights(block), 0.0)))
    row, column = divmod(flat, mask.shape[1])
    return row, column


def _slightly_off(blocks: list[Block]) -> tuple[list[Block], NDArray[np.intp]]:
    """Pick what is off by little: inputs, and the outputs by which they are.

    Beside an input that is wrong altogether others may be right.
    """
    wrong = [block for block in blocks if block.accused and off(block).any()]
    for some in (wrong, [b for b in wrong if least_first([b], _CLOSE).size]):
        rows = least_first(some, _CLOSE) if some else np.zeros(0, dtype=np.intp)
        if rows.size:
            return some, rows
    return [], np.zeros(0, dtype=np.intp)


def _worst(wrong: list[Block], rows: NDArray[np.intp]) -> list[tuple[Block, Place]]:
    """Pick the entries that are off by most, of every block and then of any."""
    found: list[tuple[float, Block, Place]] = []
    for block in wrong:
        each = weights(block)[rows]
        for flat in np.argsort(-each, axis=None, kind="stable")[:_ENTRIES]:
            i, column = divmod(int(flat), each.shape[1])
            if each[i, column] > 0:
                place = int(rows[i]), column
                found.append((float(each[i, column]), block, place))
    found.sort(key=lambda one: -one[0])
    first = [next((f for f in found if f[1] is block), None) for block in wrong]
    chosen = [one for one in first if one is not None]
    chosen += [one for one in found if one not in chosen]
    return [(block, place) for _, block, place in chosen[: max(_ENTRIES, len(wrong))]]


def _shrinking(
    subject: Subject,
    wrong: list[Block],
    rows: NDArray[np.intp],
    meter: Meter,
    found: Tolerances,
) -> tuple[list[Block], list[_Look]]:
    """Pick the inputs that are far less off as f is now: all of them, or by themselves.

    Beside one that is wrong, more entries of the others are looked at.
    """
    looks = _looks(subject, wrong, rows, meter, found)
    some = [block for block in wrong if _shrinks(looks, block)]
    if not some or len(some) == len(wrong):
        return some, looks
    looks = _looks(subject, some, rows, meter, found)
    return [block for block in some if _shrinks(looks, block)], looks


def _looks(
    subject: Subject,
    wrong: list[Block],
    rows: NDArray[np.intp],
    meter: Meter,
    found: Tolerances,
) -> list[_Look]:
    """Measure the worst entries again, as f is now."""
    return [
        _Look(block, place, _gap(subject, block, place, meter, found.most))
        for block, place in _worst(wrong, rows)[: found.affordable]
    ]


def _shrinks(looks: list[_Look], block: Block) -> bool:
    """Whether all that was measured of an input is far less than it was."""
    own = [look for look in looks if look.block is block]
    return all(SHRINKS * look.left < float(block.gap[look.place]) for look in own)


def _gap(
    subject: Subject, block: Block, place: Place, meter: Meter, most: float
) -> float:
    """Measure how far the sides are apart at an entry, as f is now.

    Where that is no less than it was, over longer steps, too: an integrator that comes
    to choose other steps on the way jumps by some of its tolerance, and by a short step
    that is a wrong slope.
    """
    row, column = place

    def slope(step: float) -> float:
        meter.spend(2)
        ends = way_of(lambda: slope_at(subject, block, column, step), 2 * most)[0]
        return float(ends[row])

    told = told_at(subject, block, place, most)
    gap = abs(told - slope(_STEP))
    if SHRINKS * gap < float(block.gap[place]):
        return gap
    # what the curvature of f adds cancels: it may be as large as a slip
    far = (4 * slope(_LONG / 2) - slope(_LONG)) / 3
    return min(gap, abs(told - far))


def told_at(subject: Subject, block: Block, place: Place, most: float) -> float:
    """Ask the analytic side for an entry again, as it is now.

    Parameters
    ----------
    most
        Lines that it may run.
    """
    row, column = place
    analytic = subject.analytic
    if analytic is None or holds_numbers(subject):
        return float(block.formula[place])
    cotangent = unit_vectors(len(block.gap), [row])
    pulled, *_ = way_of(lambda: analytic.pull(cotangent), most)
    return float(pulled.values[block.which][0, block.positions[column]])


def _told(subject: Subject, look: _Look, found: Tolerances) -> Finding:
    block, left = look.block, look.left
    entry = label_of(subject, block, look.place[1])
    gap = float(block.gap[look.place])
    numbers, them, times = words_of(found)
    return Finding(
        BugKind.LOW_PRECISION,
        "warning",
        block.name,
        0.9,
        f"The function iterates, to a tolerance or in steps of {numbers}: with {them} "
        f"{times} times smaller the two sides of {entry} are {left:.2g} apart, and "
        f"{gap:.2g} as it is. What the gradient is off by is the error of a solver.",
        "Check with the smaller number (tol, rtol, xtol, a step size): then f is the "
        "function that the gradient belongs to.",
    )


def _told_within(
    subject: Subject, block: Block, place: Place, found: Tolerances
) -> Finding:
    entry = label_of(subject, block, place[1])
    numbers = words_of(found)[0]
    return Finding(
        BugKind.LOW_PRECISION,
        "warning",
        block.name,
        0.9,
        f"The function iterates, to a tolerance or in steps of {numbers}: the two "
        f"sides of {entry} are {float(block.gap[place]):.2g} apart, less than a "
        f"hundredth of that beside what moves the output most.",
        "Check with a smaller number (tol, rtol, xtol, a step size) for a sharper "
        "answer.",
    )


def words_of(found: Tolerances) -> tuple[str, str, str]:
    """Name the numbers, say "it" or "them", and how many times smaller they were."""
    return (
        " and ".join(map(_words, found.numbers)),
        "them" if len(found.numbers) > 1 else "it",
        "ten" if found.factor == TENTH else "a hundred",
    )


def _words(number: float | Default) -> str:
    if not isinstance(number, Default):
        return f"{number:g}"
    return f"{number.value:g} ({number.name}, by default of {number.library})"
