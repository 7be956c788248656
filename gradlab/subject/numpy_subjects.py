"""Subjects on NumPy arrays, and on arrays of any library that converts from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.ending import endable
from gradlab.subject.guarding.saved_arrays import same_bytes
from gradlab.subject.numpy_in_place import StandIns, follows, is_fine
from gradlab.subject.numpy_outputs import Outputs
from gradlab.subject.numpy_values import (
    as_complex,
    coordinates_of,
    gather,
    output_converter,
    scatter,
    undoing,
    working_copy,
)
from gradlab.subject.subject import DOUBLE, EPSILON, SINGLE, Variable, output_rows
from gradlab.subject.tensors.calling.constants import cast, double_dtype
from gradlab.subject.tensors.in_double.widening import WideTensors
from gradlab.subject.tensors.tensors_in_place import meets_halves
from gradlab.subject.tensors.values import is_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.analytic_sides import Analytic
    from gradlab.subject.subject import Coordinates
    from gradlab.subject.tree import Tree

    Widened = Callable[[Callable[..., Any], Mapping[str, Any]], Callable[..., Any]]

__all__ = ["ArraySubject"]

_WIDER = {"float16": "float64", "float32": "float64", "complex64": "complex128"}


class ArraySubject:
    """A function of arrays, frozen at a point. Implements `subject.Subject`.

    Parameters
    ----------
    call
        Evaluates the user's function: takes its positional arguments, returns its
        outputs (the caches and gradients it may also return already dropped).
    tree
        The positional arguments, taken apart. For parameters that are perturbed in
        place, the tree of ``params``; then `call` takes no argument.
    which
        Positions of the differentiable leaves among ``tree.leaves``.
    names
        One name for each of them.
    live
        Whether the function reads the user's own arrays, which are perturbed then.
    kind, output_name
        Words for people.
    stand_ins
        What stands where the function reads for the time of each evaluation.
    """

    dependent: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()  # inputs that are passed beside parameters in place
    draws = False

    def __init__(
        self,
        call: Callable[..., Any],
        tree: Tree,
        which: Sequence[int],
        names: Sequence[str],
        *,
        live: bool = False,
        kind: str = "NumPy function",
        output_name: str = "out",
        stand_ins: tuple[StandIns | WideTensors, ...] = (),
    ) -> None:
        self.kind = kind
        self.analytic: Analytic | None = None
        # makes an analytic side for a twin of other precision; None: it has none
        self.side: Callable[[ArraySubject], Analytic] | None = None
        self.reset: Callable[[], None] | None = None
        self.rewrites_inputs = False
        # what the user passed; parameters and constants are looked for in there
        self.roots: tuple[object, ...] = ()
        self.stand_ins = stand_ins
        # for tensors in place: makes a call that reads arrays instead, by leaf
        self.widened: Widened | None = None
        self.tree = tree
        self.which = tuple(which)
        self.live = live
        self._call = call
        self._evaluated = self.around(endable(call))
        self._output_name = output_name
        self._working = [working_copy(tree.leaves[p], live=live) for p in self.which]
        self._values: list[Any] = [leaf.value for leaf in tree.leaves]
        for position, working in zip(self.which, self._working, strict=True):
            self._values[position] = working.value()
        self._presented = [
            (position, working)
            for position, working in zip(self.which, self._working, strict=True)
            if working.present is not None
        ]
        self._arguments = () if live else tree.rebuild(self._values)
        self._rebuild = bool(self._presented)
        self.inputs = tuple(
            Variable(name, w.array.shape, w.array.dtype.name)
            for name, w in zip(names, self._working, strict=True)
        )
        self.reader = Outputs(output_name)
        self.least_scales: dict[int, float] = {}
        self.presenter: Callable[[NDArray[Any]], Any] | None = None

    # ---------------------------------------------------------------- Subject
    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The outputs, known once `row` has been called."""
        return self.reader.variables

    @property
    def epsilon(self) -> float:
        """Coarsest round-off among the inputs and outputs."""
        kinds = [np.dtype(v.dtype) for v in self.inputs] + list(self.reader.dtypes)
        return max((float(np.finfo(k).eps) for k in kinds), default=EPSILON)

    def point(self, which: int) -> NDArray[np.float64]:
        """Real coordinates of input `which` at the point."""
        return gather(self._working[which].pristine)

    def coordinates(self, which: int) -> Coordinates:
        """View on the coordinates of input `which`."""
        return coordinates_of(self._working[which].array)

    def place(self, which: int, values: NDArray[np.float64] | None) -> None:
        """Overwrite all coordinates of an input; None puts the point back."""
        working = self._working[which]
        if values is None:
            working.array[...] = working.pristine
        else:
            scatter(working.array, values)

    def displace(
        self, which: int, start: int, moves: NDArray[np.float64], factor: float = 1.0
    ) -> None:
        """Write ``point + factor * moves`` from coordinate `start` of an input on."""
        working = self._working[which]
        # a matrix is never flat, a mask hides entries
        here = working.pristine.view(np.ndarray)
        there = working.array.view(np.ndarray)
        part = slice(start, start + len(moves))
        plain = here.dtype.kind == "f" and here.flags.c_contiguous
        if plain and there.flags.c_contiguous:
            own, end = here.reshape(-1)[part], there.reshape(-1)[part]
            np.add(own, factor * moves, out=end, casting="same_kind")
            return
        values = gather(there)
        values[part] = gather(here)[part] + factor * moves
        scatter(there, values)

    def arguments(self) -> tuple[Any, ...]:
        """Positional arguments as the function sees them now."""
        if not self._rebuild:
            return self._arguments
        for position, working in self._presented:
            self._values[position] = working.value()
        return self.tree.rebuild(self._values)

    def fresh_arguments(self) -> tuple[Any, ...]:
        """Positional arguments at the point, in memory of their own.

        The analytic side is called with these, so that it may scribble on them.
        """
        if self.live:
            return ()
        values = [leaf.value for leaf in self.tree.leaves]
        for position, working in zip(self.which, self._working, strict=True):
            values[position] = working.lend()
        return self.tree.rebuild(values)

    def row(self) -> NDArray[np.float64]:
        """Evaluate at what the coordinates hold now."""
        if self.reset is not None:
            self.reset()
        result = self._evaluated(*self.arguments())
        if not self.reader.variables:
            self.presenter = output_converter(result)
        row = self.reader.row(result)
        if self.rewrites_inputs:
            self.put_back()
        return row

    def present_output(self, cotangent: Any) -> Any:
        """Turn a NumPy cotangent into an array of the library of the outputs."""
        if self.presenter is None:
            return cotangent
        return self.presenter(np.asarray(cotangent))

    def put_back(self) -> None:
        """Write the point into all inputs again."""
        for working in self._working:
            working.array[...] = working.pristine

    @property
    def mutated(self) -> tuple[str, ...]:
        """Names of inputs that no longer hold the point, bit for bit."""
        return tuple(
            variable.name
            for variable, working in zip(self.inputs, self._working, strict=True)
            if not same_bytes(working.array, working.pristine)
        )

    @property
    def scribbled(self) -> tuple[str, ...]:
        """Names of inputs of which the analytic side wrote to its copies."""
        pairs = zip(self.inputs, self._working, strict=True)
        return tuple(variable.name for variable, working in pairs if working.scribbled)

    def undoing(self, call: Callable[[], Any]) -> Any:
        """Call the analytic side, and undo what it writes to parameters in place."""
        return undoing(self._working, call) if self.live else call()

    def batches(self, which: int, count: int) -> bool:  # noqa: ARG002 - of the protocol
        """NumPy functions are evaluated one point at a time."""
        return False

    def rows(
        self,
        which: int,  # noqa: ARG002 - as above
        positions: NDArray[np.intp],  # noqa: ARG002
        displacements: NDArray[np.float64],  # noqa: ARG002
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Not available: NumPy functions are evaluated one point at a time."""
        msg = "NumPy subjects have no batches"
        raise RuntimeError(msg)

    # ---------------------------------------------------------------- variants
    def made_complex(self, which: int) -> ArraySubject:
        """Return the same function with one of its inputs complex."""
        position = self.which[which]
        value = np.asarray(self.tree.leaves[position].value) + 0j
        twin = ArraySubject(
            self._call,
            self.tree.with_values({position: value}),
            self.which,
            [variable.name for variable in self.inputs],
            kind=self.kind,
            output_name=self._output_name,
        )
        twin.reset, twin.rewrites_inputs = self.reset, self.rewrites_inputs
        return twin

    def _wider_tree(self) -> Tree:
        """Copy all arrays to float64, those included that are not differentiated."""
        values = (_wider(leaf.value) for leaf in self.tree.leaves)
        return self.tree.with_values(dict(enumerate(values)))

    def on(
        self,
        tree: Tree,
        call: Callable[..., Any] | None = None,
        stand_ins: tuple[StandIns | WideTensors, ...] = (),
    ) -> ArraySubject:
        """Return the same function on other arrays, with its analytic side."""
        twin = ArraySubject(
            self._call if call is None else call,
            tree,
            self.which,
            [variable.name for variable in self.inputs],
            live=self.live,
            kind=self.kind,
            output_name=self._output_name,
            stand_ins=stand_ins,
        )
        twin.reset, twin.rewrites_inputs = self.reset, self.rewrites_inputs
        # what is widened is f; a gradient that is asked for computes as it does
        if self.side is not None and self.widened is None:
            twin.side, twin.analytic = self.side, self.side(twin)
        return twin

    def moved(self, points: Mapping[int, NDArray[np.float64]]) -> ArraySubject | None:
        """Return the same function at another point, with its analytic side.

        What its outputs are is known already, and nothing is evaluated. None where the
        function reads the user's own arrays, or an input is no array.

        Parameters
        ----------
        points
            Coordinates of the inputs that stand elsewhere, by position.
        """
        if self.side is None or self.live:
            return None
        others = {}
        for which, point in points.items():
            position, variable = self.which[which], self.inputs[which]
            here = self.tree.leaves[position].value
            if not isinstance(here, np.ndarray | float | np.generic):
                return None
            array = as_complex(point) if variable.is_complex else point
            array = array.reshape(variable.shape).astype(variable.dtype)
            others[position] = array if isinstance(here, np.ndarray) else array[()]
        twin = self.on(self.tree.with_values(others), stand_ins=self.stand_ins)
        twin.reader, twin.presenter = self.reader, self.presenter
        return twin

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Make something of the user's read what this subject reads where it is."""
        for each in self.stand_ins:
            call = each.around(call)
        return call

    def in_double(self) -> ArraySubject | None:
        """Return the same function on float64 copies, or None if it cannot run so.

        Copies of parameters that are read in place stand where these are found for the
        time of each evaluation, and so do copies of constants in half precision. The
        twin must follow every input as the function does, and resolve what float64
        resolves; else something inside is not float64.
        """
        tree = self._wider_tree()
        call, stand_ins = self._call, list[StandIns | WideTensors]()
        if self.widened is not None:
            if meets_halves(self.row):
                return None  # gradients have as few digits: float64 asks for more
            call = self.widened(call, {leaf.name: leaf.value for leaf in tree.leaves})
        elif self.live:
            pairs = zip(self.tree.leaves, tree.leaves, strict=True)
            cast = [(old.value, new.value) for old, new in pairs]
            cast = [(old, new) for old, new in cast if old is not new]
            found = StandIns.of(
                [old for old, _ in cast], [new for _, new in cast], self.roots
            )
            if found is None:
                return None
            stand_ins.append(found)
        elif any(is_torch(leaf.value) for leaf in tree.leaves):
            stand_ins.append(WideTensors())
        if self.epsilon > SINGLE:
            mine = [leaf.value for leaf in self.tree.leaves]
            found = StandIns.of_halves(self.roots, mine)
            stand_ins += [found] if found else []
        twin = self.on(tree, call, tuple(stand_ins))
        try:
            with np.errstate(all="ignore"):
                twin.row()
                wide = twin.epsilon < DOUBLE
                usable = (
                    wide and is_fine(twin) and (not self.live or follows(self, twin))
                )
                twin.row()  # caches that a gradient reads hold the point again
                if usable and isinstance(next(iter(stand_ins), None), WideTensors):
                    usable = _differentiates(twin)
        except Exception:  # noqa: BLE001 - whatever the user's code raises: no reference
            return None
        return twin if usable else None


def _differentiates(twin: ArraySubject) -> bool:
    """Whether a gradient in float64 can be had; one in short digits is not held to it.

    What it makes in single precision, to write to, loses digits that f then has.
    """
    if twin.analytic is None:
        return True
    return not twin.analytic.pull(np.ones((1, output_rows(twin.outputs)))).problems


def _wider(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.name in _WIDER:
        return value.astype(_WIDER[value.dtype.name])
    if is_torch(value) and str(value.dtype).removeprefix("torch.") in _WIDER:
        return cast(value, double_dtype)
    return value
