"""Polynomial extrapolation of difference quotients, one column at a time.

Neville's scheme gives the slope at step zero for every run of neighbouring rungs;
Newton's divided differences give the coefficients, which say whether the series
converges and what it foretells at other steps.
"""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["Table", "foresee"]

_CONVERGING = 0.5  # most that the next rung may change a coefficient of the series


def _divide(
    tables: list[np.ndarray], gains: list[np.ndarray], nodes: np.ndarray, width: int
) -> None:
    """Append the next column of divided differences, values and noise gains."""
    span = nodes[width - 1 :] - nodes[: nodes.shape[0] - width + 1]
    last, gain = tables[-1], gains[-1]
    tables.append((last[1:] - last[:-1]) / span)
    gains.append((gain[1:] + gain[:-1]) / span)


def _neville(
    columns: list[np.ndarray], gains: list[np.ndarray], nodes: np.ndarray, width: int
) -> None:
    """Append the next column of Neville's scheme, values and noise gains."""
    ratio = nodes[width - 1 :] / nodes[: nodes.shape[0] - width + 1]
    last, gain = columns[-1], gains[-1]
    columns.append(last[:-1] + (last[:-1] - last[1:]) / (ratio - 1))
    gains.append((gain[:, :-1] * ratio + gain[:, 1:]) / (ratio - 1))


@dataclasses.dataclass(slots=True, eq=False)
class Table:
    """Extrapolation of one set of quotients, grown column by column."""

    nodes: np.ndarray  # (L, C, 1): h^2 or h, in units of the coordinate
    slopes: list[np.ndarray]  # column q: (L - q + 1, C, m)
    gains: list[np.ndarray]  # the same with a leading 2: floor noise, unit noise
    divided: list[np.ndarray]
    spread: list[np.ndarray]

    @classmethod
    def of(cls, slopes: np.ndarray, nodes: np.ndarray, gains: np.ndarray) -> Table:
        """Start with single quotients and their gains of noise."""
        return cls(nodes, [slopes], [gains], [slopes], [gains[1]])

    def grow(self) -> None:
        """Extrapolate over one rung more."""
        q = len(self.slopes) + 1
        _neville(self.slopes, self.gains, self.nodes, q)
        _divide(self.divided, self.spread, self.nodes, q)

    def truncation(self, noise: np.ndarray) -> np.ndarray:
        """Judge the truncation of the last column, for a given noise of f.

        The largest rung only counts when the coefficient it reveals agrees with the one
        found without it; beyond the range of convergence it has no weight in the
        extrapolation and its silence proves nothing.
        """
        q = len(self.slopes)
        now = self.slopes[-1]
        if q == 1:
            first = np.full_like(now[:1], np.inf)
            return np.concatenate([first, np.abs(np.diff(now, axis=0))])
        change = np.abs(now - self.slopes[-2][:-1])
        low, high = self.divided[q - 2][:-1], self.divided[q - 2][1:]
        gap = np.abs(high - low)
        fuzz = 2 * (self.spread[q - 2][:-1] + self.spread[q - 2][1:]) * noise
        rate = gap / np.abs(low)
        converges = (rate <= _CONVERGING) | (gap <= fuzz)
        bar = change * np.where(gap <= fuzz, 1.0, np.clip(3 * rate, 0.01, 1.0))
        return np.where(converges, bar, np.inf)


def foresee(
    table: Table, basis: np.ndarray, forecast: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Add the next term of Newton's polynomial through each run, at every rung."""
    q = len(table.slopes)
    u, runs = table.nodes, table.slopes[-1].shape[0]
    basis = basis * (u[:, None] - u[None, q - 2 : q - 2 + runs])
    return basis, forecast + basis * table.divided[-1][None]
