"""Error bars of the zeros of a sparse Jacobian: how far they are told, by asking f.

A random direction bounds what the places outside of a pattern may hold. Where that is
too wide a bar for an output, all that it should not depend on is moved together, many
steps away; where even that is too wide, because the output hardly moves with anything,
farther still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.sparse.dependence import hidden_by_rounding, stirred
from gradlab.differentiation.sparse.support import bands

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.sparse.colouring import Colouring
    from gradlab.differentiation.sparse.dependence import Case
    from gradlab.differentiation.sparse.packed_slopes import Slopes

__all__ = ["asked_from_afar", "open_zeros", "stirred_outside"]

_TOLD = 2e-8  # of the largest effect on an output: zeros with such a bar are settled
_FEW_GROUPS = 8  # of rows that depend on the same: each is asked by itself
_FAR = 0.3  # of its scale: as far as a coordinate is moved that should not matter


def open_zeros(
    case: Case, slopes: Slopes, outside: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Find outputs whose zeros have too wide a bar, by input; (rows, inputs).

    Parameters
    ----------
    outside
        That bar times the scale of the coordinate, (rows, inputs).
    """
    with np.errstate(all="ignore"):
        effects = np.abs(slopes.value * case.scales[slopes.support.columns])
        effect = slopes.each(np.maximum, np.where(slopes.support.valid, effects, 0.0))
        own = np.minimum(1.0, np.abs(case.base))[:, None] / 4
        return np.asarray(~(outside <= _TOLD * np.where(effect > 0, effect, own)))


def asked_from_afar(
    case: Case,
    colourings: list[Colouring],
    slopes: Slopes,
    outside: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Narrow the bars of zeros of outputs that stay put however far one moves.

    Parameters and result are those bars, as for `open_zeros`.
    """
    open_ = open_zeros(case, slopes, outside)
    if not open_.any():
        return outside
    quiet = open_ & ~stirred_outside(case, colourings, open_, _FAR)
    return np.where(quiet, hidden_by_rounding(case, _FAR)[:, None], outside)


def stirred_outside(
    case: Case, colourings: list[Colouring], doubt: NDArray[np.bool_], reach: float
) -> NDArray[np.bool_]:
    """Which outputs in doubt, of which inputs, move when what is outside does.

    By so much of the scale of each coordinate; (rows, inputs). All outputs of an input
    that cannot be asked about.
    """
    masks, stay, whose = [], [], list[int]()
    found = np.zeros_like(doubt)
    for k in np.flatnonzero(doubt.any(axis=0)):
        slot, rows = case.slots[k], np.flatnonzero(doubt[:, k])
        moved, asked, covered = _questions(colourings[k], rows)
        if not covered:
            found[rows, k] = True
            continue
        masks.append(np.zeros((len(moved), len(case.scales)), dtype=bool))
        masks[-1][:, slot] = moved
        stay.append(np.zeros((len(moved), len(doubt)), dtype=bool))
        stay[-1][:, rows] = asked
        whose += [int(k)] * len(moved)
    if masks:
        stirs = stirred(case, np.concatenate(masks), reach) & np.concatenate(stay)
        np.logical_or.at(found.T, np.array(whose), stirs)
    return found


def _questions(
    colouring: Colouring, rows: NDArray[np.intp]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], bool]:
    """Choose what to move, (questions, n), and which outputs then stay, (.., rows).

    Outputs of different patterns are asked one by one while they are few, else by the
    bits of their number: those of one side stay put while all moves that none of them
    depends on.

    Returns
    -------
    moved, asked
        The questions.
    covered
        Whether every output is asked about all that it should not depend on.
    """
    n = len(colouring.colours)
    bits = np.concatenate(  # of the pattern, eight of them in a byte
        [
            np.packbits(colouring.rows(rows[band]), axis=1)
            for band in bands(len(rows), n)
        ]
    )
    keys = [row.tobytes() for row in bits]  # several times as fast as np.unique
    distinct = {key: number for number, key in enumerate(sorted(set(keys)))}
    group = np.array([distinct[key] for key in keys])
    patterns = np.empty((len(distinct), bits.shape[1]), dtype=np.uint8)
    patterns[group] = bits
    number = np.arange(len(patterns))
    asked = number[:, None] == number
    if len(number) > _FEW_GROUPS:
        digits = (number >> np.arange((len(number) - 1).bit_length())[:, None]) & 1
        asked = np.concatenate([digits == 0, digits == 1])
    seen = [np.bitwise_or.reduce(patterns[some], axis=0) for some in asked]
    for some, mask in zip(asked, seen, strict=True):
        patterns[some] |= ~mask
    moved = np.unpackbits(~np.array(seen), axis=1, count=n).astype(bool)
    covered = bool(np.unpackbits(patterns, axis=1, count=n).all())
    return moved, asked[:, group], covered
