"""Names for what a walk reaches, written the way a user would write them."""

from __future__ import annotations

import collections
import functools
import sys
import types
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Found",
    "Path",
    "is_module",
    "is_parameter",
    "items_of",
    "namespace_of",
    "path_text",
    "root_names",
    "slots_of",
]

# A path is a chain of (parent, style, key), built lazily: most are never printed.
Path = tuple[Any, str, Any]

_MEMBER_DICTS = frozenset({"_parameters", "_buffers", "_modules"})


class Found(NamedTuple):
    """One reached object, and how a user would write it."""

    value: Any
    path: Path


def path_text(path: Path) -> str:
    """Write a path the way a user would: ``net.params['W1']``, ``net.running_mean``.

    Parameters
    ----------
    path
        Chain of ``(parent, style, key)``, style one of ``name``, ``attr``, ``item``.

    Examples
    --------
    >>> path_text((((None, "name", "net"), "attr", "params"), "item", "W1"))
    "net.params['W1']"
    """
    parent, style, key = path
    if style == "name":
        return str(key)
    if style == "item" and parent[1] == "attr" and parent[2] in _MEMBER_DICTS:
        return f"{path_text(parent[0])}.{key}"  # module.weight, not its dict
    text = path_text(parent)
    return f"{text}.{key}" if style == "attr" else f"{text}[{key!r}]"


def root_names(roots: Sequence[object]) -> tuple[str, ...]:
    """Names for roots without one: a function's own, ``self``, ``module``, or ``x0``.

    Parameters
    ----------
    roots
        The user's objects. Data are counted, ``x0, x1, ...``, as `gradlab.check` does.
    """
    names = []
    data = 0
    for root in roots:
        if isinstance(root, types.MethodType):
            name = "self"
        elif isinstance(root, types.FunctionType):
            name = root.__name__
        elif isinstance(root, functools.partial):
            name = "partial"
        elif is_module(type(root)):
            name = "module"
        elif callable(root) and not isinstance(root, type):
            name = "self"
        else:
            name = f"x{data}"
            data += 1
        names.append(name)
    return tuple(names)


def namespace_of(value: object) -> dict[str, Any] | None:
    """Return an instance's own ``__dict__``, without running its ``__getattr__``."""
    try:
        space = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return space if isinstance(space, dict) else None


def slots_of(kind: type) -> tuple[types.MemberDescriptorType, ...]:
    """Slot descriptors of a class and its bases, without running user code."""
    return tuple(
        member
        for base in kind.__mro__
        if "__slots__" in base.__dict__
        for member in base.__dict__.values()
        if isinstance(member, types.MemberDescriptorType)
    )


def items_of(value: Any) -> tuple[Any, ...]:
    """Items of a list, tuple, set or deque, by no method of a class of its own.

    Such a class may iterate over something else, or refuse to be counted.
    """
    kinds: tuple[Any, ...] = (tuple, list, set, frozenset, collections.deque)
    for kind in kinds:
        if isinstance(value, kind):
            return tuple(kind.__iter__(value))
    return tuple(value)


def is_module(kind: type) -> bool:
    """Whether a class is a torch module; does not import torch."""
    nn = sys.modules.get("torch.nn")
    return nn is not None and issubclass(kind, getattr(nn, "Module", ()))


def is_parameter(value: object) -> bool:
    """Whether an object is a torch parameter; does not import torch."""
    nn = sys.modules.get("torch.nn")
    return nn is not None and isinstance(value, getattr(nn, "Parameter", ()))
