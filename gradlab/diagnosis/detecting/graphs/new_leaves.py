"""Detector of graphs that begin anew: forward makes a leaf out of what it computed.

``nn.Parameter(h)``, or ``h.detach().requires_grad_()``, is a variable of its own to
autograd: what arrives there goes no further. How the leaf moves with an input, times
the gradient that arrived at it, is exactly what the gradient of the input lacks.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.measures import Case, Clue
from gradlab.diagnosis.measuring.moving import cotangent_of
from gradlab.subject.subject import EPSILON, is_torch_subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["begun_anew"]

_DIRECTIONS = 3
_STEP = 6e-6  # relative step of a central difference
_CLOSE = 1e-4  # how nearly two slopes along a random direction have to agree
_MOST = 100_000  # nodes of a graph that are walked


def begun_anew(case: Case) -> list[Clue]:
    """Detect leaves that forward makes, and that move with an input."""
    subject = case.evidence.subject
    if not is_torch_subject(subject) or not case.part.complete:
        return []
    side = subject.analytic
    if side is None or not str(side.description).startswith("autograd"):
        return []
    try:
        return _told(case, _leaves(case))
    except Exception:  # noqa: BLE001 - the user's code may not take these points
        return []
    finally:
        subject.place(case.part.which, None)


def _told(case: Case, here: list[tuple[Any, NDArray[np.float64]]]) -> list[Clue]:
    if not here:
        return []
    directions = case.evidence.rng.normal(size=(_DIRECTIONS, case.numeric.shape[1]))
    weights = cotangent_of(case.evidence)
    lacking = directions @ (weights @ (case.numeric - case.analytic))
    passed = np.array([_passed(case, here, direction) for direction in directions])
    moving = np.abs(passed).max(axis=0) > 0
    scale = float(np.abs(lacking).max())
    if not (np.abs(lacking - passed.sum(axis=1)) <= _CLOSE * scale).all():
        return []
    shapes = [tuple(leaf.shape) for leaf, _ in here]
    told = [str(shape) for shape, moves in zip(shapes, moving, strict=True) if moves]
    one = len(told) == 1
    what = f"a new leaf of shape {told[0]}" if one else f"{len(told)} new leaves"
    return [
        Clue(
            BugKind.DETACHED,
            0.985,
            f"The function makes {what} for autograd from what depends on "
            f"{case.name}. What arrives at {'it' if one else 'them'}, times how far "
            f"{'it moves' if one else 'they move'} with {case.name}, is all that the "
            f"gradient of {case.name} lacks.",
            "Use the tensor itself in forward: nn.Parameter(tensor), requires_grad_() "
            "and torch.tensor(..., requires_grad=True) begin a graph of their own.",
        )
    ]


def _leaves(case: Case) -> list[tuple[Any, NDArray[np.float64]]]:
    """List leaves that nobody gave, in the order of a walk, and what arrives there."""
    subject: Any = case.evidence.subject
    case.evidence.meter.spend(1)
    given, leaves = subject.with_leaves(range(len(subject.inputs)))
    outputs = subject.evaluate(given, True)
    known = {id(tensor) for tensor in (*given, *leaves)}
    found = _walk([tensor.grad_fn for tensor in outputs], known)
    if not found or any(tensor.is_complex() for tensor in (*outputs, *found)):
        return []
    weights = iter(cotangent_of(case.evidence))
    total: Any = 0
    for tensor in outputs:
        rows = tensor.new_tensor([next(weights) for _ in range(tensor.numel())])
        total = total + (tensor.reshape(-1) * rows).sum()
    arrived = sys.modules["torch"].autograd.grad(total, found, allow_unused=True)
    return [
        (leaf, gradient.detach().double().cpu().numpy())
        for leaf, gradient in zip(found, arrived, strict=True)
        if gradient is not None
    ]


def _walk(starts: list[Any], known: set[int]) -> list[Any]:
    found: list[Any] = []
    seen: set[Any] = set()
    stack = [node for node in starts if node is not None]
    while stack and len(seen) < _MOST:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)  # of the node that accumulates
        if variable is not None and id(variable) not in known:
            found.append(variable)
        stack += [after for after, _ in node.next_functions if after is not None]
    return found


def _passed(
    case: Case,
    here: list[tuple[Any, NDArray[np.float64]]],
    direction: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Tell what each leaf would hand on along a direction of the input."""
    subject, which = case.evidence.subject, case.part.which
    h = _STEP * max(1.0, float(np.abs(case.point).max(initial=0.0)))
    if subject.epsilon > EPSILON:
        h = float(subject.epsilon) ** (1 / 3) * h / _STEP
    moved = []
    for step in (h, -h):
        subject.place(which, case.point + step * direction)
        there = _leaves(case)
        if [leaf.shape for leaf, _ in there] != [leaf.shape for leaf, _ in here]:
            raise ValueError("other leaves at another point")
        moved.append([leaf.detach().double().cpu().numpy() for leaf, _ in there])
    return np.array(
        [
            float((gradient * (up - down)).sum()) / (2 * h)
            for (_, gradient), up, down in zip(here, *moved, strict=True)
        ]
    )
