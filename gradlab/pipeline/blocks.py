"""What is compared and how, and a block under examination: all that is known of it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.effects import typical_effect
from gradlab.comparison.judge import NEGLIGIBLE, Side
from gradlab.comparison.kinks import Sides, nearest_slope
from gradlab.comparison.tolerance import SAFETY, Tolerance
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.method import Adaptive, Auto
from gradlab.differentiation.smoothness import Smoothness
from gradlab.errors import InputError
from gradlab.labels import chosen_for
from gradlab.late import Late

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from gradlab.comparison.judge import Tops
    from gradlab.differentiation.entries import Entries
    from gradlab.differentiation.metering import Meter
    from gradlab.differentiation.method import Method
    from gradlab.differentiation.origin import Origin
    from gradlab.differentiation.quotients import Pattern
    from gradlab.subject.subject import Problem, Subject

__all__ = [
    "Block",
    "Check",
    "Known",
    "Matters",
    "Outcome",
    "Plan",
    "label_of",
]

# Of an effect, over what `judge` neglects of it: a thousandth is neglected.
_SLIGHT = 1e-3 / NEGLIGIBLE


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """How to check: the options of `gradlab.check` that are not about the subject."""

    method: Method
    tolerance: Tolerance
    coverage: str = "full"
    seed: int = 0
    methods: Mapping[str, Method] = dataclasses.field(default_factory=dict, hash=False)
    memory: int = 1 << 30  # bytes

    def method_of(self, name: str) -> Method:
        """Return the method for one input: its own, or that of all others."""
        return chosen_for(name, self.methods, self.method)

    def finds_steps(self, name: str) -> bool:
        """Whether the method for one input finds its own steps."""
        return isinstance(self.method_of(name), Auto | Adaptive)

    def first_method(self, name: str) -> str:
        """Say by which method an input is differentiated first."""
        method = self.method_of(name)
        return "central" if isinstance(method, Auto) else method.name

    def refuse_unknown(self, names: list[str]) -> None:
        """Refuse options for inputs that there are not.

        Raises
        ------
        InputError
            Naming the inputs that there are.
        """
        for option, table in (
            ("method", self.methods),
            ("rtol or atol", self.tolerance.own),
        ):
            for key in table:
                if not any(chosen_for(name, {key: True}, False) for name in names):
                    known = ", ".join(map(repr, names))
                    msg = (
                        f"{option} is given for {key!r}, which is none of the inputs "
                        f"that are checked: {known}"
                    )
                    raise InputError(msg)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Check:
    """A check under way: what is compared, how, and at what cost.

    Attributes
    ----------
    own
        The subject as the user has it.
    reference
        What methods that find their own steps evaluate: the same, or the same in
        float64.
    plan
        How to check.
    meter
        Charged for every evaluation.
    """

    own: Origin
    reference: Origin
    plan: Plan
    meter: Meter

    @property
    def subject(self) -> Subject:
        """As the user has it."""
        return self.own.subject

    @property
    def twin(self) -> Subject | None:
        """The subject in float64, where that is another one."""
        reference = self.reference.subject
        return None if reference is self.own.subject else reference


@dataclasses.dataclass(eq=False, kw_only=True)
class Block:
    """One input under examination, in real coordinates; (rows, n) unless said.

    Values, error bars and tolerances are made when asked for, where the pattern of the
    first pass holds them.
    """

    which: int
    name: str  # of the input
    positions: NDArray[np.intp]  # (n,)
    scales: NDArray[np.float64]  # (n,): what steps are chosen by
    sizes: NDArray[np.float64]  # (n,): what effects count by, from `counted_sizes`
    height: NDArray[np.float64]  # (rows, 1): size of f at the point
    analytic: Late = Late()
    slack: NDArray[np.float64]
    value: Late = Late()
    error: Late = Late()
    step: NDArray[np.float64]
    kinds: NDArray[np.int8]
    left: NDArray[np.float64]
    right: NDArray[np.float64]
    verdicts: NDArray[np.int8]
    allowed: Late = Late()
    accepted: NDArray[np.bool_]
    looked: NDArray[np.bool_]  # (n,): columns that had a second look
    still: NDArray[np.float64]  # (rows, 1): what counts as no movement of f
    bend: NDArray[np.float64]  # right slope minus left slope
    # (n,): columns of which others that had one confirm what is accused
    upheld: NDArray[np.bool_] | None = None
    # (n,): by how much a line moved them that upheld them all at once, else 0
    walked: NDArray[np.float64] | float = 0.0
    # analytic side in float64, where that is another one
    precise: NDArray[np.float64] | None = None
    # what the last digits of the terms of a gradient may leave of it
    digits: NDArray[np.float64] | float = 0.0
    # (rows, 1): rounding inside f, where it is known to be coarser than that of f
    grain: NDArray[np.float64] | None = None
    # (rows, n): what such rounding may hide of each entry, by the last verdict
    blur: NDArray[np.float64] | None = None
    # (n,): scales, but for coordinates that turned out to live on one of their own
    own_scales: NDArray[np.float64] | None = None
    pattern: Pattern | None = None  # as the first pass found it
    entries: Entries | None = None  # of the analytic side, where it has few
    precise_entries: Entries | None = None  # of that in float64, where that has few
    settled: bool = False  # every entry agreed at once, and none had a second look
    faint: bool = False  # moved by a least scale: its own size is nothing to f
    near: float = np.inf  # times its own size, where that is enough after all
    through: int = 0  # entries of a product displaced in place of its own coordinates
    # of f beside the point, where a bar rests on one: height, distance, column
    jump: tuple[float, float, int] | None = None

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Entries that disagree, (rows, n)."""
        return np.asarray(self.verdicts == Verdict.DISAGREES.value)

    @property
    def accused(self) -> bool:
        """Whether any entry disagrees."""
        return not self.settled and bool(self.wrong.any())

    @property
    def latest_scales(self) -> NDArray[np.float64]:
        """Scale of each coordinate, (n,), by all that is known of it now."""
        return self.scales if self.own_scales is None else self.own_scales

    @property
    def reach(self) -> NDArray[np.float64]:
        """How far f is known to follow its numeric slopes, (rows, n)."""
        return np.asarray(np.fmax(np.abs(self.step), self.walked))

    @property
    def units(self) -> NDArray[np.float64]:
        """By what coordinates are moved together, (n,): what f notices of each."""
        if not self.faint:
            return self.sizes
        return np.minimum(self.scales, self.near * self.sizes)

    @property
    def formula(self) -> NDArray[np.float64]:
        """The analytic side without the round-off of short arithmetic, (rows, n)."""
        return self.analytic if self.precise is None else self.precise

    @property
    def gap(self) -> NDArray[np.float64]:
        """Distance of `formula` from the numeric side, (rows, n)."""
        with np.errstate(all="ignore"):
            return np.asarray(np.abs(self.formula - self.value))

    def apart(self, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
        """How far apart the two sides are at some entries, in units of f; else 0."""
        gap = np.zeros(mask.shape)
        places = np.flatnonzero(mask)
        if places.size:
            with np.errstate(all="ignore"):
                held = (self.formula, self.side.value)  # at a kink the nearest slope
                sides = (side.reshape(-1)[places] for side in held)
                gap.reshape(-1)[places] = np.abs(next(sides) - next(sides))
                gap *= self.units
        return gap

    @property
    def side(self) -> Side:
        """Numeric values as the verdict sees them.

        At a kink any slope between the two sides is as good as another.
        """
        kink = self.kinds == Smoothness.KINK.value
        if not kink.any():
            return Side(self.value, self.error)
        measured = Side(self.value, self.error)
        sides = Sides(self.left, self.right)
        with np.errstate(all="ignore"):  # a kink at 0 may be this side of it
            beside = self.sizes / np.abs(self.step)
        beside = np.where(beside < 1, beside, 0.0)
        return nearest_slope(self.analytic, measured, sides, kink, beside=beside)

    @property
    def typical_effect(self) -> NDArray[np.float64]:
        """How much each output can change when a coordinate moves, (rows, 1)."""
        return typical_effect(self.side, self.scales, self.sizes, self.height)

    def noticed(self, matters: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give what matters to each output, (rows, 1), where this input is moved.

        One that is moved far to be noticed at all does not matter where it is not; of
        one that cannot be, for its kinks, what is next to nothing beside the rest.
        """
        if not self.faint:
            return matters
        if not self.still.any():
            return np.asarray(np.fmax(matters, _SLIGHT * self.typical_effect))
        return np.asarray(np.fmax(matters, self.still / NEGLIGIBLE))

    @property
    def unnoticed(self) -> NDArray[np.float64] | float:
        """How far slopes may be off that hardly move f on so long a step, (rows, n).

        A kink within the size of such an input moves it by no more than that.
        """
        return self.still / self.scales if self.faint else 0.0

    def excess(
        self, columns: NDArray[np.intp] | slice = slice(None)
    ) -> NDArray[np.float64]:
        """Largest of `excesses` in each of some columns."""
        return np.asarray(self.excesses(columns).max(axis=0, initial=0.0))

    def excesses(
        self, columns: NDArray[np.intp] | slice = slice(None)
    ) -> NDArray[np.float64]:
        """Error of every entry of some columns, in units of what can be forgiven.

        inf where it is no number.
        """
        with np.errstate(all="ignore"):
            bound = np.maximum(
                self.allowed[:, columns], SAFETY * self.error[:, columns]
            )
            gap = np.abs(self.analytic[:, columns] - self.value[:, columns])
            each = gap / np.where(bound > 0, bound, 1)
        return np.asarray(np.nan_to_num(each, nan=np.inf, posinf=np.inf))

    def overwrite(
        self,
        columns: NDArray[np.intp],
        better: NDArray[np.bool_],
        **matrices: NDArray[np.float64] | int,
    ) -> None:
        """Write over entries of some columns that are known better now.

        Parameters
        ----------
        columns
            Of the block, (k,).
        better
            Which of their entries, (rows, k).
        **matrices
            By field: what to write, (rows, k).
        """
        for name, new in matrices.items():
            matrix = getattr(self, name)
            matrix[:, columns] = np.where(better, new, matrix[:, columns])

    def unfold(self) -> None:
        """Give steps, kinds and bends memory of their own: few checks write to them."""
        if not self.step.flags.writeable:
            self.step = self.step.copy()
        if not self.kinds.flags.writeable:
            self.kinds = self.kinds.copy()
        if self.pattern is not None and not self.bend.flags.writeable:
            self.bend = self.pattern.bends()

    def own_slopes(self) -> None:
        """Give the one-sided slopes memory of their own, before they are written to."""
        if not self.left.flags.writeable:
            self.left, self.right = self.left.copy(), self.right.copy()


def label_of(subject: Subject, block: Block, column: int) -> str:
    """Name the entry of the input that a column of a block belongs to."""
    variable = subject.inputs[block.which]
    return variable.label(variable.entry_of(int(block.positions[column])))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Matters:
    """Largest effect that any coordinate of any input has on each output, (m, 1).

    By the `typical_effect` of each, and by the sizes that coordinates count with.
    """

    typical: NDArray[np.float64]
    own: NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What other columns have shown, where a matrix is judged a few at a time."""

    matters: Matters
    tops: Mapping[int, Tops]  # by input
    looks: int = 48  # suspects that are certain to get a second look
    others_agree: bool = False  # every entry of those that are not here


@dataclasses.dataclass(slots=True, eq=False)
class Outcome:
    """What `run_full` found."""

    blocks: list[Block]
    base: NDArray[np.float64]
    problems: tuple[Problem, ...]
    reference: Subject | None
    remarks: list[str] = dataclasses.field(default_factory=list)
    stopped: str = ""  # why it was cut short, if it was
    # entries that a chosen method accuses, by its name: alone, or not confirmed
    overruled: Counter[str] = dataclasses.field(default_factory=Counter)
    unheard: Counter[str] = dataclasses.field(default_factory=Counter)
    # how much every output differs between evaluations at the point, if any does
    unsteady: NDArray[np.float64] | None = None
    # inputs whose accusations one ladder upheld, along a direction through all of them
    upheld: tuple[str, ...] = ()
    # rows whose gradient is the one of a point right beside this one, if any was asked
    limits: NDArray[np.bool_] | None = None
    rough: tuple[str, ...] = ()  # inputs whose slopes were taken over many small steps
    known: Known | None = None  # None: the blocks are all there is
    accused: bool = False  # inputs that are wrong as a whole: known, not yet shown

    @property
    def looked(self) -> int:
        """Columns that had a second look, each counted once, however often."""
        return sum(int(block.looked.sum()) for block in self.blocks)

    def met(self) -> Iterator[str]:
        """Say what was met on the way to the verdicts and is no matter of one entry."""
        if self.unsteady is not None:
            yield (
                f"f differs by up to {self.unsteady.max():.2g} between evaluations at "
                f"the same point"
            )
        for accused, words in (
            (self.overruled, "but not with the adaptive ladder"),
            (self.unheard, "and no other steps were tried"),
        ):
            if accused:
                yield (
                    f"{accused.total()} entries disagree with {' and '.join(accused)} "
                    f"differences at this step {words}: undecided"
                )
