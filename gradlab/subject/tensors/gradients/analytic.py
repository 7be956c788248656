"""The analytic side of torch subjects: what autograd answers to cotangents.

Slips of a backward are findings, not crashes: an exception or a gradient of the wrong
shape makes the entries of that input nan, and a `Problem` says what came.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

import numpy as np

from gradlab.subject.analytic_sides import AnalyticDefaults, Problem, Pullback
from gradlab.subject.subject import EPSILON, output_rows
from gradlab.subject.tensors.calling.captured_inputs import followed, own_leaves
from gradlab.subject.tensors.gradients.answers import (
    about,
    add_up,
    close,
    raised,
    weights_of,
)
from gradlab.subject.tensors.gradients.backward import Backward
from gradlab.subject.tensors.gradients.cotangents import (
    has_own_code,
    has_reentrant_checkpoint,
)
from gradlab.subject.tensors.gradients.precision import Unseen, is_single, lost_digits
from gradlab.subject.tensors.in_double.narrowing import narrowing_watched
from gradlab.subject.tensors.outputs import to_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = ["ReverseMode"]

_WIDE = ("float64", "complex128")

_LARGE = 1 << 24  # bytes of inputs up to which one more backward pass is nothing


class ReverseMode(AnalyticDefaults):
    """Vector-Jacobian products by ``torch.autograd.grad``.

    One forward pass per call; all cotangents go backwards in batches where every
    backward on the way allows it, else one at a time. A backward is linear in its
    cotangent: a random combination of all, sent backwards alone, has to give the same
    combination of the answers. Where it does not, nothing is taken for granted: a
    backward that answers twice differently to the same cotangent (because it changes
    what it saved) gets a fresh forward pass for each, as it would in training.

    Attributes
    ----------
    linear
        Whether such a combination came out right, of cotangents that asked for every
        output row; False if any did not, None before that was tried.
    stateful
        Whether a second backward gave another answer.
    """

    takes_cotangents = True

    def __init__(self, subject: TorchSubject) -> None:
        self._subject = subject
        self._batched = True
        self._at_once = True  # by the newer vmap, until it gives a wrong answer
        self._lost: list[Problem] | None = None
        self._alone: list[NDArray[np.float64]] | None = None
        self.linear: bool | None = None
        self.stateful = False
        self.own_code: bool | None = None
        self._reenters = False  # a checkpoint does, as far as is known
        self._accumulates: bool | None = None  # None: not tried
        self._astray: set[int] = set()  # inputs that a backward adds to by itself
        self._once = False  # a graph goes backwards once only, whatever is kept

    @property
    def description(self) -> str:
        """Where the numbers come from; see `Analytic`."""
        if self._accumulates:
            return "autograd, reverse mode, by backward(): grad() misses a part"
        return "autograd, reverse mode"

    def on(self, subject: TorchSubject) -> ReverseMode:
        """Return the same mode of autograd for another subject."""
        return ReverseMode(subject)

    def pull(self, cotangents: NDArray[np.float64]) -> Pullback:
        """Vector-Jacobian products; see `Analytic`."""
        cells = self._subject.cells
        seeds = np.atleast_2d(np.asarray(cotangents, dtype=np.float64))
        try:
            values, problems = self._pull(seeds, range(len(cells)))
        except Exception as error:  # noqa: BLE001 - whatever a backward raises
            found = self._otherwise(seeds)
            if found is None:
                return self._one_by_one(seeds, error)
            values, problems = found
        if self._may_accumulate(problems):
            # one cotangent of all rows tells whether more comes that way
            trial = self._accumulated(seeds.sum(axis=0, keepdims=True))
            more = bool(self._astray) or (trial and len(trial[1]) < len(problems))
            self._accumulates = trial is not None and bool(more)
            if self._accumulates:
                values, problems = self._accumulated(seeds) or (values, problems)
        named = {problem.where for problem in problems}
        problems += [slip for slip in self._lost_digits() if slip.where not in named]
        return Pullback(tuple(values), tuple(problems))

    def _may_accumulate(self, problems: Sequence[Problem]) -> bool:
        """Whether a backward in the graph may bring what is missing by another way."""
        missing = self._astray or any(problem.kind == "none" for problem in problems)
        other_ways = bool(self.own_code) or self._reenters
        return bool(missing) and other_ways and self._accumulates is None

    def _otherwise(
        self, seeds: NDArray[np.float64]
    ) -> tuple[list[NDArray[np.float64]], list[Problem]] | None:
        """Ask a backward that raised as training would; None if that raises as well.

        One that makes what it needs again lets go of it after its first pass, and a
        checkpoint may refuse whatever is not ``backward()``.
        """
        if self._once:
            return None
        before = self._accumulates
        for by_backward, once in ((False, True), (True, False), (True, True)):
            self._once = once
            if by_backward:
                found = self._accumulated(seeds)
                if found is not None:
                    return found
            else:
                with contextlib.suppress(Exception):  # as below
                    return self._pull(seeds, range(len(self._subject.cells)))
        self._once, self._accumulates = False, before
        return None

    def _accumulated(
        self, seeds: NDArray[np.float64]
    ) -> tuple[list[NDArray[np.float64]], list[Problem]] | None:
        """Ask for gradients as training does, by ``.grad``; None if that raises.

        A reversible network, or a checkpoint that is re-entrant, calls ``backward()``
        inside its own: what it finds out of parameters is added to their ``.grad``.
        """
        self._accumulates = True
        try:
            return self._pull(seeds, range(len(self._subject.cells)))
        except Exception:  # noqa: BLE001 - as above
            self._accumulates = False
            return None

    @property
    def streams(self) -> bool:
        """Whether gradients had better be let go one by one: the inputs are large."""
        return bool(sum(c.values.nbytes for c in self._subject.cells) > _LARGE)

    def stream(
        self,
        cotangent: NDArray[np.float64],
        chosen: Sequence[int],
        take: Callable[[int, NDArray[np.float64]], None],
    ) -> tuple[Problem, ...] | None:
        """Hand over the gradients of one cotangent; None if something raised."""
        if self._accumulates:
            return None
        try:
            backward = self._forward(chosen)
            if not any(tensor.requires_grad for tensor in backward.outputs):
                return None
            backward.streamed(cotangent, lambda k, values: take(chosen[k], values))
        except Exception:  # noqa: BLE001 - whatever a backward raises
            return None
        told = map(about, backward.cells, backward.dtypes)
        problems = tuple(problem for problem in told if problem is not None)
        return None if self._may_accumulate(problems) else problems

    def _lost_digits(self) -> list[Problem]:
        """Find inputs whose gradient is single precision in disguise; once.

        Not for large inputs, where one more backward pass is felt, and not where the
        function itself computes in less than float64: then that is all there is.
        """
        if self._lost is not None:
            return self._lost
        self._lost = []
        subject = self._subject
        size = sum(cell.values.nbytes for cell in subject.cells)
        fine = subject.epsilon <= EPSILON
        if not fine or size > _LARGE or self.stateful:
            return self._lost
        if self._alone is not None:  # a random cotangent was sent back already
            fresh = zip(subject.inputs, self._alone, strict=True)
            if not any(v.dtype in _WIDE and is_single(part) for v, part in fresh):
                return self._lost
        everything = range(len(subject.cells))
        rows = output_rows(subject.outputs)

        def pull(cotangent: NDArray[np.float64]) -> list[NDArray[np.float64]]:
            return self._forward(everything).looped(cotangent, keep=False)

        try:
            lost = lost_digits(pull, subject.inputs, rows, Unseen.of(subject))
            if lost:
                with narrowing_watched() as narrowed:
                    single = is_single(subject.row())
                self._lost = [] if narrowed or single else lost
        except Exception:  # noqa: BLE001, S110 - a matter of values: it has been told
            pass
        return self._lost

    def _one_by_one(self, seeds: NDArray[np.float64], first: Exception) -> Pullback:
        """Find out which inputs are to blame for an exception."""
        values: list[NDArray[np.float64]] = []
        problems: list[Problem] = []
        for which, cell in enumerate(self._subject.cells):
            error = first
            if len(self._subject.cells) > 1:
                try:
                    alone, found = self._pull(seeds, [which])
                except Exception as inner:  # noqa: BLE001 - as above
                    error = inner
                else:
                    values += alone
                    problems += found
                    continue
            shape = (len(seeds), cell.variable.coordinates)
            values.append(np.full(shape, np.nan))
            problems.append(raised(cell, error))
        if not problems:  # each alone is fine, together they raise
            problems = [raised(cell, first) for cell in self._subject.cells[:1]]
        return Pullback(tuple(values), tuple(problems))

    def _forward(self, chosen: Sequence[int]) -> Backward:
        """Evaluate with a graph; the leaves asked for are its ends."""
        subject = self._subject
        if subject.needs_grad is None:
            subject.row()  # finds out whether inputs are written to: no leaves then
        values, leaves = subject.with_leaves(chosen)
        tensors = subject.evaluate(values, grad=True)
        if self.own_code is None:
            self.own_code = has_own_code(tensors)
            self._reenters = has_reentrant_checkpoint(tensors)
            if followed(subject, tensors):  # of a large one the first row has no graph
                values, leaves = subject.with_leaves(chosen)
                tensors = subject.evaluate(values, grad=True)
            if subject.beside:
                subject.unfollowed = own_leaves(subject, tensors)
        if len(chosen) == len(subject.cells):
            subject.forward_value = to_row(tensors)
        cells = [subject.cells[which] for which in chosen]
        accumulates = bool(self._accumulates)
        if not (self.own_code or accumulates):
            return Backward(list(tensors), leaves, cells)
        standing = functools.partial(subject.program.standing, values)
        return Backward(
            list(tensors), leaves, cells, standing, accumulates, self._astray
        )

    def _pull(
        self, seeds: NDArray[np.float64], chosen: Sequence[int]
    ) -> tuple[list[NDArray[np.float64]], list[Problem]]:
        backward = self._forward(chosen)
        cells = backward.cells
        if not any(tensor.requires_grad for tensor in backward.outputs):
            detail = (
                "no output requires grad: the graph was cut by detach, .data, "
                "no_grad or a trip through NumPy"
            )
            zeros = [np.zeros((len(seeds), c.variable.coordinates)) for c in cells]
            return zeros, [Problem("none", c.variable.name, detail) for c in cells]
        blocks = self._blocks(backward, seeds, chosen)
        if not len(seeds):
            return blocks, []  # nothing was asked, so nothing is missing
        told = [about(*pair) for pair in zip(cells, backward.dtypes, strict=True)]
        return blocks, [problem for problem in told if problem is not None]

    def _blocks(
        self, backward: Backward, seeds: NDArray[np.float64], chosen: Sequence[int]
    ) -> list[NDArray[np.float64]]:
        """All cotangents through one graph, or through one graph each."""
        if self._once:
            return self._row_by_row(seeds, chosen)
        whole = self.linear is None and self._whole(seeds, chosen)
        if len(seeds) < 2:
            blocks = backward.looped(seeds, keep=bool(whole))
            if whole:
                self._combines(backward, seeds, blocks, whole=True)
            return blocks
        while self._batched and not self._accumulates:
            found, last = self._batches(backward, seeds), not self._at_once
            if found is not None:
                if self._combines(backward, seeds, found, whole=whole, final=last):
                    return found
                backward = self._forward(chosen)  # its state may be another by now
            self._at_once, self._batched = False, not last or found is not None
            if last:
                break
        return self._with_care(backward, seeds, chosen, whole=whole)

    def _with_care(
        self,
        backward: Backward,
        seeds: NDArray[np.float64],
        chosen: Sequence[int],
        *,
        whole: bool,
    ) -> list[NDArray[np.float64]]:
        """All cotangents through a backward that is not known to be a linear map."""
        first = backward.looped(seeds[:1])
        blocks = None
        if self._batched and not self._accumulates:
            blocks = self._checked_batches(backward, seeds, first)
            self._batched = blocks is not None
        if blocks is None:
            rest = backward.looped(seeds[1:])
            blocks = [np.concatenate(pair) for pair in zip(first, rest, strict=True)]
            if self._combines(backward, seeds, blocks, whole=whole):
                return blocks
        if close(first, backward.looped(seeds[:1]), backward.leaves):
            return blocks
        self.stateful = True  # it changes what it saved: a new graph for each cotangent
        return self._row_by_row(seeds, chosen)

    def _row_by_row(
        self, seeds: NDArray[np.float64], chosen: Sequence[int]
    ) -> list[NDArray[np.float64]]:
        """One graph for each cotangent."""
        rows = [self._forward(chosen).looped(seed[None], keep=False) for seed in seeds]
        return [np.concatenate(column) for column in zip(*rows, strict=True)]

    def _whole(self, seeds: NDArray[np.float64], chosen: Sequence[int]) -> bool:
        """Whether these cotangents ask for all rows of a small subject."""
        cells = self._subject.cells
        return (
            len(chosen) == len(cells)
            and (len(seeds) > 1 or seeds.shape[1] == 1)
            and sum(cell.values.nbytes for cell in cells) <= _LARGE
            and bool(seeds.any(axis=0).all())
        )

    def _combines(
        self,
        backward: Backward,
        seeds: NDArray[np.float64],
        blocks: list[NDArray[np.float64]],
        *,
        whole: bool,
        final: bool = True,
    ) -> bool:
        """Whether a combination of cotangents gives that combination of the answers.

        If not, that is remembered where it is `final`: else a batch may be at fault.
        """
        weights = weights_of(len(seeds))
        alone = backward.looped(weights @ seeds)
        told = add_up(weights, blocks, alone, backward.leaves)
        if (whole and told) or (final and not told):
            self.linear = told
            self._alone = alone if told else None
        return told

    def _batches(
        self, backward: Backward, seeds: NDArray[np.float64]
    ) -> list[NDArray[np.float64]] | None:
        """All cotangents in as few passes as memory allows; None if not possible."""
        width = sum(c.variable.coordinates for c in backward.cells) + seeds.shape[1]
        size = max(1, self._subject.chunk_bytes // max(8 * width, 1))
        parts = []
        for start in range(0, len(seeds), size):
            some = seeds[start : start + size]
            part = backward.batched(some, at_once=self._at_once)
            if part is None:
                return None
            parts.append(part)
        if len(parts) == 1:
            return parts[0]
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def _checked_batches(
        self,
        backward: Backward,
        seeds: NDArray[np.float64],
        first: list[NDArray[np.float64]],
    ) -> list[NDArray[np.float64]] | None:
        """Batched blocks if they can be had and the first and last row are right."""
        blocks = self._batches(backward, seeds)
        if blocks is None or not close(first, [b[:1] for b in blocks], backward.leaves):
            return None
        last = backward.looped(seeds[-1:])
        return (
            blocks if close(last, [b[-1:] for b in blocks], backward.leaves) else None
        )
