"""Gradients in short arithmetic, less what round-off made of them.

A search for wrong entries that sees a gradient in float32 cannot tell a small slip from
round-off. The same gradient in float64 can be asked for where the function runs in
float64: where both say the same, up to what round-off explains, the float64 one is
searched, to twelve digits; where they do not, the user's own stands, and is accused if
the function contradicts it. So slips of the formula show however small they are, slips
that only short arithmetic makes show if they are no round-off, and round-off never.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.tolerance import roundings
from gradlab.differentiation.noise.analytic_noise import (
    SCATTER,
    analytic_noise,
    rounding_noise,
)
from gradlab.differentiation.noise.underflow import note_underflow, scaled_gradients
from gradlab.differentiation.sizes.magnitudes import is_short, magnitudes
from gradlab.localisation.searching.columns import scale_of
from gradlab.subject.analytic_sides import Pullback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.localisation.searching.gradients import Take
    from gradlab.subject.analytic_sides import Problem
    from gradlab.subject.subject import Subject

__all__ = ["MOST_NUMBERS", "Precise"]

# As in a full check: beyond five percent of the largest entry of an input it is no
# round-off, unless it is measured to be: four times the scatter of four repetitions.
_ROUND_OFF = 0.05
_BLOCK = 1 << 16  # entries that are compared at a time
MOST_NUMBERS = 20_000_000  # cotangents times coordinates of which scatter is measured


@dataclasses.dataclass(slots=True, eq=False)
class Precise:
    """A subject in short arithmetic, and its twin that computes gradients in float64.

    Parameters
    ----------
    subject, twin
        At the same point, both with an analytic side.
    units
        Size of each input.
    trusted
        By input, whether the twin's gradient is one in float64. False for buffers that
        are float32 whatever comes in, and for numbers that do not follow the twin.
    lost
        Effects that are lost in the roundings of the largest: needed for `stream`.
    """

    subject: Subject
    twin: Subject
    units: tuple[float, ...]
    seed: int
    trusted: tuple[bool, ...] | None = None
    lost: float = 0.0

    @classmethod
    def of_twin(
        cls, subject: Subject, twin: Subject, units: tuple[float, ...], seed: int
    ) -> Precise | None:
        """Join a subject and its twin; None where the twin has no gradients."""
        if subject.analytic is None or twin.analytic is None:
            return None
        return cls(subject, twin, units, seed)

    def epsilon(self, which: int) -> float:
        """Round-off of what `of` returns for an input."""
        trusted = self.trusted is not None and self.trusted[which]
        return (self.twin if trusted else self.subject).epsilon

    def of(self, own: Pullback, cotangents: NDArray[np.float64]) -> Pullback:
        """Take the round-off out of what the subject's analytic side returned.

        Parameters
        ----------
        own
            What it made of `cotangents`, shape (count, rows).
        """
        analytic = self.twin.analytic
        if analytic is None or self.trusted == (False,) * len(own.values):
            return own
        wide = analytic.pull(cotangents)
        if self.trusted is None:
            self.trusted = _trusted(own, wide)
        matters = self._matters(wide)
        if sum(values.size for values in own.values) > MOST_NUMBERS:
            for k, sure in enumerate(self.trusted):  # no copies of all, nor scatter
                if sure:
                    coarse, fine = own.values[k], wide.values[k]
                    fits = _fits(coarse, fine, self._limit(k, coarse, fine, matters))
                    np.copyto(coarse, fine, where=fits)
            return own
        pairs = list(zip(own.values, wide.values, strict=True))
        forgiven = [self._limit(k, *pair, matters) for k, pair in enumerate(pairs)]
        explained = _explained(own, wide, forgiven)
        doubt = any(
            sure and not fits.all()
            for sure, fits in zip(self.trusted, explained, strict=True)
        )
        if doubt:
            sides = self.subject, self.twin
            inner = rounding_noise(sides[0], cotangents, twin=sides[1], seed=self.seed)
            outer = analytic_noise(self.subject, cotangents, seed=self.seed)
            forgiven = [
                np.maximum(limit, SCATTER * np.fmax(*scatter))
                for limit, *scatter in zip(forgiven, inner, outer, strict=True)
            ]
            explained = _explained(own, wide, forgiven)
            explained = self._or_lost(own, wide, forgiven, explained, cotangents)
        values = tuple(
            np.where(fits, fine, coarse) if sure else coarse
            for sure, fits, fine, coarse in zip(
                self.trusted, explained, wide.values, own.values, strict=True
            )
        )
        return Pullback(values, own.problems)

    def _or_lost(
        self,
        own: Pullback,
        wide: Pullback,
        forgiven: list[NDArray[np.float64]],
        explained: list[NDArray[np.bool_]],
        cotangents: NDArray[np.float64],
    ) -> list[NDArray[np.bool_]]:
        """Add entries that are right where the loss is scaled: others underflow."""
        if all(fits.all() for fits in explained):
            return explained
        scaled = scaled_gradients(self.subject, cotangents, own.values)
        if scaled is None:
            return explained
        right = _explained(Pullback(scaled), wide, forgiven)
        pairs = list(zip(right, explained, strict=True))
        lost = [fits & ~known for fits, known in pairs]
        note_underflow(self.subject, own.values, wide.values, lost)
        return [fits | known for fits, known in pairs]

    @property
    def useless(self) -> bool:
        """Whether no gradient of the twin is one in float64."""
        return self.trusted is not None and not any(self.trusted)

    def stream(
        self, cotangent: NDArray[np.float64], chosen: Sequence[int], take: Take
    ) -> tuple[Problem, ...] | None:
        """Do the same for large gradients, which are handed over one at a time.

        Those of the subject itself are kept meanwhile, in their own precision; scatter
        is not measured. See `ReverseMode.stream` of torch subjects; where `useless`
        turns out true, what was taken does not count.
        """
        mine: Any = self.subject.analytic
        other: Any = self.twin.analytic
        kept: dict[int, NDArray[Any]] = {}
        signs: dict[int, _Signs] = {}

        def keep(which: int, gradient: NDArray[Any]) -> None:
            kept[which] = gradient.copy()

        def merge(which: int, wide: NDArray[Any]) -> None:
            own = kept.pop(which)
            if self.trusted is None:
                signs[which] = _Signs.of(own, wide)
                sure = signs[which].sure
            else:
                sure = self.trusted[which]
            take(which, self._merged(which, own, wide) if sure else own)

        problems: tuple[Problem, ...] | None = mine.stream(cotangent, chosen, keep)
        found = None if problems is None else other.stream(cotangent, chosen, merge)
        if self.trusted is None:
            none = found is None or (found and not problems)
            none = none or any(sign.lost for sign in signs.values())
            none = none or all(sign.brief for sign in signs.values())
            self.trusted = tuple(
                which in signs and signs[which].sure and not none
                for which in range(len(self.units))
            )
        return None if found is None else problems

    def _merged(
        self, which: int, own: NDArray[Any], wide: NDArray[Any]
    ) -> NDArray[Any]:
        """Gradient of the twin, but where round-off does not explain the subject's."""
        merged = None
        limit = _ROUND_OFF * magnitudes(wide).largest + self.lost / self.units[which]
        for start in range(0, len(wide), _BLOCK):
            part = slice(start, start + _BLOCK)
            fits = _fits(own[part], wide[part], limit)
            if not fits.all():
                merged = wide.astype(np.float64) if merged is None else merged
                merged[part] = np.where(fits, wide[part], own[part])
        return wide if merged is None else merged

    def _matters(self, wide: Pullback) -> NDArray[np.float64]:
        """Effects that are lost in the roundings of the largest, for each cotangent."""
        effects = [
            np.array([scale_of(row) for row in values]) * unit
            for values, unit in zip(wide.values, self.units, strict=True)
        ]
        return np.asarray(roundings(self.subject.epsilon) * np.max(effects, axis=0))

    def _limit(
        self,
        which: int,
        coarse: NDArray[np.float64],
        fine: NDArray[np.float64],
        matters: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Differences that round-off explains, for each entry of an input."""
        tops = np.array([[magnitudes(row).largest] for row in fine])
        size = np.fmin(np.abs(fine), np.abs(coarse))
        limit = _ROUND_OFF * np.maximum(size, tops)
        return np.asarray(limit + matters[:, None] / self.units[which])


def _explained(
    own: Pullback, wide: Pullback, forgiven: list[NDArray[np.float64]]
) -> list[NDArray[np.bool_]]:
    """Entries of each input that differ by no more than is forgiven."""
    triples = zip(own.values, wide.values, forgiven, strict=True)
    return [_fits(coarse, fine, limit) for coarse, fine, limit in triples]


def _fits(
    coarse: NDArray[Any], fine: NDArray[Any], limit: NDArray[np.float64] | float
) -> NDArray[np.bool_]:
    """Entries whose two values differ by no more than a limit; nan never does."""
    with np.errstate(all="ignore"):
        return np.asarray(np.abs(coarse - fine) <= limit)


@dataclasses.dataclass(frozen=True, slots=True)
class _Signs:
    """What two gradients of one input look like beside each other."""

    same: bool
    brief: bool  # single precision underneath
    lost: bool  # not finite where the user's is

    @classmethod
    def of(cls, coarse: NDArray[Any], fine: NDArray[Any]) -> _Signs:
        lost = bool((np.isfinite(coarse) & ~np.isfinite(fine)).any())
        brief = is_short(fine, beside=coarse)
        # equal numbers are short ones, unless the subject's have as many digits
        same = brief and np.array_equal(coarse, fine, equal_nan=True)
        return cls(same, brief, lost)

    @property
    def sure(self) -> bool:
        """Zeros, ones and the like may well be equal; buffers in float32 are not."""
        return self.same or not self.brief


def _trusted(own: Pullback, wide: Pullback) -> tuple[bool, ...]:
    """Tell by input whether the gradient of the twin is one in float64."""
    signs = [_Signs.of(c, w) for c, w in zip(own.values, wide.values, strict=True)]
    if any(sign.lost for sign in signs) or (wide.problems and not own.problems):
        return (False,) * len(signs)  # it fails where the user's does not
    if all(sign.brief for sign in signs):
        return (False,) * len(signs)  # precomputed, or in single precision anyway
    return tuple(sign.sure for sign in signs)
