"""The first, cheap pass: differences of all coordinates, as few as zeros allow."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.tolerance import SAFETY, stillness
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.differentiation.method import Auto
from gradlab.differentiation.products.through_products import ThroughProducts
from gradlab.differentiation.quotients import Pattern
from gradlab.differentiation.sizes.scales import scales_of
from gradlab.differentiation.sizes.small_coordinates import counted_sizes
from gradlab.differentiation.sparse.compression import compressed, compressed_together
from gradlab.differentiation.sparse.support import Support
from gradlab.late import is_made, unmade
from gradlab.pipeline.blocks import Block
from gradlab.pipeline.sides.measuring import numeric_side
from gradlab.subject.subject import is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.method import Method
    from gradlab.differentiation.origin import Origin
    from gradlab.differentiation.quotients import Quotients
    from gradlab.differentiation.sparse.entries import Entries

__all__ = ["Wanted", "first_passes", "sparse_passes"]

_FIRST_SLICE = 64  # coordinates; a trial of batches is asked for four times as many
_PATIENCE = 0.25  # seconds of work that an interruption may cost
_NEAR = 1e-4  # relative: what is nearer accuses nobody
_NARROW = 64  # coordinates of an input whose every place may be an entry
_SLICE = 4096  # coordinates between two looks at the budget and the Stop button


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """Coordinates of one input that are to be measured, and by which method."""

    origin: Origin
    which: int
    positions: NDArray[np.intp]
    method: Method
    guess: NDArray[np.float64] | Entries | None  # zero where the Jacobian may be

    @property
    def compressible(self) -> bool:
        """Whether several of them may be displaced in one evaluation."""
        n = self.origin.subject.inputs[self.which].coordinates
        return isinstance(self.method, Auto) and len(self.positions) == n


def first_passes(
    wanted: list[Wanted], reference: Origin, seed: int, meter: Meter
) -> Iterator[tuple[Block, BaseException | None]]:
    """Make a block of cheap differences of each input, and say what stopped it.

    Parameters
    ----------
    reference
        What methods that find their own steps evaluate.
    """
    together = _together(reference, wanted, seed, meter)
    dense = [k.which for k in wanted if k.compressible and not together.get(k.which)]
    at = reference.subject, dense, reference.base
    products = ThroughProducts(*at, meter, seed=seed)
    seen: list[_Measured] = []
    for each in wanted:
        found = together.get(each.which)
        # a guess that did not hold is not to be believed another time
        failed = found is None and each.which in together
        own = dataclasses.replace(each, guess=None) if failed else each
        yield _first_pass(own, found, seed, meter, products, seen)


def sparse_passes(wanted: list[Wanted], seed: int, meter: Meter) -> list[Block] | None:
    """Make a block of each input by its few entries; None where one has too many."""
    together = _together(wanted[0].origin, wanted, seed, meter)
    blocks = []
    for each in wanted:
        found = together.get(each.which)
        if found is None and each.which not in together:
            found = _compressed(each, seed, meter)
        if found is None and len(each.positions) <= _NARROW:
            found = _all_columns(each, meter)
        if found is None:
            return None
        blocks.append(_first_pass(each, found, seed, meter)[0])
    return blocks


def _all_columns(wanted: Wanted, meter: Meter) -> Quotients:
    """Measure a few columns one by one; every place of theirs is an entry."""
    at = wanted.origin, wanted.which, wanted.positions
    plain = numeric_side(*at, wanted.method, meter)
    rows, n = plain.value.shape
    columns = np.tile(np.arange(n), (rows, 1))
    pattern = Pattern(
        support=Support(columns, np.ones((rows, n), dtype=bool), n),
        outside=np.zeros(rows),
        value=plain.value,
        error=plain.error,
        bend=plain.bend,
        scales=scales_of(wanted.origin.subject, wanted.which),
    )
    return dataclasses.replace(plain, pattern=pattern)


def _together(
    reference: Origin, wanted: list[Wanted], seed: int, meter: Meter
) -> dict[int, Quotients | None]:
    """Measure several small inputs at once, where the zeros of their gradients hold."""
    guesses = {
        each.which: each.guess
        for each in wanted
        if each.guess is not None and each.compressible
    }
    at, base = reference.subject, reference.base
    return compressed_together(at, guesses, base, meter, seed=seed)


def _first_slice(wanted: Wanted, meter: Meter, cost: int) -> int:
    """Choose how many coordinates to begin with: no more than one is patient for."""
    breadth = 1 if meter.crew is None else meter.crew.breadth
    most = min(4 * _FIRST_SLICE, len(wanted.positions))
    subject = wanted.origin.subject
    may_batch = subject.may_batch if is_torch_subject(subject) else subject.batches
    if may_batch(wanted.which, cost * most):
        most = min(_SLICE, len(wanted.positions))  # the larger, the cheaper each
    else:
        most = min(_FIRST_SLICE, most)
    if meter.each <= 0:
        return most
    return max(1, min(most, int(_PATIENCE / (meter.each * cost) * breadth)))


def _compressed(wanted: Wanted, seed: int, meter: Meter) -> Quotients | None:
    """Measure several coordinates at a time, where the Jacobian is sparse."""
    return compressed(
        wanted.origin.subject,
        wanted.which,
        wanted.origin.base,
        meter,
        seed=seed,
        guess=wanted.guess,
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """Some columns, and the first of them among those that are wanted."""

    wanted: Wanted
    first: int
    found: Quotients

    @property
    def agrees(self) -> bool:
        """Whether there is nothing that anybody would look at twice."""
        value, guess = self.found.value, self.wanted.guess
        if not isinstance(guess, np.ndarray):
            return False
        with np.errstate(all="ignore"):
            gap = np.abs(guess[:, self.first : self.first + value.shape[1]] - value)
            near = gap <= SAFETY * self.found.error + _NEAR * np.abs(value)
        return bool(near.all())


def _slices(
    wanted: Wanted,
    seed: int,
    meter: Meter,
    products: ThroughProducts | None,
    seen: list[_Measured],
) -> tuple[list[Quotients], BaseException | None]:
    """Measure slice by slice; what was done before an interruption is kept.

    What a budget keeps back for second looks is spent as well, as long as there is
    nothing in what was `seen` that needs them.
    """
    parts: list[Quotients] = []
    done, method, positions = 0, wanted.method, wanted.positions
    subject = wanted.origin.subject
    stop: BaseException | None = None
    try:
        if wanted.compressible:
            before = meter.evaluations
            found = _compressed(wanted, seed, meter)
            if found is None and products is not None:
                found = products.of(wanted.which)
            if found is not None:
                spent = meter.evaluations - before
                meter.expect(spent - method.cost * len(positions))
                return [found], None
        each: float = method.cost
        slice_size = _first_slice(wanted, meter, method.cost)
        # the two halves of a complex entry stay together
        unit = 2 if subject.inputs[wanted.which].is_complex else 1
        while done < len(positions):
            short = meter.kept and meter.left() < method.cost
            if short and all(each.agrees for each in seen):
                meter.release()
            # what a budget leaves, or the whole slice would be lost with it
            slice_size = min(slice_size, meter.left() // method.cost)
            slice_size = max(unit, slice_size - slice_size % unit)
            part = positions[done : done + slice_size]
            began, before = meter.seconds, meter.evaluations
            at = wanted.origin, wanted.which
            parts.append(numeric_side(*at, part, method, meter))
            if meter.kept:
                seen.append(_Measured(wanted, done, parts[-1]))
            done += len(part)
            # a ladder takes as many steps as it needs: the bar learns how many
            spent = meter.evaluations - before
            ahead, now = len(positions) - done, spent / len(part)
            meter.expect(spent - each * len(part) + (now - each) * ahead)
            each = now
            if meter.seconds - began < _PATIENCE:
                slice_size = min(2 * slice_size, _SLICE)
    except (BudgetExhausted, KeyboardInterrupt) as why:
        if not parts:
            raise
        stop = why
    return parts, stop


def _scales(
    wanted: Wanted, parts: list[Quotients], done: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give the scale of what was measured, and the size it counts with, (done,) each.

    One array for both where they are the same.
    """
    points = wanted.origin.subject.point(wanted.which)
    if len(parts) == 1 and parts[0].pattern is not None:
        scales = parts[0].pattern.scales
    else:
        scales = scales_of(wanted.origin.subject, wanted.which)
    sizes, some = counted_sizes(points, scales), wanted.positions[:done]
    own = scales[some]
    return own, own if sizes is scales else sizes[some]


