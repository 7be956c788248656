"""The result of a walk: objects sorted by the way in which they are saved."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradlab.subject.guarding.paths import Found, Path

__all__ = ["Reach"]


@dataclasses.dataclass(slots=True, eq=False)
class Reach:
    """Everything reached, by the way it is saved; made by `reachable.reach`.

    Attributes
    ----------
    arrays, tensors, random
        NumPy arrays, torch tensors, random generators of any library.
    containers
        ``dict``, ``list``, ``set``, ``deque``, ``bytearray``, ``array.array``.
    namespaces, slotted, classes
        Instances with ``__dict__`` (that dict), with ``__slots__``, user classes.
    cells, names
        Closure cells; ``(globals, name)`` pairs that the code refers to.
    kinds, scripted, iterators
        Modules (whose class may change), TorchScript modules, iterators and generators.
    parameters
        Ids of ``nn.Parameter`` objects and of their gradients.
    foreign
        Ids of containers and namespaces that belong to a library's object.
    seen
        Every object by its id; holding them keeps the ids theirs.
    unguarded
        ``(path, reason)`` of what can change but cannot be saved.
    """

    arrays: list[Found] = dataclasses.field(default_factory=list)
    tensors: list[Found] = dataclasses.field(default_factory=list)
    random: list[Found] = dataclasses.field(default_factory=list)
    containers: list[Found] = dataclasses.field(default_factory=list)
    namespaces: list[Found] = dataclasses.field(default_factory=list)
    slotted: list[Found] = dataclasses.field(default_factory=list)
    classes: list[Found] = dataclasses.field(default_factory=list)
    cells: list[Found] = dataclasses.field(default_factory=list)
    names: list[Found] = dataclasses.field(default_factory=list)
    kinds: list[Found] = dataclasses.field(default_factory=list)
    scripted: list[Found] = dataclasses.field(default_factory=list)
    iterators: list[Found] = dataclasses.field(default_factory=list)
    parameters: set[int] = dataclasses.field(default_factory=set)
    foreign: set[int] = dataclasses.field(default_factory=set)
    unguarded: list[tuple[Path, str]] = dataclasses.field(default_factory=list)
    seen: dict[int, Any] = dataclasses.field(default_factory=dict)
