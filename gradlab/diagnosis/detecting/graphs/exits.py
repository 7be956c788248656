"""Detector of numbers that leave torch: run again with what left it held fixed.

A value that went through `item()`, `numpy()` or `float()` is a constant to autograd. If
differences agree with the analytic side once that value is held fixed, it was that.
So is what `torch.normal` draws around a mean: with the same random numbers it moves
with the mean, and its gradient is zero.
"""

from __future__ import annotations

import collections
import itertools
from typing import Any

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.measures import Case, Clue
from gradlab.diagnosis.measuring.moving import cotangent_of, slopes_at
from gradlab.diagnosis.measuring.torch_modes import (
    LEAVES,
    calling_line,
    read_as_numbers,
    under,
)
from gradlab.subject.subject import is_torch_subject
from gradlab.subject.tensors.incremental.standing_in import watching
from gradlab.subject.tensors.values import is_torch

__all__ = ["left_torch"]

_HELD = LEAVES | {"__int__", "__bool__"}  # a branch or an index, which have no slope
_DRAWN = "normal"  # of the functions that draw the one whose draws move, ungraded
_DIRECTIONS = 3


def left_torch(case: Case) -> list[Clue]:
    """Detect a path that leaves torch while others stay."""
    subject = case.evidence.reference or case.evidence.subject
    if not is_torch_subject(subject):
        return []
    tapes = Tape(), Tape()
    with under(subject, tapes[0].mode, tapes[1].mode):
        case.evidence.meter.spend(1)
        subject.row()
        met = tapes[0].names + tapes[1].names
        if not any(name in LEAVES or name == _DRAWN for name in met):
            return []
        for tape in tapes:
            tape.playing = True
        right = _right(case)
    if not right:
        return []
    lines = tapes[0].lines | tapes[1].lines
    told = [
        f"{n} ({k}x{f', {lines[n]}' if lines[n] else ''})"
        for n, k in met.items()
        if n in LEAVES or n == _DRAWN
    ]
    return [_drawn(case, told) if set(met) & {_DRAWN} else _left(case, told)]


def _left(case: Case, told: list[str]) -> Clue:
    return Clue(
        BugKind.DETACHED,
        0.985,
        f"The function leaves torch by {', '.join(told)}. With what left it held "
        f"fixed, differences agree with the gradient of {case.name}: the path through "
        f"there is missing.",
        "Keep that value a tensor: leave out item(), numpy(), float() and "
        "torch.tensor([...]), for which torch.stack() stands in, on the way from the "
        "input to the output.",
    )


def _drawn(case: Case, told: list[str]) -> Clue:
    return Clue(
        BugKind.DETACHED,
        0.985,
        f"The function draws by {', '.join(told)}, where no gradient passes, around "
        f"what depends on {case.name}. With the draws held fixed, differences agree "
        f"with the gradient of {case.name}: the path through them is missing.",
        "For the slope through a draw use rsample(), or mean + std * "
        "torch.randn_like(mean). If the gradient of log_prob alone is meant (a score "
        "function, REINFORCE), it is right: check it with the draws as an input.",
    )


def _right(case: Case) -> bool:
    n = case.numeric.shape[1]
    directions = case.evidence.rng.normal(size=(_DIRECTIONS, n))
    every = np.zeros((_DIRECTIONS, case.variable.coordinates))
    every[:, case.part.positions] = directions
    slopes = slopes_at(case.evidence, {}, case.part.which, every)
    weights = cotangent_of(case.evidence)
    ours = directions @ (weights @ case.analytic)
    true = directions @ (weights @ case.numeric)
    gap, was = np.abs(slopes - ours), np.abs(true - ours)
    size = float(np.abs(ours).max() + np.abs(true).max())
    slack = max(1e-6, 1e3 * case.evidence.subject.epsilon)
    return bool(np.isfinite(gap).all() and (gap <= 1e-3 * was + slack * size).all())


class Tape:
    """Records what leaves torch, in order, or plays it back."""

    def __init__(self) -> None:
        self.playing = False
        self.names: collections.Counter[str] = collections.Counter()
        self.lines: dict[str, str] = {}  # of code where each was met first
        self._values: list[Any] = []

    def mode(self) -> Any:
        """Return a mode of torch for one call of the function."""
        count = itertools.count()

        def answer(func: Any, args: Any, kwargs: Any) -> Any:
            name = str(getattr(func, "__name__", ""))
            if read_as_numbers(name, args):
                name = f"torch.{name}"
            if name not in _HELD and not _draws(name, args, kwargs):
                return func(*args, **kwargs)
            k = next(count)
            if self.playing and k < len(self._values):
                return self._values[k]
            value = func(*args, **kwargs)
            if not self.playing:
                self.names[name] += 1
                self.lines.setdefault(name, calling_line())
                kept = value
                if is_torch(value):
                    kept = value.clone()
                elif isinstance(value, np.ndarray):
                    kept = value.copy()
                self._values.append(kept)
            return value

        return watching(answer)


def _draws(name: str, args: Any, kwargs: Any) -> bool:
    """Whether a call draws around a tensor."""
    given = (*args[:2], kwargs.get("mean"), kwargs.get("std"))
    return name == _DRAWN and any(map(is_torch, given))