def _height(base: NDArray[np.float64]) -> NDArray[np.float64]:
    """Size of f, (rows, 1): of its largest output, one may be small by accident."""
    top = np.abs(base).max(initial=0.0, where=np.isfinite(base))
    return np.full((len(base), 1), top)


def _first_pass(
    wanted: Wanted,
    found: Quotients | None,
    seed: int,
    meter: Meter,
    products: ThroughProducts | None = None,
    seen: list[_Measured] | None = None,
) -> tuple[Block, BaseException | None]:
    """Make a block of cheap differences, as far as they came, or of those found."""
    parts, stop = [found] if found else [], None
    if not found:
        seen = [] if seen is None else seen
        parts, stop = _slices(wanted, seed, meter, products, seen)
    done = sum(part.step.shape[1] for part in parts)
    rows = len(wanted.origin.base)

    def joined(name: str) -> Any:
        if not parts:
            return np.zeros((rows, 0))
        if len(parts) == 1:
            if name in ("value", "error") and not is_made(parts[0], name):
                return unmade(parts[0], name)
            only: NDArray[np.float64] = getattr(parts[0], name)
            return only if only.strides[:1] == (0,) else np.ascontiguousarray(only)
        whole = np.empty((rows, done))  # row-major, as the analytic side is
        pieces = [getattr(part, name) for part in parts]
        return np.concatenate(pieces, axis=1, out=whole)

    def blank(value: Any, kind: Any = float) -> NDArray[Any]:
        """Return a matrix that takes no memory before it is needed."""
        return np.broadcast_to(np.array(value, dtype=kind), (rows, done))

    unknown = blank(np.nan)
    scales, sizes = _scales(wanted, parts, done)
    least = wanted.origin.subject.least_scales.get(wanted.which)
    block = Block(
        which=wanted.which,
        name=wanted.origin.subject.inputs[wanted.which].name,
        positions=wanted.positions[:done],
        scales=scales,
        sizes=sizes,
        height=_height(wanted.origin.base),
        analytic=unknown,
        slack=np.zeros((rows, 1)),
        value=joined("value"),
        error=joined("error"),
        step=joined("step"),
        kinds=blank(-1, np.int8),
        left=unknown,
        right=unknown,
        verdicts=blank(Verdict.AGREES, np.int8),
        allowed=blank(0.0),
        accepted=blank(False, np.bool_),
        looked=np.zeros(done, dtype=bool),
        # of what is kinked on longer steps, all that f shows counts
        still=stillness(wanted.origin.base) * (least != 0),
        bend=joined("bend"),
        pattern=parts[0].pattern if len(parts) == 1 else None,
        through=parts[0].through if len(parts) == 1 else 0,
        faint=least is not None,
    )
    return block, stop
