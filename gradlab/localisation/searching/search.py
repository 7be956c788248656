"""The course of a search: screen everything, explore the suspicious, screen again."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.differentiation.lines.parts import without
from gradlab.localisation.searching import dense, group_testing
from gradlab.localisation.searching.group_testing import (
    Group,
    joined,
    measured,
    measured_again,
    patient,
    split,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradlab.differentiation.lines.parts import Part
    from gradlab.localisation.searching.bench import Bench
    from gradlab.localisation.searching.columns import Column
    from gradlab.localisation.searching.readings import Reading

__all__ = ["NOTHING", "Search"]

_FIRST, _LINES = 2, 3  # directions of a screening; all of them where one disagrees
_HUGE = 10_000_000  # coordinates, beyond which evaluations are dear
# Of a dear subject: thresholds relative to the norm of a tensor's gradient. An error
# five times as large (0.1 %), whatever entries make it up, is missed by two random
# directions in one case of forty, one of 1 % in one of four thousand.
_SHARE = 2e-4
# Gradients this many times smaller than the largest are the round-off of zero.
NOTHING = 1e-10
_MORE = 6  # further directions, if a defect is too faint to be read from three
_ROUNDS = 12
_CARE = 1e-2  # a single entry of typical size that is wrong by this must show
# A group this many times smaller than one with few wrong entries may be full of them.
_SHRUNK = 16
# Entries of a group that looks full of errors, looked at one by one.
_SAMPLE = 6
_ALIKE = 2  # first, where all of another input was wrong: one layer spoils many
_PURSUIT = 60  # evaluations of a dear subject, spent on entries of one input
_RANGES = 4  # of one input that are full of errors, before all of it is taken to be
# Entries of an input of which no direction tells anything, looked at one by one.
_ALONE = 16


@dataclasses.dataclass(slots=True, eq=False)
class Search:
    """A search under way, and what it has found.

    Parameters
    ----------
    bench
        Both sides.
    limit
        Most entries to name.

    Attributes
    ----------
    wrong
        What was found, by (input, position): the column as it was when accused.
    share
        Estimated fraction of wrong entries, for inputs with too many to name.
    factor
        Analytic over numeric, where one number explains a whole input.
    crowded
        Ranges full of wrong entries.
    cleared
        By input: the group it was found right in, by itself or with others.
    power
        By input: smallest error of a single entry that would have been seen.
    doubtful
        Groups that were given up: noise, kinks, too many.
    readings, looked
        Of a dear subject: what is wrong as a whole, by input; entries that were seen.
    pending
        What is being worked on; after an interruption, what is still suspected.
    excused
        Inputs of which an accusation was taken back.
    shown
        Groups that were suspicious, as they were.
    """

    bench: Bench
    limit: int = 64
    wrong: dict[tuple[int, int], Column] = dataclasses.field(default_factory=dict)
    share: dict[int, float] = dataclasses.field(default_factory=dict)
    factor: dict[int, float] = dataclasses.field(default_factory=dict)
    power: dict[int, float] = dataclasses.field(default_factory=dict)
    doubtful: list[Group] = dataclasses.field(default_factory=list)
    pending: list[Group] = dataclasses.field(default_factory=list)
    crowded: list[Part] = dataclasses.field(default_factory=list)
    cleared: dict[int, Group] = dataclasses.field(default_factory=dict)
    screened: bool = False
    readings: dict[int, Reading] = dataclasses.field(default_factory=dict)
    looked: dict[tuple[int, int], Column] = dataclasses.field(default_factory=dict)
    excused: set[int] = dataclasses.field(default_factory=set)
    shown: list[Group] = dataclasses.field(default_factory=list)
    _given_up: set[int] = dataclasses.field(default_factory=set)

    def run(self) -> None:
        """Search until fresh directions find nothing more."""
        rng = np.random.default_rng([self.bench.seed, 1])
        self.prepare(rng)
        for _ in range(_ROUNDS):
            self.pending = []
            groups = self.screen(self.bench.parts())
            self.pending = groups
            if not groups:
                return
            while groups:
                self.explore(groups.pop(), rng)
            if len(self.wrong) >= self.limit:
                return
            self.bench.turn(rng)

    def prepare(self, rng: np.random.Generator) -> None:
        """Measure the noise of f, name entries that are not numbers."""
        self.bench.listen()
        self._settle_nonfinite(rng)

    def forgive(self, which: int) -> None:
        """Look no further into an input whose differences are within the tolerance."""
        self.bench.patience.forgive(which)
        self.bench.settle(which)

    # ------------------------------------------------------------- screening
    def screen(self, parts: Sequence[Part]) -> list[Group]:
        """Probe all inputs jointly, then apart those too faint to show.

        Returns
        -------
        list of Group
            The suspicious ones.
        """
        bench, suspicious = self.bench, []
        remaining = list(parts)
        self.screened = False
        while remaining:
            seeds = [bench.new_seed() for _ in range(_FIRST)]
            fine = self.resolution(remaining)
            group = measured(bench, remaining, seeds, resolution=fine)
            if group.suspicious and bench.listen_closer():
                self.shown.append(group_testing.read_again(bench, group))
                continue  # with the noise that is known now
            if group.suspicious and not bench.dear:
                seeds = [bench.new_seed() for _ in range(_LINES - _FIRST)]
                other = measured(bench, remaining, seeds, resolution=np.inf)
                group = joined(group, other)
            faint = self._faint(group)
            if group.suspicious:
                suspicious.append(group)
                break  # corrected first; the faint ones are screened in the next round
            if group.blind:
                self._one_by_one(group, remaining)
                break
            for part in remaining:
                self.cleared[part.which] = group
                reach = float(group.thresholds.min()) / bench.units[part.which]
                reach = max(reach, bench.forgiven(part.which))
                self.power[part.which] = min(reach, self.power.get(part.which, np.inf))
            if len(faint) == len(remaining):  # nothing strong left to step aside
                faint = group_testing.faintest(bench, faint)
                self._one_by_one(group, group_testing.unseen(bench, group, faint))
            remaining = faint
        self.screened = True
        return suspicious

    def _weight(self, part: Part) -> float:
        """Contribution of one typical entry of an input to a derivative."""
        return self.bench.sizes(part.which)[0] * self.bench.units[part.which]

    def _demand(self, part: Part) -> float:
        """Smallest defect of an input that has to show."""
        weight = self._weight(part)
        if self.bench.dear:
            share = max(_CARE, _SHARE * float(np.sqrt(part.size)))
            unit = self.bench.units[part.which]
            # what is forgiven to every entry need not show
            return max(share * weight, self.bench.forgiven(part.which) * unit)
        return _CARE * weight

    def resolution(self, parts: Sequence[Part]) -> float:
        """Error bar that is small enough for some inputs."""
        demands = [d for d in map(self._demand, parts) if d > 0]
        if not demands:
            return 0.0
        if self.bench.dear:  # for all but the faintest
            demands = [d for d in demands if d > NOTHING * max(demands)]
            return float(np.quantile(demands, 0.1)) / SAFETY
        fine = 1e-2 if sum(p.size for p in parts) < _HUGE else 1e-1
        return fine * float(np.median(demands))

    def _faint(self, group: Group) -> list[Part]:
        """List inputs whose errors could hide behind the error bars of others."""
        if self.bench.dear:  # both directions have to show it
            reach = float(group.thresholds.max())
            least = NOTHING * max(map(self._demand, group.parts))
            return [p for p in group.parts if reach > self._demand(p) > least]
        reach = float(group.thresholds.min())  # the best line shows it
        return [p for p in group.parts if not reach <= self._demand(p)]

    def _one_by_one(self, group: Group, parts: Sequence[Part]) -> None:
        """Look at the entries of inputs that no direction resolves, if few."""
        for part in parts:
            few = part.size <= _ALONE and not self.bench.dear
            entries = range(part.start, part.stop) if few else ()
            columns = [self.examine(part.which, entry) for entry in entries]
            if columns:
                self.power[part.which] = max(c.least for c in columns)
            if not (few and all(c.wrong or c.told for c in columns)):
                self.doubtful.append(group_testing.blinded(group, part))
            self.bench.settled.append(part)

    # ------------------------------------------------------------- exploring
    def explore(self, group: Group, rng: np.random.Generator) -> None:
        """Name the wrong entries of a suspicious group; of a dear one, some."""
        stack, spent = [group], self.bench.meter.evaluations
        while stack:
            if self.bench.dear and self.bench.meter.evaluations - spent > _PURSUIT:
                self.doubtful += stack
                return
            self.pending = stack
            top = self._without_excluded(stack[-1])
            if top is None or not top.suspicious:
                stack.pop()
                continue
            if len(self.wrong) >= self.limit:
                self.doubtful.append(stack.pop())
                continue
            if top.blind:
                self._one_by_one(stack.pop(), top.parts)
                continue
            children = self._step(top, rng)
            stack.pop()
            stack += children

    def _step(self, group: Group, rng: np.random.Generator) -> list[Group]:
        bench = self.bench
        if group.size == 1:
            which, position = group.parts[0].which, group.parts[0].start
            self.examine(which, position)
            return []
        candidates = group_testing.decode(bench, group) if group.legible else []
        if len(candidates) > 2:
            group, candidates = self._narrowed(group, candidates)
        for which, position in candidates if len(candidates) <= 2 else ():
            before = float(bench.gradients[which][position])
            self.examine(which, position)
            defect = before - float(bench.gradients[which][position])
            if defect:  # else right, or corrected before: it is not that
                return [group_testing.less(group, bench, which, position, defect)]
        if not candidates and group.size > 8:
            if self._settle_factor(group):
                return [group]
            if not group.sparse or group.size * _SHRUNK <= group.sparse:
                found = self._settle_dense(group, rng)
                if found is not None:
                    return found
                group = dataclasses.replace(group, sparse=group.size)
        return split(bench, group, candidates)

    def _narrowed(
        self, group: Group, candidates: list[tuple[int, int]]
    ) -> tuple[Group, list[tuple[int, int]]]:
        """Measure along further directions while that rules candidates out."""
        for _ in range(_MORE):
            seeds, fine = [self.bench.new_seed()], float(group.errors.max())
            more = measured_again(
                self.bench, group, group.parts, seeds, resolution=fine
            )
            wider = joined(group, more)
            if not wider.legible:
                break
            count, group = len(candidates), wider
            candidates = group_testing.decode(self.bench, group)
            if len(candidates) <= 2 or 2 * len(candidates) > count:
                break
        return group, candidates

    def _settle_factor(self, group: Group) -> bool:
        """Deal with whole inputs that are wrong by one factor, as entries bear out."""
        settled = False
        for which, ratio in (dense.common_factor(self.bench, group) or {}).items():
            some = dense.largest(self.bench.gradients[which], 2)
            room = self.limit - len(self.wrong)
            hits = [self.examine(which, place).wrong for place in some[:room]]
            if hits and not any(hits):
                continue  # steps of the directions were too long
            self.factor[which], self.share[which] = ratio, 1.0
            self.bench.settle(which)
            settled = True
        return settled

    def _settle_dense(
        self, group: Group, rng: np.random.Generator
    ) -> list[Group] | None:
        """Deal with a group much of which may be wrong; None if few entries are."""
        bench, part = self.bench, group.parts[0]
        others = [share for which, share in self.share.items() if which != part.which]
        alike = len(group.parts) == 1 and 1.0 in others
        hits = self._sampled(part, rng, _ALIKE) if alike else []
        if not (hits and all(hits)):
            if not dense.thinned_tests(bench, group):
                return None
            if len(group.parts) > 1:
                return split(bench, group, ())
            hits += self._sampled(part, rng, _SAMPLE - len(hits))
        if not any(hits) and bench.patience.tolerated(part.which):
            return [dataclasses.replace(group, sparse=group.size)]
        share = sum(hits) / len(hits)
        if not share and not group.sparse:
            return None  # crowded somewhere inside, perhaps: halving will tell
        if not share:
            thin, share = dense.sample(bench, group)
            count = len(self.wrong)
            if thin is not None:
                self.explore(thin, rng)
            if len(self.wrong) == count:
                return None
        whole = bench.subject.inputs[part.which].coordinates
        known = self.share.get(part.which, 0.0)
        self.share[part.which] = min(1.0, known + share * part.size / whole)
        bench.settled.append(part)
        self.crowded.append(part)
        ranges = [p for p in bench.settled if p.which == part.which]
        if len(ranges) >= _RANGES:
            # scattered all over: as many elsewhere, presumably
            covered = sum(p.size for p in ranges) / whole
            self.share[part.which] = min(1.0, self.share[part.which] / covered)
            bench.settle(part.which)
        return []

    def _sampled(self, part: Part, rng: np.random.Generator, count: int) -> list[bool]:
        """Look at some entries of a range: whether they are wrong."""
        names = sorted(set(rng.integers(part.start, part.stop, count).tolist()))
        self.bench.climb(part.which, names)
        return [self.examine(part.which, name).wrong for name in names]

    def examine(self, which: int, position: int) -> Column:
        """Differentiate along one coordinate; accuse it if it is wrong."""
        if (which, position) in self.wrong:
            return self.wrong[which, position]
        column = self.bench.column(which, position)
        if column.wrong:
            self.wrong[which, position] = column
        else:
            self.bench.patience.looked(which, column)
        if column.corrected:
            self.bench.correct(which, position, column)
        return column

    def _without_excluded(self, group: Group) -> Group | None:
        """Return what is left of a group after inputs were settled; None if nothing."""
        bench, group = self.bench, patient(self.bench, group)
        done = {which for which, _ in self.wrong} | self._given_up
        for which in {part.which for part in group.parts} - done:
            if group.suspicious and bench.patience.over(which):
                self._given_up.add(which)
                bench.settle(which)
                part = bench.settled[-1]
                self.doubtful.append(dataclasses.replace(group, parts=(part,)))
        parts = tuple(q for p in group.parts for q in without(p, bench.settled))
        if parts == group.parts:
            return group
        if not parts:
            return None
        fine = self.resolution(parts)
        return measured_again(bench, group, parts, group.seeds, resolution=fine)

    def _settle_nonfinite(self, rng: np.random.Generator) -> None:
        """Name entries whose analytic value is nan or inf; no probe is needed."""
        bench = self.bench
        for which in range(len(bench.gradients)):
            if bench.gradients.magnitudes(which).finite:
                continue
            gradient = bench.gradients[which]
            bad = np.flatnonzero(~np.isfinite(gradient))
            few = bad if bad.size <= 8 else rng.choice(bad, 3, replace=False)
            for position in few.tolist():
                self.examine(which, int(position))
            if bad.size > len(few):
                if any(k == which for k, _ in self.wrong):
                    self.share[which] = bad.size / gradient.size
                bench.settle(which)
            elif not np.isfinite(bench.gradients[which]).all():
                bench.settle(which)  # nan on both sides: nothing can be said
