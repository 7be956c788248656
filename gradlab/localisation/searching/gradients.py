"""Gradients that a search looks at: kept, or of a large model asked for once more.

What random directions need of a gradient is its size, and its products with directions
that are known beforehand. Both can be had while a backward pass hands out the gradient
of one input after the other, so that those of a large model need never be in memory
together. Whoever wants to look at an entry gets the gradient of that input again, for
one more pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from gradlab.differentiation.lines.parts import Part
from gradlab.differentiation.sizes.magnitudes import Magnitudes, magnitudes
from gradlab.localisation.searching.precise import MOST_NUMBERS
from gradlab.subject.free_memory import parked_again
from gradlab.subject.subject import input_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.lines.directions import Direction
    from gradlab.localisation.searching.precise import Precise
    from gradlab.subject.analytic_sides import Problem, Pullback
    from gradlab.subject.subject import Subject

__all__ = ["Gradients", "Stream", "Take", "fetched"]

Take = Callable[[int, "NDArray[Any]"], None]
Stream = Callable[[Sequence[int], Take], None]

# Gradients of inputs with up to so many coordinates are kept, once they came by.
_SMALL = 1 << 16
# Share of all coordinates that larger ones may hold, if one is not larger than that.
_SHARE = 0.25


@dataclasses.dataclass(slots=True, eq=False)
class Gradients(Sequence["NDArray[np.float64]"]):
    """One array for each input, as if all of them were there.

    Parameters
    ----------
    counts
        Coordinates of each input.
    stream
        ``stream(chosen, take)`` calls ``take(which, gradient)`` for each input chosen;
        the array, in double or single precision, need not outlive the call. None where
        all are kept.

    Examples
    --------
    >>> asked = []
    >>> def stream(chosen, take):
    ...     asked.append(list(chosen))
    ...     for which in chosen:
    ...         take(which, np.full(100_000, 1.0 + which))
    >>> gradients = Gradients((100_000, 100_000), stream)
    >>> gradients.magnitudes(1).largest, float(gradients[0][7]), asked
    (2.0, 1.0, [[0, 1], [0]])
    """

    counts: tuple[int, ...]
    stream: Stream | None = None
    _held: dict[int, NDArray[np.float64]] = dataclasses.field(default_factory=dict)
    _sizes: dict[int, Magnitudes] = dataclasses.field(default_factory=dict)
    # by seed and input, along all of it in steps of one
    _products: dict[tuple[int, int], tuple[float, float]] = dataclasses.field(
        default_factory=dict
    )
    _changed: dict[int, dict[int, float]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, arrays: Sequence[NDArray[np.float64]]) -> Gradients:
        """Keep gradients that are there already."""
        return cls(tuple(map(len, arrays)), None, dict(enumerate(arrays)))

    def __len__(self) -> int:
        """Count the inputs."""
        return len(self.counts)

    @overload
    def __getitem__(self, which: int) -> NDArray[np.float64]: ...
    @overload
    def __getitem__(self, which: slice) -> Sequence[NDArray[np.float64]]: ...
    def __getitem__(
        self, which: int | slice
    ) -> NDArray[np.float64] | Sequence[NDArray[np.float64]]:
        """Return the gradient of an input, not to be written to: see `correct`."""
        if isinstance(which, slice):
            return [self[k] for k in range(*which.indices(len(self)))]
        if not 0 <= which < len(self):
            raise IndexError(which)  # which ends an iteration
        if which not in self._held:
            self._pass((which,), (), hold=True)
        return self._held[which]

    def magnitudes(self, which: int) -> Magnitudes:
        """Sizes of the entries of an input's gradient."""
        if which not in self._sizes:
            if which in self._held:
                self._sizes[which] = magnitudes(self._held[which])
            else:  # all that are missing, as long as they come by
                self._pass([k for k in range(len(self)) if k not in self._sizes], ())
        return self._sizes[which]

    def correct(self, which: int, positions: Sequence[int], value: float) -> None:
        """Replace entries of one input by another value, for good."""
        array = self[which]
        self._changed.setdefault(which, {}).update(dict.fromkeys(positions, value))
        array[list(positions)] = value
        self._sizes.pop(which, None)
        for key in [key for key in self._products if key[1] == which]:
            del self._products[key]

    # ------------------------------------------------------------- products
    def along(self, direction: Direction) -> tuple[float, float]:
        """Return the derivative along a direction, and the norm of its terms."""
        if self.stream is None:
            return direction.along(self)
        self.foresee([direction])
        total, norm = 0.0, 0.0
        with np.errstate(all="ignore"):
            for part in direction.parts:
                key = direction.seed, part.which
                if self._known(direction, part):
                    unit = direction.units[part.which]  # a power of two: exact
                    found = unit * np.array(self._products[key])
                else:
                    piece = dataclasses.replace(direction, parts=(part,))
                    found = np.array(piece.along(self))
                total += float(found[0])
                norm = float(np.hypot(norm, found[1]))
        return total, norm

    def foresee(self, directions: Sequence[Direction], *, whole: bool = False) -> None:
        """Get ready for the products with some directions, in one pass for all.

        Parameters
        ----------
        whole
            Whether all gradients are to come by, whatever is known of them.
        """
        if self.stream is None:
            return
        if whole:
            self._pass(range(len(self)), directions)
            return
        missing = dict.fromkeys(
            part.which
            for direction in directions
            for part in direction.parts
            if self._whole(direction, part)
            and not self._known(direction, part)
            and part.which not in self._held
        )
        if missing:
            self._pass(tuple(missing), directions)

    def _whole(self, direction: Direction, part: Part) -> bool:
        whole = part.start == 0 and part.stop == self.counts[part.which]
        return whole and not (direction.thinning or direction.weights is not None)

    def _known(self, direction: Direction, part: Part) -> bool:
        key = direction.seed, part.which
        return self._whole(direction, part) and key in self._products

    def _pass(
        self,
        chosen: Sequence[int],
        directions: Sequence[Direction],
        *,
        hold: bool = False,
    ) -> None:
        """Stream some gradients: measure, multiply, keep the small or all of them."""
        kept = [which for which in chosen if hold or self.counts[which] <= _SMALL]
        room = self._room(kept)  # before, not into what a gradient leaves behind

        def take(which: int, gradient: NDArray[Any]) -> None:
            if which in self._changed:
                changed = self._changed[which]
                gradient = gradient.astype(np.float64)
                gradient[list(changed)] = list(changed.values())
            if which not in self._sizes:
                self._sizes[which] = magnitudes(gradient)
            for direction in directions:
                if any(part.which == which for part in direction.parts):
                    self._products[direction.seed, which] = _product(
                        direction, which, gradient
                    )
            if which in room:
                room[which][:] = gradient

        if self.stream is not None:
            self.stream(chosen, take)
            self._held.update(room)

    def _room(self, kept: Sequence[int]) -> dict[int, NDArray[np.float64]]:
        """Make room for some gradients; large ones that are older leave."""
        wanted = sum(self.counts[k] for k in kept if self.counts[k] > _SMALL)
        large = [k for k in self._held if self.counts[k] > _SMALL]
        while wanted and large:
            if wanted + sum(self.counts[k] for k in large) <= _SHARE * sum(self.counts):
                break
            del self._held[large.pop(0)]
        return {k: np.zeros(self.counts[k]) for k in kept}


