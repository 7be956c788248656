"""A Hessian: right along a direction, linear, symmetric."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.building import Sides, build_subject, valid_seed
from gradlab.comparison.tolerance import Tolerance
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.metering.meter import Meter
from gradlab.keywords import spelt
from gradlab.localisation.conditions import first_evaluation
from gradlab.properties.curvature import hessian_product, refuse_products
from gradlab.properties.results import PropertyResult
from gradlab.properties.taylor import taylor_test
from gradlab.subject.state_guard import StateGuard
from gradlab.subject.subject import input_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from gradlab.properties.remainders import TaylorTest

__all__ = ["HessianCheck", "check_hessian"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class HessianCheck(PropertyResult):
    """Result of `gradlab.check_hessian`.

    Parameters
    ----------
    taylor
        Taylor test of order 2 along a random direction; rate 3 is expected.
    linearity
        ``|H(a u + b v) - a H u - b H v|`` over the size of its terms.
    symmetry
        ``|<u, H v> - <v, H u>|`` over the size of its terms.
    allowed
        What is forgiven to these two: round-off.

    Examples
    --------
    >>> found = gl.check_hessian(
    ...     lambda x: x[0] ** 2 * x[1],
    ...     np.array([1.0, 2.0]),
    ...     grad=lambda x: np.array([2 * x[0] * x[1], x[0] ** 2]),
    ...     hess=lambda x: np.array([[2 * x[1], 2 * x[0]], [0.0, 0.0]]),
    ... )
    >>> print(found.reading.split(":")[0])
    The Hessian is not symmetric
    """

    taylor: TaylorTest
    linearity: float
    symmetry: float
    allowed: float

    @property
    def verdict(self) -> Verdict:
        """The worst of linearity, symmetry and the value along the direction."""
        if not max(self.linearity, self.symmetry) <= self.allowed:
            return Verdict.DISAGREES
        return self.taylor.verdict

    @property
    def rate(self) -> float:
        """Rate of the Taylor remainder of order 2; 3 is expected."""
        return self.taylor.rate[2]

    @property
    def reading(self) -> str:
        """What was found, in sentences; what is wrong stands first."""
        told = []
        if not self.linearity <= self.allowed:
            told.append(
                f"The Hessian is not linear: H(a u + b v) and a H u + b H v differ by "
                f"{_share(self.linearity)} of their terms."
            )
        if not self.symmetry <= self.allowed:
            told.append(
                f"The Hessian is not symmetric: <u, H v> and <v, H u> differ by "
                f"{_share(self.symmetry)} of their terms."
            )
        told.append(self.taylor.reading)
        if len(told) == 1:
            right = self.taylor.verdict == Verdict.AGREES
            told.insert(0 if right else 1, "The Hessian is linear and symmetric.")
        return " ".join(told)


def _share(number: float) -> str:
    return f"{100 * number:.0f} %" if number > 0.01 else f"{number:.1g}"


@spelt
def check_hessian(
    fn: Callable[..., Any],
    *inputs: Any,
    hvp: Callable[..., Any] | None = None,
    hess: Callable[..., Any] | None = None,
    grad: Callable[..., Any] | Mapping[str, Any] | Any = None,
    params: Any = None,
    loss: Callable[..., Any] | None = None,
    wrt: Sequence[str] | str | None = None,
    names: Sequence[str] | Mapping[str, str] | None = None,
    rtol: float | None = None,
    seed: int = 0,
) -> HessianCheck:
    """Check a Hessian as manopt's ``checkhessian`` does: rate 3, linear, symmetric.

    Nine products with random vectors for linearity and symmetry, and a Taylor test of
    order 2. To check every entry of a Hessian matrix instead, give the gradient as the
    function: ``gl.check(grad, x, jac=hess)``.

    Parameters
    ----------
    fn, *inputs, grad, params, loss, wrt, names
        As in `gradlab.check`; a scalar function and its gradient.
    hvp, hess
        ``hvp(*inputs, *directions)``: Hessian times directions; or ``hess(x)``: the
        matrix. torch functions bring their own.
    rtol
        Relative difference forgiven to linearity and symmetry. Default 5000 units of
        round-off: 1e-12 in float64. A product made by differences needs 1e-5 or so.
    seed
        Of the random vectors; the user's random state is never touched.

    Returns
    -------
    HessianCheck
        ``verdict``, ``reading``, ``rate``, ``linearity``, ``symmetry``, ``taylor``.

    Raises
    ------
    InputError, SubjectError
        As `gradlab.taylor_test`.

    References
    ----------
    Boumal, Mishra, Absil and Sepulchre, *Manopt*, J. Mach. Learn. Res. 15 (2014).

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([0.5, 2.0], dtype=torch.float64)
    >>> gl.check_hessian(lambda x: (x**4).sum() + x.prod(), x).verdict.name
    'AGREES'
    """
    refuse_products(hvp, hess)
    tolerance, number = Tolerance(rtol), valid_seed(seed)
    first: dict[str, Any] = {
        "params": params, "grad": grad, "loss": loss, "wrt": wrt, "names": names
    }  # fmt: skip
    sides = Sides(**first)
    roots = sides.roots(fn, inputs, hvp, hess)
    with StateGuard(*roots) as guard, Meter().watching() as meter:
        subject = build_subject(fn, inputs, sides)
        base, _ = first_evaluation(subject, roots, meter, guard)
        product = hessian_product(subject, np.ones(len(base)), hvp=hvp, hess=hess)
        width = input_columns(subject.inputs)
        linearity, symmetry = _structure(product, width, number)
        allowed = tolerance.rounding(subject.epsilon)
    taylor = taylor_test(fn, *inputs, order=2, hvp=hvp, hess=hess, seed=number, **first)
    return HessianCheck(taylor, linearity, symmetry, allowed)


def _structure(
    product: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    width: int,
    seed: int,
) -> tuple[float, float]:
    """Measure how far products are from linear, and from symmetric; the worst of all.

    Few vectors may by chance not show that |v| is not linear in v: three triples, each
    with one negative factor.
    """
    rng = np.random.default_rng([seed, 19])
    found = [_triple(product, width, rng) for _ in range(3)]
    return float(np.max([f[0] for f in found])), float(np.max([f[1] for f in found]))


def _triple(
    product: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    width: int,
    rng: np.random.Generator,
) -> tuple[float, float]:
    u, v = rng.normal(size=(2, width))
    a, b = rng.uniform(0.5, 2, 2) * [-1.0, 1.0]
    with np.errstate(all="ignore"):
        hu, hv, both = product(u), product(v), product(a * u + b * v)
        size = np.linalg.norm(a * hu) + np.linalg.norm(b * hv)
        apart = np.linalg.norm(both - a * hu - b * hv)
        left, right = u * hv, v * hu
        terms = np.abs(left).sum() + np.abs(right).sum()
        skew = abs(left.sum() - right.sum())
    return _ratio(float(apart), float(size)), _ratio(float(skew), float(terms))


def _ratio(part: float, whole: float) -> float:
    """Part of a whole; 0 / 0 is 0, what is not finite is nan and thus not allowed."""
    if part == 0:
        return 0.0
    return part / whole if whole > 0 and np.isfinite(whole) else float("nan")
