"""What the smallest rungs look like: a kink, a jump, stairs, an edge.

Decided from one-sided differences alone. At a smooth point the two one-sided slopes
approach each other in proportion to the step, however strong the curvature; at a kink
their gap stays; at a jump the difference itself stays.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.ladder.runs import Pick
from gradlab.differentiation.noise.noise import rounding_of

if TYPE_CHECKING:
    from gradlab.differentiation.ladder.rungs import Ladder

__all__ = ["FINE", "LOUD", "Suspicion", "jumps", "rises", "stairs", "suspect"]

FINE = 1e-5  # relative height below which a jump may be rounding inside f
LOUD = 50.0  # times the rounding unit, before a difference counts as seen


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Suspicion:
    """What the smallest rungs look like; boolean arrays (C, m).

    Attributes
    ----------
    kink
        The one-sided slopes do not approach each other.
    jump
        The function does not approach its value at the point.
    descend
        Smaller steps are needed to decide.
    no_right, no_left
        No finite value on that side.
    bent
        Each side has a curvature of its own; known after the slopes.
    """

    kink: np.ndarray
    jump: np.ndarray
    descend: np.ndarray
    no_right: np.ndarray
    no_left: np.ndarray
    bent: np.ndarray

    def entries(self, coordinates: np.ndarray, outputs: np.ndarray) -> Suspicion:
        """Return what is suspected of some entries, as arrays (K, 1)."""
        fields = (getattr(self, name) for name in self.__slots__)
        return Suspicion(*(field[coordinates, outputs][:, None] for field in fields))


def suspect(ladder: Ladder, floor: float, inherited: np.ndarray) -> Suspicion:
    """Look at the two smallest rungs of every entry.

    Parameters
    ----------
    ladder
        The values; at least three rungs, which every ladder starts with.
    floor
        Relative rounding unit of the arithmetic.
    inherited
        Rounding of larger numbers that outputs have, shape (C, m) or (m,).
    """
    with np.errstate(all="ignore"):
        h = ladder.steps[:, :, None]
        ahead, behind = ladder.right - ladder.base, ladder.left - ladder.base
        signed = (ahead + behind) / 2
        even = np.abs(signed)
        moved = np.fmax(np.abs(ahead), np.abs(behind))
        slope = (np.abs(ahead) + np.abs(behind)) / h
        size = np.abs(ladder.base) + moved
        unit = floor * (size + np.abs(ladder.points)[:, None] * slope)
        unit = np.fmax(unit, rounding_of(ladder.base, floor))
        unit = np.fmax(unit, inherited)
        # even part ~ h^2 where smooth, ~ h at a kink; look at the smallest rung that
        # stands out of the rounding
        loud = (even > LOUD * unit) & (even > 1e-9 * slope * h)
        # the largest rung of each coordinate has none above it to be compared with
        last = np.maximum(ladder.count - 2, 0)[:, None]
        seen = np.minimum(np.argmax(loud, axis=0), last)
        linear = _linear(signed, h)
        here = Pick(seen)
        kink = here(loud) & here(linear)
        # noise passes once in ten times, twice in a hundred
        kink &= Pick(np.minimum(seen + 1, last))(linear)
        if kink.any():
            kink &= (seen == 0) | _hidden_below(ladder, even, unit, seen)
        fresh = kink & (seen == 0)
        jump = moved[0] > np.maximum(LOUD * floor, FINE) * size[0]
        jump &= moved[0] > moved[1] * (h[0] / h[1]) ** 0.4
        passed = _passed(even, moved, loud, h)
        lost = np.isnan(ahead[0]) | np.isnan(behind[0])
        return Suspicion(
            kink=kink & ~lost,
            jump=jump & ~lost,
            descend=((fresh | jump) & ~lost) | (passed & ~kink & ~jump),
            no_right=~np.isfinite(ladder.right).any(axis=0),
            no_left=~np.isfinite(ladder.left).any(axis=0),
            bent=np.zeros(kink.shape, bool),
        )


def _linear(even: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Say where the even part grows like h**a, 0.3 < a < 1.5, to the rung above."""
    ratio, growth = steps[:-1] / steps[1:], even[:-1] / even[1:]
    return np.asarray((growth > ratio**1.5) & (growth < ratio**0.3))


