"""Whether a call is wrong where its model can go, or only beside it.

A Cholesky factor reads one half of a matrix, and its backward answers for both: right
for symmetric matrices, and those that a model makes are. So what a call takes is moved
as the model's own parameters and inputs move it, before the call is called wrong.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.checking.probe import Precision, slopes
from gradlab.localisation.layers.products import inner, length
from gradlab.localisation.layers.recording.frames import dissolve
from gradlab.localisation.layers.recording.owners import standing_in
from gradlab.localisation.layers.recording.record import call_again
from gradlab.localisation.layers.recording.trees import fill, take_out
from gradlab.localisation.layers.replaying.directions import Direction, typical_size
from gradlab.localisation.layers.replaying.replay import Piece
from gradlab.localisation.layers.variables import ReplayError
from gradlab.subject.own_seeds import own_seed

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradlab.localisation.layers.checking.probe import Measure
    from gradlab.localisation.layers.recording.frames import Frame
    from gradlab.localisation.layers.recording.recorder import Program
    from gradlab.localisation.layers.replaying.directions import Scratch
    from gradlab.localisation.layers.variables import Product, Variable

__all__ = ["right_within_reach"]

_TIMES = 2  # directions of the model that have to agree
_FACTORS = (1.0, 0.13, 7.7)  # of the step, as careful measures begin


def right_within_reach(program: Program, frame: Frame, measure: Measure) -> bool:
    """Whether a call that is wrong for its inputs is right for all that reach it.

    Runs the model four times.

    Parameters
    ----------
    program
        The model at one point.
    frame
        A recorded call, wrong with respect to inputs alone.
    measure
        How wrong it is along a direction that was drawn without the model.
    """
    piece = Piece(frame, program.owners, raised=frame.low)
    try:
        product = piece.product()
        for time in range(_TIMES):
            moved = _moved(program, frame, 1 + time)
            reach = {
                id(v): _of(v, *moved)
                for v in product.variables
                if v.kind != "parameter"
            }
            for run in moved[:2]:
                dissolve(run)
            beside = abs(measure.analytic - measure.numeric)
            blur = beside * moved[2] ** 2 if math.isfinite(beside) else 0.0
            if not _agrees(piece, product, _scaled(product, reach), blur):
                return False
    except (ReplayError, RuntimeError, TypeError, ValueError):
        return False
    return True


class _Along:
    """A direction that the model gave: like `Direction`, and stored."""

    def __init__(self, base: Any, dense: Any) -> None:
        self._base, self._dense = base, dense

    def move(self, step: float, scratch: Scratch | None = None) -> Callable[[], Any]:  # noqa: ARG002 - as Direction has it
        return lambda: self._base + step * self._dense

    def slope(self, gradient: Any) -> tuple[float, float]:
        if gradient is None:
            return 0.0, 0.0
        size = length(self._dense) / max(self._dense.numel(), 1) ** 0.5
        return inner(gradient, self._dense), length(gradient) * size


def _moved(program: Program, frame: Frame, seed: int) -> tuple[Frame, Frame, float]:
    """Record the call with all of the model a step to either side; how far apart.

    Raises
    ------
    ReplayError
        If the model takes another path there.
    """
    import torch

    own = program.owners.inside(program.module)
    arguments = program.args, dict(program.kwargs)
    template, tensors = take_out(arguments, torch.Tensor)
    free = [k for k, tensor in enumerate(tensors) if tensor.requires_grad]
    leaves = [*own, *(tensors[k] for k in free)]
    step = max((torch.finfo(x.dtype).eps for x in leaves), default=1.0) ** (1 / 3)
    lines = [Direction(x.detach(), 1009 * seed + k) for k, x in enumerate(leaves)]
    runs = []
    for sign in (1.0, -1.0):
        moved = [line.move(sign * step) for line in lines]
        inputs = list(tensors)
        for k, make in zip(free, moved[len(own) :], strict=True):
            inputs[k] = make().requires_grad_()
        args, kwargs = fill(template, inputs)
        there = dataclasses.replace(program, args=args, kwargs=kwargs)
        with standing_in(program.owners, own, moved[: len(own)]):
            run = call_again(there, frame)
        if run is None:
            message = "takes another path when the model is moved"
            raise ReplayError(message)
        runs.append(run)
    return runs[0], runs[1], 2 * step


def _of(variable: Variable, up: Frame, down: Frame, apart: float) -> Any:
    """How the model moved one thing that the call takes."""
    sides = []
    for run in (up, down):
        if variable.kind == "input":
            value = run.inputs[variable.place].value
        else:
            child, output = variable.place
            value = run.children[child].outputs[output].value
        sides.append(value.to(variable.base.dtype))
    return _with_others((sides[0] - sides[1]) / apart)


def _with_others(reach: Any) -> Any:
    """Let entries move that happen to stand still, cut off by a clamp: all at random.

    At another point of the model they would move. In a symmetric matrix they are one
    with those opposite.
    """
    import torch

    still = reach == 0
    count = int(still.sum())
    if count in {0, reach.numel()}:
        return reach
    generator = torch.Generator("cpu").manual_seed(own_seed(count, "standing still"))
    drawn = torch.randn(
        reach.shape, generator=generator, dtype=torch.float64, device="cpu"
    )
    drawn = drawn.to(reach.device, reach.dtype)
    if reach.ndim > 1 and reach.shape[-1] == reach.shape[-2]:
        symmetric = torch.allclose(reach, reach.mT)
        drawn = (drawn + drawn.mT) / 2 if symmetric else drawn
    size = length(reach) / (reach.numel() - count) ** 0.5
    return torch.where(still, size * drawn, reach)


def _scaled(product: Product, reach: dict[int, Any]) -> dict[int, _Along]:
    """Directions of the size of what they move, all by one factor."""
    bases = {id(v): v.base for v in product.variables if id(v) in reach}
    largest = max(
        (
            length(reach[key]) / max(base.numel(), 1) ** 0.5 / typical_size(base)
            for key, base in bases.items()
        ),
        default=0.0,
    )
    if not 0 < largest < math.inf:
        message = "nothing that it takes moves with the model"
        raise ReplayError(message)
    return {key: _Along(base, reach[key] / largest) for key, base in bases.items()}


def _agrees(
    piece: Piece, product: Product, along: dict[int, _Along], blur: float
) -> bool:
    """Whether both slopes agree in that direction, at some step.

    `blur` is what is left of the error beside the model's reach: the direction was
    measured, and its last digits are not in it.
    """
    precision = Precision.of(piece)
    pairs = zip(product.variables, product.gradients, strict=True)
    parts = [along[id(v)].slope(g) for v, g in pairs if id(v) in along]
    analytic = sum(part for part, _ in parts)
    typical = math.hypot(*(size for _, size in parts))
    for factor in _FACTORS:
        found = slopes(piece, product, along, factor * precision.step, precision)
        scale = max(abs(analytic), abs(found.central), 0.1 * typical)
        allowed = precision.tolerance * scale + found.noise + blur
        if abs(analytic - found.central) <= allowed:
            return True
    return False
