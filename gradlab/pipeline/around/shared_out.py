"""Gradients of functions of symmetric matrices, shared out between mirror images.

`cholesky`, `eigh` and the density of a covariance read one triangle of their matrix and
take the other for its mirror image. Moved by itself an entry of the one triangle counts
twice, and one of the other not at all. Their gradients give half to each: that is right
for every symmetric change of the matrix, and no other is ever made.

So where the gradient is symmetric itself and f does not look at one of the triangles,
the numeric side is shared out as well, and compared with it. A lost transpose is not
symmetric, and a wrong factor is wrong by the same factor then. Operations of torch lose
no transpose: some share unevenly, and only sums of two mirror images count.

References
----------
J. R. Magnus and H. Neudecker, *Matrix Differential Calculus* (1988), chapter 3, on the
duplication matrix: derivatives by a symmetric matrix are those by one triangle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.tolerance import SAFETY
from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import NOTHING_TO_DO, BugKind, Finding
from gradlab.subject.mirrors import mirror_of
from gradlab.subject.subject import has_own_code

if TYPE_CHECKING:
    from gradlab.pipeline.blocks import Block
    from gradlab.pipeline.outcome import Judged
    from gradlab.subject.subject import Subject, Variable

__all__ = ["accept_shared_out"]


def accept_shared_out(judged: Judged) -> list[Finding]:
    """Compare accused entries of symmetric matrices together with their mirror images.

    Numeric values of the blocks are changed as well.
    """
    return [
        _told(judged.subject.inputs[block.which])
        for block in judged.wrong
        if _is_shared_out(judged.subject, block)
    ]


def _is_shared_out(subject: Subject, block: Block) -> bool:
    """Whether a gradient is; then the numeric side is as well, and judged again."""
    mirror = mirror_of(subject, block.which)
    if mirror is None:
        return False
    column = np.full(len(mirror.place), -1)
    column[block.positions] = np.arange(len(block.positions))
    other = column[mirror.place[block.positions]]
    wrong = block.wrong
    wrong |= wrong[:, other] & (other >= 0)
    sign = mirror.sign[block.positions]
    # an imaginary part on the diagonal is its own opposite, and nothing
    paired = (other >= 0) & ((other != np.arange(len(other))) | (sign < 0))
    pairs = np.flatnonzero(wrong.any(axis=0) & paired)
    wrong, other, sign = wrong[:, pairs], other[pairs], sign[pairs]
    with np.errstate(all="ignore"):
        formula, image = block.formula[:, pairs], sign * block.formula[:, other]
        value, beyond = block.value[:, pairs], sign * block.value[:, other]
        error = block.error[:, pairs] + block.error[:, other]
        slack = np.fmax(
            block.allowed[:, pairs] + block.allowed[:, other], SAFETY * error
        )
        alike = np.abs(formula - image) <= slack
        met = np.abs(formula + image - value - beyond) <= slack
        still = np.abs(block.value) <= np.fmax(block.allowed, SAFETY * block.error)
    below = mirror.below[block.positions[pairs]]
    lower = np.where(below, still[:, pairs], still[:, other])
    upper = np.where(below, still[:, other], still[:, pairs])
    one_triangle = lower[wrong].all() != upper[wrong].all()  # or neither is read
    even = alike[wrong].all() or not has_own_code(subject)
    if not (wrong.any() and even and one_triangle):
        return False
    block.unfold()
    block.overwrite(pairs, wrong, value=(value + beyond) / 2, error=error / 2)
    judged = np.where(met, Verdict.AGREES, Verdict.DISAGREES)
    open_ = block.verdicts == Verdict.UNDECIDED
    judged[open_[:, pairs] | open_[:, other]] = Verdict.UNDECIDED
    block.overwrite(pairs, wrong, verdicts=judged)
    block.overwrite(pairs, wrong & met & ~alike, accepted=True)
    return True


def _told(variable: Variable) -> Finding:
    name, kind = variable.name, "Hermitian" if variable.is_complex else "symmetric"
    return Finding(
        BugKind.DEPENDENT_INPUTS,
        "note",
        name,
        0.95,
        f"{name} is a {kind} matrix of which the function reads one triangle, and "
        f"the gradient shares each derivative out between an entry and its mirror "
        f"image, half and half. So was the numeric side: what is compared are changes "
        f"of {name} that keep it {kind}.",
        NOTHING_TO_DO,
    )
