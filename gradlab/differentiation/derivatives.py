"""What the adaptive ladder is asked for, and what it hands back."""

from __future__ import annotations

import dataclasses

import numpy as np

from gradlab.differentiation.smoothness import Smoothness

__all__ = ["AdaptiveSettings", "Derivatives"]


@dataclasses.dataclass(frozen=True, slots=True)
class AdaptiveSettings:
    """How far the ladder goes.

    Parameters
    ----------
    tolerance
        Relative error bar at which a coordinate is finished. The default, 1e-11, is
        what a smooth function in float64 reaches in about 16 evaluations.
    most
        Most evaluations for one coordinate. Few coordinates come near: a typical smooth
        one takes 16, the average over the hard functions of the tests is 19.
    width
        Most steps combined in one extrapolation; beyond 5, rounding eats the gain.
    safety
        Factor on the finished error bar.
    farthest
        Longest step, as a power of two of the scale. A ladder climbs as far as noise
        makes it; 2**46 is beyond the use of anybody.
    chunk
        Most entries (coordinates x outputs) held at once, which bounds memory.
    block
        Entries worked on at once, few enough for the processor's cache.
    """

    tolerance: float = 1e-11
    most: int = 44
    width: int = 5
    safety: float = 2.0
    farthest: float = 46.0
    chunk: int = 100_000
    block: int = 2_000


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Derivatives:
    """Slopes of m outputs along C coordinates, with what is known about each.

    Attributes
    ----------
    value, error, step
        Derivative, its estimated absolute error, and the largest step it rests on,
        each (m, C).
    evaluations, per_coordinate
        Evaluations in total, and for each coordinate (C,).
    left, right
        One-sided slopes where they were needed, else nan, (m, C).
    kind
        A `Smoothness` for each entry, (m, C) int8.
    noise
        Estimated absolute noise of f, (m, C).
    """

    value: np.ndarray
    error: np.ndarray
    step: np.ndarray
    evaluations: int
    per_coordinate: np.ndarray
    left: np.ndarray
    right: np.ndarray
    kind: np.ndarray
    noise: np.ndarray

    @classmethod
    def join(cls, parts: list[Derivatives]) -> Derivatives:
        """Put the coordinates of several results side by side."""

        def side_by_side(name: str) -> np.ndarray:
            return np.concatenate([getattr(part, name) for part in parts], axis=-1)

        return cls(
            value=side_by_side("value"),
            error=side_by_side("error"),
            step=side_by_side("step"),
            evaluations=sum(part.evaluations for part in parts),
            per_coordinate=side_by_side("per_coordinate"),
            left=side_by_side("left"),
            right=side_by_side("right"),
            kind=side_by_side("kind"),
            noise=side_by_side("noise"),
        )

    @classmethod
    def unknown(cls, outputs: int, spent: np.ndarray) -> Derivatives:
        """Say that nothing is known: no finite value of f was seen."""
        hole = np.full((outputs, spent.size), np.nan)
        kind = np.full(hole.shape, Smoothness.UNDEFINED, np.int8)
        return cls(
            value=hole,
            error=np.full(hole.shape, np.inf),
            step=hole,
            evaluations=int(spent.sum()),
            per_coordinate=spent,
            left=hole,
            right=hole,
            kind=kind,
            noise=hole,
        )
