"""From a subject to a bench: reference, cotangent, units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.directions import unit_from, whole
from gradlab.differentiation.evaluation import base_row
from gradlab.differentiation.line_slope import start_exponent
from gradlab.differentiation.magnitudes import looked_at, magnitudes
from gradlab.localisation.bench import Bench
from gradlab.localisation.cotangents import draw_cotangent
from gradlab.localisation.gradients import Gradients
from gradlab.localisation.precise import Precise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.comparison.tolerance import Tolerance
    from gradlab.differentiation.evaluation import Meter
    from gradlab.subject.subject import Subject

__all__ = ["set_up"]

# Anything coarser than float64 gets its numeric side from a float64 twin.
_DOUBLE = 1e-15
# A twin that computes something else by more than this is no reference.
_SAME = 1e-2


def set_up(
    subject: Subject,
    *,
    tolerance: Tolerance,
    meter: Meter,
    seed: int,
    base: NDArray[np.float64] | None = None,
    precise: bool = False,
    dear: bool = False,
) -> Bench:
    """Evaluate once, choose a reference, fetch the gradients.

    Parameters
    ----------
    base
        f at the point, where that is already known; saves one evaluation.
    precise
        Take the round-off of short arithmetic out of the gradients, with the help of
        the same gradients in float64.
    dear
        See `Bench`; of a large model the gradients are not kept then.

    Raises
    ------
    InputError
        If there is no analytic side, or it needs a scalar function and has none.
    SubjectError
        If the function fails at the point.
    """
    base = base_row(subject, meter) if base is None else base
    numeric = subject
    if subject.epsilon > _DOUBLE:
        twin = subject.in_double()
        if twin is not None:
            row = base_row(twin, meter)
            size = float(np.abs(base[np.isfinite(base)]).max(initial=0.0))
            with np.errstate(all="ignore"):
                near = np.abs(row - base) <= 0.1 * np.abs(base) + _SAME * size
            if (near | ~np.isfinite(base)).all():
                numeric, base = twin, row
    bench = Bench(
        subject=subject,
        numeric=numeric,
        base=base,
        cotangent=draw_cotangent(numeric, base, np.random.default_rng([seed, 5])),
        gradients=Gradients(()),
        units=(),
        tolerance=tolerance,
        meter=meter,
        seed=seed,
        exponent=start_exponent(numeric.epsilon),
        ripples=np.zeros((3, len(base))),
        dear=dear,
    )
    for which, variable in enumerate(subject.inputs):
        point = looked_at(numeric, which)
        extent = magnitudes(point)
        bench.units = (*bench.units, unit_from(extent, variable.coordinates))
        if not extent.finite:
            bench.immovable[which] = np.flatnonzero(~np.isfinite(point))
    if precise and numeric is not subject:
        bench.precise = Precise.of_twin(subject, numeric, bench.units, seed)
    bench.pull()
    if dear:  # the first direction is for the noise of f, the next two are compared
        first = [(seed << 20) + k for k in (2, 3)]
        bench.gradients.foresee([bench.direction(whole(numeric), k) for k in first])
    return bench
