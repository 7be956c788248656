"""What a comparison of both sides found: its blocks, and what was met on the way."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

from gradlab.differentiation.metering.meter import INTERRUPTED, why_stopped
from gradlab.labels import plural
from gradlab.subject.subject import DOUBLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from gradlab.comparison.rule import Tops
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.blocks import Block
    from gradlab.subject.analytic_sides import Problem
    from gradlab.subject.subject import Subject

__all__ = ["Judged", "Known", "Matters", "Outcome"]


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
    early: bool = False  # whether bars allow for f stopping early, as a solver does
    known: Known | None = None  # None: the blocks are all there is
    accused: bool = False  # inputs that are wrong as a whole: known, not yet shown

    @property
    def looked(self) -> int:
        """Columns that had a second look, each counted once, however often."""
        return sum(int(block.looked.sum()) for block in self.blocks)

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped it: who pressed Stop does not want more."""
        return self.stopped == INTERRUPTED

    def cut_short(self, stop: BaseException, undone: str = "") -> None:
        """Remember what stopped it first, and say what was left undone for that."""
        self.stopped = self.stopped or why_stopped(stop)
        if undone:
            self.remarks.append(f"{why_stopped(stop)}: {undone}")

    def take_over(self, part: Outcome) -> None:
        """Remember what was met in a part of it, which was looked at by itself."""
        self.unsteady, self.upheld, self.rough = part.unsteady, part.upheld, part.rough
        self.overruled, self.unheard = part.overruled, part.unheard
        self.early = part.early

    def leave_unheard(self, block: Block, entries: NDArray[np.bool_], by: str) -> None:
        """Leave accusations open that differences by one method make alone."""
        block.leave_open(entries)
        self.unheard += Counter({by: int(entries.sum())})

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
                count = plural(accused.total(), "entry")
                yield (
                    f"{count} disagree{'s' * (accused.total() == 1)} with "
                    f"{' and '.join(accused)} differences at this step {words}: "
                    f"undecided"
                )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """An outcome with its verdicts, and all it takes to take some of them back.

    Attributes
    ----------
    subject
        As the user has it; back at its point afterwards.
    outcome
        Whatever is taken back is changed in its blocks.
    meter
        Charged for what is asked, which is nothing where nobody is accused.
    seed
        Of directions, roundings and points beside the given one.
    """

    subject: Subject
    outcome: Outcome
    meter: Meter
    seed: int

    @property
    def at(self) -> Subject:
        """What the numeric side evaluates."""
        return self.outcome.reference or self.subject

    @property
    def exact(self) -> bool:
        """Whether both sides are those of f as the user has it, in float64."""
        return self.outcome.reference is None and self.subject.epsilon < DOUBLE

    @property
    def wrong(self) -> list[Block]:
        """Blocks in which an entry is accused."""
        return [block for block in self.outcome.blocks if block.accused]
