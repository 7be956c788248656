"""What the adaptive ladder is asked for, and what it hands back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.differentiation.smoothness import Smoothness
from gradlab.subject.subject import EPSILON

__all__ = ["AdaptiveSettings", "Derivatives", "Rounding", "Sampler"]

Sampler = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

_MATRICES = ("value", "error", "step", "left", "right", "kind", "noise", "plain")


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
        Entries worked on at once, times the comparisons made for each: few enough for
        the processor's cache.
    """

    tolerance: float = 1e-11
    most: int = 44
    width: int = 5
    safety: float = 2.0
    farthest: float = 46.0
    chunk: int = 100_000
    block: int = 150_000


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Rounding:
    """What is known of the rounding of f before any step is taken.

    Attributes
    ----------
    floor
        Relative rounding unit of the arithmetic f is evaluated in.
    noise
        What is known of the noise of f from elsewhere, shape (m,): no rounding is taken
        to be smaller.
    inherited
        Rounding that small outputs have of larger numbers inside f, shape (m,): a bend
        below it is no kink either. Not for what else is noise, which a ladder has to
        go below to see.
    grain
        Relative rounding inside f, shape (m,), 0 where none is known: far from the
        point, where f is larger, it is larger too.
    """

    floor: float
    noise: np.ndarray
    inherited: np.ndarray
    grain: np.ndarray

    @classmethod
    def over(
        cls,
        outputs: int,
        floor: float = EPSILON,
        *,
        noise: np.ndarray | None = None,
        inherited: np.ndarray | None = None,
        grain: np.ndarray | None = None,
    ) -> Rounding:
        """Spell out for so many outputs what is known; what is inherited is noise."""
        inherited = np.zeros(outputs) if inherited is None else inherited
        noise = inherited if noise is None else np.fmax(noise, inherited)
        grain = np.zeros(outputs) if grain is None else grain
        return cls(floor, noise, inherited, grain)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Derivatives:
    """Slopes of m outputs along C coordinates, with what is known about each.

    Attributes
    ----------
    value, error, step
        Derivative, its estimated absolute error, and the largest step it rests on,
        each (m, C).
    left, right
        One-sided slopes where they were needed, else nan, (m, C).
    kind
        A `Smoothness` for each entry, (m, C) int8.
    noise
        Estimated absolute noise of f, (m, C).
    plain
        Of smooth entries whose bar is wide only because their series goes on oddly: the
        bar without that; else nan, (m, C).
    evaluations
        In total.
    """

    value: np.ndarray
    error: np.ndarray
    step: np.ndarray
    left: np.ndarray
    right: np.ndarray
    kind: np.ndarray
    noise: np.ndarray
    plain: np.ndarray
    evaluations: int = 0

    def columns(self, some: slice) -> Derivatives:
        """Return those of some coordinates, in the memory of the whole."""
        views: dict[str, Any] = {
            name: getattr(self, name)[:, some] for name in _MATRICES
        }
        return Derivatives(**views)

    def take(
        self, other: Derivatives, coordinates: np.ndarray, outputs: slice | np.ndarray
    ) -> None:
        """Write what was found of some coordinates in its place.

        Parameters
        ----------
        other
            As many coordinates as are named, and as many outputs.
        coordinates
            Where they belong, (C,).
        outputs
            Where the outputs belong: a slice, or some for each coordinate, (C, K).
        """
        where = coordinates
        if isinstance(outputs, np.ndarray):
            outputs, where = outputs.T, coordinates[None]
        for name in _MATRICES:
            getattr(self, name)[outputs, where] = getattr(other, name)

    @classmethod
    def unknown(cls, outputs: int, coordinates: int) -> Derivatives:
        """Say that nothing is known: no finite value of f was seen."""
        value, step, left, right, noise, plain = np.full(
            (6, outputs, coordinates), np.nan
        )
        return cls(
            value=value,
            error=np.full(value.shape, np.inf),
            step=step,
            left=left,
            right=right,
            kind=np.full(value.shape, Smoothness.UNDEFINED, np.int8),
            noise=noise,
            plain=plain,
        )
