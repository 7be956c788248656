"""Which entries of a gradient are wrong, in few evaluations of the function."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import Tolerance
from gradlab.differentiation.metering.meter import BudgetExhausted, Meter, why_stopped
from gradlab.localisation.located import Located, Suspect, WrongEntry
from gradlab.localisation.searching.columns import right_at_kinks
from gradlab.localisation.searching.output_rows import wrong_cells
from gradlab.localisation.searching.search import Search
from gradlab.localisation.searching.set_up import set_aside, set_up

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from gradlab.localisation.searching.bench import Bench
    from gradlab.localisation.searching.columns import Column
    from gradlab.localisation.searching.group_testing import Group
    from gradlab.localisation.searching.output_rows import Cell
    from gradlab.subject.subject import Subject

    Measured = Mapping[tuple[int, int], Column]  # by input and coordinate
    Hearing = Callable[[Sequence[WrongEntry], Measured], Sequence[bool]]

# of an entry of the Jacobian: input, index, output, its index
Place = tuple[str, tuple[int, ...], str, tuple[int, ...]]

__all__ = ["locate_entries", "located_from", "place_of"]


def locate_entries(
    subject: Subject,
    *,
    tolerance: Tolerance | None = None,
    meter: Meter | None = None,
    seed: int = 0,
    limit: int = 64,
    base: NDArray[np.float64] | None = None,
    hear: Hearing | None = None,
    aside: Mapping[int, NDArray[np.intp]] | None = None,
    kinks: dict[int, list[int]] | None = None,
) -> Located:
    """Find wrong entries by group testing with random directions.

    Parameters
    ----------
    subject
        With an analytic side, at its point; it is there again afterwards.
    tolerance
        What is forgiven to an entry; the defaults if None.
    meter
        Charged for every evaluation; its budget ends the search, which then says how
        far it came.
    seed
        Of every random choice.
    limit
        Most coordinates to accuse by name; default 64, more than one reads. Beyond it
        `Located.wrong_share` estimates how many there are.
    base
        f at the point, where that is already known; saves one evaluation.
    hear
        Says of entries that are named, on closer look, which of them stand: told what
        was measured of their coordinates. Where some do not stand, the search goes on
        for errors that are larger than those.
    aside
        By input: coordinates to leave out; the caller compares them.
    kinks
        Gets those that are right at a kink, by input: the caller asks what they are
        together.

    Raises
    ------
    InputError
        If there is no analytic side, or it needs a scalar function and has none.
    SubjectError
        If the function fails at the given inputs.

    Examples
    --------
    >>> from gradlab.building import Sides, build_subject
    >>> x = np.linspace(0.1, 1.0, 1000)
    >>> wrong = np.cos(x)
    >>> wrong[123] *= 1.01
    >>> subject = build_subject(
    ...     lambda x: np.sin(x).sum(), [x], Sides(grad=lambda x: wrong)
    ... )
    >>> locate_entries(subject).entries[0].index
    (123,)
    """
    meter = meter or Meter()
    bench = set_up(
        subject, tolerance=tolerance or Tolerance(), meter=meter, seed=seed, base=base
    )
    set_aside(bench, aside or {})
    search = Search(bench, limit=limit)
    stopped = ""
    verdicts: dict[Place, bool] = {}
    try:
        search.run()
        for last in (False, True):
            if hear is None or _all_stand(bench, search, hear, verdicts) or last:
                break
            search.run()
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        stopped = why_stopped(stop)
    if kinks is not None:
        kinks |= right_at_kinks(bench.known)
    found = located_from(bench, search, stopped=stopped)
    stand = tuple(
        entry for entry in found.entries if verdicts.get(place_of(entry), True)
    )
    return dataclasses.replace(found, entries=stand)


def _all_stand(
    bench: Bench, search: Search, hear: Hearing, verdicts: dict[Place, bool]
) -> bool:
    """Have what was named heard, and take back what does not stand.

    Parameters
    ----------
    verdicts
        Whether an entry stands, of those that were heard; gets the others.
    """
    named = _entries(bench, search)
    fresh = [entry for entry in named if place_of(entry) not in verdicts]
    verdicts |= zip(map(place_of, fresh), hear(fresh, search.wrong), strict=True)
    standing: set[tuple[int, int]] = set()
    for which, variable in enumerate(bench.subject.inputs):
        entries = [
            variable.entry_at(entry.index)
            for entry in named
            if entry.input == variable.name and verdicts[place_of(entry)]
        ]
        places = variable.coordinates_of(np.array(entries, dtype=np.intp))
        standing |= {(which, place) for place in places.tolist()}
    gone = search.wrong.keys() - standing
    _take_back(search, gone)
    return not gone


def _take_back(search: Search, places: Collection[tuple[int, int]]) -> None:
    """Take back coordinates that did not stand, for a search that is run again.

    No defect counts from here on that entries as far off as these add up to.
    """
    bench = search.bench
    for which, position in places:
        column = search.wrong.pop((which, position))
        gap = abs(column.analytic - column.expected)
        bench.patience.allow(which, gap if np.isfinite(gap) else 0.0)
        search.excused.add(which)
    for which in search.excused - {which for which, _ in search.wrong}:
        search.share.pop(which, None)  # nor is it wrong as a whole
        search.factor.pop(which, None)
        search.crowded = [part for part in search.crowded if part.which != which]
        bench.settled = [part for part in bench.settled if part.which != which]


def place_of(entry: WrongEntry) -> Place:
    """Tell which entry of a Jacobian is meant."""
    return entry.input, entry.index, entry.output, entry.output_index


def located_from(bench: Bench, search: Search, *, stopped: str) -> Located:
    """Put into words what a search found.

    Parameters
    ----------
    stopped
        Why it did not come to its end, and nothing more is evaluated; "" if it did.
    """
    finished = not stopped
    entries = _entries(bench, search, frugal=not finished)
    inputs, meter = bench.subject.inputs, bench.meter
    open_groups = [*search.doubtful, *([] if finished else search.pending)]
    suspects = _suspects(bench, open_groups)
    suspects += _inputs(bench, sorted(search.excused))
    dead = not bench.cotangent.any()  # no output is finite: nothing can be said
    if dead or (not finished and not search.screened and not suspects):
        suspects = _inputs(
            bench, range(len(bench.subject.inputs))
        )  # nothing was looked at yet
    for which, places in bench.immovable.items():  # infinite, from first to last
        suspects += (_suspect(bench, which, int(places[0]), int(places[-1]) + 1),)
    # in the units of the output that counts for least in the weighted sum of all
    weight = np.abs(bench.cotangent[bench.cotangent != 0]).min(initial=np.inf)
    power = {} if dead else {k: v / weight for k, v in search.power.items()}
    return Located(
        entries=tuple(entries),
        evaluations=meter.evaluations,
        budget_left=meter.unspent,
        complete=finished and not suspects and len(search.wrong) < search.limit,
        suspects=suspects,
        crowded=tuple(
            _suspect(bench, part.which, part.start, part.stop)
            for part in search.crowded
        ),
        wrong_share={inputs[k].name: share for k, share in search.share.items()},
        factors={inputs[k].name: factor for k, factor in search.factor.items()},
        power={inputs[k].name: least for k, least in sorted(power.items())},
        problems=bench.problems,
        seed=bench.seed,
        rows=len(bench.base),
        stopped=stopped,
    )


def _suspects(bench: Bench, groups: list[Group]) -> tuple[Suspect, ...]:
    found: dict[Suspect, None] = {}
    for group in groups:
        if not group.suspicious and not group.blind:
            continue
        for part in group.parts:
            found[_suspect(bench, part.which, part.start, part.stop)] = None
    return tuple(found)


def _inputs(bench: Bench, some: Iterable[int]) -> tuple[Suspect, ...]:
    counts = [(k, bench.subject.inputs[k].coordinates) for k in some]
    return tuple(_suspect(bench, k, 0, count) for k, count in counts if count)


def _suspect(bench: Bench, which: int, start: int, stop: int) -> Suspect:
    variable = bench.subject.inputs[which]
    pair = 2 if variable.is_complex else 1
    first, last = start // pair, (stop - 1) // pair
    return Suspect(
        variable.name, variable.index(first), variable.index(last), last - first + 1
    )


def _entries(bench: Bench, search: Search, *, frugal: bool = False) -> list[WrongEntry]:
    """Turn wrong coordinates into wrong entries: rows found, complex parts joined.

    Parameters
    ----------
    frugal
        Evaluate nothing more: the budget is spent.
    """
    columns: dict[tuple[int, int], Column] = {}
    for which, position in search.wrong:
        pair = _pair(bench, which)
        for place in range(position // pair * pair, position // pair * pair + pair):
            known = search.wrong.get((which, place))
            if known is None and not frugal:
                try:
                    known = bench.column(which, place)
                except BudgetExhausted:
                    frugal = True
            if known is not None:
                columns[which, place] = known
    cells = wrong_cells(bench, columns, search.limit) if columns else {}
    entries: dict[tuple[int, int, int], list[tuple[int, Cell]]] = {}
    for (which, place), found in cells.items():
        pair = _pair(bench, which)
        for cell in found:
            key = (which, place // pair, cell.row)
            entries.setdefault(key, []).append((place % pair, cell))
    # of equal ones the first in the order of the arrays
    ranked = sorted(
        entries, key=lambda key: (-_effect(bench, key[0], entries[key]), key)
    )
    return [_entry(bench, *key, entries[key]) for key in ranked]


def _pair(bench: Bench, which: int) -> int:
    """Real coordinates per entry of an input."""
    return 2 if bench.subject.inputs[which].is_complex else 1


def _effect(bench: Bench, which: int, parts: list[tuple[int, Cell]]) -> float:
    """How much moving the entry by its own size misleads; nan counts as most."""
    gap = sum(abs(cell.analytic - cell.numeric) for _, cell in parts)
    return gap * bench.units[which] if np.isfinite(gap) else np.inf


def _entry(
    bench: Bench, which: int, entry: int, row: int, parts: list[tuple[int, Cell]]
) -> WrongEntry:
    variable = bench.subject.inputs[which]
    if variable.is_complex:
        turn = (1.0, 1j)
        analytic = sum((turn[i] * cell.analytic for i, cell in parts), 0j)
        numeric = sum((turn[i] * cell.numeric for i, cell in parts), 0j)
    else:
        analytic, numeric = parts[0][1].analytic, parts[0][1].numeric
    error = max(cell.error for _, cell in parts)
    output, place = _output_of(bench, row)
    return WrongEntry(
        variable.name, variable.index(entry), analytic, numeric, error, output, place
    )


def _output_of(bench: Bench, row: int) -> tuple[str, tuple[int, ...]]:
    if row < 0:
        return "combined outputs", ()
    for output in bench.numeric.outputs:
        if row < output.size:
            return output.name, output.index(row)
        row -= output.size
    return "out", ()
