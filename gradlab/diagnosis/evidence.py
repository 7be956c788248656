"""What diagnosis works on: both sides as measured, and the subject for more probes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.late import Late

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.quotients import Pattern
    from gradlab.localisation.searching.readings import Reading
    from gradlab.subject.subject import Problem, Subject

__all__ = ["Evidence", "Part"]


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
    notes
        Conditions met on the way, by kind: "random": names of the sources that were
        frozen; "state": what the function changes; "mutated": inputs it writes to;
        "dependent": inputs made from others, as "b from a"; "unsteady": by how much
        two values at the point differ; "raised": how often evaluations failed, and the
        first exception; "second_opinion": the method whose step misled; "own_steps":
        inputs measured at steps that the user asked for; "rough": inputs that half
        precision hides in; "rounded": those that rounding inside f leaves open;
        "crowded": that kinks make bars wide: a step that crosses some still, and the
        inputs, if any, that leaves open;
        "jumps": an entry, and the height and distance of a jump of
        f from there, where bars rest on such.
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
    notes: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
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
