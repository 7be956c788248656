"""What a walk found, turned into records that can be compared and put back."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gradlab.subject.guarding.paths import Found, path_text
from gradlab.subject.guarding.saved_arrays import SavedArray, SavedMemory, owner_of
from gradlab.subject.guarding.saved_names import (
    SavedCell,
    SavedClass,
    SavedIterator,
    SavedKind,
    SavedName,
    SavedSlots,
)
from gradlab.subject.guarding.saved_state import (
    Change,
    Saved,
    SavedBinding,
    SavedDict,
    save_container,
)
from gradlab.subject.guarding.settings import SavedSetting
from gradlab.subject.guarding.torch_state import (
    SavedSparse,
    SavedStorage,
    SavedTensor,
    extent,
    has_storage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gradlab.subject.guarding.reached import Reach

__all__ = [
    "Bindings",
    "Memory",
    "changes_of",
    "save_objects",
    "save_torch_hooks",
]

# A model of this size is copied with everything else: 64 MiB cost about 10 ms.
_SMALL_PARAMETERS = 64 << 20


_Record = TypeVar("_Record")


def _saved(
    make: Callable[[Found], _Record], found: Iterable[Found], walk: Reach
) -> Iterator[tuple[_Record, Found]]:
    """Save each object; an object that cannot be read must not stop the check."""
    for each in found:
        try:
            yield make(each), each
        except Exception as error:  # noqa: BLE001 - hostile objects raise anything
            walk.unguarded.append((each.path, f"{type(error).__name__}: {error}"))


class Bindings:
    """What names, attributes and containers hold, and whose tallies they may be."""

    def __init__(self, walk: Reach) -> None:
        self._own: list[SavedBinding] = []  # the user's: integers may be tallies
        self._foreign: list[SavedBinding] = []  # a library's: an optimiser's step count
        makers: tuple[tuple[Callable[[Found], SavedBinding], list[Found]], ...] = (
            (SavedCell, walk.cells),
            (SavedName, walk.names),
            (SavedClass, walk.classes),
            (SavedSlots, walk.slotted),
            (_saved_namespace, walk.namespaces),
            (save_container, walk.containers),
        )
        for make, found in makers:
            for record, each in _saved(make, found, walk):
                foreign = id(each.value) in walk.foreign
                (self._foreign if foreign else self._own).append(record)

    def __iter__(self) -> Iterator[SavedBinding]:
        return iter((*self._own, *self._foreign))

    def restore_with(
        self, restore: Callable[[Callable[[], None]], None], *, keep_tallies: bool
    ) -> None:
        """Restore all through `restore`, which decides what a failure means."""
        for record in self._own:
            restore(functools.partial(record.restore, keep_tallies=keep_tallies))
        for record in self._foreign:
            restore(record.restore)


def _saved_namespace(found: Found) -> SavedDict:
    return SavedDict(found, "attr")


def save_objects(walk: Reach) -> list[Saved]:
    """Save what is neither a binding nor memory: forms of arrays, classes of modules.

    Parameters
    ----------
    walk
        Result of `reach`; what cannot be saved is appended to ``walk.unguarded``.
    """
    makers: tuple[tuple[Callable[[Found], Saved], list[Found]], ...] = (
        (SavedArray, walk.arrays),
        (SavedKind, walk.kinds),
        (_saved_mode, walk.scripted),
        (SavedIterator, walk.iterators),
    )
    return [record for make, found in makers for record, _ in _saved(make, found, walk)]


def _saved_mode(found: Found) -> SavedSetting:
    """Save ``training`` of a TorchScript module, which is not in its ``__dict__``."""
    module, path = found
    return SavedSetting(
        path_text((path, "attr", "training")),
        lambda: module.training,
        module.train,
        "mode",
    )


class Memory:
    """Decides what is copied: the small first, so one giant cannot starve the rest."""

    def __init__(self, walk: Reach, limit_bytes: int) -> None:
        self.tensors: list[Saved] = []
        by_place: dict[Any, tuple[int, Found]] = {}
        parameters: set[Any] = set()  # their places, also if seen through a plain view
        for found in walk.arrays:
            owner = owner_of(found.value)
            block = owner.nbytes, found._replace(value=owner)
            by_place.setdefault(id(owner), block)
        for found in walk.tensors:
            if not self._dense(walk, found):
                continue
            first, last = extent(found.value)
            start = found.value.untyped_storage().data_ptr()
            place = str(found.value.device), start + first, start + last
            by_place.setdefault(place, (last - first, found))
            if id(found.value) in walk.parameters:
                parameters.add(place)
        blocks = [
            (size, found, place in parameters)
            for place, (size, found) in by_place.items()
        ]
        total = sum(size for size, _, parameter in blocks if parameter)
        copy_parameters = total <= min(_SMALL_PARAMETERS, limit_bytes)
        self.blocks: list[Saved] = []
        for size, found, parameter in sorted(blocks, key=lambda block: block[0]):
            copy = size <= limit_bytes and (copy_parameters or not parameter)
            if copy:
                limit_bytes -= size
            array = isinstance(found.value, np.ndarray)
            kind: Any = SavedMemory if array else SavedStorage
            make = functools.partial(kind, copy=copy)
            self.blocks += [record for record, _ in _saved(make, [found], walk)]

    def _dense(self, walk: Reach, found: Found) -> bool:
        """Save the tensor object; tell whether its memory is left to be saved."""
        tensor = found.value
        makers: list[Callable[[Found], Saved]] = [SavedTensor]
        dense = has_storage(tensor)
        if "sparse" in str(tensor.layout):
            makers.insert(0, SavedSparse)
        elif not dense:
            why = "has no memory of its own that could be saved"
            walk.unguarded.append((found.path, f"a {tensor.layout} tensor {why}"))
            return False
        for make in makers:
            self.tensors += [record for record, _ in _saved(make, [found], walk)]
        return dense


def save_torch_hooks() -> list[Saved]:
    """Hooks that torch calls for every module."""
    name = "torch.nn.modules.module"
    return [
        SavedDict(Found(value, ((None, "name", name), "attr", key)))
        for key, value in vars(sys.modules.get(name, object)).items()
        if key.startswith("_global_") and isinstance(value, dict)
    ]


def changes_of(records: Iterable[Saved | SavedBinding]) -> tuple[Change, ...]:
    """All changes of some records, each once; an object that raises has no say."""
    changes: dict[Change, None] = {}
    for record in records:
        try:
            changes.update(dict.fromkeys(record.changes()))
        except Exception:  # noqa: BLE001, S112 - such as a key's hostile __eq__
            continue
    return tuple(changes)
