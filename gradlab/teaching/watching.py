"""Who calls for a derivative, where one was to be written by hand.

A profile function of Python sees every call. Counted is a call from a student's own
code into something that differentiates: torch's autograd and functional transforms,
jax, autograd, tensorflow, and the tools for finite differences, gradlab among them.
What gradlab or a library does on its own account is not the student's.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["watched"]

_Result = TypeVar("_Result")

_TRANSFORMS = frozenset(
    (
        *("grad", "value_and_grad", "grad_and_value", "vjp", "jvp"),
        *("jacrev", "jacfwd", "hessian", "linearize"),
    )
)
# Module (and all below it) -> names of its functions that differentiate.
_MACHINES: dict[str, frozenset[str]] = {
    "torch._tensor": frozenset({"backward"}),
    "torch.autograd": frozenset(
        (
            *("backward", "grad", "gradcheck", "jacobian", "hessian"),
            *("vjp", "jvp", "vhp", "hvp", "make_dual"),
        )
    ),
    "torch._functorch": _TRANSFORMS,
    "jax": _TRANSFORMS,
    "autograd": _TRANSFORMS | {"jacobian", "elementwise_grad", "make_vjp", "make_jvp"},
    "tensorflow": frozenset({"gradient", "gradients", "jacobian", "batch_jacobian"}),
    "numdifftools": frozenset({"__call__"}),
    "jacobi": frozenset({"jacobi"}),
    "scipy.differentiate": frozenset({"derivative", "jacobian", "hessian"}),
    "scipy.optimize": frozenset({"approx_fprime", "approx_derivative"}),
    "gradlab.checks": frozenset({"check"}),
    "gradlab.jacobians": frozenset({"numeric_jacobian", "analytic_jacobian"}),
    "gradlab.sweeping": frozenset({"sweep"}),
    "gradlab.compat": frozenset(
        ["numerical_grad", "eval_numerical_gradient", "eval_numerical_gradient_array"]
    ),
}
_OPTIONS = "gradlab.keywords"  # stands before every public function of gradlab
_LIBRARIES = frozenset(name.partition(".")[0] for name in _MACHINES) | {"numpy"}


def _below(module: str, home: str) -> bool:
    return module == home or module.startswith(f"{home}.")


def _differentiates(module: str, function: str) -> bool:
    """Tell whether a function of that name in that module takes derivatives."""
    return any(
        _below(module, home) and function in names for home, names in _MACHINES.items()
    )


def _module(frame: FrameType | None) -> str:
    return str(frame.f_globals.get("__name__", "")) if frame else ""


def _caller(frame: FrameType) -> str:
    """Name the module that called a function; what reads its options is none."""
    back = frame.f_back
    while _module(back) == _OPTIONS and back is not None:
        back = back.f_back
    return _module(back)


def watched(work: Callable[[], _Result]) -> tuple[_Result, tuple[str, ...]]:
    """Call a function, and report what took derivatives for the code in it.

    Parameters
    ----------
    work
        Calls the student's code, from gradlab's own.

    Returns
    -------
    result : object
        What `work` returned.
    machines : tuple of str
        Such as "grad() of torch", each once, in the order of the calls.

    Notes
    -----
    Seen are calls to Python functions in the calling thread; the profile function
    that was set before is set again afterwards.

    Examples
    --------
    >>> watched(lambda: 6 * 7)
    (42, ())
    """
    found: dict[str, None] = {}

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        module = _module(frame)
        if module.partition(".")[0] not in _LIBRARIES:
            return
        if not _differentiates(module, frame.f_code.co_name):
            return
        if _caller(frame).partition(".")[0] not in _LIBRARIES:
            library = module.partition(".")[0]
            found[f"{frame.f_code.co_name}() of {library}"] = None

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        result = work()
    finally:
        sys.setprofile(before)
    return result, tuple(found)
