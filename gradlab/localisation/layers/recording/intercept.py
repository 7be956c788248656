"""Stand between a model and its pieces: every module call, every custom Function.

Two entries of torch are replaced for the time of a ``with`` block and put back
whatever happens: ``Module.__call__``, through which every submodule is called with its
hooks, and ``Function.apply``. Of that, until torch 2.13, the *code*, not the attribute:
this also reaches ``swish = Swish.apply``, which is bound when the user's file is
imported. Since 2.14 it is written in C, and what is bound is exchanged (`bound`).
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
from typing import TYPE_CHECKING, Any, Protocol

from gradlab.localisation.layers.recording.bound import exchanged_where_bound
from gradlab.subject.tensors.calling.domains import DEVICE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Interceptor",
    "call_function",
    "call_module",
    "function_entry",
    "installed",
    "intercepting",
]


class Interceptor(Protocol):
    """Decides what becomes of a call.

    `backward` says whether calls of other threads are its business, too.
    """

    backward: bool

    def module_called(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Answer the call of a module."""

    def function_applied(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Answer the application of a custom ``autograd.Function``."""


# The interceptor, the thread it listens to, and torch's own entries; set while a block
# of `intercepting` is open.
_active: list[tuple[Interceptor, int]] = []
_originals: dict[str, Callable[..., Any]] = {}


def _is_listening() -> bool:
    """Whether the innermost interceptor is to be asked about this call."""
    import torch

    if not _active or torch._C._are_functorch_transforms_active():  # noqa: SLF001
        return False  # inside vmap or grad tensors are wrapped: part of the caller
    interceptor, thread = _active[-1]
    # On an accelerator the backward, and what checkpoints repeat in it, has a thread
    # of its own.
    return thread == threading.get_ident() or interceptor.backward


def _module_entry(module: Any, *args: Any, **kwargs: Any) -> Any:
    if _is_listening():
        return _active[-1][0].module_called(module, args, kwargs)
    return _originals["module"](module, *args, **kwargs)


def function_entry(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer ``Function.apply`` while its code is replaced."""
    # torch's own (checkpointing, backward hooks of modules) are plumbing, not pieces.
    if not function.__module__.startswith("torch.") and _is_listening():
        return _active[-1][0].function_applied(function, args, kwargs)
    return _originals["function"](function, *args, **kwargs)


def call_module(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a module as the user does, hooks included, past the interceptor."""
    with DEVICE:
        return _originals["module"](module, *args, **kwargs)


def call_function(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a custom Function past the interceptor."""
    return _originals["function"](function, *args, **kwargs)


def _trampoline() -> types.CodeType:
    """Code for ``Function.apply``: same free variable as torch's, jumps to us."""

    def outer(__class__: type) -> Callable[..., Any]:
        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            __class__  # noqa: B018 - must be a free variable for the code to fit
            # This code runs with the globals of torch, so it has to look us up.
            from gradlab.localisation.layers.recording.intercept import function_entry

            return function_entry(cls, args, kwargs)

        return apply

    return outer(object).__code__


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Put our entries into torch while the block runs, and torch's own back after it.

    Replacing a method of ``Module`` makes Python forget what it knows of a thousand
    subclasses, so an audit does this once and not once per piece. Blocks may be
    nested; the outermost does it.
    """
    import torch

    if _originals:
        yield
        return
    module_class: Any = torch.nn.Module
    original_call = module_class.__call__
    try:
        with _apply_replaced():
            _originals["module"] = original_call
            module_class.__call__ = _module_entry
            yield
    finally:
        # Put torch back first: with its own entries in place nothing else matters.
        module_class.__call__ = original_call
        _originals.clear()
        _active.clear()


@contextlib.contextmanager
def _apply_replaced() -> Iterator[None]:
    import torch

    base: Any = torch.autograd.Function
    apply = base.__dict__["apply"]
    if not hasattr(apply, "__func__"):
        _originals["function"] = functools.partial(_apply_of, apply)
        base.apply = classmethod(_apply_entry)
        try:
            with exchanged_where_bound(function_entry):
                yield
        finally:
            base.apply = apply
        return
    function = apply.__func__
    original = function.__code__
    _originals["function"] = types.FunctionType(
        original,
        function.__globals__,
        "apply",
        function.__defaults__,
        function.__closure__,
    )
    try:
        function.__code__ = _trampoline()
        yield
    finally:
        function.__code__ = original


def _apply_of(apply: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call torch's own ``apply``, a descriptor, for a custom Function."""
    return apply.__get__(None, function)(*args, **kwargs)


def _apply_entry(function: Any, *args: Any, **kwargs: Any) -> Any:
    return function_entry(function, args, kwargs)


@contextlib.contextmanager
def intercepting(interceptor: Interceptor) -> Iterator[None]:
    """Send the calls of this thread to `interceptor` while the block runs.

    Parameters
    ----------
    interceptor
        Asked about every module call and custom Function; of nested blocks the
        innermost is asked.
    """
    with installed():
        _active.append((interceptor, threading.get_ident()))
        try:
            yield
        finally:
            if _active:
                _active.pop()
