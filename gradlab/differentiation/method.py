"""Settings of the numeric methods, as values that can be passed around.

A method is named by a string (``"central"``) or configured by an object
(``gl.Central(step=1e-6)``). The objects hold settings only; the arithmetic lives in one
file per family.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar, cast

import numpy as np

from gradlab.errors import InputError
from gradlab.keywords import named_options

__all__ = [
    "Adaptive",
    "Auto",
    "Backward",
    "Central",
    "ComplexStep",
    "Forward",
    "Method",
    "resolve_method",
    "resolve_methods",
]


@dataclasses.dataclass(frozen=True, slots=True)
class _Stepped:
    """What the methods share whose step may be chosen."""

    step: float | None = None

    def __post_init__(self) -> None:
        if self.step is None:
            return
        number = isinstance(self.step, int | float | np.number)
        # `not <` also refuses nan
        if not number or isinstance(self.step, bool) or not 0 < self.step < math.inf:
            msg = (
                f"step must be a positive, finite number (in the units of the input) "
                f"or None for a relative step per coordinate, got {self.step!r}"
            )
            raise InputError(msg)


@named_options
@dataclasses.dataclass(frozen=True, slots=True)
class Central(_Stepped):
    """Two-sided difference ``(f(x + h) - f(x - h)) / 2h``; truncation of order h^2.

    Parameters
    ----------
    step
        Absolute step, in the units of the input. None (default): ``eps**(1/3)``
        times the size of each coordinate, which balances truncation and round-off.

    References
    ----------
    Nocedal and Wright, *Numerical Optimization*, 2nd ed. (2006), section 8.1.

    Examples
    --------
    >>> gl.Central(step=1e-6)
    Central(step=1e-06)
    """

    name: ClassVar[str] = "central"
    cost: ClassVar[int] = 2  # evaluations of one coordinate


@named_options
@dataclasses.dataclass(frozen=True, slots=True)
class Forward(_Stepped):
    """One-sided difference ``(f(x + h) - f(x)) / h``; truncation of order h.

    Parameters
    ----------
    step
        Absolute step, in the units of the input. None (default): ``sqrt(eps)`` times
        the size of each coordinate, which balances truncation and round-off.

    Examples
    --------
    >>> gl.Forward().name
    'forward'
    """

    name: ClassVar[str] = "forward"
    cost: ClassVar[int] = 1


@named_options
@dataclasses.dataclass(frozen=True, slots=True)
class Backward(_Stepped):
    """One-sided difference ``(f(x) - f(x - h)) / h``; truncation of order h.

    Parameters
    ----------
    step
        Absolute step, in the units of the input. None (default): ``sqrt(eps)`` times
        the size of each coordinate, which balances truncation and round-off.

    Examples
    --------
    >>> gl.Backward().name
    'backward'
    """

    name: ClassVar[str] = "backward"
    cost: ClassVar[int] = 1


@named_options
@dataclasses.dataclass(frozen=True, slots=True)
class ComplexStep(_Stepped):
    """Complex step ``Im f(x + ih) / h``: no cancellation, for analytic functions.

    Needs a NumPy function that carries complex numbers through; refused with the
    reason where it cannot work (Squire and Trapp, SIAM Review 40, 1998).

    Parameters
    ----------
    step
        Absolute step. None (default): 1e-30 times the coordinate's size; nothing
        cancels, so it only has to be tiny.

    Examples
    --------
    >>> gl.ComplexStep().name
    'complex-step'
    """

    name: ClassVar[str] = "complex-step"
    cost: ClassVar[int] = 1


@named_options
@dataclasses.dataclass(frozen=True, slots=True)
class Adaptive:
    """Ladder of steps per coordinate, judged by its own consistency.

    Finds step, noise and error bar by itself; up to about 20 evaluations for each
    coordinate. See `gradlab.differentiation.adaptive`.

    References
    ----------
    Ridders, Adv. Eng. Software 4 (1982); Moré and Wild, SIAM J. Sci. Comput. 33 (2011).

    Examples
    --------
    >>> gl.Adaptive().name
    'adaptive'
    """

    name: ClassVar[str] = "adaptive"
    cost: ClassVar[int] = 24  # about


@named_options
@dataclasses.dataclass(frozen=True, slots=True)
class Auto:
    """Central differences, then the adaptive ladder where they raise a doubt.

    Examples
    --------
    >>> gl.Auto().name
    'auto'
    """

    name: ClassVar[str] = "auto"
    cost: ClassVar[int] = 2  # of the first pass


Method = Auto | Central | Forward | Backward | ComplexStep | Adaptive

_BY_NAME: dict[str, type[Method]] = {
    kind.name: kind
    for kind in (Auto, Central, Forward, Backward, ComplexStep, Adaptive)
}


def resolve_method(method: str | Method) -> Method:
    """Turn a name or a settings object into a settings object.

    Raises
    ------
    InputError
        If the name is unknown, with a list of the known ones, or it is a class.

    Examples
    --------
    >>> resolve_method("central")
    Central(step=None)
    """
    if isinstance(method, Method):
        return method
    known = _BY_NAME.get(str(method).replace("_", "-"))
    if known is None:
        if isinstance(given := cast("object", method), type):
            name = given.__name__
            msg = f"method is the class gl.{name}; pass an object of it, gl.{name}()"
            raise InputError(msg)
        msg = (
            f"method must be one of {', '.join(map(repr, _BY_NAME))} or a settings "
            f"object such as gl.Central(step=1e-6), got {method!r}"
        )
        raise InputError(msg)
    return known()


def resolve_methods(
    method: str | Method | Mapping[str, str | Method],
) -> tuple[Method, dict[str, Method]]:
    """Read ``method=``: one for all inputs, or some by name or pattern.

    Returns
    -------
    method
        For inputs that are not named; "auto" unless ``method`` is one for all.
    own
        By name of the input.

    Examples
    --------
    >>> resolve_methods({"x": "central"})
    (Auto(), {'x': Central(step=None)})
    """
    if not isinstance(method, Mapping):
        return resolve_method(method), {}
    return Auto(), {str(name): resolve_method(own) for name, own in method.items()}
