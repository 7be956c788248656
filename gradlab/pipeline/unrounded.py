"""Reports of functions that cast on the way, made again with these casts left out.

Between two steps of a cast to bfloat16 a function stands still, and over many of them a
difference is curved: neither is the slope that its backward means. With the cast left
out, both sides are smooth. What is wrong then is wrong; what is right is right but for
what the cast rounds off. Casts to float32 leave a slope, but one of four digits, which
a mistake of a thousandth hides in.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding, rank
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.late import is_made
from gradlab.pipeline.cut_short import accusing_nobody
from gradlab.pipeline.examining import examine
from gradlab.subject.subject import (
    BEARABLE,
    DOUBLE,
    SINGLE,
    input_columns,
    is_torch_subject,
    output_rows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.pipeline.plan import Call
    from gradlab.report import Report
    from gradlab.subject.subject import Subject

    Floats = NDArray[np.float64]

__all__ = ["unrounded", "unrounded_first", "without_stairs"]

_GROUPS = 64  # of outputs whose gradients are compared
_MANY = 1 << 22  # entries of these gradients together
_SHARP = 1e-7  # of a gradient's largest entry: an error bar that hides no mistake
_FAINT = 0.01  # of the largest gradient: less is rounded as that is


def unrounded_first(subject: Subject, call: Call) -> Report | None:
    """Check a subject without casts to less on the way, before any check with them.

    Over the stairs of a cast it takes tens of evaluations of each input, or hundreds,
    to see a slope.

    Parameters
    ----------
    subject
        Evaluated at its point.
    call
        As for `gradlab.pipeline.examining.examine`.

    Returns
    -------
    Report
        None where it was not seen to have any, or has none in float64, or where the
        gradient is another one without them.
    """
    if not is_torch_subject(subject) or call.meter.crew is not None:
        return None
    if not subject.narrowed & {"half", "single"} and subject.epsilon <= SINGLE:
        return None
    if subject.epsilon > DOUBLE and subject.in_double() is not None:
        return None  # which has none
    from gradlab.subject.tensors.in_double.double import without_casts

    found = without_casts(subject)
    if found is None:
        return None
    twin, precision = found
    off = _apart_along(subject, twin, call.plan.seed)
    if not off <= BEARABLE[precision]:
        return None
    report = examine(twin, dataclasses.replace(call, layers=None))
    return _saying_so(report, precision, off, call)


def unrounded(
    report: Report, subject: Subject, call: Call, first: Report | None = None
) -> Report:
    """Repeat a check without the casts that keep it from a sharp answer, if it has any.

    That is without casts to half precision, where something does not agree; without
    those to single precision, where differences are as noisy as that.

    Parameters
    ----------
    report
        Of the first check.
    subject, call
        As they were given to `gradlab.pipeline.examining.examine`; the guard knows
        which random numbers were drawn.
    first
        What `unrounded_first` came to, if that was no answer.

    Returns
    -------
    Report
        The second one, which says so, where the gradients of both are the same but for
        rounding; else the first.
    """
    if report.partial or not is_torch_subject(subject) or call.meter.crew is not None:
        return report
    from gradlab.subject.tensors.in_double.double import rounded_twin, without_casts

    open_ = report.verdict != Verdict.AGREES
    returns: bool = getattr(subject, "returns", False)
    if not (open_ or returns or _is_noisy(report)):
        return report
    if open_ and first is not None:  # the same comparison would be made again
        return dataclasses.replace(first, evaluations=call.meter.evaluations)
    found = without_casts(subject, halves=open_)
    if found is not None:
        return _again(report, subject, *found, call)
    known = report.verdict == Verdict.DISAGREES
    twin = None if known else rounded_twin(subject)
    return report if twin is None else _over_stairs(report, twin, call)


def without_stairs(subject: Subject, seed: int) -> Subject | None:
    """Return a subject of the same gradient whose differences see over casts.

    Parameters
    ----------
    subject
        At its point.
    seed
        Of the direction along which gradients are compared.

    Returns
    -------
    Subject
        Without casts to single precision, or one that takes steps over many stairs;
        None where it computes in float64 throughout, or in less from the start.
    """
    if not is_torch_subject(subject) or subject.epsilon > DOUBLE:
        return None
    from gradlab.subject.tensors.in_double.double import rounded_twin, without_casts

    found = without_casts(subject, halves=False)
    if found is None:
        return rounded_twin(subject)
    same = _apart_along(subject, found[0], seed) <= BEARABLE["single"]
    return found[0] if same else None


def _over_stairs(report: Report, twin: Subject, call: Call) -> Report:
    """Check what is not wrong once more over longer steps; it may be by these alone."""
    try:
        again = examine(twin, dataclasses.replace(call, layers=None))
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        return accusing_nobody(report, stop, "not compared over longer steps")
    if again.verdict != Verdict.DISAGREES:
        again = report
    return dataclasses.replace(again, evaluations=call.meter.evaluations)


def _is_noisy(report: Report) -> bool:
    """Whether differences have fewer digits than float64 allows, for any reason.

    Matrices that nobody has made yet are of differences that settled all at once.
    """
    made = [c for c in report.comparisons if is_made(c, "numeric_error")]
    return any(
        not c.numeric_error.max(initial=0.0) <= _SHARP * np.abs(c.numeric).max()
        for c in made
        if c.numeric.any()
    )


def _again(
    report: Report, subject: Subject, twin: Subject, precision: str, call: Call
) -> Report:
    """Check the twin; return its report, or the first where it is another function."""
    without = f"casts to {precision} precision"
    try:
        again = examine(twin, dataclasses.replace(call, layers=None))
    except (BudgetExhausted, KeyboardInterrupt) as stop:
        return accusing_nobody(report, stop, f"not compared without {without}")
    off = _apart(report, again)
    if not np.isfinite(off):
        off = _apart_along(subject, twin, call.plan.seed)
    known = precision == "half" and again.verdict == Verdict.DISAGREES
    if not (known or off <= BEARABLE[precision]):
        return report
    return _saying_so(again, precision, off, call)


def _saying_so(again: Report, precision: str, off: float, call: Call) -> Report:
    """Say in a report which casts were left out, and how far gradients are apart."""
    half, without = precision == "half", f"casts to {precision} precision"
    told = Finding(
        BugKind.LOW_PRECISION,
        "warning" if half else "note",
        "",
        0.9,
        f"The function {without} on the way, and stands still between "
        f"two numbers of that; both sides were compared with these casts left out. "
        f"With them the gradient is {_off(off)}.",
        "For gradients with more digits leave the casts out where you can.",
    )
    remark = f"compared in float64, with {without} left out"
    return dataclasses.replace(
        again,
        findings=rank([*again.findings, told]),
        evaluations=call.meter.evaluations,
        remarks=(*again.remarks, remark),
    )


def _off(apart: float) -> str:
    """Tell in words how far a gradient is off, in parts of its largest entry."""
    if not apart:
        return "the same"
    return f"off by up to {100 * apart:.2g} % of its largest entry"


def _apart(report: Report, again: Report) -> float:
    """How far the gradients of two reports are apart, by their largest entries.

    Infinitely where they were asked along directions, which are not the same for both.
    """
    if any(c.coverage == "probe" for c in (*report.comparisons, *again.comparisons)):
        return np.inf
    own, other = ([c.analytic for c in each.comparisons] for each in (report, again))
    if [values.shape for values in own] != [values.shape for values in other]:
        return np.inf
    return _gap(own, other)


def _apart_along(subject: Subject, twin: Subject, seed: int) -> float:
    """How far gradients of both are apart, of outputs in groups with random signs.

    Infinitely where one has none, or raises: that is told where sides are compared.
    """
    if subject.analytic is None or twin.analytic is None:
        return np.inf
    sides = subject.analytic, twin.analytic
    rows = output_rows(subject.outputs)
    count = min(rows, _GROUPS, 1 + _MANY // max(input_columns(subject.inputs), 1))
    signs = np.random.default_rng([seed, 53]).choice([-1.0, 1.0], rows)
    cotangents = np.zeros((count, rows))
    cotangents[np.arange(rows) % count, np.arange(rows)] = signs
    try:
        own, other = (side.pull(cotangents).values for side in sides)
    except Exception:  # noqa: BLE001 - anything may come from the user's backward
        return np.inf
    return _gap(own, other)


def _gap(own: Sequence[Floats], other: Sequence[Floats]) -> float:
    """Largest gap between two gradients, in parts of the largest entry of its input.

    Of one that is nothing beside another by that: in front of a batch norm a bias has a
    gradient of zero, and a cast makes debris of it.
    """
    sizes = [float(np.abs(values).max(initial=0.0)) for values in other]
    worst = 0.0
    for one, two, size in zip(own, other, sizes, strict=True):
        least = max(size, _FAINT * max(sizes))
        gap = float(np.abs(one - two).max(initial=0.0))
        worst = max(worst, gap / least if least > 0 else np.inf if gap > 0 else 0.0)
    return worst
