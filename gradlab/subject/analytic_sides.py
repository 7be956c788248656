"""The analytic side of a subject: what answers a cotangent with gradients.

The side is under suspicion. Slips in what it returns are told with its answer, as
`Problem`s; how many cotangents it takes and what it keeps of them it says itself.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "GIVEN",
    "OVERWRITTEN",
    "Analytic",
    "AnalyticDefaults",
    "Problem",
    "Pullback",
]

GIVEN = "the gradients given"  # describes a side that is numbers, and no code
OVERWRITTEN = "modified by an inplace operation"  # torch, of what its backward needs


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with what the analytic side returned, short of its values.

    Such slips are findings, not crashes: the entries concerned become nan (``none``
    becomes 0, as every framework treats it) and the report says why.
    """

    kind: Literal["wrong_shape", "dtype", "none", "missing", "raised", "extra"]
    where: str  # name of the input
    detail: str  # one sentence: what came, what was expected
    got: tuple[int, ...] | None = None  # the shape, where that is what is wrong
    rows: int | None = None  # of a Jacobian: how many it should have


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pullback:
    """What the analytic side makes of some cotangents."""

    values: tuple[NDArray[np.float64], ...]  # per input: (cotangents, coordinates)
    problems: tuple[Problem, ...] = ()


class Analytic(Protocol):
    """The analytic side of a subject: maps cotangents to gradients."""

    @property
    def description(self) -> str:
        """Where the numbers come from, for people: "autograd, reverse mode"."""

    @property
    def takes_cotangents(self) -> bool:
        """Whether any cotangent can be fed; False for gradients already contracted."""

    def pull(self, cotangents: NDArray[np.float64]) -> Pullback:
        """Vector-Jacobian products.

        Parameters
        ----------
        cotangents
            Real, of shape (count, rows): one number for each real output row.
        """

    # What few sides know of themselves; `AnalyticDefaults` answers for the others.
    makes_whole: bool  # whether all of the Jacobian is made, whatever is asked for
    own_code: bool | None  # of autograd: whether the graph has a custom Function
    stateful: bool  # whether the same cotangent was seen to get another answer
    linear: bool | None  # whether answers were seen to add up; None before that
    unread: tuple[str, ...]  # names of gradients that are no input's

    @property
    def streams(self) -> bool:
        """Whether gradients had better be let go one by one, see `stream`."""

    @property
    def answered(self) -> bool:
        """Whether an answer is kept, and given again."""

    def held(self) -> int:
        """Bytes of what is kept of an answer."""

    def asked_anew(self) -> Analytic:
        """Return the same side without what it keeps of its last answer."""

    def on(self, subject: Any) -> Analytic | None:
        """Return the same for another subject, or None where it is of one only."""

    def stream(
        self,
        cotangent: NDArray[np.float64],
        chosen: Sequence[int],
        take: Callable[[int, NDArray[np.float64]], None],
    ) -> tuple[Problem, ...] | None:
        """Hand over the gradients of one cotangent as they come, and keep none.

        Parameters
        ----------
        cotangent
            Shape (rows,).
        chosen
            Numbers of the inputs to differentiate by.
        take
            ``take(which, gradient)``, once for each of them in any order; must not keep
            or change the array, which may be somebody else's memory.

        Returns
        -------
        tuple of Problem or None
            None where it cannot, and what was taken does not count: see `pull`.
        """


class AnalyticDefaults:
    """What an analytic side answers that knows nothing special of itself."""

    __slots__ = ()

    makes_whole = False
    own_code: bool | None = None
    stateful = False
    linear: bool | None = None
    unread: tuple[str, ...] = ()

    @property
    def streams(self) -> bool:
        """It lets go of all gradients together."""
        return False

    @property
    def answered(self) -> bool:
        """Nothing is kept."""
        return False

    def held(self) -> int:
        """Return 0: nothing is kept."""
        return 0

    def asked_anew(self) -> Any:
        """Return the same: nothing is kept."""
        return self

    def on(self, subject: Any) -> Any:  # noqa: ARG002 - see `Analytic`
        """Return None: it is of one subject only."""
        return None

    def stream(self, cotangent: Any, chosen: Any, take: Any) -> Any:
        """Return None: it cannot."""
