"""The three answers a comparison can give."""

from __future__ import annotations

import enum

__all__ = ["Verdict"]


class Verdict(enum.IntEnum):
    """Answer to "is this gradient right?", ordered by how bad it is.

    ``AGREES``: both sides are equal within the tolerance, and an error worth caring
    about would have shown. ``UNDECIDED``: it could hide in the error bar.
    ``DISAGREES``: they are farther apart than the tolerance and five error bars.

    Examples
    --------
    >>> max(Verdict.AGREES, Verdict.UNDECIDED)
    <Verdict.UNDECIDED: 1>
    >>> print(Verdict.UNDECIDED)
    UNDECIDED
    >>> [bool(verdict) for verdict in Verdict]  # as in: assert report.verdict
    [True, False, False]
    """

    AGREES = 0
    UNDECIDED = 1
    DISAGREES = 2

    def __str__(self) -> str:
        """Print the answer, not its number: 1 would pass for True."""
        return self.name

    def __bool__(self) -> bool:
        """Whether it agrees: the number would have it the other way round."""
        return self is Verdict.AGREES

    @property
    def glyph(self) -> str:
        """One character, never the only carrier of the meaning."""
        return "✓!✗"[self]

    @property
    def words(self) -> str:
        """The verdict as a verb."""
        return ("agrees", "undecided", "disagrees")[self]
