"""From what the user passes to a subject: one builder for all kinds.

`gradlab.check`, `gradlab.sweep`, `gradlab.locate` and the Jacobian functions accept the
same arguments; they are read, and refused, here.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gradlab.differentiation.analytic.gradients import claimed
from gradlab.differentiation.analytic.hand_written import (
    BackwardPass,
    Contracted,
    UserVjp,
    split_cache,
)
from gradlab.differentiation.analytic.written_jacobian import UserJacobian
from gradlab.errors import InputError, InputTypeError
from gradlab.subject.analytic_sides import GIVEN
from gradlab.subject.callables import (
    refuse_arrays,
    refuse_classes,
    refuse_criteria,
    refuse_generators,
    refuse_packed,
    refuse_wanting,
    then,
)
from gradlab.subject.choosing import beside_params, check_writable, number_lists, pick
from gradlab.subject.numpy_subjects import ArraySubject
from gradlab.subject.numpy_values import as_numpy
from gradlab.subject.pairs import gradients_of, loss_of, maybe_loss_of
from gradlab.subject.tensors import tensors_in_place
from gradlab.subject.tensors import values as torch_values
from gradlab.subject.tensors.graph import dependent_inputs
from gradlab.subject.tensors.in_double.widening import widened_call
from gradlab.subject.tree import argument_names, flatten, leaves_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.subject.analytic_sides import Analytic
    from gradlab.subject.subject import Subject
    from gradlab.subject.tree import Tree

__all__ = ["Sides", "build_subject", "valid_seed"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """The options that say what is checked; the rest of `check` says how."""

    params: Any = None
    grad: Any = None
    jac: Callable[..., Any] | None = None
    backward: Callable[..., Any] | None = None
    vjp: Callable[..., Any] | None = None
    loss: Callable[..., Any] | None = None
    wrt: Sequence[str] | str | None = None
    names: Sequence[str] | Mapping[str, str] | None = None
    mode: Literal["reverse", "forward"] = "reverse"
    need_analytic: bool = True
    numbers: bool = True  # whether plain numbers that have a gradient are inputs

    def __post_init__(self) -> None:
        """Keep what ``model.parameters()`` gives once: it is read more than once."""
        if isinstance(self.params, Iterator):
            told = list(self.params)
            named = all(isinstance(each, tuple) and len(each) == 2 for each in told)
            object.__setattr__(self, "params", dict(told) if named else told)

    def given(self) -> list[str]:
        """Names of the analytic sides that were passed."""
        every = ("grad", "jac", "backward", "vjp")
        return [name for name in every if getattr(self, name) is not None]

    def roots(
        self, fn: object, inputs: Sequence[Any], *more: object
    ) -> tuple[Any, ...]:
        """List what a call may reach of the user's, for `StateGuard`."""
        sides = (self.grad, self.jac, self.backward, self.vjp, self.loss)
        every = (*inputs, self.params, fn, *sides, *more)
        return tuple(root for root in every if root is not None)


