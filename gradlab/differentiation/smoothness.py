"""What kind of point it is: smooth, kink, jump, staircase, noise, edge."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Smoothness"]


class Smoothness(IntEnum):
    """Kind of point, per entry."""

    SMOOTH = 0
    KINK = 1
    JUMP = 2
    STAIRCASE = 3
    NOISY = 4
    EDGE = 5
    UNRESOLVED = 6
    UNDEFINED = 7
