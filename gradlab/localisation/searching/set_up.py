"""From a subject to a bench: reference, cotangent, units."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.evaluation import base_row
from gradlab.differentiation.lines.directions import unit_from
from gradlab.differentiation.lines.least_scales import (
    choose_least_scales,
    moves_nothing,
)
from gradlab.differentiation.lines.line_slope import start_exponent
from gradlab.differentiation.lines.parts import whole
from gradlab.differentiation.origin import Origin, computes_otherwise
from gradlab.differentiation.sizes.magnitudes import looked_at, magnitudes
from gradlab.localisation.searching.bench import Bench
from gradlab.localisation.searching.columns import draw_cotangent
from gradlab.localisation.searching.gradients import Gradients
from gradlab.localisation.searching.precise import Precise
from gradlab.subject.free_memory import hand_back
from gradlab.subject.subject import DOUBLE, is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from gradlab.comparison.tolerance import Tolerance
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.subject.subject import Subject

__all__ = ["set_aside", "set_up"]

_FURTHER = 10  # powers of two
_SMALL = 2.0**-6  # units of inputs that f may not notice; of others nothing is asked
_FAINTEST = 1e-12  # relative effect of an input that is not worth a longer step


def set_up(
    subject: Subject,
    *,
    tolerance: Tolerance,
    meter: Meter,
    seed: int,
    base: NDArray[np.float64] | None = None,
    dear: bool = False,
) -> Bench:
    """Evaluate once, choose a reference, fetch the gradients.

    The round-off of short arithmetic is taken out of these with the help of the same
    gradients in float64; of a dear subject only when something disagrees.

    Parameters
    ----------
    base
        f at the point, where that is already known; saves one evaluation.
    dear
        See `Bench`; of a large model the gradients are not kept then.

    Raises
    ------
    InputError
        If there is no analytic side, or it needs a scalar function and has none.
    SubjectError
        If the function fails at the point.
    """
    own = Origin(subject, base_row(subject, meter) if base is None else base)
    # of a dear subject the gradients come first: while they do, nothing else is there
    origin = own if dear else _reference(own, meter)
    numeric = origin.subject
    bench = Bench(
        subject=subject,
        origin=origin,
        cotangent=draw_cotangent(origin, np.random.default_rng([seed, 5])),
        gradients=Gradients(()),
        units=(),
        tolerance=tolerance,
        meter=meter,
        seed=seed,
        exponent=start_exponent(numeric.epsilon),
        ripples=np.zeros((0, len(own.base))),
        dear=dear,
    )
    for which, variable in enumerate(subject.inputs):
        point = looked_at(numeric, which)
        extent = magnitudes(point)
        bench.units = (*bench.units, unit_from(extent, variable.coordinates))
        if not extent.finite:
            bench.immovable[which] = np.flatnonzero(~np.isfinite(point))
    if not dear and numeric is not subject:
        bench.precise = Precise.of_twin(subject, numeric, bench.units, seed)
    bench.pull()
    if dear:
        _complete(bench)
    else:
        _scale_up(bench)
    return bench


def set_aside(bench: Bench, some: Mapping[int, NDArray[np.intp]]) -> None:
    """Leave coordinates of some inputs where they are: the caller compares them."""
    for which, places in some.items():
        if len(places) == bench.subject.inputs[which].coordinates:
            bench.aside.add(which)
            bench.settle(which)
            continue
        bench.apart[which] = places
        bench.gradients.correct(which, places.tolist(), 0.0)
    bench.resized()


def _complete(bench: Bench) -> None:
    """Take what the first two directions need of the gradients, then find a twin."""
    subject, seed = bench.subject, bench.seed
    first = [(seed << 20) + k for k in (1, 2)]
    bench.gradients.foresee([bench.direction(whole(subject), k) for k in first])
    _scale_up(bench)
    bench.units, sizes = _balanced(bench), bench.units
    if subject.epsilon <= DOUBLE:
        return
    for cell in subject.cells if is_torch_subject(subject) else ():
        cell.park()  # until another gradient is asked for
    hand_back()
    bench.origin = _reference(bench.origin, bench.meter)
    bench.exponent = start_exponent(bench.numeric.epsilon)
    if bench.numeric is not subject:
        bench.spare = Precise.of_twin(subject, bench.numeric, sizes, seed)


def _scale_up(bench: Bench) -> None:
    """Move inputs further whose own size is nothing to f."""
    faint = [
        which
        for which, variable in enumerate(bench.subject.inputs)
        if variable.coordinates
        and bench.units[which] < _SMALL
        and moves_nothing(bench.origin, which, partial(_largest, bench, which))
    ]
    if not faint:
        return
    origin, meter, seed = bench.origin, bench.meter, bench.seed
    found = choose_least_scales(origin, faint, meter, seed)
    bench.units = tuple(
        max(unit, found.get(k, unit)) for k, unit in enumerate(bench.units)
    )
    if bench.precise is not None:
        bench.precise.units = bench.units
    for subject in (bench.subject, bench.numeric):
        subject.least_scales.update(found)
    bench.resized()


def _largest(bench: Bench, which: int) -> float:
    return bench.gradients.magnitudes(which).largest


def _balanced(bench: Bench) -> tuple[float, ...]:
    """Units in which all inputs weigh alike in a direction, as far as that is possible.

    A faint input moves further, by up to a thousand times its usual unit: with the
    steps of `quick_probe` that is still a small part of its size.
    """
    effects = [
        bench.sizes(k)[0] * unit * float(np.sqrt(max(bench.gradients.counts[k], 1)))
        for k, unit in enumerate(bench.units)
    ]
    top, known = max(effects, default=0.0), bench.numeric.least_scales
    return tuple(
        unit * 2.0 ** min(_FURTHER, int(np.log2(top / effect)))
        if top * _FAINTEST < effect and top < np.inf and k not in known
        else unit
        for k, (unit, effect) in enumerate(zip(bench.units, effects, strict=True))
    )


def _reference(own: Origin, meter: Meter) -> Origin:
    """Choose what is evaluated: the twin in float64 if it is the same function."""
    subject = own.subject
    twin = subject.in_double() if subject.epsilon > DOUBLE else None
    if twin is None:
        return own
    known = twin.at_point if is_torch_subject(twin) else None  # it has been tried
    if known is None:
        row = base_row(twin, meter)
    else:
        meter.spend(1)
        row = known
    reference = Origin(twin, row)
    return own if computes_otherwise(own, reference).any() else reference
