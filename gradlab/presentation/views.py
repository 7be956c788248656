"""Which entry and which block is the worst: what every view begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.ranking import scores
from gradlab.comparison.verdict import Verdict
from gradlab.presentation.tiles import LARGE, digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison
    from gradlab.report import Report
    from gradlab.sweeps import Sweep

__all__ = [
    "by_severity",
    "log_error",
    "moved_together",
    "untold",
    "worst_curves",
    "worst_entry",
    "worst_relative",
]

_CROWD = 12  # of more inputs only the worst curves are drawn in full
_LOUD = 6  # so many of them


def worst_entry(comparison: Comparison) -> tuple[int, int] | None:
    """Find the worst entry of a block; the first of ``comparison.ranking(1)``.

    Of a block with more than a million entries, which is read only once, the one with
    the largest relative error among those of the worst verdict.

    Returns
    -------
    tuple of int, or None
        Row and column; None for an empty block.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> worst_entry(report["x"])
    (0, 0)
    """
    if comparison.verdicts.size == 0:
        return None
    if comparison.verdicts.size > LARGE:
        return digest(comparison).worst
    score = np.where(
        comparison.verdicts == comparison.verdicts.max(), scores(comparison), -1.0
    )
    error = np.nan_to_num(comparison.error, nan=np.inf, posinf=np.inf)
    error = np.where(score == score.max(), error, -1.0)
    return divmod(int(error.argmax()), comparison.shape[1])


def worst_relative(comparison: Comparison) -> float:
    """Return ``comparison.max_rel_error``; of a large block, that of its tiles.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> round(worst_relative(report["x"]), 3)
    0.333
    """
    if comparison.verdicts.size > LARGE:
        return digest(comparison).relative
    return comparison.max_rel_error


def untold(comparison: Comparison, place: tuple[int, int]) -> bool:
    """Whether the worst relative error tells nothing about this, the worst entry.

    It is that of the entries that stand out, and may be zero. An entry that is let pass
    does not: at a kink, say, where the analytic side lies between two slopes.

    Examples
    --------
    >>> x = np.array([0.0, 1.0])
    >>> report = gl.check(
    ...     lambda x: np.maximum(x, 0), x, jac=lambda x: np.diag(x > 0) * 1.0
    ... )
    >>> untold(report["x"], (0, 0)), untold(report["x"], (1, 1))
    (True, False)
    """
    told = worst_relative(comparison)
    if comparison.verdict == Verdict.UNDECIDED:
        return told == 0
    large = comparison.verdicts.size > LARGE  # whose matrices are not made for this
    if large or comparison.error[place] <= comparison.allowed[place]:
        return False
    return bool(comparison.relative_error[place] > told)


def by_severity(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Order blocks worst first: by verdict, then by relative error; else as given.

    Examples
    --------
    >>> by_severity([])
    []
    """

    def key(comparison: Comparison) -> tuple[int, float]:
        worst = worst_relative(comparison)
        return (-int(comparison.verdict), -np.inf if np.isnan(worst) else -worst)

    return sorted(comparisons, key=key)


def moved_together(report: Report) -> dict[str, int]:
    """Count, by input, with how many others it was moved along the same directions.

    They have one number, which is that of all of them.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: 2 * x)
    >>> moved_together(report)
    {}
    """
    probed = [
        c for c in report.comparisons if c.coverage == "probe" and c.analytic.any()
    ]
    values = [c.analytic.tobytes() for c in probed]
    counts = {
        c.input.name: values.count(v) for c, v in zip(probed, values, strict=True)
    }
    return {name: count - 1 for name, count in counts.items() if count > 1}


def worst_curves(sweep: Sweep, method: str) -> list[str]:
    """Names of the inputs whose curve is drawn in full, worst first: of a crowd a few.

    By verdict, and in a crowd by error, which no number is beyond; where all agree,
    half as many, those with the highest floor.

    Examples
    --------
    >>> point = {f"w{k}": np.full(2, 1.0 + k) for k in range(20)}
    >>> f = lambda p: (sum(w @ w for w in p.values()), {k: 2 * w for k, w in p.items()})
    >>> len(worst_curves(gl.sweep(f, point), "central"))
    3
    """
    verdicts, errors = sweep.verdicts, sweep.errors
    names = sorted(sweep.inputs, key=lambda name: -int(verdicts[name]))
    if len(names) <= _CROWD:
        return names
    apart = [name for name in names if verdicts[name] > Verdict.AGREES]

    def rank(name: str) -> tuple[int, float]:
        known = errors[method, name][np.isfinite(errors[method, name])]
        height = float(np.median(known)) if known.size else np.inf
        if not apart:
            height = float(np.nan_to_num(sweep.curve(method, name).floor, nan=height))
        return -int(verdicts[name]), -height

    return sorted(apart or names, key=rank)[: _LOUD if apart else _LOUD // 2]


def log_error(error: NDArray[Any]) -> NDArray[np.float64]:
    """Decimal logarithm of an error: -inf where exact, inf and nan kept.

    Examples
    --------
    >>> log_error(np.array([0.0, 1e-3, np.inf, np.nan]))
    array([-inf,  -3.,  inf,  nan])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log10(np.asarray(error, dtype=np.float64))
