"""Detector of a gradient that was never set to zero: the sum of several passes."""

from __future__ import annotations

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.measures import EXACT, Case, Clue
from gradlab.diagnosis.measuring.places import place_words
from gradlab.diagnosis.measuring.proportions import factor
from gradlab.subject.subject import holds_numbers

__all__ = ["accumulation"]

_PASSES = 50  # that anybody forgets to set a gradient to zero before
_FEW = 3  # entries, of which any two numbers are nearly a multiple of each other
_CLOSE = 1e-3  # how near to an integer a measured factor must be
_DRIFT = 0.12  # spread of the ratio while parameters move between passes


def accumulation(case: Case) -> list[Clue]:
    """Detect a gradient that was added up over several passes.

    Exactly an integer if nothing moved between the passes, nearly one where an
    optimiser took small steps.
    """
    held = holds_numbers(case.evidence.subject)
    c = factor(case)
    if not np.isfinite(c) or c < 1.5:
        return []
    passes = round(c)
    share = case.share_of_factor(c)
    exact = abs(c - passes) < _CLOSE and share > EXACT
    if passes > _PASSES or (not exact and int(case.wrong.sum()) < _FEW):
        return []  # one number is a multiple of any other
    loose = 1 - _residual(case, c)
    if not exact and not (held and loose > 1 - _DRIFT and abs(c - passes) < 0.1 * c):
        return []
    trust = (0.98 if held else 0.35) * (share if exact else loose)
    workers = f", or of {passes} workers where their mean is meant" if exact else ""
    spread = "" if exact else f" (within {100 * (1 - loose):.2g} %)"
    return [
        Clue(
            BugKind.ACCUMULATED_GRAD,
            trust,
            f"analytic = {c:.5g} x numeric{spread} {place_words(case)}: the sum of "
            f"{passes} backward passes{workers}.",
            f"Set .grad of {case.name} to None (or zero it) before every backward "
            f"pass; divide what workers add up by how many they are.",
            doubts=(BugKind.MISSING_REDUCTION,) if exact else (),
        )
    ]


def _residual(case: Case, c: float) -> float:
    """Size of analytic - c * numeric relative to analytic."""
    a, n = case.alive
    size, left = float(np.linalg.norm(a)), np.linalg.norm(a - c * n)
    return float(left) / size if size > 0 else 1.0
