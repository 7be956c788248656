"""Runs of a model beside its point, kept for the next call that asks for the same.

A custom Function at forty steps of a loop is forty calls of one run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.products import length
from gradlab.localisation.layers.recording.frames import dissolve
from gradlab.localisation.layers.variables import ReplayError
from gradlab.subject.own_seeds import own_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from gradlab.localisation.layers.recording.frames import Frame
    from gradlab.localisation.layers.variables import Variable

__all__ = ["MovedRuns", "movement", "with_others"]

_SLOTS = 3  # of one call: near by, and along two directions of the model
_BYTES = 1 << 26  # of what all calls hand on: larger runs are not kept


class MovedRuns:
    """Pairs of runs, a step to either side, by what was moved and where to."""

    def __init__(self) -> None:
        self._pairs: dict[Hashable, list[list[Frame]]] = {}

    def pair(
        self, key: Hashable, make: Callable[[], list[list[Frame]]]
    ) -> list[list[Frame]]:
        """Return the calls of both runs; `make` runs the model, where it has to.

        Parameters
        ----------
        key
            What decides all that a run does.
        make
            Runs the model to either side.
        """
        if key not in self._pairs:
            self.trim()
            while len(self._pairs) >= _SLOTS:
                _let_go(self._pairs.pop(next(iter(self._pairs))))
            self._pairs[key] = make()
        return self._pairs[key]

    def trim(self) -> None:
        """Let go of runs that are too large to be kept, once they have been read."""
        if (
            sum(_size(calls) for pair in self._pairs.values() for calls in pair)
            > _BYTES
        ):
            self.clear()

    def clear(self) -> None:
        """Let go of all runs, and of the tensors that they hold."""
        for pair in self._pairs.values():
            _let_go(pair)
        self._pairs.clear()


def _size(calls: list[Frame]) -> int:
    return sum(int(slot.value.nbytes) for call in calls for slot in call.outputs)


def _let_go(pair: list[list[Frame]]) -> None:
    for calls in pair:
        if calls:
            dissolve(calls[0])


def movement(variable: Variable, up: Frame, down: Frame, apart: float) -> Any:
    """How the model moved one thing that the call takes.

    Raises
    ------
    ReplayError
        If the call takes other things there: a backward that is called anew, say.
    """
    sides = []
    for run in (up, down):
        try:
            if variable.kind == "input":
                value = run.inputs[variable.place].value
            else:
                child, output = variable.place
                value = run.children[child].outputs[output].value
        except IndexError:
            message = "takes other things when the model is moved"
            raise ReplayError(message) from None
        if value.shape != variable.base.shape:
            message = "takes things of another shape when the model is moved"
            raise ReplayError(message)
        sides.append(value.to(variable.base.dtype))
    return (sides[0] - sides[1]) / apart


def with_others(reach: Any) -> Any:
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