def valid_seed(seed: Any) -> int:
    """Return a seed as a plain number.

    Raises
    ------
    InputError
        If it is no integer >= 0.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed must be an integer >= 0, got {seed!r}")
    return int(seed)


def build_subject(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    sides: Sides,
    meter: Meter | None = None,
) -> Subject:
    """Freeze a function at a point, with its analytic side.

    `meter` is charged where that takes an evaluation.

    Raises
    ------
    InputError, InputTypeError
        If the arguments cannot be used; nothing has been evaluated then.
    """
    _check_options(fn, sides)
    refuse_packed(fn, inputs)
    if _is_for_torch(fn, inputs, sides):
        return _torch(fn, tuple(inputs), sides)
    if sides.need_analytic and not sides.given():
        refuse_arrays(fn)
    if sides.params is not None:
        found = _rounding(fn, inputs, sides, meter)
        return found or _in_place(fn, tuple(inputs), sides)
    return _functional(fn, tuple(inputs), sides)


def _check_options(fn: object, sides: Sides) -> None:
    if not callable(fn):
        msg = (
            f"the first argument must be the function to check, got "
            f"{type(fn).__name__}; write gl.check(function, input, ...)"
        )
        raise InputTypeError(msg)
    given = sides.given()
    refuse_classes(fn)
    refuse_generators(fn=fn, loss=sides.loss, **{g: getattr(sides, g) for g in given})
    if len(given) > 1:
        msg = f"pass one analytic side, got {' and '.join(f'{g}=' for g in given)}"
        raise InputError(msg)
    for name in ("jac", "backward", "vjp", "loss"):
        value = getattr(sides, name)
        if value is not None and not callable(value):
            msg = f"{name}= must be a function, got {type(value).__name__}"
            raise InputTypeError(msg)
    if isinstance(sides.params, int | float | complex | str | bytes):
        msg = (
            f"params= takes what fn reads where it is, an array or a dict, list or "
            f"tuple of arrays, got {sides.params!r:.60}; make it np.array(...), or "
            f"pass it as an input of fn"
        )
        raise InputTypeError(msg)
    if sides.grad is not None and not callable(sides.grad):
        _refuse_no_gradients(sides.grad)
    refuse_criteria(sides.loss)


def _refuse_no_gradients(grad: Any) -> None:
    """Refuse what cannot be a gradient: a word, a set, an object."""
    for leaf in leaves_of(grad, "grad"):
        value = leaf.value
        if value is None or hasattr(value, "shape"):
            continue
        try:
            as_numpy(value, leaf.name)
        except InputTypeError as cause:
            msg = (
                f"{leaf.name} must be a function or the gradients themselves, arrays "
                f"or a dict or tuple of them, got {type(value).__name__} {value!r:.60}"
            )
            raise InputTypeError(msg) from cause


# ------------------------------------------------------------------ torch
def _is_for_torch(fn: object, inputs: Sequence[Any], sides: Sides) -> bool:
    if torch_values.looks_like_module(fn):
        return True
    if sides.jac or sides.backward or sides.vjp or callable(sides.grad):
        return False  # hand-written: tensors are converted back and forth
    if sides.params is not None:
        return False
    leaves = leaves_of(tuple(inputs), "")
    return any(torch_values.is_torch(leaf.value) for leaf in leaves)


def _torch(fn: Any, inputs: tuple[Any, ...], sides: Sides) -> Subject:
    from gradlab.subject.tensors.subjects import torch_subject

    subject = torch_subject(
        fn,
        inputs,
        wrt=[sides.wrt] if isinstance(sides.wrt, str) else sides.wrt,
        names=sides.names,
        loss=sides.loss,
        mode=sides.mode,
    )
    taken_apart = subject.program.arguments  # type: ignore[attr-defined] # of functions and modules
    subject.dependent = dependent_inputs(taken_apart.tree.leaves)
    if sides.grad is not None:
        subject.analytic = _held(sides.grad, subject)
    return subject


def _rounding(
    fn: Any, inputs: Sequence[Any], sides: Sides, meter: Meter | None
) -> Subject | None:
    """Take a loss that computes in half precision for a function of torch, or None."""
    params = tensors_in_place.named(sides.params)
    held = not callable(sides.grad) and tensors_in_place.short(params)
    if not held and (sides.given() or not sides.need_analytic):
        return None

    def once() -> Any:
        if meter is not None:
            meter.owe(1)
        return fn(*inputs)

    if not tensors_in_place.rounds(once, params):
        return None

    def reading(params: Any) -> Any:  # noqa: ARG001 - in place
        return fn(*inputs)

    return _torch(reading, (params,), sides)


def _held(gradients: Any, subject: Any) -> Contracted:
    """Judge gradients that the user already holds."""
    return Contracted(lambda: gradients, subject, GIVEN)


# ------------------------------------------------------------------ NumPy
def _check_finite(subject: ArraySubject) -> None:
    for k, variable in enumerate(subject.inputs):
        point = subject.point(k)
        bad = np.flatnonzero(np.isnan(point))
        if len(bad):
            label = variable.label(variable.entry_of(int(bad[0])))
            msg = (
                f"{label} is nan; a derivative there has no meaning: "
                f"pass inputs without nan, or leave {variable.name} out with wrt="
            )
            raise InputError(msg)


def _functional(
    fn: Callable[..., Any], inputs: tuple[Any, ...], sides: Sides
) -> ArraySubject:
    tree = flatten(number_lists(inputs), argument_names(fn, len(inputs)))
    chosen = pick(tree, sides.wrt, sides.names)
    subject = _array_subject(fn, tree, chosen, sides)
    named_one_by_one = sides.names is not None and not hasattr(sides.names, "keys")
    if sides.numbers and sides.wrt is None and not named_one_by_one:
        numbers = claimed(subject, sides.roots(fn, inputs))
        if numbers:
            chosen = pick(tree, None, sides.names, numbers=numbers)
            return _array_subject(fn, tree, chosen, sides)
    return subject


def _array_subject(
    fn: Callable[..., Any],
    tree: Tree,
    chosen: tuple[list[int], list[str]],
    sides: Sides,
) -> ArraySubject:
    which, names = chosen
    gradients_come_along = sides.need_analytic and not sides.given()
    call: Callable[..., Any] = fn
    kind, output = "NumPy function", "out"
    if any(torch_values.is_torch(leaf.value) for leaf in tree.leaves):
        kind = "torch function"
    if sides.backward is not None:
        call = _first_of_cache(fn)
        kind = "forward/backward pair"
    elif gradients_come_along:
        call = loss_of(fn)
        kind, output = "NumPy loss and gradients", "loss"
    elif sides.grad is not None:
        output = "loss"
    if sides.loss is not None:
        _refuse_own_gradients(sides)
        call = then(sides.loss, call)
    subject = ArraySubject(call, tree, which, names, kind=kind, output_name=output)
    _check_finite(subject)
    subject.roots = sides.roots(fn, [leaf.value for leaf in tree.leaves])
    if gradients_come_along:
        subject.side = lambda s: Contracted(
            lambda: gradients_of(s.around(fn)(*s.fresh_arguments())),
            s,
            "the gradients it returns",
        )
    elif callable(sides.grad) or {"jac", "backward", "vjp"} & set(sides.given()):
        subject.side = lambda s: _given_side(fn, s, sides)
    elif sides.grad is not None:
        subject.analytic = _held(sides.grad, subject)
    if subject.side is not None:
        subject.analytic = subject.side(subject)
    return subject


def _given_side(
    fn: Callable[..., Any], subject: ArraySubject, sides: Sides
) -> Analytic:
    around = subject.around
    if sides.jac is not None:
        jac = around(sides.jac)
        return UserJacobian(lambda: jac(*subject.fresh_arguments()), subject, "jac")
    if sides.backward is not None:
        return BackwardPass(around(fn), around(sides.backward), subject)
    if sides.vjp is not None:
        return UserVjp(around(sides.vjp), subject)
    grad = around(sides.grad)
    return Contracted(lambda: grad(*subject.fresh_arguments()), subject, "grad")


def _in_place(
    fn: Callable[..., Any], inputs: tuple[Any, ...], sides: Sides
) -> ArraySubject:
    """Parameters that the function reads where they are: ``params=net.params``."""
    if sides.backward is not None or sides.vjp is not None or sides.jac is not None:
        msg = (
            "params= goes with gradients that the function returns or that grad= "
            "supplies; with jac=, backward= or vjp= pass the parameters as inputs"
        )
        raise InputError(msg)
    refuse_wanting(fn, len(inputs))
    tree, tensors = tensors_in_place.live_tree(sides.params)
    by_autograd = bool(tensors) and sides.need_analytic and not sides.given()
    frozen = (
        tensors_in_place.frozen(tensors) if by_autograd and not sides.wrt else set()
    )
    beside = tuple(beside_params(fn, inputs, sides.params))
    which, names = pick(
        tree, sides.wrt, sides.names, explicit=True, left_out=frozen, beside=beside
    )
    check_writable([tree.leaves[i] for i in which])

    def run() -> Any:
        return fn(*inputs)

    if by_autograd and sides.loss is not None:  # a criterion of whatever fn returns
        run = then(sides.loss, run)
    call = maybe_loss_of(run)
    if not by_autograd and sides.loss is not None:
        _refuse_own_gradients(sides)
        call = then(sides.loss, call)
    kind = "loss with parameters in place"
    subject = ArraySubject(
        call, tree, which, names, live=True, kind=kind, output_name="loss"
    )
    _check_finite(subject)
    subject.beside = beside
    subject.roots = (fn, *inputs, sides.params, sides.grad, sides.loss)
    held = sides.grad is not None and not callable(sides.grad)
    if by_autograd or (tensors and sides.grad is not None):
        subject.widened = functools.partial(widened_call, tensors)
    if callable(sides.grad):
        grad = sides.grad
        subject.side = lambda s: Contracted(s.around(lambda: grad(*inputs)), s, "grad")
    elif held:
        subject.analytic = _held(sides.grad, subject)
    elif by_autograd:
        moving = [leaf for leaf in tensors if leaf.name not in frozen]
        subject.analytic = Contracted(
            lambda: tensors_in_place.gradients_in_place(run, moving, tensors),
            subject,
            "autograd, reverse mode",
        )
    elif sides.need_analytic:
        subject.side = lambda s: Contracted(
            s.around(lambda: gradients_of(fn(*inputs))),
            s,
            "the gradients it returns",
        )
    if subject.side is not None:
        subject.analytic = subject.side(subject)
    if sides.wrt is None and not by_autograd:
        check_writable([tree.leaves[i] for i in claimed(subject, subject.roots)])
    return subject


def _refuse_own_gradients(sides: Sides) -> None:
    """Refuse a loss of a loss whose gradients come along: they belong to the inner."""
    if sides.need_analytic and not sides.given():
        msg = (
            "loss= goes with a function whose gradients are elsewhere; this one has to "
            "return them, and they belong to its own loss: leave loss= out, or pass "
            "grad= for both together"
        )
        raise InputError(msg)


def _first_of_cache(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: split_cache(fn(*arguments))[0]
