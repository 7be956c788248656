"""Detectors of couplings: along which axes outputs and inputs talk to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.measures import EXACT, Case, Clue, reaches
from gradlab.diagnosis.measuring.sums import steady_sums, vanishing_sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.subject.subject import Variable

__all__ = ["coupled_axes", "identity_path", "invariant_sums", "swapped_output"]

_LARGE = 1_000_000  # entries of a Jacobian beyond which couplings are not looked at


def coupled_axes(case: Case) -> list[Clue]:
    """Detect couplings along an axis that the other side does not have.

    A softmax over rows couples the entries of a row and keeps rows apart. A backward
    that sums over columns keeps columns apart and couples rows.
    """
    if case.scalar or case.analytic.size > _LARGE or case.variable.is_complex:
        return []
    if not case.variable.shape or case.variable.support is not None:
        return []
    clues: list[Clue] = []
    for output, part in case.parts_of_output:
        if not case.wrong[part].any():
            continue
        ours, true = (
            _across(~zero[part], output, case)
            for zero in (case.analytic_zero, case.numeric_zero)
        )
        new, gone = sorted(ours - true), sorted(true - ours)
        if new:
            clues.append(_wrong_axis(case, output, new[0], lost=bool(gone)))
        elif gone:
            clues.append(_no_coupling(case, output, part, gone[0]))
    return clues[:1]


def _across(
    mask: NDArray[np.bool_], output: Variable, case: Case
) -> set[tuple[int, int]]:
    """Pairs (axis of output, axis of input) of equal length that are crossed."""
    rows, columns = np.nonzero(mask)
    variable = case.variable
    if not output.shape:
        return set()
    left = np.unravel_index(rows, output.shape)
    # not all columns are there: entries of -inf, as masks have them, are not moved
    right = np.unravel_index(case.part.positions[columns], variable.shape)
    return {
        (p, q)
        for p, length in enumerate(output.shape)
        for q, other in enumerate(variable.shape)
        if length == other and length > 1 and _plausible(p, q, output, variable)
        if (left[p] != right[q]).any()
    }


def _plausible(p: int, q: int, output: Variable, variable: Variable) -> bool:
    """Match positions from the front or from the back: x[i, j] with out[i, j]."""
    return p == q or len(output.shape) - p == len(variable.shape) - q


def _wrong_axis(
    case: Case, output: Variable, pair: tuple[int, int], *, lost: bool
) -> Clue:
    return Clue(
        BugKind.WRONG_AXIS,
        0.955 if lost else 0.93,  # where they are exchanged, no other order is surer
        f"The analytic gradient mixes different indices along axis {pair[1]} of "
        f"{case.name} and axis {pair[0]} of {output.name}; the function keeps them "
        f"apart.",
        f"Check the axis of every sum, mean and softmax in the backward of "
        f"{case.name}.",
    )


def _no_coupling(
    case: Case, output: Variable, part: slice, pair: tuple[int, int]
) -> Clue:
    several = len(case.evidence.subject.inputs) > 1
    return Clue(
        BugKind.MISSING_TERM,
        0.945,
        f"The function mixes different indices along axis {pair[1]} of {case.name} and "
        f"axis {pair[0]} of {output.name}; the analytic gradient keeps them apart.",
        f"Add the term that carries the gradient of {case.name} across that axis: the "
        f"sum in a softmax, the mean in a normalisation, the step back in time.",
        # of a product a transpose may have done it, and spoils what is not mixed too
        (BugKind.TRANSPOSE,)
        if several and _same_place(case, output, part, pair)
        else (),
    )


def _same_place(
    case: Case, output: Variable, part: slice, pair: tuple[int, int]
) -> bool:
    """Whether entries at one index along both axes, where nothing mixes, are wrong."""
    rows, columns = np.nonzero(case.wrong[part])
    left = np.unravel_index(rows, output.shape)
    right = np.unravel_index(case.part.positions[columns], case.variable.shape)
    return bool((left[pair[0]] == right[pair[1]]).any())


def identity_path(case: Case) -> list[Clue]:
    """Detect a direct path that is forgotten or counted twice: a diagonal error.

    That of a skip connection, error = c * 1, or of a gate. What stands on the diagonal
    alone does not go through what mixes entries.
    """
    error = case.error
    if case.scalar or error.shape[0] != error.shape[1] or len(error) < 3:
        return []
    off = ~np.eye(len(error), dtype=bool)
    slopes = np.diag(case.analytic - case.numeric)
    c = float(slopes.mean())
    if abs(c) < 1e-9 or case.numeric_zero[off].all() or error[off].any():
        return []  # an elementwise function has no path beside another
    if case.share(case.numeric + c * np.eye(len(error))) < EXACT:
        return _direct_path(case, slopes, off)
    return [
        Clue(
            BugKind.MISSING_TERM if c < 0 else BugKind.EXTRA_TERM,
            0.96,
            f"analytic - numeric = {c:.5g} x identity: the direct path from "
            f"{case.name} to the output is {'missing' if c < 0 else 'counted twice'}.",
            "Add the incoming gradient itself for a skip connection, once.",
        )
    ]


def _direct_path(
    case: Case, slopes: NDArray[np.float64], off: NDArray[np.bool_]
) -> list[Clue]:
    """Say that a path which mixes no entries, as of a gate, is missing or another."""
    wrong = np.diag(case.wrong)
    coupled = reaches(np.where(off, ~case.numeric_zero, False), 1)
    if int(wrong.sum()) < 3 or not coupled[wrong].all():
        return []
    gone = bool((slopes <= 0).all())
    kinds = BugKind.MISSING_TERM, BugKind.WRONG_DERIVATIVE
    return [
        Clue(
            kinds[0] if gone else kinds[1],
            0.75,
            f"analytic - numeric is not zero on the diagonal alone: the direct path "
            f"from {case.name} to the output, which mixes no entries, "
            f"{'is missing or' if gone else ''} has another slope.",
            f"Add the incoming gradient of {case.name} times the slope of that path, "
            f"once: the gate of a gated sum, the gain of a normalisation.",
            kinds[1:] if gone else (*kinds[:1], BugKind.EXTRA_TERM),
        )
    ]


def swapped_output(case: Case) -> list[Clue]:
    """Detect a backward that reads the incoming gradient with its axes swapped."""
    for output, part in case.parts_of_output:
        if len(output.shape) != 2 or output.shape[0] != output.shape[1]:
            continue
        n = case.numeric[part].reshape(*output.shape, -1)
        model = case.numeric.copy()
        model[part] = n.transpose(1, 0, 2).reshape(output.size, -1)
        share = case.share(model)
        if share > EXACT:
            values = n[np.abs(n) > 1e-9 * np.abs(n).max(initial=0.0)]
            equal = np.ptp(values) < 1e-6 * np.abs(values).max(initial=0.0)
            flat = len(case.variable.shape) < 2 and bool(equal)  # a plain sum
            return [
                Clue(
                    BugKind.WRONG_AXIS if flat else BugKind.TRANSPOSE,
                    0.97 * share,
                    f"The analytic side treats the incoming gradient of {output.name} "
                    f"as if its two axes were swapped.",
                    f"Sum over the other axis of the incoming gradient for {case.name}."
                    if flat
                    else f"Drop or add the transpose of the incoming gradient in the "
                    f"backward of {case.name}.",
                )
            ]
    return []


def invariant_sums(case: Case) -> list[Clue]:
    """Detect sums that stand still along one axis on one side, another on the other.

    The gradient of softmax sums to zero along the axis of the softmax, that of a
    normalisation along the axis of its mean, and that of logsumexp to one.
    """
    n, a = case.grid(case.numeric), case.grid(case.analytic)
    if n is None or a is None or n.ndim < 3 or case.variable.is_complex:
        return []
    for words, sums in (("zero", vanishing_sums), ("one number", steady_sums)):
        true, ours = sums(n), sums(a)
        if not true or not ours - true or true & ours:
            continue
        return [
            Clue(
                BugKind.WRONG_AXIS,
                0.93,
                f"The numeric gradient of {case.name} sums to {words} along axis "
                f"{min(true)}, the analytic one along axis {min(ours)}.",
                f"Check the axis of the sums, means and softmax in the backward of "
                f"{case.name}.",
            )
        ]
    return []
