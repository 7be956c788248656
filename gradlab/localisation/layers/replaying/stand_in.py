"""The interceptor of a replay: the calls inside a piece answer with given values."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.recording.frames import same_target
from gradlab.localisation.layers.recording.hooks import share_hooks
from gradlab.localisation.layers.recording.intercept import call_function, call_module
from gradlab.localisation.layers.recording.trees import fill, take_out
from gradlab.localisation.layers.variables import ReplayError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gradlab.localisation.layers.replaying.replay import Piece
    from gradlab.localisation.layers.variables import Variable

__all__ = ["StandIn", "leaves_of", "registered_leaves"]


class StandIn:
    """Interceptor of a replay: children answer with given values."""

    def __init__(self, piece: Piece, child_value: Callable[[int, int], Any]) -> None:
        self._piece = piece
        self._value = child_value
        self._entered = piece.frame.kind != "module" or piece.bare
        self._next = 0
        self._handed: list[tuple[int, list[Any]]] = []  # by which call inside
        self.backward = False

    def module_called(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the piece itself; answer for the modules inside it."""
        frame = self._piece.frame
        if not self._entered and module is frame.target:
            self._entered = True
            return call_module(module, args, kwargs)
        inside = frame.kind == "function" or self._piece.whole
        if inside or not self._piece.owners.is_piece(module):
            return call_module(module, args, kwargs)
        return self._answer(module, args, kwargs)

    def function_applied(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Answer for the custom Functions inside the piece."""
        if self._piece.frame.kind == "function" or self._piece.whole:
            return call_function(function, args, kwargs)
        return self._answer(function, args, kwargs)

    def weights(self, outputs: list[Any]) -> list[Any]:
        """Weights of what the piece returned, then of what it handed to others."""
        piece = self._piece
        own = [
            None if weight is None else piece.cast(weight).to(output.dtype)
            for weight, output in zip(piece.cotangents, outputs, strict=True)
        ]
        return own + [
            None if weight is None else piece.handed * piece.cast(weight)
            for index, _ in self._handed
            for weight in piece.frame.children[index].input_cotangents
        ]

    def handed_on(self) -> list[Any]:
        """Return what was handed to the calls inside, as it was then."""
        return [tensor for _, kept in self._handed for tensor in kept]

    def _answer(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        import torch

        _, tensors = take_out((args, kwargs), torch.Tensor)
        index = self._recall(target, tensors) if self.backward else self._next
        children = self._piece.frame.children
        if index >= len(children) or not same_target(children[index].target, target):
            raise ReplayError("takes another path when it is run again")
        child = children[index]
        if len(tensors) != len(child.inputs):
            raise ReplayError(f"calls {child.title} in another way when run again")
        if child.overwritten - set(child.aliases.values()):
            raise ReplayError(
                f"calls {child.title}, which overwrites an input without returning it"
            )
        if not self.backward:
            self._next += 1
            kept = [  # as it is now, as far as it carries a cotangent
                None if cotangent is None else tensor.clone()
                for tensor, cotangent in zip(
                    tensors, child.input_cotangents, strict=True
                )
            ]
            self._handed.append((index, kept))
        outputs = []
        for k in range(len(child.outputs)):
            value, twin = self._value(index, k), child.aliases.get(k)
            if twin is not None and twin in child.overwritten:
                tensors[twin].copy_(value)
                value = tensors[twin]
            outputs.append(value)
        if (
            child.exit_random is not None
            and child.exit_random is not child.entry.random
        ):
            child.exit_random.put_back()
        return fill(child.result, outputs)

    def _recall(self, target: Any, tensors: list[Any]) -> int:
        """Find which call a checkpoint repeats during the backward."""
        import torch

        children = self._piece.frame.children
        same = [k for k, c in enumerate(children) if same_target(c.target, target)]
        if len(same) > 1:
            exact = [
                k
                for k in same
                if len(children[k].inputs) == len(tensors)
                and all(
                    torch.equal(self._piece.cast(slot.value), tensor)
                    for slot, tensor in zip(children[k].inputs, tensors, strict=True)
                )
            ]
            same = exact or same
        if not same:
            raise ReplayError("takes another path during the backward")
        return same[0]


def leaves_of(
    variables: Sequence[Variable],
    asked: dict[int, Any],
    *,
    copied: bool,
    hooks: bool,
) -> tuple[dict[Any, Any], list[tuple[Any, Callable[[], Any]]]]:
    """Make the tensors that autograd is asked about.

    Parameters
    ----------
    variables
        What a call is differentiated by.
    asked
        Further inputs, by position.
    copied
        Whether copies stand in for parameters.
    hooks
        Whether these share the hooks.

    Returns
    -------
    leaves, stand_ins
        By position, or by the identity of a parameter; and each parameter with what
        gives its copy, of the same identity as what autograd is asked about.
    """
    import torch

    leaf: dict[Any, Any] = {
        k: value.detach().requires_grad_() for k, value in asked.items()
    }
    stand_ins: list[tuple[Any, Callable[[], Any]]] = []
    for variable in variables:
        if variable.kind != "parameter":
            leaf[variable.place] = variable.base.detach().requires_grad_()
        elif copied:
            key = id(variable.parameter)
            own = variable.base.to(variable.dtype, copy=True)
            leaf[key] = torch.nn.Parameter(own)
            if hooks:
                share_hooks(variable.parameter, leaf[key])
            stand_ins.append((variable.parameter, functools.partial(leaf.get, key)))
    return leaf, stand_ins


def registered_leaves(
    handed_in: dict[int, Any], leaf: dict[Any, Any]
) -> list[tuple[Any, Callable[[], Any]]]:
    """Let leaves stand where the module has the parameters that a call gets.

    Parameters
    ----------
    handed_in
        From `gradlab.localisation.layers.recording.frames.parameters_handed_in`.
    leaf
        By position; those become parameters, as a module registers no others.

    Returns
    -------
    list
        Each parameter, and what gives the leaf in its place.
    """
    import torch

    places = [k for k in handed_in if k in leaf]
    leaf |= {k: torch.nn.Parameter(leaf[k].detach()) for k in places}
    return [(handed_in[k], functools.partial(leaf.get, k)) for k in places]