def _product(
    direction: Direction, which: int, gradient: NDArray[Any]
) -> tuple[float, float]:
    """Return derivative and norm along all of one input, in steps of one."""
    ones = (1.0,) * len(direction.units)
    part = Part(which, 0, len(gradient))
    piece = dataclasses.replace(direction, parts=(part,), units=ones)
    return piece.along({which: gradient})


def fetched(
    subject: Subject,
    cotangent: NDArray[np.float64],
    pulled: Callable[[NDArray[np.float64]], Pullback],
    note: Callable[[Sequence[Problem]], None],
    *,
    lean: bool,
    precise: Precise | None,
) -> Gradients:
    """Gradients of a subject, all at once or one at a time.

    Parameters
    ----------
    cotangent
        Shape (rows,).
    pulled
        The way with all in memory, shape (1, rows) to values of shape (1, coordinates).
        Taken as well where a backward raises: it tells what came of which input.
    note
        Told of the problems that were met.
    lean
        Do not keep those of a model that can stream them.
    precise
        Takes the round-off of short arithmetic out of what is streamed.
    """
    analytic: Any = subject.analytic
    many = input_columns(subject.inputs)
    lean = lean and (precise is None or many > MOST_NUMBERS)
    if not (lean and analytic is not None and analytic.streams):
        found = pulled(cotangent[None, :])
        note(found.problems)
        return Gradients.of([values[0] for values in found.values])

    def stream(chosen: Sequence[int], take: Take) -> None:
        source = analytic if precise is None else precise
        twins = (subject,) if precise is None else (subject, precise.twin)
        with parked_again(*twins):
            problems = source.stream(cotangent, chosen, take)
        if problems is None:
            whole = pulled(cotangent[None, :])
            problems = whole.problems
            for which in chosen:
                take(which, whole.values[which][0])
        note(problems)

    return Gradients(tuple(v.coordinates for v in subject.inputs), stream)
