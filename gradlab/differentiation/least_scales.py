"""Inputs whose own size is nothing to f: by how much they are moved instead.

Steps go by the size of an input. Logits of 1e-8 are moved by less than 1e-13, a loss of
order one stands still, and every gradient would agree with that: of zero, of twice the
size, of the other sign. An input whose gradient says that it cannot move f is asked,
along a line: if f stands still over its own size as well, it is moved by hundredths, as
a difference of 1e-5 for everybody does, or by as much more or less as f notices. Where
f lives on a scale that is as tiny as the input, as 1/x does, nothing is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.directions import Direction, Part, Walk, unit_of
from gradlab.differentiation.magnitudes import looked_at, magnitudes

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.differentiation.evaluation import Meter
    from gradlab.differentiation.origin import Origin

__all__ = ["choose_least_scales", "moves_nothing"]

# Of the largest output: an input that moves it by less is not seen to move it. Cheap
# differences leave a hundredth of such a slope, and less of what is smaller.
_NOTICED = 1e-7
_SHORTER = 2.0**-7  # times one: where f moves by too much when the input moves by one
_TOO_MUCH = 4.0  # of the largest output
_SHORTENED = 7  # times it is made shorter, at most
_FARTHER = 4.0  # times as far, and no more: a longer step shows nothing new
_DIGITS = 64.0  # roundings of f: less than that is not seen
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
    if not 0 < extent.largest < _SHORTER:
        return False
    return bool(largest() * extent.largest <= _NOTICED * _height(origin.base))


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
    >>> from gradlab.differentiation.evaluation import Meter
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
        near = _moved(origin, which, unit_of(origin.subject, which), meter, seed)
        if near <= _NOTICED:
            scale = _chosen(origin, which, near, meter, seed)
            if scale is not None:
                # where no digit of f tells the point from a kink, it is at the kink
                bent = near > 0 and _bends(origin, which, scale, meter, seed)
                found[which] = 0.0 if bent else scale
    return found


def _bends(origin: Origin, which: int, scale: float, meter: Meter, seed: int) -> bool:
    """Whether f has kinks within such steps, as ``abs(x)`` or a ReLU of 1e-9.

    What goes alike to both sides grows with the step then, and with its square where f
    is smooth; differences over a kink show the mean of two slopes, which is neither.
    """
    sides = [
        _beyond(origin, which, end * share * scale, meter, seed)
        for share in (_SHORT, _LONG)
        for end in (1.0, -1.0)
    ]
    with np.errstate(all="ignore"):
        near = np.abs(sides[0] + sides[1])
        even, odd = np.abs(sides[2] + sides[3]), np.abs(sides[2] - sides[3])
        bent = (even > _EVEN * odd) & (even < (_LONG / _SHORT) ** 1.5 * near)
        bent &= near > _DIGITS * origin.subject.epsilon * _height(origin.base)
    return bool(bent.any())


def _chosen(
    origin: Origin, which: int, near: float, meter: Meter, seed: int
) -> float | None:
    """Look for a scale that f notices, beyond that of the input, which moves it so far.

    None where there is no such scale.
    """
    own = unit_of(origin.subject, which)
    scale = 1.0
    for _ in range(_SHORTENED):
        far = _moved(origin, which, scale, meter, seed)
        if _DIGITS * origin.subject.epsilon < far <= _FARTHER * near:
            return None  # it does all that it does within the size of the input
        if far <= _TOO_MUCH:
            return scale
        scale *= _SHORTER
        if scale <= own:
            break
    return None


def _moved(origin: Origin, which: int, scale: float, meter: Meter, seed: int) -> float:
    """How far f goes along a line, by the largest output; inf where it has no value."""
    most = float(np.abs(_beyond(origin, which, scale, meter, seed)).max(initial=0.0))
    height = _height(origin.base)
    if most == 0:
        return 0.0
    return most / height if most > 0 < height else np.inf  # nan if any is


def _beyond(
    origin: Origin, which: int, scale: float, meter: Meter, seed: int
) -> NDArray[np.float64]:
    """Tell what a step along a line adds to the outputs that are finite."""
    subject, base = origin.subject, origin.base
    part = Part(which, 0, subject.inputs[which].coordinates)
    units = tuple(scale if k == which else 1.0 for k in range(len(subject.inputs)))
    with Walk(subject, Direction(seed, (part,), units)) as walk, meter.watching():
        row = walk.row(1.0, meter, far=True)
    with np.errstate(all="ignore"):
        return (row - base)[np.isfinite(base)]


def _height(base: NDArray[np.float64]) -> float:
    """Size of the largest output."""
    return float(np.abs(base).max(initial=0.0, where=np.isfinite(base)))
