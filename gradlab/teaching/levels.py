"""The levels of the hunt, in the order in which they are played."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from gradlab.teaching.levels_layers import (
    LAZY_BIAS,
    SOFTMAX_AXIS,
    TRANSPOSED,
    WRONG_MASK,
)
from gradlab.teaching.levels_losses import DOUBLED, NO_MEAN
from gradlab.teaching.levels_state import BATCH_NORM, DEAF_CAPSULE, STALE_CACHE

if TYPE_CHECKING:
    from gradlab.teaching.level import Level

__all__ = ["LEVELS", "playable"]

LEVELS: tuple[Level, ...] = (
    DOUBLED,
    LAZY_BIAS,
    WRONG_MASK,
    TRANSPOSED,
    NO_MEAN,
    STALE_CACHE,
    SOFTMAX_AXIS,
    BATCH_NORM,
    DEAF_CAPSULE,
)


def playable() -> tuple[Level, ...]:
    """Return the levels whose libraries are installed.

    Examples
    --------
    >>> [level.title for level in playable()][:2]
    ['The network that learns anyway', 'The lazy bias']
    """
    found = importlib.util.find_spec
    return tuple(level for level in LEVELS if not level.needs or found(level.needs))
