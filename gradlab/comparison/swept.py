"""One input of a sweep: derivatives, verdicts, and its errors at every step."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.relative_errors import RELATIVE_FLOOR, relative_error
from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.error_curves import CurveReading, read_curve
from gradlab.differentiation.smoothness import Smoothness
from gradlab.subject.subject import EPSILON

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.subject.subject import Variable

__all__ = ["Curves", "Slopes", "Swept", "entry_name"]


class Slopes(dict[tuple[str, str], tuple[float, float]]):
    """Slopes by (method, input); an input alone stands for the first method.

    Examples
    --------
    >>> Slopes({("central", "x"): (2.0, -1.0), ("forward", "x"): (1.0, -1.0)})["x"]
    (2.0, -1.0)
    """

    def __missing__(self, key: object) -> tuple[float, float]:
        for (_, name), slopes in self.items():
            if name == key:
                return slopes
        raise KeyError(key)


@dataclasses.dataclass(frozen=True, eq=False)
class Swept:
    """One input of a sweep: all that does not depend on the step.

    Matrices have one row per real output row, all outputs stacked, and one column per
    real coordinate that was looked at.

    Parameters
    ----------
    variable
        The input.
    columns
        Coordinates behind the columns.
    analytic
        The side under suspicion.
    reference, reference_error
        Best known numeric derivative, found without the analytic one, and its bar.
    verdicts
        `Verdict` of each entry, from a check.
    kinds
        `Smoothness` of each entry; -1 where nothing spoke against smooth.
    left, right
        One-sided slopes where they were needed, else nan.
    epsilon
        Unit round-off of the function.
    rounding
        What arithmetic of this precision loses of every output, absolute, shape
        (rows, 1). nan if unknown.
    resolution
        Smallest derivative that a difference quotient in this arithmetic can resolve at
        all, at the best of steps; in the units of the derivative.
    dtype
        Name of the arithmetic, for people.
    outputs
        The outputs behind the rows; may be left out where there is one row.
    excuse
        Why what differs is right nevertheless, or could not be compared; "" if
        nothing differs, or it is wrong.
    together
        What is wrong with entries that are right at kinks each by itself; "" if
        nothing is.
    unsteady
        By how much f differs between evaluations at the same point; 0 if it does not.
    missing
        Why there is no gradient of it to compare; "" if there is one.
    rest
        Largest entry of a gradient that is nothing but rounding of its own, as that of
        a bias in front of a normalisation: a zero. 0 of any other.
    """

    variable: Variable
    columns: NDArray[np.intp]
    analytic: NDArray[np.float64]
    reference: NDArray[np.float64]
    reference_error: NDArray[np.float64]
    verdicts: NDArray[np.int8]
    kinds: NDArray[np.int8]
    left: NDArray[np.float64]
    right: NDArray[np.float64]
    epsilon: float = EPSILON
    rounding: NDArray[np.float64] | float = float("nan")
    resolution: float = 0.0
    dtype: str = "float64"
    outputs: tuple[Variable, ...] = ()
    excuse: str = ""
    together: str = ""
    unsteady: float = 0.0
    missing: str = ""
    rest: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of any entry; undecided where no slope is resolved.

        Entries that agree at kinks each by itself may be wrong together.

        A check may pass an input whose whole effect on f is negligible beside others,
        as the first weights of a deep saturated network. Asked for by itself, it is
        agreement that nobody has seen.
        """
        if self.together:
            return Verdict.DISAGREES
        worst = Verdict(int(self.verdicts.max(initial=0)))
        return worst if self.resolved else max(worst, Verdict.UNDECIDED)

    @property
    def resolved(self) -> bool:
        """Whether any slope stands out of its bar, or there is none to stand out."""
        with np.errstate(invalid="ignore"):
            seen = np.abs(self.reference) > SAFETY * self.reference_error
        return bool(seen.any() or self.rest or not np.any(self.analytic))

    @functools.cached_property
    def told(self) -> NDArray[np.bool_]:
        """Entries that stand out of the numeric noise; all if none does."""
        size = np.fmax(np.abs(self.analytic), np.abs(self.reference))
        noise = np.maximum(self.reference_error, self.resolution)
        told = ~(size <= SAFETY * noise)
        told |= self.verdicts == Verdict.DISAGREES
        return told if told.any() else np.ones_like(told)

    def rounded(self, loss: NDArray[np.float64] | float) -> float:
        """Return the largest relative error of a quotient, times the step.

        Of an entry that is told, where so much of every output is lost, (rows, 1); nan
        where it is not known.
        """
        size = np.fmax(np.abs(self.analytic), np.abs(self.reference))
        with np.errstate(all="ignore"):
            error = np.where(self.told & (size > 0), loss / size, np.nan)
        error = error[np.isfinite(error)]
        return float(error.max()) if error.size else float("nan")

    @functools.cached_property
    def floor(self) -> float:
        """Size of an entry below which no relative error is told."""
        known = np.abs(self.reference)
        return RELATIVE_FLOOR * float(np.max(known[np.isfinite(known)], initial=0.0))

    @functools.cached_property
    def trusted(self) -> NDArray[np.float64]:
        """What the numeric side is measured against, by itself.

        The analytic value where it agrees, because it is the more precise of the two;
        else the reference. At a kink what central differences tend to.
        """
        agrees = self.verdicts == Verdict.AGREES
        known = np.where(agrees, self.analytic, self.reference)
        middle = (self.left + self.right) / 2
        return np.where(self.kinked & np.isfinite(middle), middle, known)

    @functools.cached_property
    def kinked(self) -> NDArray[np.bool_]:
        """Entries at a kink: no step is good or bad there."""
        return np.asarray(self.kinds == Smoothness.KINK)

    @functools.cached_property
    def culprit(self) -> tuple[int, int] | None:
        """The entry that is wrong by most, or None."""
        wrong = self.verdicts == Verdict.DISAGREES
        if not wrong.any():
            return None
        error = relative_error(self.analytic, self.reference)
        error = np.where(wrong, np.nan_to_num(error, nan=2.0), -1.0)
        flat = int(error.argmax())
        return flat // error.shape[1], flat % error.shape[1]

    def label(self, column: int) -> str:
        """Name of the entry of the input behind a column."""
        coordinate = int(self.columns[column])
        if not self.variable.is_complex:
            return self.variable.label(coordinate)
        part = ("real", "imag")[coordinate % 2]
        return f"{self.variable.label(coordinate // 2)}.{part}"

    def place(self, row: int, column: int) -> str:
        """Name of a matrix entry: ``x[3]``, or ``out[1] / x[3]`` if there are rows."""
        if self.analytic.shape[0] == 1:
            return self.label(column)
        for output in self.outputs:
            if row < output.size:
                return f"{output.label(row)} / {self.label(column)}"
            row -= output.size
        return f"row {row} / {self.label(column)}"

    def __repr__(self) -> str:
        rows, columns = self.analytic.shape
        told = f"{self.variable.name}, {rows} x {columns}: {self.verdict.words}"
        if (worst := self.culprit) is None:
            return f"Swept({told})"
        return (
            f"Swept({told}; worst {self.place(*worst)}: "
            f"analytic {self.analytic[worst]:.6g}, "
            f"numeric {self.reference[worst]:.6g} ± {self.reference_error[worst]:.1e})"
        )

    def only(self, row: int, column: int) -> Swept:
        """Return the same of one entry."""
        part = np.s_[row : row + 1, column : column + 1]
        names = "analytic", "reference", "reference_error", "verdicts", "kinds"
        parts = {name: getattr(self, name)[part] for name in (*names, "left", "right")}
        rounding = np.broadcast_to(self.rounding, (len(self.analytic), 1))[part[0]]
        return dataclasses.replace(
            self,
            columns=self.columns[column : column + 1],
            rounding=rounding,
            **parts,
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Relative errors of one input and method at every step, shape (S,).

    Parameters
    ----------
    error, bar
        Worst relative error of any entry that can be told from noise, and the error
        bar of that entry, relative as well. nan where that entry of the gradient is no
        number.
    own
        Worst relative error of the numeric side, measured against `Swept.trusted`; of
        entries at a kink where there are no others.
    wrong
        Relative error of the entry that is wrong by most; nan if none is.
    lost
        Steps at which f leaves entries without a number that shorter steps give one: no
        error there is the worst.
    cut
        Whether the ladder was not climbed to its end: an interrupt, a budget.
    """

    error: NDArray[np.float64]
    bar: NDArray[np.float64]
    own: NDArray[np.float64]
    wrong: NDArray[np.float64]
    lost: NDArray[np.bool_]
    cut: bool = False

    @classmethod
    def blank(cls, steps: int) -> Curves:
        """Make curves on which nothing has been measured yet."""
        error, bar, own, wrong = np.full((4, steps), np.nan)
        return cls(error, bar, own, wrong, np.zeros(steps, bool))

    def put(
        self,
        rung: int,
        block: Swept,
        numeric: NDArray[np.float64],
        bars: NDArray[np.float64],
        seen: NDArray[np.bool_],
    ) -> None:
        """Fill in what `_step_errors` says of one step, or that entries are lost at it.

        Parameters
        ----------
        rung
            Number of the step; they come in ascending order.
        block, numeric, bars
            As in `_step_errors`.
        seen
            Entries that are told and had a number at some shorter step; brought up to
            date.
        """
        finite = np.isfinite(numeric)
        self.lost[rung] = (seen & ~finite).any()
        if not self.lost[rung]:
            point = _step_errors(block, numeric, bars)
            self.error[rung], self.bar[rung], self.own[rung], self.wrong[rung] = point
        seen |= finite & block.told

    def read(
        self, steps: NDArray[np.float64], order: int, *, steady: bool = True
    ) -> CurveReading:
        """Read `own`; where it was cut short, nobody saw a best step or a floor.

        Nor is there one of a function that is not steady: what `own` is measured
        against is noise.
        """
        found = read_curve(steps, self.own, order)
        if steady and not self.cut:
            return found
        return dataclasses.replace(found, best_step=np.nan, floor=np.nan)


def _step_errors(
    block: Swept, numeric: NDArray[np.float64], bars: NDArray[np.float64]
) -> tuple[float, float, float, float]:
    """Reduce the numeric Jacobian at one step to one point of each of `Curves`.

    Parameters
    ----------
    block
        What it is compared with.
    numeric, bars
        Quotients at this step, and their error bars.

    Examples
    --------
    >>> one = np.ones((1, 1))
    >>> block = Swept(
    ...     None,
    ...     np.arange(1),
    ...     2 * one,
    ...     one,
    ...     1e-9 * one,
    ...     np.array([[2]]),
    ...     np.array([[0]]),
    ...     one,
    ...     one,
    ... )
    >>> error, bar, own, wrong = _step_errors(block, one, 1e-9 * one)
    >>> round(error, 3), own, round(wrong, 3)
    (0.333, 0.0, 0.333)
    """
    if numeric.size == 0:
        return 0.0, 0.0, 0.0, float("nan")
    floor = block.floor
    error = relative_error(block.analytic, numeric, floor)
    own = relative_error(block.trusted, numeric, floor)
    # a gradient that is no number has no error: its worst entry is that one
    lost = (block.verdicts == Verdict.DISAGREES) & ~np.isfinite(block.analytic)
    told = block.told & np.isfinite(error)
    worst = bar = float("nan")
    if told.any() and not lost.any():
        flat = int(np.where(told, error, -1.0).argmax())
        place = (flat // error.shape[1], flat % error.shape[1])
        worst = float(error[place])
        size = abs(float(numeric[place])) + abs(float(block.analytic[place]))
        size = max(size, floor)
        bar = float(bars[place]) / size if size > 0 else float("inf")
    steady = block.told & np.isfinite(own)
    steady &= ~block.kinked | (block.kinked | ~block.told).all()
    culprit = block.culprit
    return (
        worst,
        bar,
        float(own[steady].max()) if steady.any() else float("nan"),
        float("nan") if culprit is None else float(error[culprit]),
    )


def entry_name(variable: Variable, index: int | tuple[int, ...]) -> str:
    """Name an entry by its index, or by its position in row-major order.

    Examples
    --------
    >>> from gradlab.subject.subject import Variable
    >>> entry_name(Variable("W", (2, 3)), 4), entry_name(Variable("W", (2, 3)), (1, 1))
    ('W[1, 1]', 'W[1, 1]')
    """
    if isinstance(index, int | np.integer) and 0 <= index < variable.size:
        index = variable.index(int(index))
    place = ", ".join(map(str, index)) if isinstance(index, tuple) else str(index)
    return f"{variable.name}[{place}]" if place else variable.name
