"""Conditions around a comparison that the matrices themselves do not show.

Each is measured beside the comparison and said in a sentence: layers left in training
mode, a backward that depends on how a gradient lies in memory, outputs that move and
have no gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import NOTHING_TO_DO, BugKind, Finding
from gradlab.diagnosis.late_hooks import late_hooks
from gradlab.differentiation.evaluation import line_of, line_rows
from gradlab.differentiation.metering.meter import BudgetExhausted
from gradlab.differentiation.noise.analytic_noise import (
    MOST_ROWS,
    SCATTER,
    analytic_noise,
    value_noise,
)
from gradlab.errors import GradlabError
from gradlab.labels import few_of
from gradlab.pipeline.around.asking_again import asked_again
from gradlab.pipeline.around.frozen_inputs import asked_for_alone
from gradlab.subject.subject import is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from numpy.typing import NDArray

    from gradlab.comparison.comparison import Comparison
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.differentiation.origin import Origin
    from gradlab.localisation.layers.modes import Modal
    from gradlab.pipeline.blocks import Block
    from gradlab.subject.subject import Subject
    from gradlab.subject.tensors.gradients.cotangents import Trial

__all__ = ["excuse_cancellation", "noticed"]

_NAMED = 3  # layers named in one sentence, or inputs that are moved for a look
_A_TENTH, _ROUNDED = 0.1, 1e-9  # of the size of an input; of f: more is no rounding
_DIGITS = 100  # round-offs of f, by which terms that take each other away leave it off

# Where f is stationary it fades with the square of the way; stairs and dead units jump.
_HALVED, _FADES = (0.5, 0.25, 0.125, 0.0625), 0.3

_SENT = {
    "strided": "the same numbers in a tensor that is not contiguous",
    "expanded": "a gradient of ones expanded from one number, as .sum() sends it",
    "alone": "nothing (None) for the other outputs, for which the loss has no use",
}
_ADVICE = {
    "strided": "Index the incoming gradient, or call .contiguous() first; use "
    ".reshape() instead of .view().",
    "expanded": "Treat the incoming gradient as read-only and index it, or call "
    ".contiguous() first; use .reshape() instead of .view().",
    "alone": "Handle None for each incoming gradient, or leave "
    "set_materialize_grads(False) out.",
}


def noticed(
    own: Origin,
    comparisons: tuple[Comparison, ...],
    meter: Meter,
    seed: int,
    moving: Collection[int] = (),
) -> Iterator[Finding]:
    """Look for conditions around a comparison, those first that cost nothing.

    Whoever stops it has what was found until then.

    Parameters
    ----------
    own
        What was compared; of anything but a torch subject the gradient is asked again.
    comparisons
        What is wrong already is not accused twice.
    meter
        Charged for every evaluation; no gradient is asked for beyond its seconds.
    seed
        Of the displacements and cotangents that are tried.
    moving
        Inputs of which some slope is known not to be zero, without a matrix.

    Raises
    ------
    BudgetExhausted
        If the budget ends before all was looked for.
    """
    subject = own.subject
    if not is_torch_subject(subject):
        yield from asked_again(subject, comparisons)
        yield from _flat(own, comparisons, meter, seed, moving)
        return
    from gradlab.subject.tensors.gradients.cotangents import (
        cotangent_trials,
        moves_unseen,
    )

    module = getattr(subject.program, "module", None)
    if module is not None:
        from gradlab.localisation.layers.modes import modal_layers
        from gradlab.subject.tensors.parameter_aliases import held_twice

        yield from _modes(module, modal_layers(module))
        yield from _padded(module)
        yield from late_hooks(module)
        yield from (_held_twice(*pair) for pair in held_twice(subject).items())
    yield from map(_unfollowed, subject.unfollowed)
    if subject.kept is not None:
        meter.in_time()
        yield from (_unseen(name, by) for name, by in moves_unseen(subject).items())
    yield from _flat(own, comparisons, meter, seed, moving)
    analytic = subject.analytic
    if analytic is not None and analytic.own_code and not analytic.stateful:
        wrong = any(c.verdict == Verdict.DISAGREES for c in comparisons)
        if not wrong:
            trials = cotangent_trials(subject, seed, meter.in_time)
            yield from _trials(trials, subject)
            yield from asked_for_alone(subject, own.base, meter)


def excuse_cancellation(
    subject: Subject, blocks: list[Block], meter: Meter, seed: int
) -> None:
    """Take back accusations of what is round-off of either side, measured.

    The gradient of a bias in front of a batch normalisation is zero by cancellation,
    and so are its derivatives: what comes out is the round-off of larger numbers.

    Five evaluations and as many gradients, also where no budget is left for them: its
    end must not leave an accusation unheard.

    Parameters
    ----------
    subject
        What was compared.
    blocks
        With their verdicts, which are changed.
    meter
        Charged for the evaluations.
    seed
        Of the roundings that are tried.
    """
    wrong = [block for block in blocks if block.accused]
    if not wrong or not is_torch_subject(subject) or len(wrong[0].analytic) > MOST_ROWS:
        return
    noise = analytic_noise(subject, np.eye(len(wrong[0].analytic)), seed=seed)
    still = SCATTER * value_noise(subject, meter, seed=seed)[:, None]
    for block in wrong:
        with np.errstate(invalid="ignore"):
            off = np.abs(block.analytic - block.value)
            rounding = off <= SCATTER * noise[block.which][:, block.positions]
            rounding |= off * block.step <= still
        block.leave_open(block.wrong & rounding)


def _modes(module: Any, layers: tuple[Modal, ...]) -> Iterator[Finding]:
    for random in (False, True):
        some = [layer for layer in layers if layer.random is random]
        if not some or (random and module.training):
            continue  # that numbers were drawn is told where they are frozen
        names = few_of([f"`{layer.name}` ({layer.type})" for layer in some], _NAMED)
        are = "is" if len(some) == 1 else "are"
        does = (
            "what is compared depends on the numbers drawn"
            if random
            else "normalised with the statistics of this batch, and running statistics "
            "move at every call (they were put back)"
        )
        left = "" if module.training else ", although the module is in eval mode"
        yield Finding(
            BugKind.NONDETERMINISTIC if random else BugKind.STATEFUL,
            "note" if module.training else "warning",
            some[0].name,
            0.85,
            f"{names} {are} in training mode{left}: {does}.",
            "Call eval() on the whole module if inference is meant."
            if not module.training
            else "The gradient of training mode was checked; call eval() first to "
            "check that of inference.",
        )


def _padded(module: Any) -> Iterator[Finding]:
    from gradlab.subject.tensors.gradients.deliberate import padded_row

    for name, layer in module.named_modules():
        row = padded_row(layer)
        if row is not None:
            yield Finding(
                BugKind.SURROGATE,
                "note",
                f"{name}.weight".lstrip("."),
                0.9,
                f"Row {row} of this embedding is its padding_idx and never learns: it "
                f"was taken for a constant.",
                NOTHING_TO_DO,
            )


def _unseen(name: str, change: float) -> Finding:
    return Finding(
        BugKind.DETACHED,
        "warning",
        name,
        0.8,
        f"The output {name} moves with the inputs (by {change:.2g} of its size when "
        f"they move by a thousandth) but has no gradient: it was left out.",
        "Look for detach(), .data, no_grad or a trip through NumPy; if it is meant as "
        "a number to look at, nothing is to be done.",
    )


def _flat(
    own: Origin,
    comparisons: tuple[Comparison, ...],
    meter: Meter,
    seed: int,
    moving: Collection[int],
) -> Iterator[Finding]:
    """Tell inputs that f moves with, although every slope at the point is zero.

    Not those of which the point is stationary, as zero is of a sum of squares, nor of
    which it is a kink, as of a norm.
    """
    subject, base = own.subject, own.base
    rows: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        rows.setdefault(comparison.input.name, []).append(comparison)
    flat = [
        which
        for which, variable in enumerate(subject.inputs)
        if variable.coordinates
        and which not in moving
        and _flat_all_over(rows.get(variable.name, []))
    ][:_NAMED]
    if not flat or not rows:
        return
    rng = np.random.default_rng([seed, 17])
    for which in flat:
        point = subject.point(which)
        size = np.abs(point).max() or 1.0
        moves = _A_TENTH * size * rng.uniform(-1, 1, point.size)
        line = line_of(subject, [(which, np.arange(point.size), moves)])
        try:
            moved = line_rows(subject, line, (1.0,), meter)
            bars = map(_bar, rows.get(subject.inputs[which].name, []))
            # a slope within its bar, as between both sides of a kink, is none of zero
            slope = max(bars, default=0.0)
            rounded = max(_ROUNDED, _DIGITS * subject.epsilon) * np.abs(base)
            least = np.fmax(rounded, slope * np.abs(moves).sum())
            told = _apart(moved, base)[0] > least
            if not told.any():
                continue
            nearer = line_rows(subject, line, _HALVED, meter)
        except BudgetExhausted:
            raise
        except GradlabError:  # f is another function there
            continue
        apart = _apart(np.concatenate([moved, nearer]), base)
        faded = (apart[1:] <= _FADES * apart[:-1]) & (apart[1:] > 0)
        if (told & ~faded.all(axis=0)).any():
            yield _flat_here(subject.inputs[which].name)


def _flat_all_over(comparisons: list[Comparison]) -> bool:
    """Whether an input was looked at, all of it, and every slope by it is zero."""
    whole = all(c.columns is None or c.tally is not None for c in comparisons)
    return bool(comparisons) and whole and all(map(_is_flat, comparisons))


def _is_flat(comparison: Comparison) -> bool:
    """Whether both sides are zero; of directions, as far as differences can tell."""
    numeric = comparison.numeric
    if comparison.coverage == "probe":
        numeric = np.abs(numeric) > comparison.numeric_error
    none = not (comparison.analytic.any() or numeric.any())
    return comparison.verdict == Verdict.AGREES and none


def _bar(comparison: Comparison) -> float:
    """Largest slope that an entry may have; of directions, by the one that knows best.

    Another may have met noise, or a step of stairs.
    """
    bars = comparison.numeric_error
    if comparison.coverage == "probe":
        return float(bars.min(initial=np.inf))
    return float(bars.max(initial=0.0))


def _apart(rows: NDArray[np.float64], base: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far f is from its value at the point; 0 where that is not known."""
    with np.errstate(all="ignore"):
        apart = np.abs(rows - base)
    return np.where(np.isfinite(apart), apart, 0.0)


