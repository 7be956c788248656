"""Calls that do not fit: options that a door does not have, inputs that f has not.

Options may be misspelt, or called otherwise elsewhere.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from gradlab.errors import GradlabError, InputTypeError, SubjectError
from gradlab.tracebacks import without_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

__all__ = [
    "handed_on",
    "has_ctx",
    "kept_through",
    "named_options",
    "no_such_option",
    "spelt",
]

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
_Kind = TypeVar("_Kind", bound=type)

_STEP = (
    ("h", "h="),
    ("steps", "steps=[...]"),
    ("method", "method=gl.Central(step=...)"),
    ("step", "step="),
)
_TOLERANCE = (("rtol", "rtol= or atol="),)
_WORKERS = (("executor", "executor=, a pool of concurrent.futures"),)
# What other libraries call it, and what to write here; the first that there is.
_ELSEWHERE = {
    **dict.fromkeys(("eps", "epsilon", "h", "delta", "step", "step_size"), _STEP),
    **dict.fromkeys(("tol", "tolerance"), _TOLERANCE),
    **dict.fromkeys(("n_jobs", "num_workers", "workers"), _WORKERS),
    **dict.fromkeys(("random_state", "rng"), (("seed", "seed="),)),
    "criterion": (("loss", "loss="),),
    "fast_mode": (("coverage", 'coverage="probe"'),),
    "fprime": (("grad", "grad="),),
    "jacobian": (("jac", "jac="),),
    "methods": (("method", "method="),),
    "raise_exception": (("diagnose", "report.raise_if_failed()"),),
    "verbose": (("progress", "progress="),),
}


def no_such_option(door: str, name: str, options: Collection[str]) -> InputTypeError:
    """Make the exception for an option that there is not: what is meant, or all names.

    Parameters
    ----------
    door
        Name of the function that was called.
    name
        What it was called with.
    options
        What it could have been called with.

    Examples
    --------
    >>> print(no_such_option("check", "grd", ["grad", "jac"]))
    check() has no option 'grd'; did you mean grad=?
    >>> print(no_such_option("check", "colour", ["grad", "jac"]))
    check() has no option 'colour'; it has grad=, jac=
    """
    import difflib  # for a message that few users see

    known = [words for option, words in _ELSEWHERE.get(name, ()) if option in options]
    near = difflib.get_close_matches(name.lower(), options, 1)
    meant = known[:1] or [f"{each}=" for each in near]
    told = f"did you mean {meant[0]}?" if meant else f"it has {_listed(options)}"
    return InputTypeError(f"{door}() has no option {name!r}; {told}")


def _stopped(door: str) -> KeyboardInterrupt:
    """Make the end of a call that was interrupted before there was anything to tell."""
    return KeyboardInterrupt(
        f"{door}() was stopped before there was a result; everything is as it was "
        f"before the call"
    )


@contextlib.contextmanager
def kept_through(done: Callable[[], bool]) -> Iterator[None]:
    """Keep a result that was there when Ctrl-C came while things were put back.

    Parameters
    ----------
    done
        Says whether the work is over; until then an interrupt ends the call.
    """
    try:
        yield
    except KeyboardInterrupt:
        if not done():
            raise


def _listed(options: Collection[str]) -> str:
    return ", ".join(f"{each}=" for each in options) or "none"


def named_options(kind: _Kind) -> _Kind:
    """Let a class say what was meant by an option that it does not have.

    Examples
    --------
    >>> gl.Central(h=1e-6)
    Traceback (most recent call last):
        ...
    gradlab.errors.InputTypeError: Central() has no option 'h'; did you mean step=?
    """
    made = kind.__init__  # type: ignore[misc] # of the class itself
    options = tuple(inspect.signature(kind).parameters)

    @functools.wraps(made)
    def call(self: object, *given: Any, **named: Any) -> None:
        for name in named:
            if name not in options:
                raise no_such_option(kind.__name__, name, options)
        made(self, *given, **named)

    kind.__init__ = call  # type: ignore[misc]
    return kind


def spelt(door: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Let a front door say what was meant by an option that it does not have.

    Python says only that the argument is unexpected. What gradlab refuses is raised at
    the door, below the caller's line and not below a dozen lines of gradlab's own; where
    the user's code raised, its own lines are shown and not those that called it.

    Parameters
    ----------
    door
        A function whose options are keyword-only. Where it takes ``**options`` as well,
        `handed_on` says which of them are unknown.

    Examples
    --------
    >>> gl.check(np.sum, np.ones(2), grad=np.ones_like, tol=1e-3)
    Traceback (most recent call last):
        ...
    gradlab.errors.InputTypeError: check() has no option 'tol'; did you mean rtol= or atol=?
    """  # noqa: E501 - the message as it is printed
    only = inspect.Parameter.KEYWORD_ONLY
    given = inspect.signature(door).parameters
    options = tuple(name for name, each in given.items() if each.kind is only)
    known = frozenset(given)
    hands_on = any(each.kind is each.VAR_KEYWORD for each in given.values())

    @functools.wraps(door)
    def call(*inputs: _Given.args, **named: _Given.kwargs) -> _Result:
        __tracebackhide__ = True  # pytest: point at the user's line
        if not (hands_on or known.issuperset(named)):
            name = next(each for each in named if each not in known)
            if inputs and name in _places(inputs[0]):
                raise InputTypeError(
                    f"{door.__name__}() takes inputs by position: write "
                    f"{door.__name__}(fn, ..., {name}) for {name}=..."
                )
            raise no_such_option(door.__name__, name, options)
        try:
            return door(*inputs, **named)
        except GradlabError as problem:
            cause = problem.__cause__
            plain = bool(inputs) and known.issuperset(named)  # else f has some by name
            if plain and isinstance(cause, TypeError) and (told := _misfit(*inputs)):
                raise InputTypeError(told).with_traceback(None) from None
            if cause is not None:
                cause.__traceback__ = without_ours(cause.__traceback__)

            # The arguments are at fault: no line of ours has more to say than it does.
            raise problem.with_traceback(None) from cause
        except KeyboardInterrupt as stop:
            raise (stop if stop.args else _stopped(door.__name__)) from None

    return call


