"""Inputs whose own size is nothing to f: by how much they are moved instead.

Steps go by the size of an input. Logits of 1e-8 are moved by less than 1e-13, a loss of
order one stands still, and every gradient would agree with that: of zero, of twice the
size, of the other sign. An input whose gradient says that it cannot move f is asked,
along a line: if f stands still over its own size as well, it is moved by hundredths, as
a difference of 1e-5 for everybody does, or by as much more or less as f notices. Where
f lives on a scale that is as tiny as the input, as 1/x does, nothing is asked.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.lines.directions import Direction, unit_of
from gradlab.differentiation.lines.parts import Part
from gradlab.differentiation.lines.walk import Walk
from gradlab.differentiation.sizes.magnitudes import looked_at, magnitudes

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin

__all__ = ["NOTICED", "SMALL", "UNSEEN", "Way", "choose_least_scales", "moves_nothing"]

# Of the largest output: an input that moves it by less is not seen to move it. Cheap
# differences leave a hundredth of such a slope, and less of what is smaller.
NOTICED = 1e-7
SMALL = 2.0**-7  # inputs that are larger are not asked
_SHORTER = 2.0**-7  # times one: where f moves by too much when the input moves by one
_TOO_MUCH = 4.0  # of the largest output
_SHORTENED = 7  # times it is made shorter, at most
_FARTHER = 4.0  # times as far, and no more: a longer step shows nothing new
UNSEEN = 64.0  # roundings of f: less than that is not seen
_TRIES = 12  # evaluations for each such input
_SHORT, _LONG = 2.0**-16, 2.0**-13  # times the scale: by as much differences go
_EVEN = 0.02  # of how far f goes to one side less the other: a kink adds more


def moves_nothing(origin: Origin, which: int, largest: Callable[[], float]) -> bool:
    """Whether an input cannot move f by its own size, as its gradient says.

    Parameters
    ----------
    largest
        Finds the largest entry of that gradient; asked of small inputs only.
    """
    extent = magnitudes(looked_at(origin.subject, which))
    if not 0 < extent.largest < SMALL:
        return False
    return bool(largest() * extent.largest <= NOTICED * _height(origin.base))


def choose_least_scales(
    origin: Origin, inputs: list[int], meter: Meter, seed: int
) -> dict[int, float]:
    """Find by how much inputs are to be moved that seem to move nothing.

    Parameters
    ----------
    origin
        The subject is there again afterwards, whatever happens.
    inputs
        Of which `moves_nothing` is true.
    meter
        Charged for two or three evaluations of each, where its budget has them.
    seed
        Of the lines.

    Returns
    -------
    dict
        By input. Not those that do move f, whatever their gradient says, nor those
        that a longer step shows nothing more of, or no value of f. Zero for those that
        a longer step would take over kinks, as of a ReLU of 1e-9: they are moved by
        their own size, and what that does to f is little, but all that there is.

    Examples
    --------
    >>> from gradlab.building import Sides, build_subject
    >>> from gradlab.differentiation.metering.meter import Meter
    >>> from gradlab.differentiation.origin import Origin
    >>> x = 1e-9 * np.array([3.0, -2.0])
    >>> for f in (lambda x: np.exp(x).sum(), lambda x: np.exp(x * 1e9).sum()):
    ...     subject = build_subject(f, [x], Sides(grad=lambda x: 0 * x))
    ...     choose_least_scales(Origin(subject, subject.row()), [0], Meter(), 0)
    {0: 1.0}
    {}
    """
    found = {}
    for which in inputs:
        if meter.left() < _TRIES:
            break
        way = Way(
            functools.partial(_beyond, origin, which, meter, seed),
            _height(origin.base),
            origin.subject.epsilon,
        )
        scale = way.least_scale(unit_of(origin.subject, which))
        if scale is not None:
            found[which] = scale
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """How f goes when all of an input moves along one line.

    Attributes
    ----------
    beyond
        Tells what a step, in units of one, adds to the outputs that are finite.
    height
        Size of the largest output.
    epsilon
        Round-off of f.
    """

    beyond: Callable[[float], NDArray[np.float64]]
    height: float
    epsilon: float

    def least_scale(self, own: float) -> float | None:
        """Find by how much to move an input of size `own`, as `choose_least_scales`."""
        near = self._moved(own)
        if not near <= NOTICED:
            return None
        scale = 1.0
        for _ in range(_SHORTENED):
            far = self._moved(scale)
            if UNSEEN * self.epsilon < far <= _FARTHER * near:
                return None  # it does all that it does within the size of the input
            if far <= _TOO_MUCH:
                # where no digit of f tells the point from a kink, it is at the kink
                return 0.0 if near > 0 and self._bends(scale) else scale
            scale *= _SHORTER
            if scale <= own:
                break
        return None

    def _bends(self, scale: float) -> bool:
        """Whether f has kinks within such steps, as ``abs(x)`` or a ReLU of 1e-9.

        What goes alike to both sides grows with the step then, and with its square
        where f is smooth; differences over a kink show the mean of two slopes, which is
        neither.
        """
        shares = (_SHORT, -_SHORT, _LONG, -_LONG)
        sides = [self.beyond(share * scale) for share in shares]
        with np.errstate(all="ignore"):
            near = np.abs(sides[0] + sides[1])
            even, odd = np.abs(sides[2] + sides[3]), np.abs(sides[2] - sides[3])
            bent = (even > _EVEN * odd) & (even < (_LONG / _SHORT) ** 1.5 * near)
            bent &= near > UNSEEN * self.epsilon * self.height
        return bool(bent.any())

    def _moved(self, scale: float) -> float:
        """How far f goes, in units of its height; inf where it has no value."""
        most = float(np.abs(self.beyond(scale)).max(initial=0.0))
        if most == 0:
            return 0.0
        return most / self.height if most > 0 < self.height else np.inf


def _beyond(
    origin: Origin, which: int, meter: Meter, seed: int, scale: float
) -> NDArray[np.float64]:
    """Tell what a step along a line adds to the outputs that are finite."""
    subject, base = origin.subject, origin.base
    part = Part(which, 0, subject.inputs[which].coordinates)
    units = tuple(scale if k == which else 1.0 for k in range(len(subject.inputs)))
    with Walk(subject, Direction(seed, (part,), units)) as walk:
        row = walk.row(1.0, meter, far=True)
    with np.errstate(all="ignore"):
        return (row - base)[np.isfinite(base)]


def _height(base: NDArray[np.float64]) -> float:
    """Size of the largest output."""
    return float(np.abs(base).max(initial=0.0, where=np.isfinite(base)))
