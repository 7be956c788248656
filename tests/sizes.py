"""How many examples a test draws: some for everybody, more in ``make nightly``."""

from __future__ import annotations

import os

__all__ = ["drawn"]


def drawn(usual: int, at_night: int) -> int:
    """Choose a number of seeds, networks or points; the first ones are the same."""
    return at_night if os.environ.get("GRADLAB_HYPOTHESIS") == "nightly" else usual
