"""``gradcheck`` and ``gradgradcheck`` of torch, with gradlab's report behind them.

Change one import, and every call keeps its meaning:

    from gradlab.compat.torch import gradcheck, gradgradcheck

The numbers that decide are torch's own (central differences with the absolute step
``eps``, `torch.allclose` with the numeric side as reference); so are the sub-checks and
their order. What is not inherited is listed in `gradcheck`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.compat.torch_calls import Asked, run
from gradlab.compat.torch_machinery import is_tensor, machinery, random_like, selector
from gradlab.compat.torch_pairs import Mismatch, Rule
from gradlab.compat.torch_report import Told, story
from gradlab.errors import GradlabError, InputError
from gradlab.subject.state_guard import StateGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gradlab.compat.torch_calls import Point
    from gradlab.report import Report

__all__ = [
    "GradcheckError",  # noqa: F822 - see __getattr__
    "gradcheck",
    "gradgradcheck",
]


def __getattr__(name: str) -> Any:
    """Define the exception when it is first needed: its base lives in torch."""
    if name == "GradcheckError":
        return _error_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _error_class() -> Any:
    if "GradcheckError" in globals():
        return globals()["GradcheckError"]
    from torch.autograd.gradcheck import GradcheckError as Original

    class GradcheckError(Original, GradlabError):
        """A gradient check failed; a ``torch.autograd.gradcheck.GradcheckError``.

        Attributes
        ----------
        report
            The `gradlab.Report` on the same Jacobians.
        """

        def __init__(self, message: str, report: Report) -> None:
            super().__init__(message)
            self.report = report

    GradcheckError.__qualname__ = "GradcheckError"
    globals()["GradcheckError"] = GradcheckError
    return GradcheckError


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Check gradients as ``torch.autograd.gradcheck`` does, and say what is wrong.

    Parameters
    ----------
    func
        Takes tensors, returns a tensor or a tuple (or list) of tensors.
    inputs
        A tensor, or a tuple (or list) of arguments; those that require grad are
        checked. float64 or complex128, or the tolerances below are too tight.
    eps
        Step of the central difference, in the units of the input; absolute.
    atol, rtol
        An entry agrees if ``|analytic - numeric| <= atol + rtol * |numeric|``.
    raise_exception
        False returns False where a `GradcheckError` would be raised. Every other
        exception is raised all the same.
    nondet_tol
        Largest difference allowed between two backward passes on the same graph.
    check_undefined_grad
        Whether undefined output gradients must be understood as zeros.
    check_grad_dtypes
        Whether a gradient must have the dtype of its input.
    check_batched_grad, check_batched_forward_grad
        Whether backward, or forward mode, must give the same under ``vmap``. Needs
        `check_backward_ad`, or `check_forward_ad`.
    check_forward_ad, check_backward_ad
        Which modes are checked.
    fast_mode
        Compare along random directions instead of entry by entry.
    masked
        True leaves alone the entries that a sparse input does not store.

    Returns
    -------
    bool
        True if everything agrees.

    Raises
    ------
    GradcheckError
        The familiar exception, with ``.report``: output, input, worst entry, both
        values, likely cause, then the familiar first line.
    AssertionError
        If the flags contradict each other, or an output changes its shape or dtype
        when an input is perturbed.
    RuntimeError
        If entries of an input share memory.
    ValueError
        If no input requires grad, or an output is sparse.

    Notes
    -----
    Different from torch 2.13 on purpose:

    - None, numbers and integer tensors may stand anywhere among the outputs (torch:
      IndexError or AttributeError); outputs that do not require grad are not looked at
      beside some that do, so that numbers of outputs are never confused (fast and
      forward mode, torch issue 194869).
    - A function that returns no tensor at all is refused with `InputTypeError` (torch:
      AttributeError), `gradgradcheck` of one whose outputs do not require grad with
      `InputError` (torch: TypeError). Both are GradlabErrors.
    - Mixed precision is compared in fast mode too (torch: RuntimeError).
    - Overlapping memory is noticed behind any strides (``as_strided``), not only
      behind a stride of 0 (torch reports a wrong gradient then).
    - Fast mode draws directions with both signs and entries of order one, twice, and
      its tolerance does not grow with the number of entries (torch: the same
      all-positive directions in every call; a 10,000-fold error in one of 657,409
      entries passes). Where they disagree, slow mode decides, up to 20,000 entries.
      Entries that a sparse input does not store are part of it unless `masked`.
    - Inputs, buffers, ``.grad`` and random state are bitwise what they were afterwards,
      also when `func` raises in the middle.
    - The message names the worst entry; the matrices are printed up to 64 entries and
      always in ``.report``. Messages that torch raises in pieces are one string.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    >>> gradcheck(torch.sigmoid, x)
    True
    >>> def doubled(x):
    ...     return x**2 + (x**2).detach()
    >>> gradcheck(doubled, x, raise_exception=False)
    False
    """
    asked = Asked(
        Rule(eps, atol, rtol, nondet_tol),
        check_undefined_grad,
        check_grad_dtypes,
        check_batched_grad,
        check_batched_forward_grad,
        check_forward_ad,
        check_backward_ad,
        fast_mode,
        masked,
        raise_exception,
    )
    _consistent(asked)
    return _checked(func, inputs, asked, Told.first_order(func))


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Sequence[Any] | Any | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Check gradients of gradients as ``torch.autograd.gradgradcheck`` does.

    The function ``(inputs, grad_outputs) -> gradients of func`` is given to
    `gradcheck`, whose notes hold here as well.

    Parameters
    ----------
    func, inputs, eps, atol, rtol, raise_exception, nondet_tol, check_undefined_grad, \
