"""A gradient that is right when it is asked first, and another one afterwards.

A check asks ``grad=`` and ``jac=`` once. A buffer that is not set to zero holds the
right gradient then, and twice as much in the second step of a training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.errors import GradlabError
from gradlab.subject.subject import output_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison

__all__ = ["asked_again"]

_SAME = 1e-6  # of the gradient: less is rounding
_PARALLEL = 1e-4  # of what it grew by: less is a multiple of the gradient itself
_ASKED = ("grad", "jac")  # once each; others are asked for every evaluation


def asked_again(subject: Any, comparisons: tuple[Comparison, ...]) -> list[Finding]:
    """Ask the user's function for the gradient a second time, at the same point.

    Parameters
    ----------
    subject
        At its point. Only gradients of NumPy functions that come from ``grad=`` or
        ``jac=`` are asked for: others were, more than once.
    comparisons
        Where something is wrong the kind of error says as much.

    Returns
    -------
    list of Finding
        A warning for each input whose gradient changed, or was none any more.
    """
    side = subject.analytic
    if side is None or side.description not in _ASKED or not side.answered:
        return []
    if any(c.verdict == Verdict.DISAGREES for c in comparisons):
        return []
    weights = np.cos(1.0 + 1.7 * np.arange(output_rows(subject.outputs)))[None]
    first = side.pull(weights)
    try:
        second = side.asked_anew().pull(weights)
    except GradlabError as error:  # an answer for other inputs than the first one
        return [_broken(subject.inputs[0].name, f"{error}.")]
    new = [problem for problem in second.problems if problem not in first.problems]
    if new:  # what it returned then is no number
        return [_broken(problem.where, problem.detail) for problem in new]
    pairs = zip(subject.inputs, first.values, second.values, strict=True)
    told = [_told(variable.name, one[0], two[0]) for variable, one, two in pairs]
    return [finding for finding in told if finding is not None]


def _broken(name: str, why: str) -> Finding:
    return Finding(
        BugKind.STATEFUL,
        "warning",
        name,
        0.99,
        f"Asked for a second time at the same point: {why} The first answer was "
        f"compared.",
        "Use nothing up that the next call needs, such as an iterator, a cache that is "
        "emptied, or a file that is read to its end.",
    )


def _told(
    name: str, first: NDArray[np.float64], second: NDArray[np.float64]
) -> Finding | None:
    with np.errstate(all="ignore"):
        grown = second - first
        size, apart = float(np.linalg.norm(first)), float(np.linalg.norm(grown))
        lost = np.isfinite(first) & ~np.isfinite(second)
        if not lost.any() and (not np.isfinite(apart) or apart <= _SAME * size):
            return None
        steps = float(grown @ first) / size**2 if size else 0.0
        parallel = np.linalg.norm(grown - steps * first) <= _PARALLEL * apart
    if parallel:
        return Finding(
            BugKind.ACCUMULATED_GRAD,
            "warning",
            name,
            0.99,
            f"Asked a second time at the same point, the gradient of {name} grows by "
            f"{steps:.4g} x itself: it is added to what earlier calls left. The first "
            f"answer was compared.",
            f"Set the gradient of {name} to zero at the start of every call, or before "
            f"every step.",
        )
    change = f"differs by {apart / max(size, 1e-300):.2g} times its size"
    if lost.any():
        change = f"is not finite in {lost.sum()} of the entries that were"
    return Finding(
        BugKind.NONDETERMINISTIC,
        "warning",
        name,
        0.99,
        f"Asked a second time at the same point, the gradient of {name} {change}. The "
        f"first answer was compared.",
        "Keep nothing from call to call that the gradient depends on, and seed what it "
        "draws at random.",
    )
