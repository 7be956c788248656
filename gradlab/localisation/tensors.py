"""One verdict per tensor, in a number of evaluations that does not grow with them.

All inputs move together first, each in random directions of its own: if both sides
agree along every joint direction, they agree for every input, up to what the error bars
of the joint derivative could hide. Inputs too faint to show beside the others are
probed again without them. Only where something disagrees is it taken apart.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import Tolerance
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.metering.meter import (
    DEAR,
    BudgetExhausted,
    Meter,
    why_stopped,
)
from gradlab.localisation.entries import located_from
from gradlab.localisation.searching import group_testing
from gradlab.localisation.searching.columns import right_at_kinks
from gradlab.localisation.searching.search import NOTHING, Search
from gradlab.localisation.searching.set_up import set_aside, set_up
from gradlab.localisation.searching.tensor_search import Judged, judge
from gradlab.subject.subject import input_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from numpy.typing import NDArray

    from gradlab.localisation.located import Located
    from gradlab.localisation.searching.bench import Bench
    from gradlab.localisation.searching.columns import Column
    from gradlab.localisation.searching.group_testing import Group
    from gradlab.localisation.searching.readings import Reading
    from gradlab.subject.subject import Subject

__all__ = ["TensorProbe", "TensorProbes", "probe_tensors"]

# An error of all entries of an input by this fraction must not hide in the error bars.
_BLIND = 1e-2
# Where evaluations are dear errors of a thousandth of the norm of a tensor's gradient
# must show, wherever they are, and no single entry must.
_BLIND_DEAR = 1e-3
_LIKELY = 3  # entries among which a wrong one is looked for when a budget ends
_NAMED = 16  # wrong entries at most
_SHORT = 48  # entries of an input whose smallest ones are asked about


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TensorProbe:
    """What random directions say about the gradient of one input.

    Attributes
    ----------
    input
        Its name.
    verdict
        DISAGREES if an entry of it was found wrong, or it was seen to be wrong as a
        whole; UNDECIDED if noise, kinks or the budget kept it from being decided, or an
        error of one percent of all entries could hide in the error bars (of more than
        two million coordinates: one of a thousandth of the gradient's norm).
    analytic, numeric, error
        Both derivatives along each direction, and the error bar, shape (directions,).
        Where it agrees these may be of directions that move other inputs too.
    power
        Smallest error of a single entry that would have shown, in the units of the
        derivative; inf if it was not screened.
    hides
        Whether an entry that is not zero could be off by one percent unseen, beside
        far larger ones. Only of inputs that have few entries.
    crowded
        The step, in sizes of the inputs, that crosses kinks as all coarser ones do,
        where finer ones are nothing but round-off; 0 if some step crosses none.
    """

    input: str
    verdict: Verdict
    analytic: NDArray[np.float64]
    numeric: NDArray[np.float64]
    error: NDArray[np.float64]
    power: float
    hides: bool = False
    crowded: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class TensorProbes:
    """Verdicts of all inputs, and what was located where they disagree.

    Attributes
    ----------
    tensors
        One for each input, in their order.
    located
        Wrong entries and shares.
    evaluations
        What it cost.
    immovable
        By input: number of entries that are infinite, hence cannot be displaced.
    stop
        What cut the search short, a budget or an interrupt; None if it was finished.
    reference
        The same subject in float64, where that was evaluated instead.
    columns
        Of a dear subject with one output row, entries that were measured one by one:
        by input, then by coordinate. None of others, which are to be looked at.
    readings
        What is wrong with an input of a dear subject as a whole, by its name.
    found
        Of a subject with one output row, the entries that were found wrong, as
        `columns`.
    likeliest
        Where a search that was cut short may find a wrong entry: an input and some of
        its coordinates. None if it came to its end.
    handed
        Names of inputs that are wrong because of what is handed to them.
    kinks
        By input: coordinates that were measured one by one, and are right by
        themselves, where f has a kink.
    crowd
        Whether only the finest steps got along with the kinks of f.
    """

    tensors: tuple[TensorProbe, ...]
    located: Located
    evaluations: int
    immovable: Mapping[str, int] = dataclasses.field(default_factory=dict)
    stop: BaseException | None = None
    reference: Subject | None = None
    columns: Mapping[int, Mapping[int, Column]] | None = None
    readings: Mapping[str, Reading] = dataclasses.field(default_factory=dict)
    found: Mapping[int, Mapping[int, Column]] = dataclasses.field(default_factory=dict)
    likeliest: tuple[int, NDArray[np.intp]] | None = None
    handed: frozenset[str] = frozenset()
    kinks: Mapping[int, list[int]] = dataclasses.field(default_factory=dict)
    crowd: bool = False

    @property
    def verdict(self) -> Verdict:
        """The worst of all inputs."""
        return max((t.verdict for t in self.tensors), default=Verdict.AGREES)

    def __getitem__(self, name: str) -> TensorProbe:
        """Return what is known about the input of that name."""
        for tensor in self.tensors:
            if tensor.input == name:
                return tensor
        raise KeyError(name)


def probe_tensors(
    subject: Subject,
    *,
    tolerance: Tolerance | None = None,
    meter: Meter | None = None,
    base: NDArray[np.float64] | None = None,
    seed: int = 0,
    left_out: Collection[int] = (),
    aside: Mapping[int, NDArray[np.intp]] | None = None,
    spoiled: Callable[[], Collection[str]] = frozenset,
) -> TensorProbes:
    """Judge the gradient of every input by random directions.

    Some 20 evaluations where all agrees, whatever the number and size of the inputs;
    five where they are dear.

    Parameters
    ----------
    subject
        With an analytic side, at its point; it is there again afterwards.
    tolerance
        What is forgiven to an entry; the defaults if None.
    meter
        Charged for every evaluation; when its budget ends, what is left is UNDECIDED.
    base
        f at the point, where that is already known; saves one evaluation.
    seed
        Of every random choice.
    left_out
        Positions of inputs that are not compared; they are UNDECIDED.
    aside
        By input: coordinates to leave out; the caller compares them.
    spoiled
        Says which inputs have a wrong gradient handed to them, by name; asked once,
        where something disagrees. Each is measured by itself at once, and none of its
        entries is looked for.

    Raises
    ------
    InputError
        If there is no analytic side, or it needs a scalar function and has none.
    SubjectError
        If the function fails at the given inputs.

    Examples
    --------
    >>> from gradlab.building import Sides, build_subject
    >>> x, y = np.linspace(0.1, 1.0, 600), np.linspace(1.0, 2.0, 500)
    >>> subject = build_subject(
    ...     lambda x, y: np.sin(x).sum() * np.log(y).sum(),
    ...     [x, y],
    ...     Sides(grad=lambda x, y: (np.cos(x) * np.log(y).sum(), np.sin(x).sum() * y)),
    ... )
    >>> [t.verdict.name for t in probe_tensors(subject).tensors]
    ['AGREES', 'DISAGREES']
    """
    meter = meter or Meter()
    bench = set_up(
        subject,
        tolerance=tolerance or Tolerance(),
        meter=meter,
        seed=seed,
        base=base,
        dear=input_columns(subject.inputs) >= DEAR,
    )
    for which in left_out:
        bench.settle(which)
    set_aside(bench, aside or {})
    search = Search(bench, limit=_NAMED)
    judged = Judged()
    stop: BaseException | None = None
    try:
        judge(bench, search, judged, spoiled)
    except (BudgetExhausted, KeyboardInterrupt) as why:
        stop = why
    finished = stop is None
    stopped = "" if stop is None else why_stopped(stop)
    located = located_from(bench, search, stopped=stopped)
    tensors = tuple(
        _tensor(bench, search, which, judged.alone.get(which), finished=finished)
        for which in range(len(subject.inputs))
    )
    still = {
        subject.inputs[which].name: positions.size
        for which, positions in bench.immovable.items()
    }
    twin = None if bench.numeric is subject else bench.numeric
    readings = {subject.inputs[k].name: found for k, found in search.readings.items()}
    handed = judged.handed.intersection(judged.alone)
    found = _columns(bench, search.wrong)
    columns = _columns(bench, search.looked | search.wrong)
    return TensorProbes(
        tensors,
        located,
        meter.evaluations,
        still,
        stop,
        twin,
        columns if bench.dear and len(bench.base) == 1 else None,
        readings,
        found,
        None if finished else _likeliest(bench, search),
        frozenset(subject.inputs[k].name for k in handed),
        right_at_kinks(bench.known),
        bool(bench.crowd),
    )


def _likeliest(bench: Bench, search: Search) -> tuple[int, NDArray[np.intp]] | None:
    """Name coordinates of the smallest group that is known to hold a wrong one."""
    groups = [group for group in search.pending if group.suspicious]
    parts = bench.parts()
    if groups:
        group = min(groups, key=lambda group: group.size)
        spelled = group_testing.decode(bench, group) if group.legible else []
        if spelled:
            which = spelled[0][0]
            places = np.array([place for k, place in spelled if k == which])
            return which, places[:_LIKELY]
        parts = list(group.parts)
    if not parts:
        return None
    part = parts[-1]  # the last is nearest to the outputs
    places = np.linspace(part.start, part.stop - 1, _LIKELY + 2)[1:-1]
    return part.which, np.unique(places.astype(np.intp))


def _columns(
    bench: Bench, measured: Mapping[tuple[int, int], Column]
) -> dict[int, dict[int, Column]]:
    """List entries that were measured, by input, where they can be shown."""
    found: dict[int, dict[int, Column]] = {}
    for (which, position), column in measured.items():
        if len(bench.base) == 1 and not bench.subject.inputs[which].is_complex:
            found.setdefault(which, {})[position] = column
    return found


def _wrong(search: Search, alone: Group | None, which: int) -> bool:
    named = any(k == which for k, _ in search.wrong)
    return alone is not None or named or which in search.share


def _tensor(
    bench: Bench, search: Search, which: int, alone: Group | None, *, finished: bool
) -> TensorProbe:
    inputs = bench.subject.inputs
    group = alone or search.cleared.get(which)
    probes = () if group is None else group.probes
    power = search.power.get(which, np.inf)
    open_groups = [*search.doubtful, *([] if finished else search.pending)]
    doubted = any(part.which == which for g in open_groups for part in g.parts)
    empty = not inputs[which].coordinates
    if _wrong(search, alone, which):
        verdict = Verdict.DISAGREES
    elif empty:
        verdict = Verdict.AGREES
    elif doubted or group is None or _hidden(bench, which, power, group):
        settled = bench.patience.tolerated(which) and not doubted
        verdict = Verdict.AGREES if settled else Verdict.UNDECIDED
    else:
        verdict = Verdict.AGREES
    if verdict == Verdict.AGREES and not (empty or np.isfinite(bench.base).all()):
        verdict = Verdict.UNDECIDED  # outputs that are nan have no part in a direction
    fine = bench.dear or bench.crowd  # the finest steps were tried
    return TensorProbe(
        inputs[which].name,
        verdict,
        np.array([probe.analytic for probe in probes]),
        np.array([probe.numeric for probe in probes]),
        np.array([probe.error for probe in probes]),
        float(power),
        _hides(bench, which, power),
        min((p.step for p in probes if fine and p.rough), default=0.0),
    )


def _hides(bench: Bench, which: int, power: float) -> bool:
    if not 0 < bench.subject.inputs[which].coordinates <= _SHORT:
        return False
    sizes = np.abs(bench.gradients[which])
    least = float(np.min(sizes, where=sizes > 0, initial=np.inf))
    return power > _BLIND * least


def _hidden(bench: Bench, which: int, power: float, group: Group) -> bool:
    """Whether a small error of all entries together could hide in the error bars.

    Whatever signs it has, or as one factor of them all: by that it shows less where a
    direction happens to lead nowhere.
    """
    typical = _norm(bench, which)
    if bench.dear:
        effects = [_norm(bench, k) * unit for k, unit in enumerate(bench.units)]
        if effects[which] <= NOTHING * max(effects):
            return False
        return not power <= max(_BLIND_DEAR * typical, 2 * bench.rounding(which))
    # `TensorProbe.power` tells of what need not show
    told = group_testing.least_told(bench, which) / bench.units[which]
    if power <= told:
        return False
    return not (power <= _BLIND * typical and _shows_a_factor(bench, which, group))


def _shows_a_factor(bench: Bench, which: int, group: Group) -> bool:
    """Whether one percent more of an input would have shown along some direction."""
    parts = [part for part in group.parts if part.which == which]
    lines = [bench.direction(parts, seed) for seed in group.seeds]
    shares = [bench.gradients.along(line)[0] for line in lines]
    pairs = zip(shares, group.thresholds, strict=True)
    return any(_BLIND * abs(share) >= threshold for share, threshold in pairs)


def _norm(bench: Bench, which: int) -> float:
    return bench.sizes(which)[0] * float(np.sqrt(bench.gradients.counts[which]))
