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

__all__ = ["choose_least_scales", "folds", "moves_nothing"]

# Of the largest output: an input that moves it by less is not seen to move it. Cheap
# differences leave a hundredth of such a slope, and less of what is smaller.
_NOTICED = 1e-7
_SHORTER = 2.0**-7  # times one: where f moves by too much when the input moves by one
_TOO_MUCH = 4.0  # of the largest output
_FARTHER = 4.0  # times as far, and no more: a longer step shows nothing new
_DIGITS = 64.0  # roundings of f: less than that is not seen
_TRIES = 8  # evaluations for each such input
_FOLD = 2.0**-16  # times the scale: by as much differences go
_EVEN = 0.1  # of how far f goes: both sides differ by less


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
        that a longer step shows nothing more of, or no value of f.

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
        scale = _chosen(origin, which, meter, seed)
        if scale is not None:
            found[which] = scale
    return found


def folds(origin: Origin, which: int, scale: float, meter: Meter, seed: int) -> bool:
    """Whether f goes alike to both sides over such steps, as around a fold within.

    Central differences over them see a slope of zero where each side has one, as of
    ``abs(x)`` at 1e-9.

    Parameters
    ----------
    origin, which, seed
        As for `choose_least_scales`.
    scale
        Found by that.
    meter
        Charged for two evaluations.
    """
    ahead, behind = (
        _beyond(origin, which, end * _FOLD * scale, meter, seed) for end in (1.0, -1.0)
    )
    with np.errstate(all="ignore"):
        apart = np.abs(ahead - behind).max(initial=0.0)
        return bool(apart < _EVEN * np.abs(ahead + behind).max(initial=0.0) / 2)


def _chosen(origin: Origin, which: int, meter: Meter, seed: int) -> float | None:
    own = unit_of(origin.subject, which)

    def moved(scale: float) -> float:
        return _moved(origin, which, scale, meter, seed)

    near = moved(own)
    if not near <= _NOTICED:
        return None
    scale = 1.0
    for _ in range(_TRIES - 1):
        far = moved(scale)
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
