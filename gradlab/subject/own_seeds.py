"""Random numbers that are not the user's own.

Who calls ``torch.manual_seed(0)`` and draws the input next has the very numbers that
a generator seeded with 0 gives, here as there. A random cotangent that is the input
itself is no random one: ``x / |x|`` does not move along x, its gradient of x is zero,
and so is one that is wrong by any factor.
"""

from __future__ import annotations

import zlib

import numpy as np

__all__ = ["own_seed"]


def own_seed(seed: int, purpose: str) -> int:
    """Derive a seed that nobody would choose, another one for every purpose.

    Parameters
    ----------
    seed
        Of the check, 0 or more.
    purpose
        What is drawn; any words.

    Returns
    -------
    int
        Below 2**63, as torch takes it.

    Examples
    --------
    >>> own_seed(0, "weights") == own_seed(0, "weights")
    True
    >>> own_seed(0, "weights") in {0, own_seed(0, "directions"), own_seed(1, "weights")}
    False
    """
    mixed = np.random.SeedSequence([seed, zlib.crc32(purpose.encode())])
    return int(mixed.generate_state(1, np.uint64)[0] >> np.uint64(1))
