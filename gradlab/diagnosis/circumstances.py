"""Conditions that are no wrong formula, from what was met on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import NOTHING_TO_DO, BugKind, Finding
from gradlab.diagnosis.kinks import kinks, label_of
from gradlab.diagnosis.left_open import in_float64, measured
from gradlab.diagnosis.measuring.bending import bends
from gradlab.diagnosis.measuring.held import where_nan
from gradlab.diagnosis.raised import raised
from gradlab.diagnosis.written_to import written_to
from gradlab.differentiation.sizes.scales import scales_of, step_sizes
from gradlab.differentiation.smoothness import Smoothness
from gradlab.subject.subject import DOUBLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gradlab.diagnosis.evidence import Evidence, Part
    from gradlab.differentiation.quotients import Pattern

__all__ = ["circumstances"]

_NAMED = 4  # inputs that follow from one cause, named in its sentence
# 1 + small has the last digit of 1: a loss of 1e-9 has no digits below for that alone.
_LAST = 1e3  # roundings of f, or of 1, that bars over long steps are worth then
_SINGLE = 1e-6  # of the largest entry: bars of single precision are wider
_ROUNDINGS = 8.0  # of f itself, that a difference of two of its values may have

_LEFT_TO_AUTO = (
    'Leave the method to gradlab (method="auto"), which compares with the same '
    "function in float64 where it runs there."
)


def circumstances(evidence: Evidence) -> list[Finding]:
    """Turn notes, kinks, dtypes and memory into notes and warnings."""
    return [
        *_unsteady(evidence),
        *_random(evidence),
        *_state(evidence),
        *written_to(evidence),
        *raised(evidence),
        *_second_opinion(evidence),
        *_precision(evidence),
        *kinks(evidence),
        *_not_finite(evidence),
    ]


def _undecided(evidence: Evidence) -> bool:
    return any(
        (part.verdicts == Verdict.UNDECIDED.value).any() for part in evidence.parts
    )


def _unsteady(evidence: Evidence) -> Iterator[Finding]:
    apart = evidence.met.unsteady
    if apart:
        yield Finding(
            BugKind.NONDETERMINISTIC,
            "warning",
            "",
            0.95,
            f"Evaluated again at the same point, the function differs by up to "
            f"{apart:.2g}, from a source that could not be frozen: differences of its "
            f"values say nothing about slopes.",
            "Seed what draws inside the function (np.random.default_rng(0)), pass the "
            "draw as an input, take clocks out of it, or a cache that gives values of "
            "another point.",
        )


def _random(evidence: Evidence) -> Iterator[Finding]:
    sources = evidence.conditions.random
    if not sources:
        return
    noisy = any((part.kinds == Smoothness.NOISY.value).any() for part in evidence.parts)
    loud = noisy and _undecided(evidence)
    yield Finding(
        BugKind.NONDETERMINISTIC,
        "warning" if loud else "note",
        "",
        0.9,
        f"The function draws random numbers from {', '.join(sources)}; every "
        f"evaluation was given the same draw.",
        "Pass the random numbers as an input, or seed inside the function."
        if loud
        else "Nothing to do: the draw was frozen for the check.",
    )


def _state(evidence: Evidence) -> Iterator[Finding]:
    places = evidence.conditions.state
    if places:
        yield Finding(
            BugKind.STATEFUL,
            "note",
            "",
            0.9,
            f"Two calls with the same inputs give different values; the function "
            f"changes {', '.join(places)}, which was put back before every evaluation.",
            "Reset that state where training calls the function, or keep it out.",
        )


def _second_opinion(evidence: Evidence) -> Iterator[Finding]:
    misled = evidence.met.overruled
    if misled:
        yield Finding(
            BugKind.STEP_SIZE,
            "warning",
            "",
            0.9,
            f"With {' and '.join(misled)} differences at the step asked for, entries "
            f"disagree that agree when the step is chosen for each of them.",
            'Leave the step to gradlab (method="auto"), or look at gl.sweep for the '
            "range of steps that works.",
        )


def _bent(evidence: Evidence) -> set[str]:
    """Name the inputs of which nothing but kinks is open: bars cover both slopes."""
    found = set()
    for part in evidence.parts:
        open_ = part.verdicts == Verdict.UNDECIDED
        if open_.any() and (part.kinds[open_] == Smoothness.KINK).all():
            found.add(evidence.subject.inputs[part.which].name)
    return found


def _precision(evidence: Evidence) -> Iterator[Finding]:
    epsilon = evidence.subject.epsilon
    if epsilon > DOUBLE:
        told, advice = _in_short_arithmetic(evidence)
        yield Finding(
            BugKind.LOW_PRECISION,
            "warning"
            if evidence.reference is None and _undecided(evidence)
            else "note",
            "",
            0.9,
            f"The function computes with a round-off of {epsilon:.2g}; {told}"
            f"{measured(evidence.comparisons, _bent(evidence))}.{_coarser(evidence)}",
            advice,
        )
        return
    # bars of steps that the user asked for are truncation, as often as not
    asked = {*evidence.met.own_steps, *evidence.readings}
    if evidence.met.jump is not None or evidence.met.early:
        yield _stops_early(evidence)
        return
    names = [variable.name for variable in evidence.subject.inputs]
    parts = [part for part in evidence.parts if names[part.which] not in asked]
    rough = evidence.met.rough
    half = "half" if rough else "single"
    heard = {*rough, *evidence.met.rounded}
    if evidence.met.crowd is not None:  # kinks, and nothing that rounds, make bars wide
        parts = [part for part in parts if names[part.which] in heard]
    noisy = [
        part
        for part in parts
        if names[part.which] in heard
        or (_hidden_noise(evidence, part) and not bends(evidence, part))
    ]
    if noisy:
        told = ", ".join(names[part.which] for part in noisy)
        yield Finding(
            BugKind.LOW_PRECISION,
            "warning" if _undecided(evidence) else "note",
            "",
            0.8,
            f"Inputs and outputs are float64, but differences with respect to {told} "
            f"are as noisy as {half} precision: something inside rounds.",
            f"Look for a cast to {half} precision inside the function, a difference "
            f"of numbers that are nearly equal (log(1 - p) of a p next to 1), numbers "
            f"that are stored or printed with few digits, or a solver that stops "
            f"early.",
        )


def _in_short_arithmetic(evidence: Evidence) -> tuple[str, str]:
    """Say what a function of few digits was compared with, and what to do about it."""
    if evidence.reference is not None:
        told = "values were compared with the same function in float64"
        return told, NOTHING_TO_DO
    names = {variable.name for variable in evidence.subject.inputs}
    if names <= set(evidence.met.own_steps):
        told = (
            "its differences, which a method that is named takes of the function as it "
            "is, carry the round-off of that arithmetic"
        )
        return told, _LEFT_TO_AUTO
    told = (
        "its differences carry the round-off of that arithmetic; in float64 it does "
        "not run, or gives other values"
    )
    return told, in_float64(evidence.subject)


def _coarser(evidence: Evidence) -> str:
    """Say of float32 that something inside has fewer digits still, if it has."""
    if evidence.reference is not None or not evidence.met.rough:
        return ""
    return (
        " Something inside has fewer digits still, as products in TensorFloat-32 "
        "or half precision have."
    )


def _stops_early(evidence: Evidence) -> Finding:
    jump, farther = evidence.met.jump, "but runs other lines farther on"
    if jump is not None:
        farther = f"but jumps by {jump.height:.2g} where {jump.entry} moves by "
        farther += f"{jump.away:.2g}"
    return Finding(
        BugKind.LOW_PRECISION,
        "warning" if _undecided(evidence) else "note",
        "",
        0.85,
        f"The function is smooth at the point, {farther}, as a solver or an integrator "
        f"does that takes one step more: its own slope between two jumps may be off by "
        f"as much as that.",
        "For a sharper answer give the solver a smaller tolerance (tol, rtol, xtol) "
        "while you check.",
    )


def _hidden_noise(evidence: Evidence, part: Part) -> bool:
    """Whether the error bars are those of single precision throughout.

    And wider than the round-off of f itself makes them, or of one, where that is large
    beside all that an input does to it.
    """
    noisy = part.kinds == Smoothness.NOISY.value
    if part.pattern is not None and _mostly_narrow(part.pattern):
        return False
    if not noisy.any() and _clearly_narrow(part):
        return False
    torn = (part.kinds == Smoothness.KINK.value) | (part.kinds == Smoothness.JUMP.value)
    # the zeros beside a diagonal are quiet, whatever rounds on it
    whole = np.isfinite(part.error) & ~torn & (part.numeric != 0)
    bars = part.error[whole]
    size = _largest(part.numeric)
    if size == 0 or not bars.size or _is_all_bar(part, size, float(bars.max())):
        return False
    scales = scales_of(evidence.subject, part.which)
    height = np.fmax(np.abs(evidence.base), 1.0)[:, None]
    if noisy.mean() > 0.5:
        moved = np.where(torn, np.nan, part.error * scales[part.positions])
        with np.errstate(all="ignore"):
            return bool(np.nanmedian(moved / height) > _LAST * DOUBLE)
    if not np.mean(bars > _SINGLE * size) > 0.5:  # the median, without sorting
        return False
    steps = step_sizes(scales, DOUBLE, 2)
    own = _ROUNDINGS * DOUBLE * height / steps[part.positions]
    wide = whole & (part.error > np.fmax(_SINGLE * size, own))
    return bool(2 * np.count_nonzero(wide) > bars.size)


def _largest(values: NDArray[np.float64]) -> float:
    """Return the largest finite size; 0 if there is none."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _is_all_bar(part: Part, size: float, bar: float) -> bool:
    """Whether nothing stands out of the bars, which tell nothing of precision then.

    As of a derivative that is zero on both sides: that of a bias before a BatchNorm.
    """
    claimed = _largest(part.analytic)
    return max(size, claimed) <= bar or (claimed == 0 and not part.is_wrong)


