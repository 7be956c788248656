"""Taylor remainders: how fast they shrink, and what that says about a derivative.

With a right gradient the remainder ``f(x + h v) - f(x) - h <g, v>`` shrinks as h**2,
with a wrong one as h. The rate alone is easily fooled: a slip of a millionth shows rate
2 at every step anybody takes, a kink shows rate 1 with any gradient, and below
round-off a rate means nothing. So the verdict comes from a derivative along v with an
error bar, and the reading says what the rates are worth.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.tolerance import CARE, SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.properties.results import PropertyResult

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from gradlab.presentation.taylor_plot import TaylorDisplay

__all__ = ["Derivative", "TaylorTest"]

_HEARD = 10.0  # times its round-off, a remainder is a remainder
_SHORT = 0.1  # of a rate: 1.9 counts as 2, as pyadjoint's users have it
_WORDS = ("value", "gradient", "second derivative")


@dataclasses.dataclass(frozen=True, slots=True)
class Derivative:
    """A derivative along the direction, both ways.

    Parameters
    ----------
    analytic, numeric, error
        Both values, and the error bar of the numeric one.
    allowed
        What the tolerance forgives.
    size
        Of the terms that the analytic value is a sum of.
    kink
        Slopes to the left and to the right, where they differ.
    doubt
        Part of what is forgiven that only terms which cancel would need: a gap within
        it is undecided.
    """

    analytic: float
    numeric: float
    error: float
    allowed: float
    size: float
    kink: tuple[float, float] | None = None
    doubt: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """Whether both agree, as far as the bar can tell."""
        return _judged(self)


def _judged(found: Derivative) -> Verdict:
    """Apply the rule of `gradlab.comparison.rule` to one directional derivative."""
    if found.kink is not None and np.isfinite(found.analytic):
        low, high = sorted(found.kink)
        slack = 0.01 * (high - low)  # any slope in between is a sub-gradient
        inside = low - slack <= found.analytic <= high + slack
        return Verdict.AGREES if inside else Verdict.DISAGREES
    if np.isfinite(found.numeric) and not np.isfinite(found.analytic):
        return Verdict.DISAGREES
    if not (np.isfinite(found.numeric) and np.isfinite(found.error)):
        return Verdict.UNDECIDED
    gap, bar = abs(found.analytic - found.numeric), SAFETY * found.error
    if gap > max(found.allowed, bar):
        return Verdict.DISAGREES
    if gap > max(found.allowed - found.doubt, bar):
        return Verdict.UNDECIDED
    worth = CARE * max(abs(found.analytic), abs(found.numeric), found.size)
    return Verdict.UNDECIDED if bar > max(worth, found.allowed) else Verdict.AGREES


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class TaylorTest(PropertyResult):
    """Result of `gradlab.taylor_test`.

    Parameters
    ----------
    steps
        Multiples h of the direction, descending; shape (S,).
    residuals
        Absolute remainders by order, shape (S,) each: 0 is ``|f(x + h v) - f(x)|``, 1
        takes off ``h <g, v>``, 2 also ``h**2 / 2 <v, H v>``.
    floors
        Round-off of a remainder; one below ten times this has no rate.
    derivatives
        By order (1, and 2 where a Hessian was tested): both derivatives along v.
    evaluations
        How often the function was evaluated.
    remarks
        What else a reader must know.

    Examples
    --------
    >>> test = gl.taylor_test(lambda x: np.exp(x).sum(), np.ones(3), grad=np.exp)
    >>> bool(min(test.rates[1]) > 1.9)
    True
    >>> test.verdict.name
    'AGREES'
    """

    steps: NDArray[np.float64]
    residuals: dict[int, NDArray[np.float64]]
    floors: NDArray[np.float64]
    derivatives: dict[int, Derivative]
    evaluations: int
    remarks: tuple[str, ...] = ()

    @property
    def order(self) -> int:
        """Highest order that was tested."""
        return max(self.residuals)

    @property
    def rates(self) -> dict[int, NDArray[np.float64]]:
        """Observed rates by order, shape (S - 1,); order + 1 is expected, or more."""
        with np.errstate(all="ignore"):
            return {
                order: np.diff(np.log(left)) / np.diff(np.log(self.steps))
                for order, left in self.residuals.items()
            }

    @property
    def heard(self) -> dict[int, NDArray[np.bool_]]:
        """Which remainders are no round-off, by order, shape (S,)."""
        return {
            order: left > _HEARD * self.floors for order, left in self.residuals.items()
        }

    @property
    def rate(self) -> dict[int, float]:
        """Least rate by order, of remainders that are not round-off; nan if all are."""
        found = {}
        for order, rates in self.rates.items():
            heard = self.heard[order]
            told = rates[heard[1:] & heard[:-1] & np.isfinite(rates)]
            found[order] = float(told.min()) if told.size else float("nan")
        return found

    @property
    def verdict(self) -> Verdict:
        """The worst of the derivatives tested."""
        return max(found.verdict for found in self.derivatives.values())

    @property
    def reading(self) -> str:
        """What the rates mean, one sentence for each order tested, worst first."""
        verdicts = {order: found.verdict for order, found in self.derivatives.items()}
        order = sorted(verdicts, key=lambda k: (-int(verdicts[k]), k))
        return " ".join(map(self._reading, order))

    def _reading(self, order: int) -> str:
        found, rate = self.derivatives[order], self.rate[order]
        name, expected = _WORDS[order], order + 1
        seen = f"rate {rate:.2f}, {expected} expected"
        if np.isnan(rate):
            seen = "no remainder above round-off, hence no rate"
        numbers = (
            f"along the direction it is {found.analytic:.8g}, differences give "
            f"{found.numeric:.8g} ± {found.error:.1g}"
        )
        verdict = found.verdict
        if verdict == Verdict.DISAGREES and np.isnan(found.analytic):
            return (
                f"There is no {name} along the direction, where differences give "
                f"{found.numeric:.8g} ± {found.error:.1g}."
            )
        if verdict == Verdict.DISAGREES:
            fooled = rate > expected - _SHORT
            why = "too small a slip for the rate to show" if fooled else seen
            return f"The {name} is wrong ({why}): {numbers}."
        if found.kink is not None:
            left, right = found.kink
            return (
                f"There is a kink: slope {left:.6g} to the left, {right:.6g} to the "
                f"right, so the rate is 1 with any gradient; {found.analytic:.6g} lies "
                f"in between."
            )
        if verdict == Verdict.UNDECIDED:
            return f"The {name} is undecided ({seen}): {numbers}."
        if np.isnan(rate):
            return (
                f"The {name} is right, and its remainder below round-off at every "
                f"step: there is no rate to be had."
            )
        if rate < expected - _SHORT:
            return (
                f"The {name} is right ({numbers}), though the rate is {rate:.2f} and "
                f"not {expected}: steps too long, or a function not smooth enough."
            )
        return f"The {name} is right ({seen}): {numbers}."

    @property
    def table(self) -> pd.DataFrame:
        """A row per order and step: ``order, step, residual, rate, floor``."""
        from gradlab.presentation.tables import taylor_table

        return taylor_table(self)

    def to_dict(self) -> dict[str, Any]:
        """Return what pyadjoint's ``taylor_to_dict`` returns.

        ``eps``, and ``R0``, ``R1``, ``R2`` with ``Residual`` and ``Rate`` lists.
        """
        rates = self.rates
        result: dict[str, Any] = {"eps": self.steps.tolist()}
        for order, left in self.residuals.items():
            parts = {"Residual": left.tolist(), "Rate": rates[order].tolist()}
            result[f"R{order}"] = parts
        return result

    def plot(self, ax: Axes | None = None) -> TaylorDisplay:
        """Draw the remainders against the step, with the slopes expected.

        Parameters
        ----------
        ax
            Axes of your own; default a new figure.
        """
        from gradlab.presentation.taylor_plot import TaylorDisplay

        return TaylorDisplay(self).plot(ax)

    def __repr__(self) -> str:
        from gradlab.presentation.property_text import taylor_text

        return taylor_text(self)
