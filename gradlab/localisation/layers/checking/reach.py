"""Whether a call is wrong where its model can go, or only beside it.

A Cholesky factor reads one half of a matrix, and its backward answers for both: right
for symmetric matrices, and those that a model makes are. So what a call takes is moved
as the model's own parameters and inputs move it, before the call is called wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import TYPE_CHECKING, Any

from gradlab.differentiation.lines.least_scales import SMALL
from gradlab.localisation.layers.checking.kind import random_cotangents
from gradlab.localisation.layers.checking.moved_runs import movement, with_others
from gradlab.localisation.layers.checking.probe import Precision, slopes
from gradlab.localisation.layers.products import inner, length, nearest_parameter
from gradlab.localisation.layers.recording.frames import same_target
from gradlab.localisation.layers.recording.owners import standing_in
from gradlab.localisation.layers.recording.record import calls_again
from gradlab.localisation.layers.recording.state import enter
from gradlab.localisation.layers.recording.trees import fill, take_out
from gradlab.localisation.layers.replaying.directions import Direction, typical_size
from gradlab.localisation.layers.replaying.replay import Piece
from gradlab.localisation.layers.variables import ReplayError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradlab.localisation.layers.checking.moved_runs import MovedRuns
    from gradlab.localisation.layers.checking.probe import Measure
    from gradlab.localisation.layers.recording.frames import Frame
    from gradlab.localisation.layers.recording.recorder import Program
    from gradlab.localisation.layers.replaying.directions import Scratch
    from gradlab.localisation.layers.variables import Product, Variable

__all__ = ["right_within_reach", "wrong_nearby"]

_TIMES = 2  # directions of the model that have to agree
_LITTLE = 0.1  # of its size: what moves by less is not looked at nearby
_HIDDEN = 0.5  # of an error: a bar that is wider hides it
_FACTORS = (1.0, 0.13, 7.7)  # of the step, as careful measures begin


def right_within_reach(
    program: Program, frame: Frame, measure: Measure, runs: MovedRuns
) -> bool:
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
    runs
        Those of calls that were asked about before.
    """
    own = program.owners.inside(program.module)
    whole = _Part(program, None, own, near=False, runs=runs)
    piece = _piece(program, frame)
    try:
        product = piece.product()
        return all(
            _right_along(whole, piece, product, measure, 1 + time)
            for time in range(_TIMES)
        )
    except Exception:  # noqa: BLE001 - the user's code may raise anything
        return False


def wrong_nearby(
    program: Program,
    frame: Frame,
    measure: Measure,
    runs: MovedRuns,
    variable: Variable,
) -> bool:
    """Whether a call is wrong for what the parameters just before it do to it.

    They are the model's own, so it is wrong where the model can go. No more of the
    model is run than the layer that holds both, twice.

    Parameters
    ----------
    program, frame, measure, runs
        As of `right_within_reach`.
    variable
        What the call takes, with respect to which it is wrong.
    """
    part = _nearby(program, frame, variable, runs)
    if part is None:
        return False
    piece = _piece(program, frame)
    try:
        return not _right_along(part, piece, piece.product(), measure, 1)
    except Exception:  # noqa: BLE001 - the user's code may raise anything
        return False


def _piece(program: Program, frame: Frame) -> Piece:
    """Make a call ready to run, with weights of its outputs where none arrived."""
    piece = Piece(frame, program.owners, raised=frame.low)
    if frame.reached:
        return piece
    return piece.with_cotangents(random_cotangents(piece, program.seed))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """What is run, to see how it moves what a call takes.

    Parameters
    ----------
    program
        The model, or a layer of it with the inputs that it had.
    frame
        The layer's call; None for the model.
    parameters
        What is moved.
    near
        Whether nothing else is. If not, so are the inputs that require grad.
    runs
        Those made before, of this part and others.
    """

    program: Program
    frame: Frame | None
    parameters: list[Any]
    near: bool
    runs: MovedRuns

    def has_small_inputs(self) -> bool:
        """Whether something is moved whose own size may be nothing to the model."""
        import torch

        if self.near:
            return False
        arguments = self.program.args, dict(self.program.kwargs)
        _, tensors = take_out(arguments, torch.Tensor)
        own = [typical_size(x.detach()) for x in tensors if x.requires_grad]
        return any(size < SMALL for size in own)

    def calls_again(self) -> list[Frame]:
        """Run it, and list its calls."""
        top = self.frame
        with contextlib.ExitStack() as stack:
            if top is not None:
                own = enter(top.target, top.entry, lambda x: x, rewind=False)
                stack.enter_context(own)
            return calls_again(self.program)

    def twin(self, calls: list[Frame], frame: Frame) -> Frame:
        """Find the same call in another run."""
        number = frame.number - (self.frame.number if self.frame else 0)
        twins = [call for call in calls if call.number == number]
        if not twins or not same_target(twins[0].target, frame.target):
            message = "takes another path when the model is moved"
            raise ReplayError(message)
        return twins[0]


def _nearby(
    program: Program, frame: Frame, variable: Variable, runs: MovedRuns
) -> _Part | None:
    """Find parameters just before something that a call takes, and what holds both."""
    owners = program.owners
    if variable.kind == "child":
        child, output = variable.place
        edge, top = frame.children[child].outputs[output].edge, frame
    else:
        edge, top = frame.inputs[variable.place].edge, frame.parent or frame
    nearest = nearest_parameter(edge, owners.names)
    if nearest is None:
        return None
    holder = next(
        module
        for module in program.module.modules()
        if any(parameter is nearest for parameter in owners.own(module))
    )
    own = owners.own(holder)
    while top.parent is not None and not any(
        parameter is nearest for parameter in owners.inside(top.target)
    ):
        top = top.parent
    if top.parent is None:
        return _Part(program, None, own, near=True, runs=runs)
    inputs = [slot.value.detach().requires_grad_(slot.wanted) for slot in top.inputs]
    args, kwargs = fill(top.template, inputs)
    layer = dataclasses.replace(
        program,
        module=top.target,
        args=args,
        kwargs=kwargs,
        loss=None,
        start=top.entry.random,
        attributes=None,
    )
    return _Part(layer, top, own, near=True, runs=runs)