def _clearly_narrow(part: Part) -> bool:
    """Whether half of all bars are narrow, at a glance: no mask is made for that."""
    numeric = part.numeric
    size = max(float(numeric.max(initial=0.0)), -float(numeric.min(initial=0.0)))
    if not 0 < size < np.inf:
        return False
    wide = ~(part.error <= _SINGLE * size)  # with those that are not finite: at most
    return bool(2 * np.count_nonzero(wide) < np.count_nonzero(numeric))


def _mostly_narrow(pattern: Pattern) -> bool:
    """Whether more than half of all entries have narrow bars, as the zeros have."""
    valid = pattern.support.valid
    size = float(np.abs(pattern.value[valid]).max(initial=0.0))
    if not 0 < size < np.inf or pattern.worst_zero > _SINGLE * size:
        return False
    wide = np.count_nonzero(~(pattern.error <= _SINGLE * size) & valid)
    rows, columns = pattern.shape
    return bool(2 * wide < rows * columns)


def _kinds_of(evidence: Evidence, part: Part) -> str:
    """Count what is not a number and what is infinite, each with its first place."""
    nan, infinite = np.isnan(part.analytic), np.isinf(part.analytic)
    told: list[str] = []
    for word, where in (("nan", nan), ("infinite", infinite & ~nan)):
        if where.any():
            of = "" if told else f" of {where.size:,} entries"
            first = label_of(evidence, part, int(np.argwhere(where)[0][1]))
            told.append(f"{word} in {int(where.sum()):,}{of}, first at {first}")
    return "; and ".join(told)


