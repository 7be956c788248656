"""What diagnosis works on: both sides as measured, and the subject for more probes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.late import Late
from gradlab.localisation.conditions import Conditions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison
    from gradlab.differentiation.failures import Failure
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.quotients import Pattern
    from gradlab.localisation.searching.readings import Reading
    from gradlab.subject.analytic_sides import Problem
    from gradlab.subject.subject import Subject

__all__ = ["Crowd", "Evidence", "Jump", "Met", "Part"]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Part:
    """One input's derivative of all outputs, in real coordinates, shape (rows, n)."""

    which: int  # number of the input in subject.inputs
    positions: NDArray[np.intp]  # real coordinates behind the columns
    analytic: Late = Late()
    numeric: Late = Late()
    error: Late = Late()  # error bar of numeric
    verdicts: NDArray[np.int8]
    kinds: NDArray[np.int8]  # `Smoothness` where looked at closely, else -1
    left: NDArray[np.float64]  # one-sided slopes, nan where not measured
    right: NDArray[np.float64]
    accepted: NDArray[np.bool_]  # sub-gradients at a kink
    complete: bool  # every coordinate of the input is among the columns
    is_wrong: bool  # some entry disagrees
    # where every entry agreed at once: what was measured; the rest are zeros
    pattern: Pattern | None = None

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Entries that disagree."""
        return np.asarray(self.verdicts == Verdict.DISAGREES)


class Jump(NamedTuple):
    """A jump of f beside the point, on which error bars rest."""

    entry: str  # that was moved, as a label
    height: float  # of f
    away: float  # how far the entry was moved


class Crowd(NamedTuple):
    """Kinks that are so close that no step avoids them."""

    step: float  # of the size of all entries, that crosses some still
    inputs: tuple[str, ...]  # that this leaves undecided; perhaps none


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """What was met on the way while numbers were compared.

    Parameters
    ----------
    raised
        How often evaluations next to the point failed.
    first_exception
        The first of these, as it prints.
    nearest
        How near to the point one of them was, where that is known.
    unsteady
        By how much values at the point differ from one evaluation to the next.
    overruled
        Methods whose step misled, for a step of gradlab's own told otherwise.
    own_steps
        Inputs measured at steps that the user asked for.
    rough
        Inputs that half precision hides in.
    rounded
        Inputs that rounding inside f leaves open.
    crowd
        Kinks that make bars wide, and the inputs that these leave open.
    jump
        The first jump of f that bars rest on.
    early
        Whether bars allow for f stopping early, as a solver does.
    """

    raised: int = 0
    first_exception: str = ""
    nearest: Failure | None = None
    unsteady: float = 0.0
    overruled: tuple[str, ...] = ()
    own_steps: tuple[str, ...] = ()
    rough: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()
    crowd: Crowd | None = None
    jump: Jump | None = None
    early: bool = False


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Everything a detector may look at.

    Parameters
    ----------
    subject
        At its point; free to be evaluated and pulled back again through `meter`.
    base
        f at the point, shape (rows,).
    parts
        One per input, in the subject's order.
    comparisons
        The same, per output and input, as the report shows them.
    problems
        What was odd about the returned gradients, short of their values.
    meter
        To be charged for further evaluations.
    seed
        Of `rng`.
    conditions
        What the function does besides returning a value.
    met
        What was met while numbers were compared.
    reference
        The subject in float64, if the values were compared with that.
    readings
        What random directions say of a wrong input as a whole, by its name, where it is
        too large to be looked at entry by entry.
    kept
        What detectors have found out once, and ask for again.
    """

    subject: Subject
    base: NDArray[np.float64]
    parts: tuple[Part, ...]
    comparisons: tuple[Comparison, ...]
    problems: tuple[Problem, ...]
    meter: Meter
    seed: int
    conditions: Conditions = dataclasses.field(default_factory=Conditions)
    met: Met = dataclasses.field(default_factory=Met)
    reference: Subject | None = None
    readings: Mapping[str, Reading] = dataclasses.field(default_factory=dict)
    kept: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def rng(self) -> np.random.Generator:
        """For random probes; the same one whenever it is asked for."""
        if "rng" not in self.kept:
            self.kept["rng"] = np.random.default_rng([self.seed, 2])
        rng: np.random.Generator = self.kept["rng"]
        return rng
