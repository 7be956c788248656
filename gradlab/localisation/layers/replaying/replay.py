"""Run one call again by itself, with the calls inside it cut out.

A container is checked for its *own* code only: what its children returned becomes an
input of it, what it handed to them becomes an output. So every operation of the model
belongs to exactly one piece, and checking all pieces costs one pass over the model,
however deeply it is nested.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.products import (
    change_along,
    gradients,
    leaves_behind,
    nodes_behind,
    refuses_grad,
)
from gradlab.localisation.layers.recording.frames import (
    may_use_others,
    parameters_handed_in,
)
from gradlab.localisation.layers.recording.intercept import call_function, intercepting
from gradlab.localisation.layers.recording.owners import standing_in
from gradlab.localisation.layers.recording.trees import fill, take_out
from gradlab.localisation.layers.replaying.directions import Scratch
from gradlab.localisation.layers.replaying.elsewhere import run_elsewhere
from gradlab.localisation.layers.replaying.entering import entered
from gradlab.localisation.layers.replaying.foreign import hangs_on, others_used
from gradlab.localisation.layers.replaying.stand_in import (
    StandIn,
    leaves_of,
    registered_leaves,
)
from gradlab.localisation.layers.variables import (
    Product,
    ReplayError,
    Variable,
    double_of,
)
from gradlab.subject.tensors.graph import nodes_so_far

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gradlab.localisation.layers.recording.frames import Frame, Slot
    from gradlab.localisation.layers.recording.owners import Owners

__all__ = ["Piece"]


class Piece:
    """One call, ready to be run again at other points.

    Parameters
    ----------
    frame
        The recorded call.
    owners
        Parameters of the whole model.
    raised
        Whether to compute in float64 what the model computes in less.
    bare
        Whether to run a module without its hooks and those of its parameters.
    whole
        Whether the calls inside are part of the piece, because it cannot do without.
    cotangents
        Weights of the outputs instead of the recorded ones.
    scratch
        Memory for moved parameters.
    handed
        Factor of the gradients that come back from calls inside.
    """

    def __init__(
        self,
        frame: Frame,
        owners: Owners,
        *,
        raised: bool = False,
        bare: bool = False,
        whole: bool = False,
        cotangents: Sequence[Any] | None = None,
        scratch: Scratch | None = None,
        handed: float = 1.0,
    ) -> None:
        self.frame = frame
        self.owners = owners
        self.raised = raised
        self.bare = bare and frame.kind == "module"
        # Whether copies stand in for the parameters in a vector-Jacobian product.
        self._copied = raised or self.bare
        self._chosen = True  # whether autograd is asked for chosen gradients
        self.evaluations = 0
        self._records = False  # whether differences are taken with autograd recording
        self.scratch = scratch or Scratch()
        self.cotangents = frame.cotangents if cotangents is None else cotangents
        self.whole = whole
        self.handed = handed
        self._parameters = owners.inside(frame.target) if whole else owners.held(frame)
        self._handed_in = parameters_handed_in(frame)

    def with_cotangents(self, cotangents: Sequence[Any], handed: float = 1.0) -> Piece:
        """Return the same piece with other weights of its outputs."""
        return Piece(
            self.frame,
            self.owners,
            raised=self.raised,
            bare=self.bare,
            whole=self.whole,
            cotangents=cotangents,
            scratch=self.scratch,
            handed=handed,
        )

    def cast(self, tensor: Any) -> Any:
        """Raise a tensor to double precision, if that is asked for."""
        return tensor.to(self._dtype(tensor))

    def _dtype(self, tensor: Any) -> Any:
        return double_of(tensor) if self.raised else tensor.dtype

    def variables(self) -> list[Variable]:
        """List what this piece is differentiated by: inputs, children, parameters."""
        found = [
            Variable(slot.label, "input", k, self.cast(slot.value))
            for k, slot in enumerate(self.frame.inputs)
            if slot.wanted
        ]
        for k, child in enumerate([] if self.whole else self.frame.children):
            name = child.name.removeprefix(f"{self.frame.name}.")
            call = f" (call {child.call})" if child.call else ""
            found += [
                Variable(
                    f"{slot.label} of {name}{call}",
                    "child",
                    (k, j),
                    self.cast(slot.value),
                )
                for j, slot in enumerate(child.outputs)
                if slot.wanted
            ]
        for parameter in self._parameters:
            label = self.owners.name(parameter)
            label = label.removeprefix(f"{self.frame.name}.")
            base, dtype = parameter.detach(), self._dtype(parameter)
            found.append(Variable(label, "parameter", None, base, parameter, dtype))
        return found

    @contextlib.contextmanager
    def _running(
        self,
        child_value: Callable[[int, int], Any],
        stand_ins: list[tuple[Any, Callable[[], Any]]],
    ) -> Iterator[StandIn]:
        """Set the scene: state on entry, parameters exchanged, children cut out."""
        stand_in = StandIn(self, child_value)
        draws = self.frame.exit_random is not self.frame.entry.random
        self.evaluations += 1
        with (
            standing_in(self.owners, stand_ins),
            entered(self, rewind=draws),
            intercepting(stand_in),
        ):
            yield stand_in

    def _call(self, inputs: list[Any]) -> list[Any]:
        import torch

        args, kwargs = fill(self.frame.template, inputs)
        target = self.frame.target
        if self.frame.kind == "function":
            result = call_function(target, args, kwargs)
        elif self.bare:
            result = target.forward(*args, **kwargs)
        else:
            result = target(*args, **kwargs)
        outputs = take_out(result, torch.Tensor)[1]
        if len(outputs) != len(self.frame.outputs):
            raise ReplayError(
                f"returns {len(outputs)} tensors when it is run again, not "
                f"{len(self.frame.outputs)}"
            )
        return outputs

    def product(
        self, *, only: int | None = None, seen: list[Any] | None = None
    ) -> Product:
        """Take the vector-Jacobian product that autograd computes for this piece.

        Of the `only` variable at a position, if given; `seen` gets outputs with graphs.
        """
        import torch

        if self._copied and may_use_others(self.frame):  # see which it uses
            made = range(self.frame.began, nodes_so_far())
            used = others_used(self.outputs_once(), self._parameters, made)
            # no copy can stand in for one that a loss has of its own
            self._parameters += [p for p in used if self.owners.places(p)]
        with torch.enable_grad():
            unasked = self.frame.unasked
            while True:
                try:
                    return self._product(unasked, only, seen)
                except Exception as error:
                    if self._chosen and refuses_grad(error):
                        self._chosen = False
                    elif unasked:
                        unasked = []
                    else:
                        raise

    def graph_has(self, test: Callable[[Any], bool]) -> bool:
        """Whether some node behind outputs, or what children take, passes a test."""
        seen: list[Any] = []
        with contextlib.suppress(ReplayError, RuntimeError):
            self.product(seen=seen)
        return any(map(test, nodes_behind(seen)))

    def _product(
        self, unasked: list[int], only: int | None, seen: list[Any] | None
    ) -> Product:
        variables = self.variables()
        if only is not None:
            variables = [variables[only]]
        asked = {k: self.cast(self.frame.inputs[k].value) for k in unasked}
        leaf, stand_ins = leaves_of(
            variables, asked, copied=self._copied, hooks=not self.bare
        )
        stand_ins += registered_leaves(self._handed_in, leaf)
        inputs = [
            self._argument(k, leaf.get(k, self.cast(slot.value)))
            for k, slot in enumerate(self.frame.inputs)
        ]

        child_value = functools.partial(self._child_value, leaf)
        made = range(self.frame.began, nodes_so_far())
        with self._running(child_value, stand_ins) as stand_in:
            outputs = self._call(inputs)
            cotangents = stand_in.weights(outputs)
            outputs += stand_in.handed_on()
            if not self._copied and hangs_on(outputs, made):
                self._copied = True
                return self.product(only=only, seen=seen)
            if seen is not None:
                seen += outputs
            if only is None and not self._copied:
                known = [*self._parameters, *leaf.values()]
                variables += [
                    Variable(self.owners.name(p), "parameter", None, p.detach(), p)
                    for p in others_used(outputs, known, made)
                ]
            wrt = [
                v.parameter
                if v.parameter is not None and not self._copied
                else leaf[id(v.parameter) if v.parameter is not None else v.place]
                for v in variables
            ]
            stand_in.backward = True
            wrt += [leaf[k] for k in unasked]
            found = gradients(outputs, cotangents, wrt, chosen=self._chosen)
        self.owners.note_added(self.frame, variables, found)
        kept = [k for k, v in enumerate(variables) if self._lasts(v)]
        found = [found[k] for k in kept] + found[len(variables) :]
        variables = [variables[k] for k in kept]
        places = [v.place if v.kind == "input" else None for v in variables]
        pairs = zip((*places, *unasked), found, strict=True)
        return Product(
            variables,
            found[: len(variables)],
            {place: gradient for place, gradient in pairs if place is not None},
            [None if out is None else out.detach() for out in outputs],
            cotangents,
        )

    def _child_value(self, leaf: dict[Any, Any], index: int, k: int) -> Any:
        if (index, k) in leaf:
            return leaf[index, k].clone()
        return self.cast(self.frame.children[index].outputs[k].value).clone()

    def _argument(self, k: int, value: Any) -> Any:
        # What the call overwrites must not be the recorded tensor, nor a leaf.
        return value.clone() if k in self.frame.overwritten else value

    def outputs_once(self) -> list[Any]:
        """Run once as the model does."""
        import torch

        lower = Piece(self.frame, self.owners, bare=self.bare, whole=self.whole)

        def recorded(slot: Slot) -> Any:  # hooks are only taken where grad is required
            return slot.value.detach().requires_grad_(slot.wanted).clone()

        def child_value(index: int, k: int) -> Any:
            return recorded(self.frame.children[index].outputs[k])

        with torch.enable_grad():
            inputs = [recorded(slot) for slot in self.frame.inputs]
            with lower._running(child_value, []) as stand_in:
                return lower._call(inputs) + stand_in.handed_on()

    def _lasts(self, variable: Variable) -> bool:
        """Whether a parameter outlives a run: forward may make some for itself."""
        tensor = variable.parameter
        if self.frame.adds_up is False and tensor is not None:
            return False  # which a Function reaches, and brings no gradient
        if tensor is None or id(tensor) in self.owners.names:
            return True
        return any(leaf is tensor for leaf in leaves_behind(self.outputs_once()))

    def change(
        self, product: Product, moved: Callable[[Variable], Callable[[], Any] | None]
    ) -> float:
        """Measure how the weighted sum of the outputs changes when variables move.

        Parameters
        ----------
        product
            Gives the variables, the outputs at the base point and their weights.
        moved
            Makes a variable's new value when called; None leaves it as it is.

        Returns
        -------
        float
            Sum over outputs of weight times (new minus base), the real part.
        """
        import torch

        new = {id(v): moved(v) for v in product.variables}
        spots = {v.place: v for v in product.variables if v.place is not None}

        def stand_in_for(variable: Variable) -> Any:
            make = new[id(variable)]
            value = self.cast(variable.base.detach()) if make is None else make()
            return value.requires_grad_(self._records)

        stand_ins = [
            (v.parameter, functools.partial(stand_in_for, v))
            for v in product.variables
            if v.kind == "parameter" and (new[id(v)] is not None or self.raised)
        ]

        def value_at(place: Any, slot: Slot) -> Any:
            make = new.get(id(spots[place])) if place in spots else None
            return self.cast(slot.value) if make is None else make()

        def child_value(index: int, k: int) -> Any:
            slot = self.frame.children[index].outputs[k]
            value = value_at((index, k), slot)
            if self._records and slot.wanted:
                return value.detach().requires_grad_().clone()
            return value.clone() if value is slot.value else value

        def outputs_now() -> list[Any]:
            slots = self.frame.inputs
            values = [value_at(k, slot) for k, slot in enumerate(slots)]
            for k, slot in enumerate(slots):
                values[k].requires_grad_(self._records and slot.wanted)
            inputs = [self._argument(k, value) for k, value in enumerate(values)]
            also = [
                (parameter, functools.partial(values.__getitem__, k))
                for k, parameter in self._handed_in.items()
            ]
            with self._running(child_value, [*stand_ins, *also]) as stand_in:
                return run_elsewhere(lambda: self._call(inputs)) + stand_in.handed_on()

        try:
            with torch.set_grad_enabled(self._records):
                outputs = outputs_now()
        except RuntimeError:
            if self._records:
                raise
            # A forward that registers hooks works only on tensors that require grad.
            self._records = True
            return self.change(product, moved)
        if len(outputs) != len(product.outputs):
            raise ReplayError("takes another path when its inputs move")
        with torch.no_grad():
            return sum(
                change_along(weight, output, base)
                for weight, output, base in zip(
                    product.cotangents, outputs, product.outputs, strict=True
                )
                if weight is not None
            )