def _right_along(
    part: _Part, piece: Piece, product: Product, measure: Measure, seed: int
) -> bool:
    """Whether both slopes agree along what a part of the model does to a call.

    Raises
    ------
    ReplayError
        If that hardly moves the call: what rounding hides is not right for it.
    """
    for least in (0.0, 1.0) if part.has_small_inputs() else (0.0,):
        right = _right_by(part, piece, product, measure, (seed, least))
        if right is not None:
            return right
    message = "hardly moves with the model"
    raise ReplayError(message)


def _right_by(
    part: _Part,
    piece: Piece,
    product: Product,
    measure: Measure,
    how: tuple[int, float],
) -> bool | None:
    """As `_right_along`, with a seed and a least size; None where nothing is told."""
    up, down, apart = _moved(part, piece.frame, *how)
    reach = {
        id(v): movement(v, up, down, apart)
        for v in product.variables
        if v.kind != "parameter"
    }
    part.runs.trim()
    if not part.near:
        reach = {key: with_others(moved) for key, moved in reach.items()}
    along, largest = _scaled(product, reach)
    if part.near and largest < _LITTLE:
        message = "hardly moves with the parameters before it"
        raise ReplayError(message)
    beside = abs(measure.analytic - measure.numeric)
    # The direction was measured: what is left in it of the error beside the reach.
    blur = beside * apart**2 * max(1.0, 1 / largest) if beside < math.inf else 0.0
    return _agrees(piece, product, along, blur, measure)


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


def _moved(
    part: _Part, frame: Frame, seed: int, least: float
) -> tuple[Frame, Frame, float]:
    """Record the call with the model a step to either side; how far these are apart.

    Small inputs are moved by `least` where that is more than their own size, which may
    be nothing to the model.

    Raises
    ------
    ReplayError
        If the model takes another path there.
    """
    import torch

    leaves, _ = _leaves(part)
    step = max((torch.finfo(x.dtype).eps for x in leaves), default=1.0) ** (1 / 3)
    top = None if part.frame is None else part.frame.number
    key = top, part.near, tuple(map(id, part.parameters)), seed, least
    up, down = part.runs.pair(key, lambda: _runs_beside(part, step, seed, least))
    return part.twin(up, frame), part.twin(down, frame), 2 * step


def _leaves(part: _Part) -> tuple[list[Any], list[int]]:
    """Parameters and inputs that are moved, and the places of these inputs."""
    import torch

    program = part.program
    _, tensors = take_out((program.args, dict(program.kwargs)), torch.Tensor)
    free = [k for k, x in enumerate(tensors) if x.requires_grad and not part.near]
    return [*part.parameters, *(tensors[k] for k in free)], free


def _runs_beside(
    part: _Part, step: float, seed: int, least: float
) -> list[list[Frame]]:
    """Run a part of the model a step to either side, all that is moved at once."""
    import torch

    program, own = part.program, part.parameters
    template, tensors = take_out((program.args, dict(program.kwargs)), torch.Tensor)
    leaves, free = _leaves(part)
    lines = [
        Direction(
            x.detach(), 1009 * seed + k, size=_size(x, least if k >= len(own) else 0.0)
        )
        for k, x in enumerate(leaves)
    ]
    runs = []
    for sign in (1.0, -1.0):
        moved = [line.move(sign * step) for line in lines]
        inputs = list(tensors)
        for k, make in zip(free, moved[len(own) :], strict=True):
            inputs[k] = make().requires_grad_()
        args, kwargs = fill(template, inputs)
        there = dataclasses.replace(program, args=args, kwargs=kwargs)
        with standing_in(program.owners, zip(own, moved, strict=False)):
            runs.append(dataclasses.replace(part, program=there).calls_again())
    return runs


def _size(leaf: Any, least: float) -> float:
    own = typical_size(leaf.detach())
    return max(own, least) if own < SMALL else own


def _scaled(product: Product, reach: dict[int, Any]) -> tuple[dict[int, _Along], float]:
    """Directions of the size of what they move, all by one factor; that factor."""
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
    made = {key: _Along(base, reach[key] / largest) for key, base in bases.items()}
    return made, largest


def _agrees(
    piece: Piece,
    product: Product,
    along: dict[int, _Along],
    blur: float,
    measure: Measure,
) -> bool | None:
    """Whether both slopes agree in that direction, at some step, or within a blur.

    None if the error that the call is accused of could hide in what is allowed: where
    the tensor that it was measured by moves the call by little beside others, or
    beside rounding.
    """
    precision = Precision.of(piece)
    pairs = zip(product.variables, product.gradients, strict=True)
    parts = {v.label: along[id(v)].slope(g) for v, g in pairs if id(v) in along}
    analytic = sum(part for part, _ in parts.values())
    typical = math.hypot(*(size for _, size in parts.values()))
    for factor in _FACTORS:
        found = slopes(piece, product, along, factor * precision.step, precision)
        scale = max(abs(analytic), abs(found.central), 0.1 * typical)
        allowed = precision.tolerance * scale + found.noise + blur
        if abs(analytic - found.central) <= allowed:
            own = max(map(abs, parts.get(measure.label, (scale,))))
            return None if allowed > _HIDDEN * measure.error * own else True
    return False
