"""What a function reads where it lives, in float64: wider copies put in its place.

A function that reads ``net.params`` where it lives cannot be given other arrays, but
its containers can: for the time of one evaluation the copies stand in every dict, list,
attribute, closure and global that held the arrays, and whatever happens these are back
afterwards. So do copies of constants in half precision.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.guarding.reachable import reach
from gradlab.subject.holders import (
    Holder,
    exchanged,
    exchanged_where_kept,
    holders_of,
)
from gradlab.subject.subject import output_rows

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["StandIns", "follows", "is_fine"]

# How far an input is moved to see whether both precisions move alike: far enough for
# half precision, whose rounding is a thousandth.
_FAR = 0.05
_ALIKE = 0.2  # of the movement
_LOUD = 100.0  # units of round-off; movements below are not compared
# At the first step float64 still has seven digits, and single precision none.
_STEPS = (1e-9, 1e-6, 1e-5)
_LAST_DIGITS = 1e-14  # of f: its rounding in float64
_DIGITS = 1e-15  # of terms of size one, where these cancel to an f far below


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class StandIns:
    """Arrays, where they stand, and what shall stand there for a while.

    Attributes
    ----------
    places
        Every place that holds one of the arrays.
    originals, others
        The arrays, and what replaces them.
    constants
        Whether they are no parameters: what the function writes to one of the places
        is a cache of its own then, and stays.
    """

    places: tuple[Holder, ...]
    originals: tuple[Any, ...]
    others: tuple[Any, ...]
    constants: bool = False

    @classmethod
    def of(
        cls,
        originals: Sequence[Any],
        others: Sequence[Any],
        roots: Sequence[object],
        *,
        partly: bool = False,
        constants: bool = False,
    ) -> StandIns | None:
        """Find every place, or return None if one of the arrays stands nowhere.

        Parameters
        ----------
        originals, others
            Arrays, and replacements of the same shapes.
        roots
            What the user passed: everything through which the function may read.
        partly
            Whether arrays that stand nowhere are left out.
        constants
            As of the class.

        Examples
        --------
        >>> weights = {"W": np.ones(2, "f4")}
        >>> found = StandIns.of([weights["W"]], [np.zeros(2)], [weights])
        >>> with found.standing():
        ...     print(weights["W"].dtype)
        float64
        >>> weights["W"].dtype.name
        'float32'
        """
        wanted = {id(array) for array in originals}
        places = tuple(holders_of(wanted, roots))
        found = {id(part) for place in places for part in place.parts()}
        if not partly and not wanted <= found:
            return None
        return cls(places, tuple(originals), tuple(others), constants)

    @classmethod
    def of_halves(
        cls, roots: Sequence[object], beside: Iterable[Any] = ()
    ) -> StandIns | None:
        """Widen what a function holds in half precision, or return None if it has none.

        A product of two such constants is rounded to three digits before it meets an
        input in float64, and in a gradient it is another product than in f.

        Parameters
        ----------
        roots
            What the user passed: everything through which the function may read.
        beside
            Arrays that are taken care of already.

        Examples
        --------
        >>> c = np.float16(0.1)
        >>> StandIns.of_halves([lambda x: x * c]).around(lambda: c * c)()
        np.float64(0.009995...)
        """
        known = {id(array) for array in beside}
        halves = [
            value
            for value in reach(roots).seen.values()
            if isinstance(value, np.ndarray | np.generic)
            and value.dtype == np.float16
            and id(value) not in known
        ]
        if not halves:
            return None
        wide = [half.astype(float) for half in halves]
        return cls.of(halves, wide, roots, partly=True, constants=True)

    def standing(self) -> contextlib.AbstractContextManager[None]:
        """Put the others into all places, and the originals back in the end."""
        if self.constants:
            pairs = zip(self.originals, self.others, strict=True)
            table = {id(original): other for original, other in pairs}
            return exchanged_where_kept(self.places, table)
        return exchanged(self.places, self.originals, self.others)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call`, made while the others stand there."""

        @functools.wraps(call)
        def inside(*arguments: Any) -> Any:
            with self.standing():
                return call(*arguments)

        return inside


def follows(own: Any, twin: Any) -> bool:
    """Say whether a twin of other precision computes the same function of every input.

    Every input is moved by a twentieth of its size, in both. A function that does not
    read the twin's arrays stands still there.

    Parameters
    ----------
    own, twin
        Subjects at the same point.
    """
    rng = np.random.default_rng([0, 17])
    here, there = own.row(), twin.row()
    with np.errstate(all="ignore"):
        for which in range(len(own.inputs)):
            move = _FAR * _sizes(own.point(which))
            move *= rng.choice([-1.0, 1.0], move.size)
            mine = _moved(own, which, move) - here
            theirs = _moved(twin, which, move) - there
            known = np.isfinite(mine) & np.isfinite(theirs)
            loud = np.abs(mine) > _LOUD * own.epsilon * np.abs(here)
            # log(cosh(x)) rounds where it is added to 0.7, whatever is left of it
            clear = np.abs(mine) > _LOUD * own.epsilon * np.fmax(np.abs(here), 1.0)
            apart = clear & (np.abs(mine - theirs) > _ALIKE * np.abs(mine))
            deaf = (theirs == 0) & loud
            if (known & (apart | deaf)).any():
                return False
    return True


def is_fine(twin: Any) -> bool:
    """Say whether a subject resolves steps of 1e-9, as float64 throughout does.

    Single precision somewhere inside makes a staircase of it: between steps of 1e-9 and
    of 1e-5 there is no proportion then.
    """
    rng = np.random.default_rng([0, 19])
    size = np.abs(twin.row())
    moves = [
        _sizes(twin.point(k)) * rng.uniform(-1, 1, v.coordinates)
        for k, v in enumerate(twin.inputs)
    ]

    def at(step: float) -> NDArray[np.float64]:
        for which, move in enumerate(moves):
            twin.place(which, twin.point(which) + step * move)
        return np.asarray(twin.row())

    with np.errstate(all="ignore"):
        try:
            short, *longer = [at(step) - at(-step) for step in _STEPS]
        finally:
            for which in range(len(moves)):
                twin.place(which, None)
        for step, long in zip(_STEPS[1:], longer, strict=True):
            ratio = step / _STEPS[0]
            bound = 0.05 * np.abs(long) + ratio * (_LAST_DIGITS * size + _DIGITS)
            if (np.abs(ratio * short - long) > bound).any():  # nan is not greater
                return False
    return True


def _sizes(point: NDArray[np.float64]) -> NDArray[np.float64]:
    size = np.abs(point)
    finite = size[np.isfinite(size)]
    top = float(finite.max(initial=0.0))
    return np.where(np.isfinite(size) & (size > 0), size, top if top > 0 else 1.0)


def _moved(subject: Any, which: int, move: NDArray[np.float64]) -> NDArray[np.float64]:
    try:
        subject.place(which, subject.point(which) + move)
        return np.asarray(subject.row())
    except Exception:  # noqa: BLE001 - the user's code has no value there
        return np.full(output_rows(subject.outputs), np.nan)
    finally:
        subject.place(which, None)
