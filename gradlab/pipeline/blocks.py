"""A block under examination: all that is known of one input."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.effects import typical_effect
from gradlab.comparison.kinks import Sides, nearest_slope
from gradlab.comparison.rule import NEGLIGIBLE, Side
from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.smoothness import Smoothness
from gradlab.late import Late

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.quotients import Pattern
    from gradlab.differentiation.sparse.entries import Entries
    from gradlab.subject.subject import Subject

__all__ = ["REACH", "Block", "direction", "label_of"]

REACH = (1e-3, -1e-3, 0.3, -0.3)  # of their sizes: how far coordinates move together

# Of an effect, over what `judge` neglects of it: a thousandth is neglected.
_SLIGHT = 1e-3 / NEGLIGIBLE


@dataclasses.dataclass(eq=False, kw_only=True)
class Block:
    """One input under examination, in real coordinates; (rows, n) unless said.

    Values, error bars and tolerances are made when asked for, where the pattern of the
    first pass holds them. Who writes what stands above each group of fields: bars by
    `widen`, `narrow`, `distrust` and `blame_noise`, better numbers by `overwrite`.
    """

    # Which coordinates, and their sizes: `first_pass`.
    which: int
    name: str  # of the input
    positions: NDArray[np.intp]  # (n,)
    scales: NDArray[np.float64]  # (n,): what steps are chosen by
    sizes: NDArray[np.float64]  # (n,): what effects count by, from `counted_sizes`
    height: NDArray[np.float64]  # (rows, 1): size of f at the point
    faint: bool = False  # moved by a least scale: its own size is nothing to f
    near: float = np.inf  # times that size, where it is enough after all: `beside`

    # The analytic side: `comparing.add_analytic`; looks at last digits forgive more.
    analytic: Late = Late()
    entries: Entries | None = None  # of it, where it has few
    # the same in float64, where that is another one
    precise: NDArray[np.float64] | None = None
    precise_entries: Entries | None = None
    slack: NDArray[np.float64]  # what the rounding of short arithmetic may leave of it
    # what the last digits of its terms may leave of it
    digits: NDArray[np.float64] | float = 0.0

    # The numeric side: `first_pass`; looks write better numbers, and wider bars.
    value: Late = Late()
    error: Late = Late()
    step: NDArray[np.float64]
    bend: NDArray[np.float64]  # right slope minus left slope
    pattern: Pattern | None = None
    through: int = 0  # entries of a product displaced in place of its own coordinates
    # ... of a ladder alone
    kinds: NDArray[np.int8]
    left: NDArray[np.float64]
    right: NDArray[np.float64]
    # (n,): scales, but for coordinates that turned out to live on one of their own
    own_scales: NDArray[np.float64] | None = None
    # ... of the noise of f
    still: NDArray[np.float64]  # (rows, 1): what counts as no movement of f
    # (rows, 1): rounding inside f, where it is known to be coarser than that of f
    grain: NDArray[np.float64] | None = None
    # of f beside the point, where a bar rests on one: height, distance, column
    jump: tuple[float, float, int] | None = None

    # What was looked at: `looks`.
    looked: NDArray[np.bool_]  # (n,): columns that had a second look
    # (n,): columns of which others that had one confirm what is accused
    upheld: NDArray[np.bool_] | None = None
    # (n,): by how much a line moved them that upheld them all at once, else 0
    walked: NDArray[np.float64] | float = 0.0

    # By `verdicts.py`, from the numbers above; what `around` excuses is taken back.
    verdicts: NDArray[np.int8]
    allowed: Late = Late()
    accepted: NDArray[np.bool_]  # agrees though the sides differ: at a kink, say
    # what `grain` may hide of each entry, by the last verdict
    blur: NDArray[np.float64] | None = None
    # entries of an input of which nothing was seen: see `untold.py`
    untold: NDArray[np.bool_] | None = None
    # (rows,): outputs that go another way than the formula, all coordinates moved
    # together, where no entry by itself is told: see `all_together.py`
    restless: NDArray[np.bool_] | None = None
    # ... how far each coordinate is moved then, (n,), and f where all of them are moved
    # by so much times `REACH`
    walk: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    settled: bool = False  # every entry agreed at once, and none had a second look

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

    @property
    def largest_terms(self) -> NDArray[np.float64]:
        """Size of terms that may cancel in slopes by each coordinate, (n,)."""
        with np.errstate(all="ignore"):
            effects = np.fmax(np.abs(self.analytic), np.abs(self.value)) * self.sizes
            top = effects.max(initial=0.0, where=np.isfinite(effects))
            # terms of size one may have cancelled, whatever is left of them all
            return np.asarray(np.fmax(top / self.latest_scales, 1.0))

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

    def take_over(self, part: Block) -> None:
        """Write over the columns of a part, a block by itself, with what it knows.

        Its positions are columns of this one; entries of all other columns agree.
        """
        columns, shape = part.positions, (len(part.value), len(self.positions))
        self.unfold()
        self.own_slopes()
        self.verdicts = np.full(shape, Verdict.AGREES, dtype=np.int8)
        self.accepted = np.zeros(shape, dtype=bool)
        for name in (
            "value",
            "error",
            "step",
            "bend",
            "kinds",
            "left",
            "right",
            "verdicts",
            "allowed",
            "accepted",
        ):
            getattr(self, name)[:, columns] = getattr(part, name)
        self.looked[columns] = part.looked
        if part.upheld is not None:
            self.upheld = np.zeros(shape[1], dtype=bool)
            self.upheld[columns] = part.upheld
            self.walked = np.zeros(shape[1])
            self.walked[columns] = part.walked
        if isinstance(part.digits, np.ndarray):
            self.digits = np.zeros(shape)
            self.digits[:, columns] = part.digits
        self.grain = part.grain
        if part.blur is not None:
            self.blur = np.zeros(shape)
            self.blur[:, columns] = part.blur
        if part.own_scales is not None:
            self.own_scales = self.scales.copy()
            self.own_scales[columns] = part.own_scales
        if part.jump is not None:
            height, away, column = part.jump
            self.jump = height, away, int(columns[column])

    def copy(self) -> Block:
        """Return one with matrices of its own."""
        copies: dict[str, Any] = {
            field.name: value.copy()
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), np.ndarray)
        }
        return dataclasses.replace(self, **copies)

    def leave_open(self, entries: NDArray[np.bool_] | tuple[Any, ...]) -> None:
        """Leave entries undecided that numbers accuse, or vouch for: nobody can tell.

        A mask, (rows, n), or whatever else picks them.
        """
        self.verdicts[entries] = Verdict.UNDECIDED

    def excuse(self, entries: NDArray[np.bool_]) -> None:
        """Let entries agree, (rows, n) or whole columns (n,), though numbers do not."""
        self.verdicts[np.broadcast_to(entries, self.verdicts.shape)] = Verdict.AGREES
        self.accepted = self.accepted | entries

    def widen(
        self,
        bars: NDArray[np.float64],
        entries: NDArray[np.bool_] | np.bool_ = np.True_,
        columns: NDArray[np.intp] | slice = slice(None),
    ) -> None:
        """Let bars of some entries of some columns, (rows, k), be these at least."""
        error = self.error[:, columns]
        self.error[:, columns] = np.fmax(error, bars, out=error, where=entries)

    def narrow(
        self,
        bars: NDArray[np.float64],
        entries: NDArray[np.bool_] | np.bool_ = np.True_,
        columns: NDArray[np.intp] | slice = slice(None),
    ) -> None:
        """Let bars of some entries of some columns, (rows, k), be these at most."""
        error = self.error[:, columns]
        self.error[:, columns] = np.minimum(error, bars, out=error, where=entries)

    def distrust(
        self,
        entries: NDArray[np.bool_] | np.bool_ = np.True_,
        columns: NDArray[np.intp] | slice = slice(None),
    ) -> None:
        """Say of some entries of some columns, (rows, k), that nobody knows them."""
        error = self.error[:, columns]
        np.copyto(error, np.inf, where=entries)
        self.error[:, columns] = error

    def blame_noise(
        self,
        bars: NDArray[np.float64],
        entries: NDArray[np.bool_],
        columns: NDArray[np.intp] | slice = slice(None),
    ) -> bool:
        """Give entries the bars of noise, and its kind; whether any were narrower."""
        wider = entries & (bars > self.error[:, columns])
        self.widen(bars, wider, columns)
        kinds = self.kinds[:, columns]
        self.kinds[:, columns] = np.where(wider, Smoothness.NOISY, kinds)
        return bool(wider.any())

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


def direction(
    scales: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw by how much each coordinate is moved, half of its scale to all of it, (n,).

    No two are alike: what the difference of two coordinates moves does not cancel.
    """
    signs = rng.choice([-1.0, 1.0], len(scales))
    return np.asarray(signs * rng.uniform(0.5, 1.0, len(scales)) * scales)


def label_of(subject: Subject, block: Block, column: int) -> str:
    """Name the entry of the input that a column of a block belongs to."""
    variable = subject.inputs[block.which]
    return variable.label(variable.entry_of(int(block.positions[column])))
