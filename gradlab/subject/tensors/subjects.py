"""Torch functions and modules as subjects.

The user's tensors, parameters and buffers are never written to: private copies with
the same layout are perturbed, and a module is called with them in place of its own
parameters, as ``torch.func.functional_call`` would do it. Memory: one copy of every
input (of every checked parameter, for a module); the analytic side works on that same
copy.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal

from gradlab.errors import InputError, InputTypeError, SubjectError
from gradlab.subject.ending import ended
from gradlab.subject.tensors.batching.batches import Batches
from gradlab.subject.tensors.batching.devices import batch_bytes
from gradlab.subject.tensors.batching.loops import same_values
from gradlab.subject.tensors.bits import Before
from gradlab.subject.tensors.calling.captured_inputs import followed
from gradlab.subject.tensors.calling.domains import DEVICE, asserting_watched, in_domain
from gradlab.subject.tensors.calling.freed import changed
from gradlab.subject.tensors.calling.programs import prepare
from gradlab.subject.tensors.gradients.analytic import ReverseMode
from gradlab.subject.tensors.gradients.forward import ForwardMode
from gradlab.subject.tensors.in_double.double import in_double
from gradlab.subject.tensors.in_double.returning import returning_watched
from gradlab.subject.tensors.in_double.transient_parameters import lent
from gradlab.subject.tensors.incremental.input_products import products_of
from gradlab.subject.tensors.outputs import (
    no_more_the_same,
    observe,
    scalar_loss,
    to_row,
    variables_of,
)
from gradlab.subject.tensors.overlaps import sharing
from gradlab.subject.tensors.walk import displace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gradlab.subject.analytic_sides import Analytic
    from gradlab.subject.subject import Coordinates, Variable
    from gradlab.subject.tensors.calling.programs import Program
    from gradlab.subject.tensors.outputs import Observed
    from gradlab.subject.tensors.values import Cell

__all__ = ["TorchSubject", "torch_subject"]

_LARGE = 1 << 28  # bytes of inputs above which the first evaluation is not done twice
_WATCHED = 1 << 26  # bytes of inputs that are compared after it with what they were


def torch_subject(
    fn: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    wrt: str | Sequence[str] | None = None,
    names: Sequence[str] | Mapping[str, str] | None = None,
    loss: Callable[[Any], Any] | None = None,
    mode: Literal["reverse", "forward"] = "reverse",
) -> TorchSubject:
    """Freeze a torch function or module at a point.

    Parameters
    ----------
    fn
        Function of tensors, or ``nn.Module``. Of a module every trainable parameter is
        an input, and every floating argument of forward that requires grad. Of a
        function the tensors that require grad are, or all floating and complex ones
        where none does.
    arguments
        Positional arguments; tensors anywhere in nested dicts, tuples and lists.
    wrt
        Names of the inputs to restrict to; None takes all.
    names
        Other names for the inputs: one for each, or a mapping from old to new.
    loss
        Maps the result to one real number, which is then the only output, ``loss``.
    mode
        Which mode of autograd is under suspicion.

    Raises
    ------
    InputError
        If no input is differentiable, or a name does not exist or is there twice.
    InputTypeError
        If `fn` or `loss` cannot be called, or the layout of a tensor has no entries.

    Examples
    --------
    >>> import torch
    >>> subject = torch_subject(torch.sin, (torch.zeros(2),), names=["x"])
    >>> subject.row()
    array([0., 0.])
    >>> subject.analytic.pull(np.eye(2)).values[0]
    array([[1., 0.],
           [0., 1.]])
    """
    given: tuple[tuple[str, object], ...] = (("fn", fn), ("loss", loss))
    for word, value in given:
        if value is not None and not callable(value):
            msg = f"{word} must be callable, got {type(value).__name__} {value!r:.60}"
            raise InputTypeError(msg)
    if mode not in ("reverse", "forward"):
        msg = f"mode must be 'reverse' or 'forward', got {mode!r}"
        raise InputError(msg)
    program, cells = prepare(fn, arguments, wrt=wrt, names=names)
    root = "out" if loss is None else "loss"
    subject = TorchSubject(program, cells, loss=loss, root=root)
    if mode == "forward":
        subject.analytic = ForwardMode(subject)
    return subject


class TorchSubject:
    """A torch program at a point; see `gradlab.subject.subject.Subject`.

    Attributes
    ----------
    cells
        Private storage of the inputs.
    analytic
        Reverse-mode autograd unless replaced.
    aliased
        Names of inputs whose entries overlap in the user's memory (expanded tensors).
    shared
        Pairs of names of inputs that overlap in memory with each other.
    mutated
        Names of inputs that the function was seen to write to.
    dependent
        Inputs that were computed from others: ``"y from x"``; set by the builder.
    chunk_bytes
        Bound on the perturbed copies made for one batch; see `batching.stacks`.
    """

    live = False

    def __init__(
        self,
        program: Program,
        cells: Sequence[Cell],
        *,
        loss: Callable[[Any], Any] | None = None,
        root: str = "out",
    ) -> None:
        self.program = program
        self.cells = tuple(cells)
        self.loss, self.root = loss, root
        self.kind = program.kind
        self.inputs: tuple[Variable, ...] = tuple(c.variable for c in self.cells)
        self.aliased = tuple(c.variable.name for c in self.cells if c.aliased)
        self.shared = sharing(self.cells)
        self.mutated: tuple[str, ...] = ()
        self.dependent: tuple[str, ...] = ()
        self.reset: Callable[[], None] | None = None  # before each evaluation
        self.chunk_bytes = batch_bytes([cell.values for cell in self.cells])
        self.forward_value: NDArray[np.float64] | None = None  # of autograd's forward
        self.analytic: Analytic | None = ReverseMode(self)
        self.needs_grad: bool | None = None  # unknown before the first evaluation
        self.kept: tuple[int, ...] | None = None  # outputs that require grad; all
        self.whole = False  # keep those without grad as well
        self.beside = False  # a module's parameters are read beside its tables,
        self.unfollowed: tuple[str, ...] = ()  # where those could not be exchanged
        self._signature: list[tuple[str, tuple[int, ...], Any]] | None = None
        self._outputs: tuple[Variable, ...] | None = None
        self._epsilon: float | None = None
        self.least_epsilon = 0.0  # of what comes back to torch from outside
        self._batches = Batches(self)
        self.may_batch = self._batches.may_be  # without a trial: see there
        self.first_rows = self._batches.first_rows
        self.products = functools.partial(products_of, self)
        self.at_point: NDArray[np.float64] | None = None  # the row there, if known
        self.least_scales: dict[int, float] = {}
        self.underflow: dict[int, float] = {}  # shares of gradients that were lost
        self.draws = self.asserts = self.returns = False  # as was seen
        self.narrowed: set[str] = set()  # precisions that it casts to on the way

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The outputs, complex ones split; evaluates once if nothing was before."""
        if self._outputs is None:
            self.row()
        return self._outputs or ()

    @property
    def epsilon(self) -> float:
        """Unit round-off of the coarsest dtype among inputs and outputs."""
        if self._epsilon is not None:
            return self._epsilon
        import torch

        dtypes = {cell.values.dtype for cell in self.cells}
        dtypes |= {dtype for _, _, dtype in self._signature or ()}
        found = max(self.least_epsilon, *(torch.finfo(each).eps for each in dtypes))
        if self._signature is not None:  # else an output may be coarser
            self._epsilon = found
        return found

    def batches(self, which: int, count: int) -> bool:
        """Whether so many perturbations are cheaper in batches; tries it once."""
        return self._batches.worthwhile(which, count)

    def point(self, which: int) -> NDArray[np.float64]:
        """Real coordinates of input `which` at the point; a copy."""
        return self.cells[which].point()

    def coordinates(self, which: int) -> Coordinates:
        """Flat writable view on the private copy of input `which`."""
        return self.cells[which].coordinates()

    def place(self, which: int, values: NDArray[np.float64] | None) -> None:
        """Overwrite all coordinates of an input; None puts the point back."""
        self.cells[which].place(values)

    def displace(
        self, which: int, start: int, moves: NDArray[np.float64], factor: float = 1.0
    ) -> None:
        """Write ``point + factor * moves`` from coordinate `start` of an input on."""
        displace(self.cells[which], start, moves, factor)

    def row(self) -> NDArray[np.float64]:
        """Evaluate at what the coordinates hold; one number per real output row."""
        if (grad := self.needs_grad) is None:
            return self._first_row()
        return to_row(self.evaluate(self.values_apart(grad), grad))

    def rows(
        self,
        which: int,
        positions: NDArray[np.intp],
        displacements: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Evaluate with one coordinate displaced at a time.

        In batches where a trial has shown that to be possible, equal up to round-off
        and faster; else one at a time. Rows where the function raised are nan.
        """
        return self._batches.rows(which, positions, displacements)

    def sets(
        self, inputs: tuple[int, ...], displacements: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Evaluate with many coordinates displaced together, shape (count, rows)."""
        return self._batches.sets(inputs, displacements)

    def batch_size(self, which: int) -> int:
        """Return how many evaluations one batch of input `which` holds; 1 in a loop."""
        return self._batches.size(which)

    def in_double(self) -> TorchSubject | None:
        """Return the same program in float64, or None; memory: that of all tensors."""
        return in_double(self)

    def forget(self, which: int) -> None:
        """Announce that all coordinates of an input are about to be displaced."""
        self.cells[which].forget()

    def with_leaves(self, chosen: Sequence[int]) -> tuple[list[Any], list[Any]]:
        """Values to evaluate at, and the leaves among them that require grad."""
        values = [cell.tensor() for cell in self.cells]
        leaves = []
        for which in chosen:
            cell = self.cells[which]
            written = cell.variable.name in self.mutated
            leaf = cell.leaf(apart=written and cell.parameter)
            leaves.append(leaf)
            # what is written to is no leaf; a parameter is, where nothing records
            values[which] = leaf.clone() if written and not cell.parameter else leaf
        return values, leaves

    def evaluate(self, values: Sequence[Any], grad: bool) -> tuple[Any, ...]:  # noqa: FBT001 - the mode, as torch.set_grad_enabled takes it
        """Call the program; return its differentiable outputs.

        Raises
        ------
        SubjectError
            If the outputs have other names, shapes or dtypes than before.
        """
        import torch

        if self.reset is not None:
            self.reset()
        versions = [cell.values._version for cell in self.cells]  # noqa: SLF001 - torch's only mark of a change
        try:
            with torch.set_grad_enabled(grad):
                observed = ended(self.observed, values)
        finally:
            self.undo_writes(versions)
        signature = observed.signature()
        if self._signature is None:
            self._signature, self._outputs = signature, variables_of(observed)
        elif signature != self._signature:
            raise no_more_the_same(self._signature, signature)
        return observed.tensors

    def observed(
        self, values: Sequence[Any], buffers: Mapping[str, Any] | None = None
    ) -> Observed:
        """Call the program, apply the loss, pick the outputs; nothing else."""
        with in_domain() if self.asserts else DEVICE:
            result = self.program.call(values, buffers)
            if self.loss is not None:  # which may read the parameters: a penalty
                own = self.program.standing
                with own(values, buffers) if self.beside else DEVICE:
                    result = scalar_loss(self.loss(result))
        found = observe(result, self.root)
        return found if self.kept is None else found.only(self.kept)

    def values_apart(self, grad: bool) -> list[Any]:  # noqa: FBT001 - as above
        """Values to evaluate at; copies of those that the function writes to."""
        if grad:
            return self.with_leaves(range(len(self.cells)))[0]
        return [
            (lent(cell) or cell.tensor())
            if cell.variable.name not in self.mutated
            else cell.apart()
            for cell in self.cells
        ]

    def _first_row(self) -> NDArray[np.float64]:
        """Find out whether the function needs grad mode to compute what it computes.

        Gradient penalties differentiate inside and raise under no_grad; others take
        another branch there. What the user differentiates is what grad mode computes.
        """
        try:
            plain = to_row(self._watched(grad=False))
        except SubjectError:
            raise
        except Exception:  # noqa: BLE001 - anything may come from the user's function
            plain = None
        large = sum(cell.values.nbytes for cell in self.cells) > _LARGE
        if plain is not None and large:
            self.needs_grad = False
            return plain
        try:
            tensors = self._watched(grad=True)
        except Exception:
            if plain is None:
                raise
            self.needs_grad = False  # it cannot be differentiated, as will be said
            return plain
        if followed(self, tensors):
            return self._first_row()
        full = to_row(tensors)
        told = [k for k, tensor in enumerate(tensors) if tensor.requires_grad]
        if told and len(told) < len(tensors) and not self.whole:
            self._keep(told)
            return self._first_row()
        # torch has other kernels there, of other last digits
        self.needs_grad = plain is None or not same_values(
            self, full[None], plain[None]
        )
        return full if plain is None or self.needs_grad else plain

    def _watched(self, *, grad: bool) -> tuple[Any, ...]:
        """Evaluate, and see whether inputs are written to by ``.data`` or NumPy.

        Nothing counts such writes; from now on the function gets copies of its own.
        """
        small = sum(cell.values.nbytes for cell in self.cells) <= _WATCHED
        there = [Before(cell) for cell in self.cells if small]
        tensors = [cell.values for cell in self.cells]
        with asserting_watched(tensors) as seen, returning_watched() as back:
            found = self.evaluate(self.values_apart(grad), grad)
        self.asserts |= bool(seen)
        self.narrowed |= back.narrowed
        self.returns |= bool(back.names)
        for cell, before in zip(self.cells, there, strict=False):
            name = cell.variable.name
            if name not in self.mutated and before.written():
                before.put_back()
                self.mutated = (*self.mutated, name)
        return found

    def _keep(self, told: Sequence[int]) -> None:
        """Leave out outputs that say themselves that they have no gradient.

        Beside others that have one, that is a statement of the function (saved
        statistics, indices as numbers); where no output requires grad it is a mistake.
        """
        names = [name for name, _, _ in self._signature or ()]
        left = [name for k, name in enumerate(names) if k not in told]
        self.kind += f" (not looked at, without requires_grad: {', '.join(left)})"
        self.kept = tuple(told)
        self._signature = self._outputs = self._epsilon = None

    def undo_writes(self, versions: Sequence[int]) -> None:
        """Put inputs back that the function wrote to, and remember their names."""
        for cell, version in zip(self.cells, versions, strict=True):
            if changed(cell, version):
                cell.place(None)
                names = (*self.mutated, cell.variable.name)
                self.mutated = tuple(dict.fromkeys(names))
