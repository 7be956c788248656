"""What a check will look at: everything while that is cheap, else a stated part."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.metering.meter import DEAR
from gradlab.differentiation.sizes.scales import typical_sizes
from gradlab.differentiation.sizes.small_coordinates import OWN_SCALE
from gradlab.labels import plural
from gradlab.subject.mirrors import with_mirrored
from gradlab.subject.subject import input_columns, output_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.budget import Budget
    from gradlab.subject.subject import Subject

__all__ = [
    "WHOLE",
    "Coverage",
    "Estimate",
    "Price",
    "by_directions",
    "choose_columns",
    "estimate",
    "mixed_inputs",
    "needs_streaming",
    "readable",
]

# Measured peak of a check that keeps everything, bytes for each entry of the Jacobian.
WHOLE = 180
# "Cheap": a pause nobody minds, and matrices that fit several times into 1 GiB.
_SECONDS = 20.0
_EVALUATIONS = 60_000
_SMALL = 5_000  # evaluations
_ENTRIES = 8_000_000
_SAMPLE = 64  # entries of one input that a sample looks at, at most
_PER_COORDINATE = 2  # evaluations of the first pass
_PROBES = 16  # evaluations along random directions where all agrees, about
_PROBES_DEAR = 6  # the same, where two along each of two directions are enough
_PULLED = 4  # further evaluations that the time of a backward pass is worth
_SHARE = 0.4  # of a budget in seconds that the analytic side may take

_CHEAP = 16  # coordinates: to compare all of them costs no more than a search does
_MOST = 256  # coordinates of an input all of which are compared, or of small ones
# Of the typical size: a step of a search is longer than what is smaller than this.
# Among numbers of one kind, one in a hundred thousand is.
_FAR = 1e-5
_CHANCE = 1e-3  # that one of as many is, by which a longer input is called mixed


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Coverage:
    """What will be looked at: per input, the real coordinates to perturb."""

    name: str
    columns: list[NDArray[np.intp]]
    remarks: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """What a check will cost at least, as far as is known before it.

    Attributes
    ----------
    evaluations
        Of the first pass; what looks wrong is looked at again.
    seconds
        For these, and to read out the analytic side.
    """

    evaluations: int
    seconds: float

    @property
    def words(self) -> str:
        """The estimate as a remark of the report.

        Examples
        --------
        >>> Estimate(2000, 21.3).words
        'estimated before: 2,000 evaluations or more, about 21 s'
        """
        time = f"{self.seconds:.2g}" if self.seconds < 100 else f"{self.seconds:,.0f}"
        count = f"{plural(self.evaluations, 'evaluation')} or more"
        return f"estimated before: {count}, about {time} s"


@dataclasses.dataclass(frozen=True, slots=True)
class Price:
    """What looking at a subject costs.

    Parameters
    ----------
    evaluations
        That one coordinate takes, per input.
    each
        Measured seconds of one evaluation.
    analytic
        Measured seconds of the analytic side, extrapolated to all of its rows.
    """

    evaluations: Sequence[float]
    each: float = 0.0
    analytic: float = 0.0

    @classmethod
    def of_differences(cls, subject: Subject, each: float = 0.0) -> Price:
        """Give the price of central differences, two evaluations a coordinate."""
        return cls([_PER_COORDINATE] * len(subject.inputs), each)


def estimate(coverage: Coverage, price: Price, coordinates: int = 0) -> Estimate:
    """Say before the work what it will cost.

    Parameters
    ----------
    coverage
        What will be looked at.
    price
        Of looking.
    coordinates
        Of all inputs.
    """
    pairs = zip(coverage.columns, price.evaluations, strict=True)
    evaluations = round(sum(len(part) * cost for part, cost in pairs))
    if coverage.name == "probe":  # a few rows of the analytic side are enough
        evaluations = by_directions(coordinates)
        return Estimate(evaluations, (evaluations + _PULLED) * price.each)
    return Estimate(evaluations, evaluations * price.each + price.analytic)


def by_directions(coordinates: int) -> int:
    """Estimate the evaluations along random directions, where all agrees.

    Examples
    --------
    >>> by_directions(1000), by_directions(10_000_000)
    (16, 6)
    """
    return _PROBES_DEAR if coordinates >= DEAR else _PROBES


def choose_columns(
    subject: Subject, wanted: str, budget: Budget, seed: int, price: Price
) -> Coverage:
    """Decide between full, sample and probe coverage, and draw the sample.

    Parameters
    ----------
    wanted
        "auto", "full", "sample" or "probe".
    budget
        Of the check; where the full matrix does not fit, "auto" goes along random
        directions, and takes a sample where not even these fit.
    seed
        Of the sample.
    price
        What a budget has to pay for. Where it has no room for the analytic side, "auto"
        goes along random directions, which ask for a few rows only.

    Returns
    -------
    Coverage
        Under "probe" the columns are empty: directions are drawn elsewhere.
    """
    rows = output_rows(subject.outputs)
    cost = _PER_COORDINATE * input_columns(subject.inputs)
    pairs = zip(subject.inputs, price.evaluations, strict=True)
    paid = sum(v.coordinates * each for v, each in pairs)
    if wanted == "auto":
        # a small subject is checked whole even on a machine that is busy just now
        patience = _SECONDS if cost > _SMALL else 6 * _SECONDS
        fits = (
            cost <= _EVALUATIONS
            and cost * price.each <= patience
            and paid <= 0.8 * (budget.evaluations or np.inf)
            and paid * price.each <= 0.8 * (budget.seconds or np.inf)
            and rows * cost <= _PER_COORDINATE * _ENTRIES
        )
        wanted = "full" if fits else _less(subject, budget, price.each)
        if price.analytic > _SHARE * (budget.seconds or np.inf):
            wanted = "probe"
    if wanted == "probe":
        none = [np.zeros(0, dtype=np.intp) for _ in subject.inputs]
        return Coverage("probe", none)  # which entries cannot move is seen there
    every = [_movable(subject, k) for k in range(len(subject.inputs))]
    remarks = _immovable(subject, every)
    total = sum(len(positions) for positions in every)
    if wanted == "full":
        return Coverage("full", every, remarks)
    most = _affordable(budget, price)
    rng = np.random.default_rng([seed, 1])
    chosen = [_draw(subject, k, every[k], most, rng) for k in range(len(every))]
    looked = sum(len(part) for part in chosen)
    if looked == total:
        return Coverage("full", every, remarks)
    return Coverage(
        "sample",
        chosen,
        (*remarks, f"a sample of {looked:,} of {total:,} coordinates was looked at"),
    )


def _less(subject: Subject, budget: Budget, seconds_each: float) -> str:
    """Choose between directions, which miss no tensor, and a sample, which may.

    A sample is for budgets too short even for directions, or nearly.
    """
    total = input_columns(subject.inputs)
    if total >= DEAR:
        return "probe"  # a sample of every input would take longer
    need = _enough(total, len(subject.inputs))
    afforded = need <= (budget.evaluations or np.inf) and (
        need * seconds_each <= (budget.seconds or np.inf)
    )
    return "probe" if afforded else "sample"


def _enough(coordinates: int, inputs: int) -> int:
    """Return evaluations that are certain to do where all agrees: faint inputs too."""
    faint = 0 if coordinates >= DEAR else 2 * inputs
    return by_directions(coordinates) + faint


def _movable(subject: Subject, which: int) -> NDArray[np.intp]:
    """Coordinates that can be displaced: an infinite one cannot."""
    return np.flatnonzero(np.isfinite(subject.point(which)))


def _immovable(subject: Subject, every: list[NDArray[np.intp]]) -> tuple[str, ...]:
    left = [
        f"nan or infinite entries of {variable.name} "
        f"({variable.coordinates - len(part)})"
        for variable, part in zip(subject.inputs, every, strict=True)
        if len(part) < variable.coordinates
    ]
    return (f"not looked at: {', '.join(left)}",) if left else ()


def _affordable(budget: Budget, price: Price) -> int:
    """Entries per input that the budget allows, half of it kept for second looks."""
    limits = [float(_SAMPLE)]
    each = max(1.0, 2 * sum(price.evaluations))
    if budget.evaluations is not None:
        limits.append(budget.evaluations / each)
    if budget.seconds is not None:
        limits.append(budget.seconds / max(price.each, 1e-7) / each)
    return max(1, int(min(limits)))


def _draw(
    subject: Subject,
    which: int,
    positions: NDArray[np.intp],
    most: int,
    rng: np.random.Generator,
) -> NDArray[np.intp]:
    """Draw entries of one input, evenly spread: one from each of `most` strata."""
    variable = subject.inputs[which]
    entries = np.unique(positions // 2) if variable.is_complex else positions
    if len(entries) > most:
        edges = np.linspace(0, len(entries), most + 1)
        picks = np.floor(edges[:-1] + rng.random(most) * np.diff(edges)).astype(np.intp)
        entries = entries[np.unique(np.minimum(picks, len(entries) - 1))]
    return with_mirrored(subject, which, variable.coordinates_of(entries))


def needs_streaming(
    subject: Subject, columns: list[NDArray[np.intp]], memory: int
) -> bool:
    """Whether a check that keeps everything would need more than `memory` bytes."""
    total = sum(len(positions) for positions in columns)
    return WHOLE * output_rows(subject.outputs) * total > memory


def readable(subject: Subject) -> bool:
    """Whether the analytic Jacobian is small enough to be read out as a whole."""
    numbers = output_rows(subject.outputs) * input_columns(subject.inputs)
    return numbers <= _ENTRIES


def mixed_inputs(subject: Subject) -> dict[int, NDArray[np.intp]]:
    """Return the coordinates that are not to be searched, by number of their input.

    All of an input of which one is far smaller than the typical one, and not zero; of
    an input of more than 256 those that are.

    Examples
    --------
    >>> from gradlab.building import Sides, build_subject
    >>> inputs = np.array([3e-12, 2e-3, 4e6]), np.array([0.0, 0.2, 0.1])
    >>> mixed_inputs(build_subject(lambda x, y: x @ y, inputs, Sides()))
    {0: array([0, 1, 2])}
    """
    if not readable(subject):
        return {}
    found = {}
    for which, variable in enumerate(subject.inputs):
        n = variable.coordinates
        if n <= 1:
            continue
        size = np.abs(subject.point(which))
        least = OWN_SCALE if n <= _CHEAP else min(_FAR, _CHANCE / max(n - _MOST, 1))
        small = np.flatnonzero((size > 0) & (size < least * typical_sizes(size)))
        if n <= _MOST and small.size:
            found[which] = np.arange(n)
        elif 0 < small.size <= _MOST:
            entries = np.unique(small // 2) if variable.is_complex else small
            found[which] = variable.coordinates_of(entries)
    return found
