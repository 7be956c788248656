"""How large the terms are that cancel in a gradient: as large as it is elsewhere.

``sigmoid(x) - 1`` at 40 is nothing, and a half where x is 0: what it is made of are
numbers about as large. Multiplied by weights, and added up over examples, its last
digits are multiples of nothing any more. But on the way from the point to the middle of
everything the gradient grows to the size of its terms, and there it is right, or it is
not: a mistake does not stay below the last digit of what it spoils.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np

from gradlab.differentiation.analytic.gradients_elsewhere import gradients_at
from gradlab.differentiation.evaluation import line_rows
from gradlab.differentiation.sizes.scales import scales_of
from gradlab.subject.subject import (
    holds_numbers,
    is_torch_subject,
    output_rows,
    unit_vectors,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.blocks import Block
    from gradlab.subject.subject import Subject

__all__ = ["Elsewhere", "excuse_cancelled_terms"]

_WAY = tuple(-1.6 * np.arange(1, 13) / 12)  # places on the line, of its length
_STEP = 1e-4  # of the line, for a difference along it
_RIGHT = 1e-5  # of all that moves f along it: a gradient no farther off is right
_WHOLE = 1e-4  # of the most that does: where it is less, terms may cancel
_ROUNDINGS = 8.0  # of f, that a difference may be off by
_SEVERAL, _MOST = 3, 0.75  # places, and their share, at which it has to be right
_ROWS = 64  # outputs that are asked about
# Rounding units of the largest gradient elsewhere, which smaller weights are in: of
# right networks whose logits are a hundred apart the worst entry was off by 90.
_LAST = 512.0
# Rounding units of one, or of the largest effect, that may be last digits; in single
# precision a part of it, or a tenth of a gradient would be.
_FAINT, _PART = 2.0**20, 1e-3


@dataclasses.dataclass(eq=False)
class Elsewhere:
    """Gradients of a subject on a line that leads past zero in all coordinates.

    Parameters
    ----------
    subject
        Back at its point after every question.
    meter
        Charged for four evaluations at each of twelve places, once, and for gradients
        of NumPy functions.
    """

    subject: Subject
    meter: Meter
    _known: dict[int, list[NDArray[np.float64]] | None] = dataclasses.field(
        default_factory=dict
    )

    def last_digits(self, row: int, which: int) -> NDArray[np.float64] | None:
        """Say what the last digits of its terms leave of one output's gradient.

        Parameters
        ----------
        row, which
            The output, and the input.

        Returns
        -------
        ndarray or None
            In rounding units, (coordinates,); None where the gradient is not right
            elsewhere either, or nobody can tell.
        """
        if row not in self._known:
            try:
                self._known[row] = self._sizes(row)
            except Exception:  # noqa: BLE001 - the user's code may not take these points
                self._known[row] = None
        sizes = self._known[row]
        return None if sizes is None else _LAST * sizes[which]

    def allowed(
        self, asked: NDArray[np.bool_], block: Block, epsilon: float
    ) -> NDArray[np.float64]:
        """Say the same of the entries of a block that are asked about; else 0.

        `epsilon` is the rounding unit of the arithmetic that loses them.
        """
        found = np.zeros(asked.shape)
        for row in np.flatnonzero(asked.any(axis=1))[:_ROWS].tolist():
            digits = self.last_digits(row, block.which)
            if digits is not None:
                units = epsilon * digits[block.positions]
                found[row] = np.where(asked[row], units, 0.0)
        return found

    def _sizes(self, row: int) -> list[NDArray[np.float64]] | None:
        """Largest size of each entry of a gradient, by input, where that is right."""
        if self.subject.analytic is None or holds_numbers(self.subject):
            return None
        slopes, blurs = self._slopes
        largest = [np.zeros(len(each)) for each in self._line]
        whole, right = np.zeros(len(_WAY)), np.zeros(len(_WAY), bool)
        for k, at in enumerate(_WAY):
            gradients = self._gradients(row, at)
            if gradients is None:
                return None
            along = 0.0
            for each, d in zip(gradients, self._line, strict=True):
                along += float(each @ d)
                whole[k] += float(np.abs(each) @ np.abs(d))
            off, blur = abs(along - slopes[k, row]), blurs[k, row]
            right[k] = off <= _RIGHT * whole[k] + blur
            if right[k]:
                for top, each in zip(largest, gradients, strict=True):
                    np.fmax(top, np.abs(each), out=top)
        # where its terms cancel a gradient is as far off as it may be at the point
        told = whole > _WHOLE * np.fmax.reduce(whole)
        told &= blurs[:, row] <= _RIGHT * whole
        many = np.count_nonzero(told & right)
        return largest if many >= max(_SEVERAL, _MOST * told.sum()) else None

    @functools.cached_property
    def _line(self) -> list[NDArray[np.float64]]:
        """From the point towards zero, or past it; what is zero moves as others do."""
        rng, line = np.random.default_rng(23), []
        for which in range(len(self.subject.inputs)):
            point = self.subject.point(which)
            share = rng.uniform(0.75, 1.25, len(point))
            aside = rng.choice([-0.1, 0.1], len(point)) * scales_of(self.subject, which)
            line.append(share * np.where(point == 0, aside, point))
        return line

    @functools.cached_property
    def _slopes(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Slopes of f along the line, and what rounding leaves of them, (12, rows)."""
        steps = _STEP * np.array([1.0, -1.0, 0.5, -0.5])
        every = np.add.outer(np.array(_WAY), steps).ravel().tolist()
        values = line_rows(self.subject, self._line, every, self.meter)
        values = values.reshape(len(_WAY), 4, -1)
        with np.errstate(all="ignore"):
            long = (values[:, 0] - values[:, 1]) / (2 * _STEP)
            short = (values[:, 2] - values[:, 3]) / _STEP
            size = np.abs(values).max(axis=1)
            rounding = _ROUNDINGS * self.subject.epsilon * size / _STEP
            return (4 * short - long) / 3, rounding

    def _gradients(self, row: int, at: float) -> list[NDArray[np.float64]] | None:
        """Gradient of one output at one place, by input; None if none can be asked."""
        cotangent = unit_vectors(output_rows(self.subject.outputs), [row])
        there = {
            which: self.subject.point(which) + at * each
            for which, each in enumerate(self._line)
        }
        with np.errstate(all="ignore"):
            pulled = gradients_at(self.subject, there, cotangent)
        if not is_torch_subject(self.subject):
            self.meter.owe(1)
        return None if pulled is None else [np.asarray(each[0]) for each in pulled]


def excuse_cancelled_terms(elsewhere: Elsewhere, block: Block) -> bool:
    """Allow a gradient the last digits of terms that it is made of and that cancel.

    Parameters
    ----------
    elsewhere
        Of the subject with the analytic side that is compared.
    block
        Judged. Its `digits` are set where something is excused.

    Returns
    -------
    bool
        Whether anything was excused.
    """
    epsilon = elsewhere.subject.epsilon
    with np.errstate(all="ignore"):
        faint = min(_FAINT * epsilon, _PART) * block.largest_terms
        asked = block.wrong & (block.gap <= faint)
    digits = elsewhere.allowed(asked, block, epsilon)
    found = np.where(block.gap <= digits, digits, 0.0)
    if found.any():
        block.digits = np.fmax(block.digits, found)
    return bool(found.any())
