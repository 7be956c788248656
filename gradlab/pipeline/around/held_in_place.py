"""Entries that f does not let anybody move, and whose gradient is zero.

A Cholesky factor has zeros above its diagonal, and a distribution that is given one
raises where they are anything else. Such entries are no variables: f is not defined
beside them, on either side, however short the step. A gradient of zero is what they
are given everywhere, and nothing else could be meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import NOTHING_TO_DO, BugKind, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.pipeline.outcome import Judged

__all__ = ["accept_held_in_place"]


def accept_held_in_place(judged: Judged) -> Iterator[Finding]:
    """Accept gradients of zero where f raises on both sides, on every ladder's step."""
    outcome = judged.outcome
    if (
        not judged.meter.raised
        or outcome.stopped
        or not np.isfinite(outcome.base).all()
    ):
        return
    for block in outcome.blocks:
        if block.settled or not (block.verdicts == Verdict.UNDECIDED).any():
            continue
        held = block.looked & ~np.isfinite(block.value).any(axis=0)
        held &= (block.formula == 0).all(axis=0)
        if not held.any() or held.all():  # nothing can be moved: nothing was compared
            continue
        block.excuse(held)
        yield Finding(
            BugKind.NONFINITE,
            "note",
            block.name,
            0.8,
            f"{held.sum():,} of {held.size:,} entries of {block.name} cannot be moved: "
            f"f raises on both sides, or is no number, however short the step. The "
            f"gradient is zero there, as of what is no variable.",
            NOTHING_TO_DO,
        )