check_grad_dtypes, check_batched_grad, fast_mode, masked
        As in `gradcheck`.
    grad_outputs
        One per differentiable output. None draws them from [-1, 1], in double
        precision for an output of integers.
    gen_non_contig_grad_outputs
        Whether those drawn are non-contiguous.
    check_fwd_over_rev, check_rev_over_rev
        Forward, or reverse mode, over the reverse-mode gradient.

    Returns
    -------
    bool
        True if everything agrees.

    Raises
    ------
    GradcheckError, AssertionError, RuntimeError, ValueError
        As in `gradcheck`. First-order gradients are assumed, not checked.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    >>> gradgradcheck(torch.sin, x)
    True
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError(
            "Expected at least one of check_fwd_over_rev or check_rev_over_rev to be "
            "True"
        )
    for name, flag in (
        ("check_undefined_grad", check_undefined_grad),
        ("check_batched_grad", check_batched_grad),
    ):
        if flag and not check_rev_over_rev:
            raise AssertionError(
                f"Setting {name}=True requires check_rev_over_rev to be True"
            )
    asked = Asked(
        Rule(eps, atol, rtol, nondet_tol),
        check_undefined_grad,
        check_grad_dtypes,
        check_batched_grad,
        check_batched_forward_grad=False,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
        explain=raise_exception,
    )
    with StateGuard(inputs, grad_outputs, func, keep_tallies=False):
        pulled, point, told = _gradient_function(
            func, inputs, grad_outputs, non_contiguous=gen_non_contig_grad_outputs
        )
        return _checked(pulled, point, asked, told)


def _consistent(asked: Asked) -> None:
    """Refuse flags that contradict each other, in torch's words."""
    if not (asked.check_forward_ad or asked.check_backward_ad):
        raise AssertionError(
            "Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    if asked.check_batched_grad and not asked.check_backward_ad:
        raise AssertionError(
            "Setting check_batched_grad=True requires check_backward_ad to be True"
        )
    if asked.check_batched_forward_grad and not asked.check_forward_ad:
        raise AssertionError(
            "Setting check_batched_forward_grad=True requires check_forward_ad to be "
            "True"
        )


def _checked(func: Callable[..., Any], inputs: Any, asked: Asked, told: Told) -> bool:
    """Run all sub-checks; turn a failure into False, or into the whole story."""
    from torch.autograd.gradcheck import GradcheckError as Original

    seen: list[Point] = []
    with StateGuard(inputs, func, keep_tallies=False):
        try:
            run(func, inputs, asked, seen)
        except (Mismatch, Original) as failure:
            if not asked.explain:
                return False
            cause = failure
        else:
            return True
    message, report = story(func, seen[0], asked, told, cause)
    raise _error_class()(message, report) from (
        cause if isinstance(cause, Original) else None
    )


def _gradient_function(
    func: Callable[..., Any], inputs: Any, grad_outputs: Any, *, non_contiguous: bool
) -> tuple[Callable[..., tuple[Any, ...]], tuple[Any, ...], Told]:
    """Build ``(inputs..., grad_outputs...) -> gradients``, its point and its names.

    Parameters
    ----------
    func, inputs
        As in gradcheck.
    grad_outputs
        Cotangents, or None to draw them.
    non_contiguous
        Whether those drawn are non-contiguous.

    Raises
    ------
    InputError
        If no output requires grad.
    """
    gc = machinery()
    point = gc._as_tuple(inputs)  # noqa: SLF001
    chosen, _, _ = selector(func, func(*point))
    outputs = gc._differentiable_outputs(chosen(*point))  # noqa: SLF001
    # forward mode is fed detached inputs, so what requires grad is noted now
    wanted = {i for i, x in enumerate(point) if is_tensor(x) and x.requires_grad}
    if wanted and not outputs:  # torch: a TypeError about missing arguments
        msg = (
            "gradgradcheck expects at least one output that requires grad, got none: "
            "there is no gradient to differentiate"
        )
        raise InputError(msg)
    if grad_outputs is None:
        seeds = tuple(random_like(o, non_contiguous=non_contiguous) for o in outputs)
    else:
        seeds = gc._as_tuple(grad_outputs)  # noqa: SLF001
    count = len(seeds)
    wanted_seeds = {i for i, x in enumerate(seeds) if x.requires_grad}

    def pulled(*arguments: Any) -> tuple[Any, ...]:
        split = len(arguments) - count
        here = tuple(
            x.requires_grad_() if i in wanted else x
            for i, x in enumerate(arguments[:split])
        )
        outputs = gc._differentiable_outputs(chosen(*here))  # noqa: SLF001
        cotangents = tuple(
            x.requires_grad_() if i in wanted_seeds else x
            for i, x in enumerate(arguments[split:])
        )
        gradients = gc.torch.autograd.grad(
            outputs,
            tuple(here[i] for i in sorted(wanted)),
            cotangents,
            create_graph=True,
            allow_unused=True,  # such a gradient is None, and left out
        )
        return tuple(g for g in gradients if g is not None)

    return pulled, point + seeds, Told.second_order(func, len(point), count)
