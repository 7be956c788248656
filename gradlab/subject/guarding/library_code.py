"""Whose code is it: the user's, or a library's, whose insides are not to be entered."""

from __future__ import annotations

import functools
import re
import sys
import types

import numpy as np

__all__ = ["LEAF_TYPES", "is_library", "is_machinery", "is_opaque"]

# Instances of these hold nothing that could change.
LEAF_TYPES: frozenset[type] = frozenset(
    {
        *(int, float, complex, bool, str, bytes, slice, range, object, property),
        *(type(None), type(...), type(NotImplemented), types.ModuleType),
        *(types.CodeType, types.FrameType, types.WrapperDescriptorType),
        *(types.MethodDescriptorType, types.GetSetDescriptorType, np.ufunc),
        *(types.MemberDescriptorType, types.ClassMethodDescriptorType),
        *(np.float64, np.float32, np.int64, np.int32, np.bool_),
    }
)
# Objects of these packages are not opened: their state is either not the user's, or
# saved in another way (arrays, tensors, generators), or made of locks and sockets.
_CLOSED = frozenset(
    {
        *("numpy", "torch", "pandas", "polars", "pyarrow", "matplotlib", "mpmath"),
        *("IPython", "ipykernel", "ipywidgets", "anywidget", "traitlets", "zmq"),
        *("tornado", "jupyter_client", "comm", "jax", "jaxlib", "tensorflow", "cupy"),
        *("numba", "sympy", "tqdm", "pytest", "_pytest", "hypothesis", "pluggy"),
    }
)
# An object that holds one of these is a service (a client, a writer), not a layer.
_MACHINERY = frozenset(
    {
        *("_thread", "threading", "queue", "_queue", "socket", "_socket", "ssl"),
        *("_ssl", "asyncio", "_asyncio", "selectors", "select", "concurrent"),
        *("subprocess", "multiprocessing", "logging", "io", "_io", "sqlite3"),
        *("http", "contextvars"),
    }
)
# Holders of user data that happen to be defined in closed packages.
_OPEN = (
    "collections",
    "types",
    "torch.nn.",
    "torch.optim.",
    "torch.distributions.",
    "torch._dynamo.eval_frame",
)


_INSTALLED = re.compile(r"(^|[/\\])(site|dist)-packages[/\\]")


@functools.cache
def _library_package(top: str) -> bool:
    if top in sys.stdlib_module_names or top in _CLOSED or top == "gradlab":
        return True
    module = sys.modules.get(top)
    file: str | None = getattr(module, "__file__", None)
    return _INSTALLED.search(file or "") is not None


def is_library(module: object) -> bool:
    """Whether code of this module is a library's, so its globals are not the user's.

    Parameters
    ----------
    module
        A ``__module__`` value; anything but a string counts as library.

    Examples
    --------
    >>> is_library("numpy.linalg"), is_library("__main__")
    (True, False)
    """
    if not isinstance(module, str):
        return True
    return module != "__main__" and _library_package(module.partition(".")[0])


def is_opaque(kind: type) -> bool:
    """Whether instances of a class are left closed (locks, frames, arrays of others).

    Examples
    --------
    >>> import threading, types
    >>> is_opaque(type(threading.Lock())), is_opaque(types.SimpleNamespace)
    (True, False)
    """
    module: object = kind.__module__
    if not isinstance(module, str) or module.startswith(_OPEN):
        return False
    top = module.partition(".")[0]
    return top in _CLOSED or top in sys.stdlib_module_names


def is_machinery(value: object) -> bool:
    """Whether an object is a lock, a socket, a thread, a file, a logger, a loop.

    Examples
    --------
    >>> import threading
    >>> is_machinery(threading.Lock()), is_machinery([1.0])
    (True, False)
    """
    module: object = type(value).__module__
    return isinstance(module, str) and module.partition(".")[0] in _MACHINERY