def has_ctx(owner: type) -> bool:
    """Whether the forward of a class is given a context (or self).

    Not where `setup_context` of a Function of torch takes it.

    Examples
    --------
    >>> import torch
    >>> has_ctx(torch.autograd.Function)
    True
    """
    own = getattr(owner, "setup_context", None)
    bases = (getattr(base, "setup_context", None) for base in owner.__mro__[1:])
    return own is None or own in bases


def _misfit(fn: object, *inputs: object) -> str:
    """Say why a function cannot be called with so many inputs; empty if it can.

    For what has raised a TypeError: a signature may say less than a call takes.

    Examples
    --------
    >>> _misfit(lambda x: x, 1.0, 2.0)
    'the function takes 1 argument (x) and got 2 inputs; pass as many, by position'
    >>> _misfit(lambda x: x, 1.0)
    ''
    """
    owner = getattr(fn, "__self__", None)
    apply = isinstance(owner, type) and hasattr(owner, "forward")
    whole = owner if apply else fn
    inner: Any = getattr(whole, "forward", whole)
    try:
        signature = inspect.signature(inner)
    except (TypeError, ValueError):  # a builtin without a signature: who knows
        return ""
    hidden = [None] if apply and has_ctx(owner) else []  # type: ignore[arg-type]
    try:
        signature.bind(*hidden, *inputs)
    except TypeError:
        by_place = (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        )
        every = signature.parameters.values()
        named = [each.name for each in every if each.kind in by_place][len(hidden) :]
        return _misfit_words(fn, named, inputs)
    return ""


def _misfit_words(fn: object, named: Sequence[str], inputs: Sequence[object]) -> str:
    what = "the module" if hasattr(fn, "forward") else "the function"
    takes = f"{len(named) or 'no'} argument{'s' * (len(named) != 1)}"
    told = f" ({', '.join(named)})" if named else ""
    got = f"{len(inputs) or 'no'} input{'s' * (len(inputs) != 1)}"
    advice = "pass as many, by position"
    if any(inspect.isroutine(each) for each in inputs):
        advice = "a gradient goes to grad=, jac=, backward= or vjp="
    elif not named:
        advice = "parameters that it reads where they are go to params="
    elif len(inputs) == 1 and type(inputs[0]) in {list, tuple}:
        advice = "unpack it: check(fn, *inputs)"
    return f"{what} takes {takes}{told} and got {got}; {advice}"


def _places(fn: object) -> list[str]:
    """Name the arguments that a function takes by position."""
    owner = getattr(fn, "__self__", None)  # of Function.apply: its class
    function = getattr(owner if isinstance(owner, type) else fn, "forward", fn)
    try:
        parameters = inspect.signature(function).parameters  # type: ignore[arg-type]
    except (TypeError, ValueError):  # a builtin without a signature: who knows
        return []
    by_name = {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}
    return [name for name, each in parameters.items() if each.kind not in by_name]


@contextlib.contextmanager
def handed_on(
    door: str, named: Collection[str], options: Collection[str]
) -> Iterator[None]:
    """Look at an error of a function that is given what the door does not know.

    Parameters
    ----------
    door
        Name of the function that was called.
    named
        Keywords that it hands on.
    options
        Its own.

    Raises
    ------
    InputTypeError
        If the function does not know one of them either.

    Examples
    --------
    >>> with handed_on("blame", ["los"], ["loss", "seed"]):
    ...     raise SubjectError("forward() got an unexpected keyword argument 'los'")
    Traceback (most recent call last):
        ...
    gradlab.errors.InputTypeError: blame() has no option 'los'; did you mean loss=?
    """
    try:
        yield
    except SubjectError as error:
        for name in named:
            if f"unexpected keyword argument '{name}'" in str(error):
                told = str(no_such_option(door, name, options))
                if "did you mean" not in told:  # nor does the function
                    told = f"{error}; {told}"
                raise InputTypeError(told) from None
        raise
