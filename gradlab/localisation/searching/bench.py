"""Both gradients side by side: the state that a search for wrong entries shares."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY, Tolerance, roundings, stillness
from gradlab.differentiation.lines.directions import Direction, unit_of
from gradlab.differentiation.lines.line_slope import moved_exponent
from gradlab.differentiation.lines.parts import Part, whole, without
from gradlab.differentiation.lines.probe import Probe, ProbeSettings, probe, ripple
from gradlab.localisation.searching.columns import Column, draw_cotangent
from gradlab.localisation.searching.gradients import fetched
from gradlab.localisation.searching.ladders import beyond_rounding, ladders_of
from gradlab.localisation.searching.lines import Line, noise_of
from gradlab.localisation.searching.patience import Patience
from gradlab.localisation.searching.quick_lines import next_start, quick_probe
from gradlab.subject.subject import analytic_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.localisation.searching.gradients import Gradients
    from gradlab.localisation.searching.ladders import Ladder
    from gradlab.localisation.searching.precise import Precise
    from gradlab.localisation.searching.quick_lines import Quick
    from gradlab.subject.analytic_sides import Problem, Pullback
    from gradlab.subject.subject import Subject

__all__ = ["ROUNDOFFS", "Bench"]

# Round-off of a derivative along a direction: a backward loses some ten ulps an entry.
ROUNDOFFS = 64.0
_SAMPLES = 8  # of the noise, that are remembered


@dataclasses.dataclass(slots=True, eq=False)
class Bench:
    """Both sides of a subject, contracted with one cotangent.

    Parameters
    ----------
    subject
        Supplies the analytic side.
    origin
        What is evaluated: the subject itself, or its twin in float64.
    cotangent
        Weights of the rows, shape (rows,).
    gradients
        Of each input; entries found wrong are replaced by what they should have been.
    units
        Power of two near the size of each input.
    settled
        Ranges that need no further search: given up, or described as a whole.
    immovable
        By input: coordinates that cannot be displaced, because they are not finite.
    wary
        Whether a defect must show at finer steps too, unless it is known from a line
        that this one is a part of: until one has, and always behind kinks.
    ripples, heard, hidden
        Noise of f, each of shape (rows,): from `ripple`, heard along directions, or
        what only longer steps show.
    dear
        Whether evaluations are so dear that directions get two of them, and a tensor
        is judged as a whole.
    crowd
        Whether only finer steps than usual get along with kinks, if anybody knows.
    precise
        Takes the round-off of short arithmetic out of the gradients, if that is done.
    spare
        The same in reserve: of a dear subject the gradients are judged as they come
        first, for their round-off is small beside what has to show.
    patience
        What entries are off by that stand accused of nothing.
    aside
        Inputs that others look at: their units mean nothing.
    apart
        By input: coordinates for which that is so.
    """

    subject: Subject
    origin: Origin
    cotangent: NDArray[np.float64]
    gradients: Gradients
    units: tuple[float, ...]
    tolerance: Tolerance
    meter: Meter
    seed: int
    exponent: int
    ripples: NDArray[np.float64]
    problems: tuple[Problem, ...] = ()
    known: dict[tuple[int, int], Column] = dataclasses.field(default_factory=dict)
    settled: list[Part] = dataclasses.field(default_factory=list)
    wary: bool = True
    dear: bool = False
    crowd: bool | None = None
    immovable: dict[int, NDArray[np.intp]] = dataclasses.field(default_factory=dict)
    precise: Precise | None = None
    spare: Precise | None = None
    patience: Patience = dataclasses.field(default_factory=Patience)
    aside: set[int] = dataclasses.field(default_factory=set)
    apart: dict[int, NDArray[np.intp]] = dataclasses.field(default_factory=dict)
    _rough: bool = False
    _ladders: dict[tuple[int, int], Ladder] = dataclasses.field(default_factory=dict)
    _reach: float | None = None
    _served: tuple[float, int] | None = None  # length of a direction, exponent
    heard: list[NDArray[np.float64]] = dataclasses.field(default_factory=list)
    hidden: NDArray[np.float64] | None = None
    _drawn: int = 0
    _sizes: dict[int, tuple[float, float]] = dataclasses.field(default_factory=dict)
    _matters: float | None = None

    @property
    def numeric(self) -> Subject:
        """What is evaluated."""
        return self.origin.subject

    @property
    def base(self) -> NDArray[np.float64]:
        """F at the point, shape (rows,)."""
        return self.origin.base

    def pull(self) -> None:
        """Fetch the gradients for the present cotangent; keep what was corrected."""
        self.gradients = fetched(
            self.subject,
            self.cotangent,
            self.pulled,
            self._note,
            lean=self.dear,
            precise=self.precise,
        )
        self.resized()
        for which, still in (*self.immovable.items(), *self.apart.items()):
            self.gradients.correct(which, still.tolist(), 0.0)
        for (which, position), column in self.known.items():
            value = column.weighed(self.cotangent)
            self.gradients.correct(which, [position], value)

    def resized(self) -> None:
        """Forget the sizes of gradients that are others now."""
        self._sizes.clear()
        self._matters = None

    def _note(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(dict.fromkeys((*self.problems, *problems)))

    def pulled(self, cotangents: NDArray[np.float64]) -> Pullback:
        """Ask the analytic side about some cotangents, shape (count, rows)."""
        analytic = analytic_of(self.subject)
        with np.errstate(all="ignore"):
            own = analytic.pull(cotangents)
            return own if self.precise is None else self.precise.of(own, cotangents)

    def turn(self, rng: np.random.Generator) -> None:
        """Draw another cotangent, where there is more than one output row."""
        if len(self.base) > 1:
            self.cotangent = draw_cotangent(self.origin, rng)
            self.pull()

    def correct(self, which: int, position: int, column: Column) -> None:
        """Replace an entry that was found wrong by what it should have been."""
        self.known[which, position] = column
        kink = column.means is not None
        value = column.weighed(self.cotangent) if kink else column.expected
        self.gradients.correct(which, [position], value)
        self._sizes.pop(which, None)
        self._matters = None

    def sizes(self, which: int) -> tuple[float, float]:
        """Root mean square of a gradient, and the scale of its entries."""
        if which not in self._sizes:
            count = self.gradients.counts[which]
            size = self.gradients.magnitudes(which)
            one = (size.largest, size.largest)
            norm, scale = one if count < 2 else (size.rest, size.second)
            self._sizes[which] = norm / max(count, 1) ** 0.5, scale
        return self._sizes[which]

    def analytic_epsilon(self, which: int) -> float:
        """Round-off of what `gradients` holds of an input."""
        if self.precise is None:
            return self.subject.epsilon
        return self.precise.epsilon(which)

    def rounding(self, which: int) -> float:
        """Smallest error of an entry that is more than the round-off of what matters.

        As in `gradlab.comparison.rule`: no backward pass is more exact than a few
        thousand roundings of the largest effect of any entry. A gradient that is zero
        because large terms cancel comes out as that.
        """
        share = roundings(self.analytic_epsilon(which))
        return max(share * self.matters, self.still(which) / 1e4) / self.units[which]

    @property
    def matters(self) -> float:
        """Largest effect on ``v . f`` of moving an entry by the unit of its input."""
        if self._matters is None:
            some = set(range(len(self.units))) - self.aside
            top = max((self.sizes(k)[1] * self.units[k] for k in some), default=0.0)
            self._matters = min(top, np.finfo(float).max)
        return self._matters

    def still(self, which: int) -> float:
        """Effect on ``v . f`` of an input that moves nothing, as in a full check."""
        if self.numeric.least_scales.get(which) == 0:
            return 0.0
        size = stillness(self.base)[:, 0] * np.abs(self.cotangent)
        return float(size[self.cotangent != 0].max(initial=0.0))

    def forgiven(self, which: int) -> float:
        """Smallest error of one entry of an input that anybody would object to."""
        return self.allowed(which, 0.0, 0.0, self.sizes(which)[1])

    def allowed(
        self, which: int, analytic: float, numeric: float, scale: float
    ) -> float:
        """Difference that the tolerance forgives to an entry.

        Parameters
        ----------
        scale
            That of the other entries of its row, from `scale_of`.
        """
        epsilon = self.analytic_epsilon(which)
        tolerance = self.tolerance.of(self.subject.inputs[which].name)
        size = np.fmax(abs(analytic), abs(numeric))
        scale = max(scale, abs(numeric)) if np.isfinite(numeric) else scale
        absolute = tolerance.absolute(np.array([[scale]]), epsilon)
        allowed = tolerance.relative(epsilon) * size + absolute[0, 0]
        return float(allowed + self.rounding(which))

    def listen(self) -> None:
        """Measure the noise of f; four evaluations, none where they are dear."""
        if self.dear:
            return  # heard on the way
        parts = self.parts() or whole(self.numeric)  # not what was set aside
        direction = self.direction(parts, self.new_seed())
        self.ripples = ripple(self.origin, direction, self.meter)

    def listen_closer(self) -> bool:
        """Measure noise that longer steps show; return whether there is any."""
        if self.dear or self.hidden is not None:
            return False
        self.hidden = beyond_rounding(self.origin, self.meter, self.seed)
        return bool(self.hidden.any())

    @property
    def noise(self) -> float:
        """Measured noise of one value of ``v . f``, with a factor for few samples."""
        return noise_of([*self.ripples, *self.heard], self.cotangent, self.hidden)

    def new_seed(self) -> int:
        """Seed of the next direction."""
        self._drawn += 1
        return (self.seed << 20) + self._drawn

    def direction(
        self, parts: Sequence[Part], seed: int, thinning: int = 0, choice: int = 0
    ) -> Direction:
        """Direction over some parts, in the units of the inputs."""
        moved = Direction(
            seed, tuple(parts), self.units, thinning, choice, pooled=self.dear
        )
        return dataclasses.replace(moved, still=self.apart) if self.apart else moved

    def line(self, direction: Direction) -> Line:
        """Line along a direction, to be measured in few evaluations."""
        heard = [*self.ripples, *self.heard]
        return Line(self.origin, direction, self.cotangent, self.meter, heard)

    def measure(
        self, direction: Direction, resolution: float, *, proven: bool = False
    ) -> Probe:
        """Compare both sides along a direction, and remember the step that served."""
        many = len(direction.parts) * 2 <= direction.size
        if many and (self.dear or self.crowd):
            return self._quick(direction, resolution, proven=proven).probe
        shift = 0.0 if self._reach is None else direction.reach - self._reach
        start = moved_exponent(self.exponent, shift, self.numeric.epsilon)
        wary = self.wary and not proven
        settings = ProbeSettings(start, self.noise, resolution, wary)
        sides = self.gradients, self.cotangent, self.meter
        found = probe(self.origin, direction, *sides, settings)
        if many and self.crowd is None and not found.error <= resolution:
            self._served = direction.reach, found.exponent
            closer = self._quick(direction, resolution, proven=proven)
            if not (proven and closer.one_sided):  # a defect at a tie, perhaps
                self.crowd = closer.probe.error < found.error
            if self.crowd:
                return closer.probe
        self.exponent, self._reach = found.exponent, direction.reach
        defect = abs(found.defect) > SAFETY * found.error
        if found.rough:
            self.wary = self._rough = True
        elif wary and defect and not self._rough:
            self.wary = False  # finer steps agreed: the function is smooth here
        return found

    def _quick(self, direction: Direction, resolution: float, *, proven: bool) -> Quick:
        """Compare both sides along a direction in few evaluations."""
        start = next_start(self._served, direction.reach, self.numeric.epsilon)
        analytic = self.gradients.along(direction)
        found = quick_probe(
            self.line(direction),
            analytic=analytic,
            resolution=resolution,
            slack=self._round_off(direction.parts) * analytic[1],
            start=start,
            proven=proven,
        )
        if found.heard is not None:
            self.heard = [*self.heard[1 - _SAMPLES :], found.heard]
        if found.serves and np.isfinite(found.probe.error):
            self._served = (direction.reach, found.probe.exponent)
        return found

    def threshold(self, found: Probe, parts: Sequence[Part]) -> float:
        """Smallest defect along a direction that means something."""
        least = (self.forgiven(p.which) * self.units[p.which] for p in parts)
        slack = self.slack(found.error, found.norm, parts)
        return max(slack, min(least, default=0.0))

    def slack(self, error: float, norm: float, parts: Sequence[Part]) -> float:
        """Defect that an error bar and round-off of the analytic side explain."""
        return max(SAFETY * error, self._round_off(parts) * norm)

    def _round_off(self, parts: Sequence[Part]) -> float:
        """Round-off of an analytic derivative in units of the norm of its terms."""
        every = map(self.analytic_epsilon, {part.which for part in parts})
        return ROUNDOFFS * max(every, default=0.0)

    def column(self, which: int, position: int) -> Column:
        """Differentiate along one coordinate: the adaptive ladder for every row.

        Where the ladder cannot resolve the rows together, a probe of this coordinate
        alone gives a second opinion on their combination.
        """
        place = (which, position)
        if place in self.known:
            return self.known[place]
        self.climb(which, [position])
        ladder = self._ladders[place]
        live = self.cotangent != 0
        weights = self.cotangent[live]
        torn = np.flatnonzero(ladder.kink & live)

        def told(cotangents: NDArray[np.float64]) -> NDArray[np.float64]:
            return self.pulled(cotangents).values[which][:, position]

        side = ladder.held_against(told, torn)
        numeric, error = side.value, side.error
        with np.errstate(all="ignore"):
            expected = float(np.dot(weights, numeric[live]))
            bar = float(np.dot(np.abs(weights), error[live]))
        analytic, scale = float(self.gradients[which][position]), self.sizes(which)[1]
        allowed = self.allowed(which, analytic, expected, scale)
        gap = abs(analytic - expected)
        hidden = not max(allowed, 1e-3 * abs(expected)) >= SAFETY * bar
        unsure = not torn.size and (hidden or allowed < gap <= SAFETY * bar)
        if unsure and not ladder.near.any():  # a long step knows no kink within
            direction = self.direction((Part(which, position, position + 1),), 1)
            along = direction.at(which, position)
            wanted = max(allowed, gap) if np.isfinite(gap) else allowed
            found = self.measure(direction, abs(along) * wanted / (4 * SAFETY))
            # what stands still there may be a staircase, which the ladder has seen
            if found.numeric != 0 and not found.error / abs(along) >= bar:
                expected, bar = found.numeric / along, found.error / abs(along)
                allowed = self.allowed(which, analytic, expected, scale)
            if len(numeric) == 1 and bar < error[0]:
                numeric, error = np.array([expected / weights[0]]), np.array([bar])
        column = Column(numeric, error, ladder.step, analytic, expected, bar, allowed)
        return dataclasses.replace(column, means=ladder.value) if torn.size else column

    def climb(self, which: int, positions: Sequence[int]) -> None:
        """Climb the ladders of several coordinates together, to be asked for later."""
        done = self.known.keys() | self._ladders.keys()
        where = np.array([p for p in positions if (which, p) not in done], dtype=int)
        if where.size:
            self.listen_closer()
            own = unit_of(self.numeric, which) if self.dear else self.units[which]
            found = ladders_of(self.origin, which, where, own, self.meter, self.hidden)
            pairs = zip(where.tolist(), found, strict=True)
            self._ladders |= {(which, p): ladder for p, ladder in pairs}

    def parts(self) -> list[Part]:
        """All inputs, less the ranges that have been settled."""
        return [q for p in whole(self.numeric) for q in without(p, self.settled)]

    def settle(self, which: int) -> None:
        """Look no further into an input."""
        self.settled.append(Part(which, 0, self.subject.inputs[which].coordinates))
