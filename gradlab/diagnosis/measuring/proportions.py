"""By which factor the analytic side is the numeric one, and how it is called."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.diagnosis.measuring.measures import Case

__all__ = [
    "NEAR_ONE",
    "factor",
    "factor_words",
    "fraction_words",
    "is_written",
    "ratio",
]

NEAR_ONE = 5e-3  # a factor this close to one is no factor that anybody wrote

_SIMPLE = 1e-4  # relative: so close to a simple ratio a factor is that ratio


def factor(case: Case, *, only_wrong: bool = False) -> float:
    """Least-squares factor c in analytic = c * numeric; nan where that is nothing."""
    if case.is_noise:
        return math.nan  # of noise anything is a multiple
    a, n = case.alive
    if only_wrong:
        a, n = case.analytic[case.wrong], case.numeric[case.wrong]
    return ratio(a, n)


def ratio(a: NDArray[np.float64], n: NDArray[np.float64]) -> float:
    """Least-squares factor c in a = c * n; nan where n is zero throughout.

    Examples
    --------
    >>> n = np.array([1e-200, 2e-200])  # whose squares are zero
    >>> ratio(np.array([1.0, 2.0]), np.array([2.0, 4.0])), ratio(2 * n, n)
    (0.5, 2.0)
    """
    below = float(n @ n)
    if below > 0:
        return float(a @ n) / below
    top = float(np.abs(n).max(initial=0.0))
    if top == 0:
        return math.nan
    unit = n / top
    return float(a @ unit) / float(unit @ unit) / top


def fraction_words(value: float) -> str | None:
    """Name a simple ratio: "2", "1/2", "3/2"; None if it is none.

    Examples
    --------
    >>> fraction_words(0.5), fraction_words(1.001)
    ('1/2', None)
    """
    if not np.isfinite(value) or value == 0:
        return None
    from fractions import Fraction  # it loads decimal, which few checks need

    simple = Fraction(value).limit_denominator(12)
    if simple.numerator == 0 or abs(simple.numerator) > 1000:
        return None
    over, under = abs(simple.numerator), simple.denominator
    if under > 1 and over > 12:  # 37/10 says less than 3.7
        return None
    return str(simple) if abs(float(simple) / value - 1) < _SIMPLE else None


def factor_words(value: float) -> str:
    """Write a factor, with the fraction that it is, if any.

    Examples
    --------
    >>> factor_words(0.5), factor_words(2.0)
    ('0.5 (1/2)', '2')
    """
    named = fraction_words(value)
    return f"{value:.6g} ({named})" if named and "/" in named else f"{value:.6g}"


def is_written(factor: float) -> bool:
    """Whether a factor is a number that people write, and no accident.

    Examples
    --------
    >>> is_written(-0.5), is_written(0.37215), is_written(1.00001)
    (True, False, False)
    """
    return abs(factor - 1) > NEAR_ONE and fraction_words(factor) is not None