def _why_not_finite(evidence: Evidence) -> str:
    """Say where to look for what makes the function itself nan or infinite."""
    subject = evidence.subject
    for which, variable in enumerate(subject.inputs):
        if not np.isfinite(subject.point(which)).all():
            return f"{variable.name} is not finite itself: check at another point."
    if told := where_nan(subject) if np.isnan(evidence.base).any() else "":
        return f"{told}: clean that first, nothing behind it can be compared."
    return "Find the overflow, division by zero or log of zero in the forward pass."


def _not_finite(evidence: Evidence) -> Iterator[Finding]:
    known = np.isfinite(evidence.base)
    told = {problem.where for problem in evidence.problems}
    found: list[Finding] = []
    follow: list[str] = []
    for part in evidence.parts:
        name = evidence.subject.inputs[part.which].name
        if part.pattern is not None:  # every entry agrees: all are numbers
            continue
        bad = ~np.isfinite(part.analytic)
        if not bad.any() or name in told:
            continue
        wrong = bool((bad & part.wrong).any())
        if not wrong and not bad[known].any():
            follow.append(name)
            continue
        found.append(
            Finding(
                BugKind.NONFINITE,
                "error" if wrong else "warning",
                name,
                0.97,
                f"The analytic gradient is {_kinds_of(evidence, part)}.",
                "Look for 0/0, 0*inf or log and sqrt at zero in the backward; where() "
                "hides such values in the forward pass only.",
            )
        )
    if not known.all():
        count, every = int((~known).sum()), known.size
        yield Finding(
            BugKind.NONFINITE,
            "warning",
            "",
            0.9,
            (
                "The value of the function is not a finite number at the point"
                if every == 1
                else f"The function itself is not finite at the point in {count:,} of "
                f"{every:,} outputs"
            )
            + _followed(follow),
            _why_not_finite(evidence),
        )
    yield from found


def _followed(names: list[str]) -> str:
    """Name, in half a sentence, inputs whose gradient is no number for that reason."""
    if not names:
        return "."
    some = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    of = "" if len(names) == 1 else f"{len(names):,} inputs: "
    return f", and so neither is its gradient ({of}{some})."
