"""Arguments that a GPU's kernels assert, refused before they do.

A step of a difference may lead out of a function's domain. On a processor the binary
cross-entropy of 1.0001 raises, and there is no value at that point. On a GPU the kernel
asserts instead: nothing that lies on the device can be read any more, and Python has to
be started again. So there the range is looked at first, in functions that were seen to
call such a kernel.
"""

from __future__ import annotations

import contextlib
import sys
import types
from typing import TYPE_CHECKING, Any

from gradlab.errors import SubjectError
from gradlab.subject.tensors.calling.uncompiled import uncompiled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["DEVICE", "asserting_watched", "in_domain"]

# Torch's functions whose kernels assert that an argument is between 0 and 1.
_PROBABILITIES = frozenset(
    ("binary_cross_entropy", "bernoulli", "bernoulli_", "multinomial")
)
_LOST = ("device-side assert", "illegal memory access", "unspecified launch failure")


class _Device:
    """Context in which the loss of a device is told as what it is.

    And out of which no exception takes a checkpoint that is still open. Up to version
    2.11 that of torch is a generator in the frame of the call that failed, and while
    somebody holds the exception all that autograd saves is packed away by it.

    Examples
    --------
    >>> with DEVICE:
    ...     raise RuntimeError("CUDA error: device-side assert triggered")
    Traceback (most recent call last):
    ...
    gradlab.errors.SubjectError: a kernel failed on the GPU and took the device with...
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, cause: object, trace: object) -> None:
        if cause is None:
            return
        _close_checkpoints(trace)
        if isinstance(cause, Exception) and any(word in str(cause) for word in _LOST):
            msg = (
                "a kernel failed on the GPU and took the device with it: start Python "
                "again, call the function once with CUDA_LAUNCH_BLOCKING=1 to see "
                "where, and keep inputs away from the edge of where it is defined: "
                "they are moved by small steps"
            )
            raise SubjectError(msg) from cause


DEVICE = _Device()


def _close_checkpoints(trace: Any) -> None:
    """Close torch's checkpoints that the frames of a failed call hold."""
    checkpoints = getattr(sys.modules.get("torch.utils.checkpoint"), "__file__", None)
    while checkpoints is not None and trace is not None:
        for value in trace.tb_frame.f_locals.values():
            if isinstance(value, types.GeneratorType) and not value.gi_running:
                code = value.gi_code
                if code.co_filename == checkpoints:
                    value.close()
        trace = trace.tb_next


@contextlib.contextmanager
def asserting_watched(tensors: Iterable[Any]) -> Iterator[list[str]]:
    """Collect the functions that assert their arguments, if a GPU's tensors are there.

    Parameters
    ----------
    tensors
        Inputs; without one on a GPU nothing is looked at.

    Examples
    --------
    >>> import torch
    >>> with asserting_watched([torch.zeros(2)]) as seen:
    ...     _ = torch.bernoulli(torch.zeros(2))
    >>> seen
    []
    """
    seen: list[str] = []
    if any(tensor.is_cuda for tensor in tensors):
        with in_domain(seen):
            yield seen
    else:
        yield seen


@contextlib.contextmanager
def in_domain(seen: list[str] | None = None) -> Iterator[None]:
    """Let functions raise where their kernels would assert.

    Parameters
    ----------
    seen
        Gets the names of those that were called.

    Examples
    --------
    >>> import torch
    >>> with in_domain():
    ...     torch.bernoulli(torch.tensor([0.2, 1.5]))
    Traceback (most recent call last):
    ...
    ValueError: bernoulli of numbers that are not all between 0 and 1
    """
    from torch.overrides import TorchFunctionMode

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            name = getattr(func, "__name__", "")
            if name in _PROBABILITIES:
                if seen is not None:
                    seen.append(name)
                _refuse_outside(name, _probabilities(name, args, kwargs))
            return func(*args, **kwargs)

    with uncompiled(), Watch(), DEVICE:
        yield


def _probabilities(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any | None:
    """Pick the argument that has to be between 0 and 1."""
    place, keyword = (1, "p") if name == "bernoulli_" else (0, "input")
    return args[place] if len(args) > place else kwargs.get(keyword)


def _refuse_outside(name: str, values: Any) -> None:
    import torch

    if isinstance(values, torch.Tensor):
        least = values >= 0.0  # false of nan as well
        most = torch.inf if name == "multinomial" else 1.0
        if not bool((least & (values <= most)).all()):
            msg = f"{name} of numbers that are not all between 0 and 1"
            raise ValueError(msg)
