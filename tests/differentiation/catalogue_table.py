"""Every method over the catalogue, beside the truth.

Run it for the table: ``python -m tests.differentiation.catalogue_table``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings

import numpy as np

from gradlab.differentiation.adaptive import adaptive
from gradlab.differentiation.ladder.derivatives import Rounding
from tests.differentiation.catalogue import Case
from tests.differentiation.catalogue_held_out import HELD_OUT
from tests.differentiation.catalogue_tuned import TUNED


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a method returned for one case, beside the truth."""

    case: Case
    value: float
    bar: float
    evaluations: int
    truth: float

    @property
    def error(self) -> float:
        """True absolute error; infinite where nothing finite came back."""
        return abs(self.value - self.truth) if math.isfinite(self.value) else math.inf

    @property
    def relative(self) -> float:
        """True relative error; where the truth is 0, 0 if the bar covers the value."""
        if self.truth:
            return self.error / abs(self.truth)
        return 0.0 if self.honest else math.inf

    @property
    def honest(self) -> bool:
        """True error within ten times the bar."""
        return self.error <= 10 * self.bar


@functools.cache
def truth_of(case: Case) -> float:
    """Compute the truth once for all methods."""
    return case.truth()


def by_gradlab(case: Case) -> Measured:
    """Run the adaptive ladder as the package does for a single coordinate."""
    lower = case.dtype == "float32"

    def sample(which, displacement):
        x = case.x + displacement
        x = np.float32(x).astype(float) if lower else x
        return np.array([[case(v)] for v in x]), x - case.x

    found = adaptive(
        sample,
        points=np.array([case.x]),
        scales=np.array([case.scale]),
        base=np.array([case(case.x)]),
        rounding=Rounding.over(1, float(np.finfo(case.dtype).eps)),
    )
    value, bar = found.value[0, 0], found.error[0, 0]
    return Measured(case, value, bar, found.evaluations, truth_of(case))


def summary(results: list[Measured]) -> dict[str, float]:
    """Return the four figures that are promised."""
    relative = np.array([r.relative for r in results])
    return {
        "honest": float(np.mean([r.honest for r in results])),
        "wrong": float(np.mean(relative > 1e-6)),
        "median": float(np.median(relative)),
        "evaluations": float(np.mean([r.evaluations for r in results])),
    }


def _counted(case):
    """Count the evaluations of a vectorised or scalar call."""
    count = [0]

    def f(x):
        x = np.asarray(x, float)
        count[0] += x.size
        return np.array([case(v) for v in x.ravel()]).reshape(x.shape)

    return f, count


def _others():
    """Return the other methods as case -> (value, bar, evaluations)."""
    import jacobi
    import numdifftools
    import scipy.differentiate

    def by_numdifftools(case):
        f, count = _counted(case)
        found = numdifftools.Derivative(f, full_output=True)(case.x)
        return float(found.estimate), float(found.error_estimate), count[0]

    def by_jacobi(case):
        f, count = _counted(case)
        value, bar = jacobi.jacobi(f, case.x)
        return float(np.ravel(value)[0]), float(np.ravel(bar)[0]), count[0]

    def by_scipy(case):
        f, count = _counted(case)
        found = scipy.differentiate.derivative(f, case.x)
        return float(found.df), float(found.error), count[0]

    def by_fixed(case):
        h = 1e-6
        value = (case(case.x + h) - case(case.x - h)) / (2 * h)
        return float(value), math.inf, 2

    return {
        "numdifftools": by_numdifftools,
        "jacobi": by_jacobi,
        "scipy.differentiate": by_scipy,
        "central 1e-6": by_fixed,
    }


def compare() -> None:
    """Print the table of methods on both lists."""
    warnings.simplefilter("ignore")
    for title, cases in (("tuned on", TUNED), ("held out", HELD_OUT)):
        print(f"\n{len(cases)} functions, {title}")
        print(f"{'method':20s} honest  wrong  median   evaluations")
        table = {"gradlab": [by_gradlab(case) for case in cases]}
        for name, method in _others().items():
            rows = []
            for case in cases:
                try:
                    value, bar, count = method(case)
                except Exception:
                    value, bar, count = math.nan, 0.0, 0
                rows.append(Measured(case, value, bar, count, truth_of(case)))
            table[name] = rows
        for name, rows in table.items():
            s = summary(rows)
            honest = " (none)" if name.startswith("central") else f"{s['honest']:7.1%}"
            print(
                f"{name:20s}{honest} {s['wrong']:6.1%} {s['median']:8.1e} "
                f"{s['evaluations']:8.1f}"
            )


if __name__ == "__main__":
    compare()
