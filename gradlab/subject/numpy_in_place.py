"""Parameters in place, in float64: wider copies put where the function reads them.

A function that reads ``net.params`` where it lives cannot be given other arrays, but
its containers can: for the time of one evaluation the copies stand in every dict, list,
attribute, closure and global that held the arrays, and whatever happens these are back
afterwards.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.paths import namespace_of
from gradlab.subject.reachable import reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class StandIns:
    """Arrays, where they stand, and what shall stand there for a while.

    Attributes
    ----------
    places
        One ``put(value)`` for every place that holds one of the arrays, with the number
        of the array.
    originals, others
        The arrays, and what replaces them.
    """

    places: tuple[tuple[Callable[[Any], None], int], ...]
    originals: tuple[Any, ...]
    others: tuple[Any, ...]

    @classmethod
    def of(
        cls,
        originals: Sequence[Any],
        others: Sequence[Any],
        roots: Sequence[object],
        *,
        partly: bool = False,
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
        numbers = {id(array): k for k, array in enumerate(originals)}
        places = tuple(_places(roots, numbers))
        found = {number for _, number in places}
        if not partly and found != set(range(len(originals))):
            return None
        return cls(places, tuple(originals), tuple(others))

    @contextlib.contextmanager
    def standing(self) -> Iterator[None]:
        """Put the others into all places, and the originals back in the end."""
        try:
            for put, number in self.places:
                put(self.others[number])
            yield
        finally:
            for put, number in self.places:
                put(self.originals[number])

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call`, made while the others stand there."""

        @functools.wraps(call)
        def inside(*arguments: Any) -> Any:
            with self.standing():
                return call(*arguments)

        return inside


def _places(
    roots: Sequence[object], numbers: dict[int, int]
) -> Iterator[tuple[Callable[[Any], None], int]]:
    """Everything mutable that holds one of the arrays, each place once."""
    found = reach(roots)
    spaces = [f.value for f in (*found.containers, *found.namespaces)]
    spaces += [namespace_of(f.value) for f in found.kinds]
    for space in {id(space): space for space in spaces}.values():
        if isinstance(space, dict):
            for key, value in tuple(space.items()):
                if id(value) in numbers:
                    put = functools.partial(dict.__setitem__, space, key)
                    yield put, numbers[id(value)]
        elif isinstance(space, list):
            for index, value in enumerate(tuple(space)):
                if id(value) in numbers:
                    put = functools.partial(list.__setitem__, space, index)
                    yield put, numbers[id(value)]
    for cell in found.cells:
        with contextlib.suppress(ValueError):  # not assigned yet
            value = cell.value.cell_contents
            if id(value) in numbers:
                put = functools.partial(setattr, cell.value, "cell_contents")
                yield put, numbers[id(value)]
    # globals that the code names, such as W in a notebook
    names = {(id(space), name): space for (space, name), *_ in found.names}
    for (_, name), space in names.items():
        if id(space[name]) in numbers:
            yield functools.partial(space.__setitem__, name), numbers[id(space[name])]


def follows(own: Any, twin: Any, *, seed: int = 0) -> bool:
    """Say whether a twin of other precision computes the same function of every input.

    Every input is moved by a twentieth of its size, in both. A function that does not
    read the twin's arrays stands still there.

    Parameters
    ----------
    own, twin
        Subjects at the same point.
    """
    rng = np.random.default_rng([seed, 17])
    here, there = own.row(), twin.row()
    with np.errstate(all="ignore"):
        for which in range(len(own.inputs)):
            move = _FAR * _sizes(own.point(which))
            move *= rng.choice([-1.0, 1.0], move.size)
            mine = _moved(own, which, move) - here
            theirs = _moved(twin, which, move) - there
            known = np.isfinite(mine) & np.isfinite(theirs)
            loud = np.abs(mine) > _LOUD * own.epsilon * np.abs(here)
            apart = np.abs(mine - theirs) > _ALIKE * np.abs(mine)
            deaf = (theirs == 0) & loud
            if (known & ((loud & apart) | deaf)).any():
                return False
    return True


def is_fine(twin: Any, *, seed: int = 0) -> bool:
    """Say whether a subject resolves steps of 1e-9, as float64 throughout does.

    Single precision somewhere inside makes a staircase of it: between steps of 1e-9 and
    of 1e-5 there is no proportion then.
    """
    rng = np.random.default_rng([seed, 19])
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
            bound = 0.05 * np.abs(long) + ratio * _LAST_DIGITS * size
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
        return np.full(sum(v.size for v in subject.outputs), np.nan)
    finally:
        subject.place(which, None)
