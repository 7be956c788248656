"""What every property that is checked answers: a verdict, and a sentence about it."""

from __future__ import annotations

import abc

from gradlab.comparison.verdict import Verdict

__all__ = ["PropertyResult"]


class PropertyResult(abc.ABC):
    """Result of a check of a property; prints as its verdict and its reading."""

    __slots__ = ()

    @property
    @abc.abstractmethod
    def verdict(self) -> Verdict:
        """The worst of all that was compared."""

    @property
    @abc.abstractmethod
    def reading(self) -> str:
        """What was found, in sentences."""

    @property
    def ok(self) -> bool:
        """Whether nothing wrong was found."""
        return self.verdict < Verdict.DISAGREES

    def __bool__(self) -> bool:
        """Whether it holds: ``assert gl.compare_modes(...)``; undecided is not."""
        return self.verdict == Verdict.AGREES

    def __repr__(self) -> str:
        from gradlab.presentation.property_text import property_text

        return property_text(self.verdict, self.reading)
