"""One call of gradcheck: every sub-check, in torch's order, up to the first failure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

from gradlab.compat.torch_fast import fast
from gradlab.compat.torch_machinery import (
    check_inputs,
    is_tensor,
    machinery,
    selector,
)
from gradlab.compat.torch_pairs import Pair, Rule
from gradlab.compat.torch_slow import slow

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Asked", "Point", "Stage", "run"]


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """The options of one gradcheck, and what to call things in its report."""

    rule: Rule
    check_undefined_grad: bool
    check_grad_dtypes: bool
    check_batched_grad: bool
    check_batched_forward_grad: bool
    check_forward_ad: bool
    check_backward_ad: bool
    fast_mode: bool
    masked: bool | None
    explain: bool  # whether anybody will read a report


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """One comparison of Jacobians: a function at a point, maybe one part of it."""

    func: Callable[..., tuple[Any, ...]]
    func_out: tuple[Any, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    rule: Rule
    check_grad_dtypes: bool
    complex_indices: list[int]
    part: Literal["", "real", "imaginary"]
    forward: bool

    def pair(self, output: int, input_: int, analytic: Any, numeric: Any) -> Pair:
        """Label two Jacobians with their place."""
        split = bool(self.complex_indices) and (
            (input_ if self.forward else output) in self.complex_indices
        )
        return Pair(
            output,
            input_,
            analytic,
            numeric,
            self.outputs[output].detach(),
            self.forward,
            self.part if split else "",
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Point:
    """What the first evaluation told, for the report."""

    inputs: tuple[Any, ...]
    kept: tuple[int, ...]  # numbers of the outputs that are differentiated
    count: int  # of all outputs

    @property
    def wanted(self) -> list[int]:
        """Numbers of the inputs that require grad."""
        every = enumerate(self.inputs)
        return [k for k, value in every if is_tensor(value) and value.requires_grad]


def run(func: Callable[..., Any], inputs: Any, asked: Asked, seen: list[Point]) -> None:
    """Do all that was asked for, in torch's order.

    Parameters
    ----------
    func, inputs
        As the user passed them.
    asked
        The options.
    seen
        Gets one `Point` after the first evaluation: a report needs it when the rest
        fails.

    Raises
    ------
    Mismatch
        If two Jacobians disagree.
    GradcheckError
        Torch's, from any other sub-check.
    """
    gc = machinery()
    point = gc._as_tuple(inputs)  # noqa: SLF001 - a list counts as a tuple, as there
    check_inputs(point)
    first = func(*point)
    chosen, kept, count = selector(func, first)
    func_out = tuple(gc._as_tuple(first)[k] for k in kept)  # noqa: SLF001
    outputs = gc._differentiable_outputs(func_out)  # noqa: SLF001
    gc._check_outputs(outputs)  # noqa: SLF001
    seen.append(Point(point, kept, count))
    gc._gradcheck_real_imag(  # noqa: SLF001 - splits complex numbers, both directions
        _comparer(gc, asked),
        chosen,
        func_out,
        point,
        outputs,
        asked.rule.eps,
        asked.rule.rtol,
        asked.rule.atol,
        asked.check_grad_dtypes,
        check_forward_ad=asked.check_forward_ad,
        check_backward_ad=asked.check_backward_ad,
        nondet_tol=asked.rule.nondet_tol,
        check_undefined_grad=asked.check_undefined_grad,
    )
    _late_tests(gc, chosen, point, outputs, asked)


def _late_tests(
    gc: Any,
    func: Callable[..., Any],
    point: tuple[Any, ...],
    outputs: tuple[Any, ...],
    asked: Asked,
) -> None:
    """Everything about backward, and batches, that is not a comparison of Jacobians."""
    if asked.check_batched_forward_grad:
        gc._test_batched_grad_forward_ad(func, point)  # noqa: SLF001
    if not asked.check_backward_ad:
        return
    if asked.check_batched_grad:
        for number, output in enumerate(outputs):
            gc._test_batched_grad(point, output, number)  # noqa: SLF001
    gc._test_backward_mul_by_grad_output(outputs, point, asked.masked)  # noqa: SLF001
    if asked.check_undefined_grad:
        gc._test_undefined_backward_mode(func, outputs, point)  # noqa: SLF001


def _comparer(gc: Any, asked: Asked) -> Callable[..., None]:
    """Return what torch calls to compare the Jacobians of one (part of a) function."""

    def compare(  # noqa: PLR0917 - called by torch, by position
        func: Callable[..., tuple[Any, ...]],
        func_out: Any,
        inputs: Any,
        outputs: tuple[Any, ...],
        eps: float,
        rtol: float,
        atol: float,
        check_grad_dtypes: bool,  # noqa: FBT001 - torch passes it by position
        nondet_tol: float,
        *,
        complex_indices: list[int] | None = None,
        test_imag: bool = False,
        use_forward_ad: bool = False,
    ) -> None:
        split = bool(complex_indices)
        part: Literal["", "real", "imaginary"] = "imaginary" if test_imag else "real"
        stage = Stage(
            func,
            gc._as_tuple(func_out),  # noqa: SLF001
            gc._as_tuple(inputs),  # noqa: SLF001
            outputs,
            Rule(eps, atol, rtol, nondet_tol),
            check_grad_dtypes,
            complex_indices or [],
            part if split else "",
            use_forward_ad,
        )
        mode = fast if asked.fast_mode else slow
        mode(gc, stage, masked=asked.masked, explain=asked.explain)

    return compare
