"""Detector for tensors too large to be looked at entry by entry.

Random directions through all of one say more about it than any few of its entries: each
rules out almost everything that could be wrong. What was read from them is told here.
"""

from __future__ import annotations

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.measures import Case, Clue

__all__ = ["read_from_directions"]

_TOLD: dict[str, tuple[BugKind, float]] = {
    "transposed": (BugKind.TRANSPOSE, 0.98),
    "moved": (BugKind.WRONG_INDEX, 0.98),
    "added": (BugKind.REGULARIZATION, 0.98),
    "part": (BugKind.SCALE, 0.95),
    "slice": (BugKind.WRONG_INDEX, 0.9),
    "lost": (BugKind.WRONG_MASK, 0.95),
}
_SWAP = (
    "Swap the factors in the product that forms the gradient of {name}: x.T @ delta "
    "for delta.T @ x."
)
_PLACES = (
    "Check the indices with which the backward of {name} reads and writes: an offset, "
    "a reversed order, a stale permutation."
)
_PENALTY = (
    "Put the penalty on {name} into both the loss and its gradient, with the same "
    "strength (0.5 * c * w**2 goes with c * w)."
)
_PART = (
    "Look for what the backward does with these slices of {name} and not with the "
    "others: a mask, a stride, a factor in one branch."
)
_SLICE = (
    "Look for what the backward does with this one index of {name}: a loop or a slice "
    "that starts one late or ends one early, an assignment after the fact."
)
_MASK = (
    "Compare the mask or the slice in the backward of {name} with the one the forward "
    "pass applies: same array, same comparison, same side."
)
_ADVICE = {
    "transposed": _SWAP,
    "moved": _PLACES,
    "added": _PENALTY,
    "part": _PART,
    "slice": _SLICE,
    "lost": _MASK,
}


def read_from_directions(case: Case) -> list[Clue]:
    """Tell what explains the whole of a large input along every direction."""
    reading = case.evidence.readings.get(case.name)
    if reading is None or reading.kind not in _TOLD:
        return []
    (kind, confidence), advice = _TOLD[reading.kind], _ADVICE[reading.kind]
    if reading.kind == "added" and reading.words.endswith("times 1"):
        kind = BugKind.EXTRA_TERM
        advice = "Look for a constant that is added to the gradient of {name}."
    return [
        Clue(
            kind,
            confidence,
            f"The gradient of {case.name} {reading.words}: so it is along all "
            f"{reading.lines} random directions that were measured.",
            advice.format(name=case.name),
        )
    ]
