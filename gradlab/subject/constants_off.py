"""A function that reads its constants a few roundings off.

What is no input is data: the matrix of a linear system, the nodes of a rule. Each was
rounded when it was stored, and a computation that is as good as arithmetic allows is
the exact one for data a few roundings away: it is backward stable. How far a gradient
moves with them is how far apart two right ways to compute it may lie.

References
----------
N. J. Higham, *Accuracy and Stability of Numerical Algorithms* (2nd ed. 2002), sections
1.5 and 1.6.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.guarding.reachable import reach
from gradlab.subject.holders import exchanged_where_kept, holders_of
from gradlab.subject.numpy_in_place import StandIns
from gradlab.subject.subject import EPSILON, is_torch_subject
from gradlab.subject.tensors.calling.programs import FunctionProgram, ModuleProgram
from gradlab.subject.tensors.values import is_torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gradlab.subject.numpy_subjects import ArraySubject
    from gradlab.subject.subject import Subject
    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = ["constants_off"]

_MOST = 10_000_000  # numbers that are copied; more are left as they are


@contextlib.contextmanager
def constants_off(
    subject: Any, roundings: float, rng: np.random.Generator
) -> Iterator[Subject | None]:
    """Let the constants of a function in float64 be other ones, for a while.

    Arguments that are no inputs, and arrays that the function holds: in a closure, a
    global, an attribute, a container. The user's own are never written to: copies stand
    in their places while something is evaluated.

    Parameters
    ----------
    subject
        As the user has it.
    roundings
        Of float64, by which each number is moved, up or down.
    rng
        Draws which way.

    Yields
    ------
    Subject or None
        The same function, with its analytic side, as it reads the other constants; None
        where it has none that could be exchanged.

    Examples
    --------
    >>> from gradlab.building import Sides, build_subject
    >>> A, b = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-9]]), np.array([1.0, 2.0])
    >>> sides = Sides(need_analytic=False)
    >>> subject = build_subject(lambda b: np.linalg.solve(A, b), (b,), sides)
    >>> with constants_off(subject, 1.0, np.random.default_rng(0)) as other:
    ...     bool(1e-9 < np.abs(other.row() / subject.row() - 1).max() < 1e-5)
    True
    """
    if not is_torch_subject(subject):
        inputs = [subject.tree.leaves[place].value for place in subject.which]
        held = _held(subject.roots, inputs)
        others = _moved(held, roundings, rng)
        yield _reading(subject, held, others) if others else None
        return
    with _tensors_off(subject, roundings, rng) as exchanged:
        yield subject if exchanged else None


def _reading(
    subject: ArraySubject, held: Sequence[Any], others: Mapping[int, Any]
) -> ArraySubject:
    """Return the same function, with others in place of what it holds."""
    old = [value for value in held if id(value) in others]
    new = [others[id(value)] for value in old]
    found = StandIns.of(old, new, subject.roots, partly=True, constants=True)
    constants = {
        place: others[id(leaf.value)]
        for place, leaf in enumerate(subject.tree.leaves)
        if place not in subject.which and id(leaf.value) in others
    }
    more = () if found is None else (found,)
    tree = subject.tree.with_values(constants)
    twin = subject.on(tree, stand_ins=(*subject.stand_ins, *more))
    twin.reader, twin.presenter = subject.reader, subject.presenter
    return twin


@contextlib.contextmanager
def _tensors_off(
    subject: TorchSubject, roundings: float, rng: np.random.Generator
) -> Iterator[bool]:
    """Exchange private copies of arguments and buffers, and what a function holds."""
    program = subject.program
    if not isinstance(program, FunctionProgram | ModuleProgram):
        yield False
        return
    roots = [getattr(program, "fn", None), subject.loss]
    held = _held(roots, program.own())  # as long as their ids are asked for
    others = _moved(held, roundings, rng)
    places = tuple(holders_of([id(v) for v in held if id(v) in others], roots))
    tables = [program.arguments.constants.tensors, program.buffers]
    saved = [dict(table) for table in tables]
    try:
        for table, own in zip(tables, saved, strict=True):
            moved = _moved(own.values(), roundings, rng)
            table.update((k, moved.get(id(t), t)) for k, t in own.items())
        with exchanged_where_kept(places, others):
            yield bool(places) or any(saved)
    finally:
        for table, own in zip(tables, saved, strict=True):
            table.update(own)


def _held(roots: Sequence[object], inputs: Sequence[object]) -> list[Any]:
    """Return arrays and tensors of float64 that a function holds and no input is."""
    known = {id(value) for value in inputs}
    found = reach([root for root in roots if root is not None])
    return [value for key, value in found.seen.items() if key not in known]


def _moved(
    values: Iterable[Any], roundings: float, rng: np.random.Generator
) -> dict[int, Any]:
    """Move numbers of float64 up or down; by the ids of what they are to stand for."""
    moved, left = {}, _MOST
    for value in values:
        array = isinstance(value, np.ndarray | np.generic)
        if not (array or is_torch(value)) or not str(value.dtype).endswith("float64"):
            continue
        left -= math.prod(value.shape)
        if left < 0:
            break
        up = rng.choice([-1.0, 1.0], tuple(value.shape))
        factors = 1 + roundings * EPSILON * up
        if array:
            moved[id(value)] = value * factors
        elif str(value.layout) == "torch.strided":
            own = value.detach()
            moved[id(value)] = own * own.new_tensor(factors)
    return moved
