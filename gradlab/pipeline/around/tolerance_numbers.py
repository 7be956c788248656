"""Which small numbers of f are its tolerances: it iterates longer where they are less.

Nobody says so, and it is tried, one number after the other: tolerances that functions
of libraries have by default, which are called so, and then whatever is small. A branch
that a number decides upon takes other lines, or fewer; a loop takes the same ones more
often. What a smaller number costs is told beforehand, by one that is hardly smaller: a
grid of n times n cells may take ten thousand times as long for a tenth of their size.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gradlab.differentiation.metering.timeouts import NotReturnedError, Watch
from gradlab.pipeline.around.slight_errors import unasked_point
from gradlab.pipeline.sides.lines_run import TooLong, Way, way_of
from gradlab.subject.tolerances_off import (
    called_defaults,
    small_numbers,
    with_times,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.subject.library_defaults import Default
    from gradlab.subject.subject import Subject

__all__ = ["TENTH", "TOO_LONG", "Tolerances", "tolerances_of", "value_of"]

TENTH, _HUNDREDTH = 0.1, 1e-2  # times a number
_HARDLY = 0.8  # times a number: what less of it costs
_STEPS = 3.0  # times as many lines for a tenth: a step size, and no tolerance
_SAME = 5e-2  # of f: another tolerance does not change it by more
TOO_LONG, _LEAST_LINES = 100.0, 1000  # times as many lines as f runs, and these
_MOST = 8  # numbers that are tried
_PART, _SECONDS = 2.0, 5.0  # of what the check has taken so far, and seconds at least
_LATE = 4.0  # times what was foreseen: it is ended
_AGAIN, _CHEAP = 5, 1e-2  # times it is timed again; of the seconds: what each may take


class Tolerances(NamedTuple):
    """Numbers of f that decide how long it iterates.

    Attributes
    ----------
    numbers
        Which: empty if there are none, or if f would take too long.
    factor
        By which they are made smaller.
    most
        Lines that f may run for one value.
    affordable
        Entries whose slopes may be measured again, at least one.
    """

    numbers: list[float | Default]
    factor: float
    most: float
    affordable: int

    @property
    def least(self) -> float:
        """The smallest of them."""
        return min(map(value_of, self.numbers))


def value_of(number: float | Default) -> float:
    """Give a number as it stands in f, or in what f calls."""
    return number if isinstance(number, int | float) else number.value


class _Run(NamedTuple):
    """One evaluation, traced."""

    row: NDArray[np.float64]
    way: Way
    seconds: float


def tolerances_of(subject: Subject, meter: Meter) -> Tolerances:
    """Find the small numbers of f that decide how long it iterates.

    Not those that have no smaller one, at which f would never end, nor those of which
    a tenth makes it take far longer than all that was done so far.

    Parameters
    ----------
    subject
        As the user has it.
    meter
        Charged for an evaluation, and two for each number that is tried.
    """
    allowed = max(_PART * meter.seconds, _SECONDS)
    meter.spend(1)
    trial = _Trial(subject, meter, allowed)
    base = trial.run()
    numbers: list[float | Default]
    numbers = [*called_defaults(base.way.called), *small_numbers(subject)]
    most = TOO_LONG * (base.way.lines + _LEAST_LINES)
    tried = numbers[:_MOST]
    found = _found(trial, tried, {}, base, most)
    longer = max((run.way.lines for run in found.values()), default=0)
    # a hundredth of a step size takes a hundred times as long
    factor = TENTH if longer > _STEPS * base.way.lines else _HUNDREDTH
    rest = [number for number in tried if number not in found]
    if found and rest:  # an atol counts where the rtol is no longer larger
        given = dict.fromkeys(found, factor)
        lower = _times(trial, given, most)
        if lower is not None:
            found |= _found(trial, rest, given, lower, most)
    slowest = max([base.seconds, *(run.seconds for run in found.values())])
    affordable = max(1, int(allowed / max(2 * slowest, 1e-9)))
    return Tolerances(list(found), factor, most, affordable)


def _found(
    trial: _Trial,
    numbers: Sequence[float | Default],
    given: Mapping[float | Default, float],
    base: _Run,
    most: float,
) -> dict[float | Default, _Run]:
    """Pick numbers that are tolerances, with what f does at a tenth of each.

    Parameters
    ----------
    given
        Factors of others, with which `base` was run.
    """
    tried = ((number, _smaller(trial, number, given, base, most)) for number in numbers)
    return {n: run for n, run in tried if run and _is_tolerance(base, run)}


def _times(
    trial: _Trial, factors: Mapping[float | Default, float], most: float
) -> _Run | None:
    """Evaluate f with other numbers; None if that takes too long."""
    trial.meter.spend(1)
    try:
        with with_times(trial.subject, factors):
            return trial.run(most)
    except (TooLong, NotReturnedError):
        return None


@dataclasses.dataclass(slots=True, eq=False)
class _Trial:
    """Evaluates a function beside its point, nowhere twice: it may keep its results."""

    subject: Subject
    meter: Meter
    allowed: float  # seconds
    asked: int = 0

    def run(self, most: float = math.inf) -> _Run:
        """Evaluate, traced; for so many lines at most."""
        seconds = _LATE * self.allowed
        self.asked += 1
        with (
            unasked_point(self.subject, self.asked),
            Watch(seconds, seconds, []) as watch,
        ):
            return watch.call(lambda: self._timed(most))

    def _timed(self, most: float) -> _Run:
        began = self.meter.seconds
        row, way = way_of(self.subject.row, most)
        return _Run(row, way, self.meter.seconds - began)


def _smaller(
    trial: _Trial,
    number: float | Default,
    given: Mapping[float | Default, float],
    base: _Run,
    most: float,
) -> _Run | None:
    """Evaluate f with a tenth of a number; None if that takes too long."""
    subject, allowed = trial.subject, trial.allowed
    trial.meter.spend(1)
    try:
        with with_times(subject, {**given, number: _HARDLY}):
            hardly = trial.run(most)
            for count in range(_AGAIN):
                if _foreseen(base.seconds, hardly.seconds) <= allowed / 2:
                    break
                if count and hardly.seconds > _CHEAP * allowed:
                    break
                # it may have been another program that took the time
                trial.meter.spend(1)
                again = trial.run(most).seconds
                hardly = hardly._replace(seconds=min(hardly.seconds, again))
        seconds = _foreseen(base.seconds, hardly.seconds)
        lines = _foreseen(base.way.lines, hardly.way.lines)
    except (TooLong, NotReturnedError):
        return None
    if seconds > allowed / 2 or lines > most:
        return None
    return _times(trial, {**given, number: TENTH}, most)


def _foreseen(base: float, hardly: float) -> float:
    """Tell what a tenth takes by what f does, and with a number that is hardly less."""
    rate = max(0.0, math.log(max(hardly, 1e-9) / max(base, 1e-9)))
    return base * math.exp(rate * math.log(TENTH) / math.log(_HARDLY))


def _is_tolerance(base: _Run, other: _Run) -> bool:
    if not base.way.is_iterated_by(other.way):
        return False
    with np.errstate(all="ignore"):
        near = np.abs(other.row - base.row)
        return bool((near <= _SAME * np.abs(base.row).max(initial=0.0)).all())