def _hidden_below(
    ladder: Ladder, even: np.ndarray, unit: np.ndarray, seen: np.ndarray
) -> np.ndarray:
    """Say where a kink at the point itself would not stand out one rung below."""
    under = np.maximum(seen - 1, 0)
    columns = np.arange(len(seen))[:, None]
    shrinks = ladder.steps[under, columns] / ladder.steps[seen, columns]
    return np.asarray(Pick(seen)(even) * shrinks < 2 * LOUD * Pick(under)(unit))


def _passed(
    even: np.ndarray, moved: np.ndarray, loud: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    """Say where only the smallest rung lies between the point and a kink or jump."""
    ratio = steps[1] / steps[2]
    kink = loud[1] & (even[1] > even[2] * ratio**1.5)
    jump = (moved[1] > FINE * moved[2]) & (moved[1] > moved[2] * ratio**0.4)
    jump &= moved[0] < moved[1] * (steps[0] / steps[1]) ** 0.9
    return np.asarray(kink | jump)


def _moves(ladder: Ladder, *, right: bool) -> np.ndarray:
    """Return how far f moved from its value at the point, on one side, (L, C, m)."""
    values = ladder.right if right else ladder.left
    return np.asarray(values - ladder.base)


def jumps(ladder: Ladder, floor: float, *, right: bool) -> np.ndarray:
    """Say where f has a limit on one side that is not its value, shape (C, m).

    The three smallest steps must show the same move to a tenth, far above rounding.
    """
    with np.errstate(all="ignore"):
        move = _moves(ladder, right=right)[:3]
        unit = floor * np.abs(move[0]) + rounding_of(ladder.base, floor)
        alike = np.abs(move - move[0]).max(axis=0) <= 0.1 * np.abs(move[0])
        return np.asarray(alike & (np.abs(move[0]) > LOUD * unit))


def rises(ladder: Ladder, floor: float, *, right: bool) -> np.ndarray:
    """Say where the one-sided slope grows without end, as of sqrt at 0: (C, m).

    Returns the sign of the infinite slope, 0 where it is finite. Over the smallest
    steps the slope must grow like ``h**-a`` with a between 0.1 and 0.95.
    """
    count = min(4, ladder.rungs.shape[0])
    with np.errstate(all="ignore"):
        move = _moves(ladder, right=right)[:count]
        h = (ladder.ahead if right else ladder.behind)[:count, :, None]
        power = np.log(np.abs(move[1:] / move[:-1])) / np.log(h[1:] / h[:-1])
        grows = ((power > 0.02) & (power < 0.985)).all(axis=0)
        seen = np.abs(move[0]) > LOUD * rounding_of(ladder.base, floor)
        sign = np.sign(move[0]) * (1 if right else -1)
        return np.where(grows & seen, sign, 0.0)


def stairs(ladder: Ladder, floor: float, told: np.ndarray) -> np.ndarray:
    """Say where f is piecewise constant: flat close by, moving in whole steps, (C, m).

    All moves must be multiples of one height, and the height far above rounding.

    Parameters
    ----------
    ladder, floor
        Values of f, and the rounding unit of its arithmetic.
    told
        Where the slope is known well, (C, m).
    """
    with np.errstate(all="ignore"):
        flat = (ladder.right[0] == ladder.base) & (ladder.left[0] == ladder.base)
        if not flat.any():
            return np.asarray(flat)
        moves = np.concatenate(
            [_moves(ladder, right=side)[:, flat] for side in (True, False)]
        )
        moves = np.where(np.isfinite(moves), np.abs(moves), 0.0)
        smallest = np.where(moves > 0, moves, np.inf).min(axis=0)
        whole = np.zeros(smallest.shape, bool)
        for share in range(1, 9):
            count = moves * share / smallest
            near = np.abs(count - np.round(count)) < 1e-6
            whole |= (near | (count > 1e4)).all(axis=0)
        enough = ((moves > 0) & (moves < 1e4 * smallest)).sum(axis=0) >= 2
        # where a slope is told, f may be a sum that is zero, with the rounding of its
        # terms; where none is, those steps are all there is of f
        base = np.abs(np.broadcast_to(ladder.base, flat.shape))
        size = np.where(told, ladder.typical_size(), base)[flat] + smallest
        seen = smallest > np.maximum(LOUD * floor, FINE) * size
        flat[flat] = whole & enough & seen
        return np.asarray(flat)
