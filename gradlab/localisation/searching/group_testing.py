"""Finding wrong entries among millions by testing groups of them.

A group is tested along a few random directions at once. If one entry alone is wrong,
its defect along each direction is the entry's error times the direction there, so the
ratios of the defects spell out where it is: every coordinate of the group is asked
whether it could explain them, which costs no evaluation. Where no single entry can, the
group is halved; one half is measured along the same directions, the other follows by
subtraction. Every entry named is then differentiated on its own, and stands accused
only by that.

Group testing after Dorfman, Ann. Math. Statist. 14 (1943); decoding by ratios is the
one-sparse step of sublinear sparse recovery (Gilbert and Indyk, Proc. IEEE 98, 2010).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.rule import NEGLIGIBLE
from gradlab.comparison.tolerance import CARE, SAFETY, roundings
from gradlab.differentiation.lines.parts import Part
from gradlab.localisation.searching.lines import noise_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.lines.directions import Direction
    from gradlab.differentiation.lines.probe import Probe
    from gradlab.localisation.searching.bench import Bench

__all__ = [
    "LEGIBLE",
    "Group",
    "blinded",
    "decode",
    "faintest",
    "joined",
    "least_told",
    "less",
    "measured",
    "measured_again",
    "patient",
    "read_again",
    "split",
    "unseen",
]

# Defects this many error bars large spell out where they come from.
LEGIBLE = 30.0
# More coordinates than this that could explain a group: it is halved instead.
_CANDIDATES = 4096
_BLANK = (np.zeros(0), np.zeros(0), np.zeros(0))


@dataclasses.dataclass(slots=True, eq=False)
class Group:
    """Coordinates under suspicion, and what was measured along some directions.

    Parameters
    ----------
    parts
        The coordinates.
    seeds
        One for each direction, K in all.
    defects, errors
        Analytic minus numeric derivative along each, and its error bar, shape (K,).
    thresholds
        Smallest defects that mean something, shape (K,).
    thinning, choice
        If positive, one coordinate in ``2**thinning`` is meant; see `Direction`.
    sparse
        Size of the group around it in which few entries were found wrong, or 0.
    probes
        The measurements themselves, if there were any of this very group.
    """

    parts: tuple[Part, ...]
    seeds: tuple[int, ...]
    defects: NDArray[np.float64]
    errors: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    thinning: int = 0
    choice: int = 0
    sparse: int = 0
    probes: tuple[Probe, ...] = ()

    @property
    def size(self) -> int:
        """Number of coordinates, thinned ones included."""
        return sum(part.size for part in self.parts)

    @property
    def suspicious(self) -> bool:
        """Whether some direction shows a defect; a defect that is nan is one."""
        return bool((~(np.abs(self.defects) <= self.thresholds)).any())

    @property
    def blind(self) -> bool:
        """Whether nothing could be measured along any direction."""
        return not np.isfinite(self.errors).any()

    @property
    def legible(self) -> bool:
        """Whether the defects are precise enough to tell coordinates apart."""
        with np.errstate(all="ignore"):
            clear = np.abs(self.defects) > LEGIBLE * self.errors
        return len(self.seeds) > 1 and bool(clear.all())


def measured(
    bench: Bench,
    parts: Sequence[Part],
    seeds: Sequence[int],
    *,
    resolution: float,
    thinning: int = 0,
    choice: int = 0,
    proven: bool = False,
) -> Group:
    """Test a group along the directions of some seeds; see `quick_probe`."""
    directions = [bench.direction(parts, seed, thinning, choice) for seed in seeds]
    bench.gradients.foresee(directions)
    found: list[Probe] = []
    for line in directions:
        known = proven or (bench.dear and _shows(bench, found, parts))
        if bench.dear:  # one line that is finer than the others tells nothing more
            resolution = max([resolution, *(probe.error for probe in found)])
        found.append(bench.measure(line, resolution, proven=known))
    group = Group(
        tuple(parts), tuple(seeds), *_BLANK, thinning, choice, probes=tuple(found)
    )
    group = _read(bench, group)
    return _sharpened(bench, group) if group.suspicious else group


def measured_again(
    bench: Bench,
    group: Group,
    parts: Sequence[Part],
    seeds: Sequence[int],
    *,
    resolution: float,
    proven: bool = False,
) -> Group:
    """Test a group, or some of its parts, thinned as it is."""
    again = measured(
        bench,
        parts,
        seeds,
        resolution=resolution,
        thinning=group.thinning,
        choice=group.choice,
        proven=proven,
    )
    return dataclasses.replace(again, sparse=group.sparse)


def _shows(bench: Bench, found: Sequence[Probe], parts: Sequence[Part]) -> bool:
    """Whether a defect stayed at other steps along a direction before."""
    return any(
        probe.evaluations > 2 and abs(probe.defect) > bench.threshold(probe, parts)
        for probe in found
    )


def _read(bench: Bench, group: Group) -> Group:
    """Draw defects, error bars and thresholds from the probes of a group."""
    probes = group.probes
    if bench.dear:  # what was heard along the last goes for all
        probes = tuple(_blurred(probe, bench.noise) for probe in probes)
    read = dataclasses.replace(
        group,
        defects=np.array([probe.defect for probe in probes]),
        errors=np.array([probe.error for probe in probes]),
        thresholds=np.array([bench.threshold(probe, group.parts) for probe in probes]),
        probes=probes,
    )
    return patient(bench, read)


def read_again(bench: Bench, group: Group) -> Group:
    """Read a group again with all the noise that is known by now."""
    probes = tuple(_blurred(probe, bench.noise) for probe in group.probes)
    return _read(bench, dataclasses.replace(group, probes=probes))


def patient(bench: Bench, group: Group) -> Group:
    """Allow for what entries are off by that were looked at in vain."""
    slip = bench.patience.slip(group.parts, bench.units, group.thinning)
    if not slip:
        return group
    return dataclasses.replace(
        group,
        errors=np.maximum(group.errors, slip),
        thresholds=np.maximum(group.thresholds, SAFETY * slip),
    )


def _sharpened(bench: Bench, group: Group) -> Group:
    """Read a group again with gradients free of round-off, where there are such.

    Nothing is evaluated again: the numeric side is what it was.
    """
    lines = [
        bench.direction(group.parts, seed, group.thinning, group.choice)
        for seed in group.seeds
    ]
    if bench.spare is None or not _sharpen(bench, lines):
        return group
    pairs = zip(group.probes, map(bench.gradients.along, lines), strict=True)
    probes = tuple(
        dataclasses.replace(probe, analytic=analytic, norm=norm)
        for probe, (analytic, norm) in pairs
    )
    return _read(bench, dataclasses.replace(group, probes=probes))


def _sharpen(bench: Bench, lines: Sequence[Direction]) -> bool:
    """Take the round-off out of all gradients, which are asked for once more."""
    before, precise = bench.gradients, bench.spare
    bench.spare = None
    assert precise is not None  # noqa: S101 - told to mypy, known to the caller
    precise.lost = roundings(bench.subject.epsilon) * max(
        (bench.sizes(k)[1] * unit for k, unit in enumerate(precise.units)), default=0.0
    )
    bench.precise = precise
    bench.pull()
    bench.gradients.foresee(lines, whole=True)
    if precise.useless:
        bench.precise, bench.gradients = None, before
        bench.resized()
    return not precise.useless


def _blurred(probe: Probe, noise: float) -> Probe:
    error = max(probe.error, noise_bar(noise, probe.step))
    return dataclasses.replace(probe, error=error)


def joined(one: Group, other: Group) -> Group:
    """Combine measurements of the same group along different directions."""
    return dataclasses.replace(
        one,
        seeds=one.seeds + other.seeds,
        defects=np.concatenate([one.defects, other.defects]),
        errors=np.concatenate([one.errors, other.errors]),
        thresholds=np.concatenate([one.thresholds, other.thresholds]),
        probes=one.probes + other.probes if one.probes and other.probes else (),
    )


def less(group: Group, bench: Bench, which: int, position: int, defect: float) -> Group:
    """Return a group after one of its entries has been corrected by `defect`."""
    along = np.array(
        [bench.direction((), seed).at(which, position) for seed in group.seeds]
    )
    return dataclasses.replace(group, defects=group.defects - defect * along, probes=())


def decode(bench: Bench, group: Group) -> list[tuple[int, int]]:
    """Coordinates that could, alone, explain every defect of a group.

    Returns
    -------
    list of (input, position)
        In order; at most 4096, an empty list if there are none. An arbitrary answer
        for groups that are not `legible`.
    """
    slack = SAFETY * group.errors + 1e-9 * np.abs(group.defects)
    least = max(float(group.errors.min()), 1e-300)
    weights = (least / np.maximum(group.errors, least)) ** 2
    found: list[tuple[int, int]] = []
    for part in group.parts:
        streams = [
            bench.direction((part,), seed, group.thinning, group.choice).values(part)
            for seed in group.seeds
        ]
        for pieces in zip(*streams, strict=True):
            along = np.array([values for _, values in pieces])
            with np.errstate(all="ignore"):
                error = (weights * group.defects) @ along / (weights @ along**2)
                misfit = np.abs(group.defects[:, None] - error * along)
            fits = np.flatnonzero((misfit <= slack[:, None]).all(axis=0))
            found += [(part.which, int(pieces[0][0] + i)) for i in fits]
            if len(found) > _CANDIDATES:
                return found[:_CANDIDATES]
    return found


def split(
    bench: Bench, group: Group, candidates: Sequence[tuple[int, int]]
) -> list[Group]:
    """Halve a suspicious group: measure one half, infer the other.

    Parameters
    ----------
    candidates
        Coordinates that could explain it; they are halved too. May be empty.
    """
    first, second = _halves(group.parts, candidates)
    if group.legible or len(group.seeds) == 1:
        lines = list(range(len(group.seeds)))
    else:  # too faint to decode: one direction will do, the clearest
        with np.errstate(all="ignore"):
            clarity = np.abs(group.defects) / np.maximum(group.thresholds, 1e-300)
        lines = [int(np.argmax(np.nan_to_num(clarity, nan=np.inf)))]
    seeds = [group.seeds[k] for k in lines]
    defects = np.abs(group.defects[lines])
    resolution = float(np.nanmin(defects, initial=np.inf)) / (2 * LEGIBLE)
    fine = resolution if np.isfinite(resolution) else 0.0
    one = measured_again(bench, group, first, seeds, resolution=fine, proven=True)
    errors = group.errors[lines] + one.errors
    thresholds = np.maximum(group.thresholds[lines], one.thresholds)
    other = dataclasses.replace(
        group,
        parts=second,
        seeds=tuple(seeds),
        defects=group.defects[lines] - one.defects,
        errors=errors,
        thresholds=np.maximum(thresholds, SAFETY * errors),
        probes=(),
    )
    if not one.suspicious and not other.suspicious:
        # faint: the bars of the difference are wider than those of a measurement
        other = measured_again(bench, group, second, seeds, resolution=0.0)
    return [one, other]


def _halves(
    parts: Sequence[Part], candidates: Sequence[tuple[int, int]]
) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Cut between tensors first, then inside one, where the candidates' median is."""
    if len(parts) > 1:
        total, seen, cut = sum(p.size for p in parts), 0, 1
        for i, part in enumerate(parts[:-1]):
            seen += part.size
            cut = i + 1
            if 2 * seen >= total:
                break
        return tuple(parts[:cut]), tuple(parts[cut:])
    part = parts[0]
    middle = (part.start + part.stop) // 2
    inside = sorted(p for k, p in candidates if k == part.which)
    if len(inside) > 1:
        middle = inside[len(inside) // 2]
    middle = min(max(middle, part.start + 1), part.stop - 1)
    return (
        (Part(part.which, part.start, middle),),
        (Part(part.which, middle, part.stop),),
    )


def faintest(bench: Bench, parts: Sequence[Part]) -> list[Part]:
    """Those that contribute less than a thirtieth of the strongest."""
    weight = {p: bench.sizes(p.which)[0] * bench.units[p.which] for p in parts}
    if bench.dear:
        weight = {p: w * float(np.sqrt(p.size)) for p, w in weight.items()}
    top = max(weight.values())
    return [p for p in parts if weight[p] < top / 30]


def least_told(bench: Bench, which: int) -> float:
    """Smallest effect of an input on ``v . f`` that has to show.

    What round-off hides no measurement can show, and what moves nothing need not: as in
    `comparison.rule`.
    """
    still = bench.still(which)
    still = still if bench.matters <= still else 0.0
    rounding = 2 * bench.rounding(which) * bench.units[which]
    return max(NEGLIGIBLE * bench.matters, still, rounding)


def unseen(bench: Bench, group: Group, faint: Sequence[Part]) -> list[Part]:
    """List inputs whose largest entry could be wrong, and no direction would tell.

    Parameters
    ----------
    faint
        Those that are measured once more, without the others.
    """
    reach, found = float(group.thresholds.min()), []
    for part in () if bench.dear else group.parts:  # of those no single entry must
        most = bench.gradients.magnitudes(part.which).largest * bench.units[part.which]
        told = max(CARE * most, least_told(bench, part.which))
        if part not in faint and not reach <= told:
            found.append(part)
    return found


def blinded(group: Group, part: Part) -> Group:
    """Return one input of a group of which nothing is known after all."""
    nothing = np.full_like(group.errors, np.inf)
    return dataclasses.replace(group, parts=(part,), errors=nothing)