def _flat_here(name: str) -> Finding:
    return Finding(
        BugKind.NONDIFFERENTIABLE,
        "warning",
        name,
        0.8,
        f"Every slope of f by {name} is zero here, on both sides, although f moves "
        f"when {name} moves by a tenth of its size: dead units, rounding, a "
        f"comparison, an index or a cast to few digits. A gradient that is cut besides "
        f"cannot be told from that.",
        "Check at another point, or without the cast if there is one; if f is meant to "
        "be flat here, nothing is to be done.",
    )


def _held_twice(name: str, where: str) -> Finding:
    return Finding(
        BugKind.ALIASING,
        "warning",
        name,
        0.8,
        f"The module also holds the memory of {name} as `{where}`, without a gradient: "
        f"what forward reads of that moves when {name} is trained, and is on neither "
        f"side of the comparison.",
        f"Read {name} itself, or keep a copy: clone() after detach().",
    )


def _unfollowed(name: str) -> Finding:
    return Finding(
        BugKind.DEPENDENT_INPUTS,
        "warning",
        name,
        0.9,
        f"The function also reads {name} through something made of it before the call, "
        "such as a cache (parametrize.cached) or a tensor kept from another call: that "
        "part of its gradient is on neither side of the comparison.",
        "Compute it from the parameter inside forward, or leave the cache.",
    )


def _trials(trials: Iterable[Trial], subject: Subject) -> Iterator[Finding]:
    told: set[str] = set()
    for trial in trials:
        if trial.way in told:
            continue
        told.add(trial.way)
        where = trial.where or subject.inputs[0].name
        if trial.raised:
            evidence = f"The backward raises when {trial.output} gets {{}}: "
            evidence += f"{trial.detail}."
        else:
            evidence = (
                f"The gradient of {trial.where} changes when {trial.output} gets {{}} "
                f"({trial.detail})."
            )
        if trial.way == "alone":
            kind = BugKind.UNKNOWN if trial.raised else BugKind.MISSING_TERM
        else:
            kind = BugKind.ALIASING
        yield Finding(
            kind,
            "error",
            where,
            0.9,
            evidence.format(_SENT[trial.way]),
            _ADVICE[trial.way],
        )
