"""What is undecided, and nothing else has said why: the measurement, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.subject.subject import is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison
    from gradlab.subject.subject import Subject

__all__ = ["in_float64", "left_open", "measured"]

_APART = 10.0  # bars between two sides that a direction tells apart


def left_open(
    comparisons: Sequence[Comparison],
    findings: Sequence[Finding],
    asked: Mapping[str, float] | None = None,
) -> Iterator[Finding]:
    """Give a reason to every undecided input of which no finding speaks.

    Parameters
    ----------
    comparisons
        With their verdicts.
    findings
        All others. A warning about the function as a whole speaks of every input.
    asked
        Steps that the user asked for, by input; default none.
    """
    asked = asked or {}
    told = {each.where for each in findings if each.severity != "note"}
    told |= {place for each in findings for place in each.places}
    for comparison in comparisons:
        name = comparison.input.name
        if comparison.verdict != Verdict.UNDECIDED or not told.isdisjoint({name, ""}):
            continue
        told.add(name)
        steep = _too_steep(comparison)
        if steep is not None:
            yield steep
            continue
        if name in asked:
            yield _own_step(comparison, asked[name])
            continue
        if _seen_apart(comparison).any():
            yield _not_borne_out(comparison)
            continue
        yield Finding(
            BugKind.LOW_PRECISION,
            "warning",
            name,
            0.5,
            f"The numeric side is too coarse to tell {_measured(comparison)}.",
            "Look for what rounds inside f (a cast to fewer digits, numbers that are "
            "large beside what this input changes) and leave it out while you check. "
            "Where f has kinks (relu, abs, max) one may be near: check at another "
            "point, too.",
        )


def _own_step(comparison: Comparison, step: float) -> Finding:
    """Say that the step that was asked for shows too little, whatever f does."""
    return Finding(
        BugKind.STEP_SIZE,
        "warning",
        comparison.input.name,
        0.5,
        f"With the step asked for, {step:g}, the numeric side is too coarse to tell "
        f"{_measured(comparison)}.",
        'Leave the step to gradlab (method="auto"), or look at gl.sweep for the range '
        "of steps that works.",
    )


def _seen_apart(comparison: Comparison) -> NDArray[np.bool_]:
    """Where random directions told two sides apart, and yet accuse nobody."""
    if comparison.coverage != "probe":
        return np.zeros(comparison.verdicts.shape, dtype=bool)
    return _clearly_apart(comparison)


def _clearly_apart(comparison: Comparison) -> NDArray[np.bool_]:
    """Where two sides are far apart, and undecided for another reason than the bar."""
    with np.errstate(invalid="ignore"):
        gap = np.abs(comparison.analytic - comparison.numeric)
        apart = np.isfinite(gap) & (gap > _APART * comparison.numeric_error)
    seen: NDArray[np.bool_] = apart & (comparison.verdicts == Verdict.UNDECIDED)
    return seen


def _not_borne_out(comparison: Comparison) -> Finding:
    """Say what directions measured, and that entries do not say the same."""
    name, seen = comparison.input.name, _seen_apart(comparison)
    row, column = divmod(int(seen.argmax()), seen.shape[1])
    return Finding(
        BugKind.UNKNOWN,
        "warning",
        name,
        0.5,
        f"The gradient of {name} disagrees along {int(seen.sum())} of {seen.size} "
        f"random directions, such as {comparison.label(row, column)}: analytic "
        f"{comparison.analytic[row, column]:.3g}, numeric "
        f"{comparison.numeric[row, column]:.3g} ± "
        f"{comparison.numeric_error[row, column]:.1e}; no single entry has borne that "
        f"out.",
        f'Check its entries one by one: coverage="full", wrt="{name}".',
    )


def _too_steep(comparison: Comparison) -> Finding | None:
    """Say that f has no finite slope, where that is so of all entries that are open.

    Quotients over ever shorter steps were seen to grow without end.
    """
    open_ = comparison.verdicts == Verdict.UNDECIDED
    steep = open_ & np.isinf(comparison.numeric)
    if not steep.any() or not (steep == open_).all():
        return None
    row, column = divmod(int(steep.argmax()), steep.shape[1])
    count = int(steep.sum())
    others = f", and in {count - 1:,} more" if count > 1 else ""
    return Finding(
        BugKind.NONDIFFERENTIABLE,
        "warning",
        comparison.input.name,
        0.7,
        f"The function has no finite slope at {comparison.label(row, column)}{others}: "
        f"its differences grow without end as steps shrink, while the analytic side "
        f"is {comparison.analytic[row, column]:.3g}.",
        "Check at a point where the slope is finite: beside the end of a sqrt, log or "
        "arcsin, not at it.",
    )


def measured(comparisons: Sequence[Comparison], bent: Collection[str]) -> str:
    """Go on with what was measured of the first input that its bars leave undecided.

    Parameters
    ----------
    comparisons
        With their verdicts.
    bent
        Names of inputs whose bars have another reason than a lack of digits.
    """
    for comparison in comparisons:
        if (
            comparison.verdict == Verdict.UNDECIDED
            and comparison.input.name not in bent
        ):
            if _clearly_apart(comparison).any():  # a surrogate, say: no lack of digits
                continue
            return f": too coarse to tell {_measured(comparison)}"
    return ""


def _measured(comparison: Comparison) -> str:
    """Tell how many entries are open, and of one of them what was measured."""
    count, total = comparison.counts[Verdict.UNDECIDED], sum(comparison.counts)
    mask = comparison.verdicts == Verdict.UNDECIDED
    if not mask.any():  # among those that were counted, and not kept
        return f"{count:,} of {total:,} entries of {comparison.input.name}"
    bars = np.where(mask, comparison.numeric_error, -1.0)
    bars = np.where(np.isfinite(bars), bars, -0.5)  # rather one with a number
    row, column = divmod(int(bars.argmax()), bars.shape[1])
    numeric, error = comparison.numeric[row, column], bars[row, column]
    bar = f"{error:.1e}" if error >= 0 else "more than can be told"
    return (
        f"{count:,} of {total:,} entries of {comparison.input.name}, such as "
        f"{comparison.label(row, column)}: analytic "
        f"{comparison.analytic[row, column]:.3g}, numeric {numeric:.3g} ± {bar}"
    )


def in_float64(subject: Subject) -> str:
    """Say how to check the same function in float64, with a line that can be typed.

    Parameters
    ----------
    subject
        Of lower precision, which gradlab could not evaluate in float64 itself: the
        function writes to buffers of its own, or casts.
    """
    name = subject.inputs[0].name
    held = "casts and buffers inside"
    if is_torch_subject(subject):
        held += " (and torch.autocast)"
        module = subject.kind.startswith("torch module")
        call = (
            "gl.check(copy.deepcopy(model).double(), x.double(), ...)"
            if module
            else f"gl.check(f, {name}.detach().double().requires_grad_(), ...)"
        )
    elif getattr(subject, "widened", None) is not None:
        held += " (and torch.autocast)"
        call = "model.double() and its data x.double(), then the same call"
    elif subject.live:
        call = "for k in params: params[k] = params[k].astype(float)"
    else:
        call = f"gl.check(f, {name}.astype(float), ...)"
    return f"Check it in float64, {held} as well: {call}."
