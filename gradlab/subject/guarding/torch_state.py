"""Tensors, saved and put back.

torch is never imported here: whatever needs this file has a tensor in its hands, or
found torch in ``sys.modules``.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from gradlab.errors import SubjectError
from gradlab.subject.guarding.paths import Found, path_text
from gradlab.subject.guarding.saved_arrays import MOST_TIMES, ROW, SMALL_OWNER
from gradlab.subject.guarding.saved_state import Change

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "SavedSparse",
    "SavedStorage",
    "SavedTensor",
    "extent",
    "fingerprint",
    "has_storage",
    "quiet_torch",
]


_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def _torch() -> Any:
    return sys.modules["torch"]


@contextlib.contextmanager
def quiet_torch() -> Iterator[None]:
    """Look at tensors without recording, and without a subclass's own functions.

    Does nothing where torch is not loaded.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "no_grad"):
        yield
        return
    before = torch.is_grad_enabled()
    try:
        torch._C._set_grad_enabled(False)  # noqa: SLF001 - torch's C names
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001
            yield
    finally:
        torch._C._set_grad_enabled(before)  # noqa: SLF001


def has_storage(tensor: Any) -> bool:
    """Whether a tensor has ordinary memory to copy (dense, real device, not a fake)."""
    if tensor.layout is not _torch().strided or tensor.device.type == "meta":
        return False
    if tensor.is_nested or type(tensor).__module__.startswith("torch._subclasses"):
        return False  # nested tensors have no one shape, fake ones no memory
    try:
        return bool(tensor.untyped_storage().data_ptr() or not tensor.numel())
    except (RuntimeError, NotImplementedError):  # functorch wrappers, fake tensors
        return False


def extent(tensor: Any) -> tuple[int, int]:
    """First and last byte (exclusive) to save: the storage, or what a view of it spans.

    A small view of a large storage, such as a batch of a data set, is saved alone.
    """
    whole = tensor.untyped_storage().nbytes()
    if whole <= SMALL_OWNER:
        return 0, whole
    reach = sum(
        (size - 1) * stride
        for size, stride in zip(tensor.size(), tensor.stride(), strict=True)
    )
    item = tensor.element_size()
    first = tensor.storage_offset() * item
    span = (reach + 1) * item if tensor.numel() else 0
    return (0, whole) if span * MOST_TIMES >= whole else (first, first + span)


def _flat(storage: Any) -> Any:
    """All bytes of a storage as one uint8 tensor that shares its memory."""
    torch = _torch()
    flat = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return flat.set_(storage)  # never .numpy(): it would pin the storage's size


def _words(flat: Any) -> tuple[Any, Any]:
    """Split bytes into 64-bit words, which compare eight times as fast, and a rest."""
    cut = flat.numel() // 8 * 8
    return flat[:cut].view(_torch().int64), flat[cut:]


def fingerprint(flat: Any) -> Any:
    """Sum the words of some bytes, 64 KiB at a time, wrapping around.

    See `saved_arrays`; of contiguous memory, whose first byte stands at a word.
    """
    words, rest = _words(flat)
    cut = words.numel() // ROW * ROW
    rows = words[:cut].view(-1, ROW).sum(1)
    return _torch().cat([rows, words[cut:].clone(), rest.long()])


def _equal(one: Any, two: Any) -> bool:
    """Bitwise equality of two byte tensors of one length."""
    return _all_equal(_words(one), _words(two))


def _all_equal(one: tuple[Any, Any], two: tuple[Any, Any]) -> bool:
    """Equality of the `_words` of two byte tensors of one length."""
    words, rest = zip(one, two, strict=True)
    equal = _torch().equal
    return bool(equal(*words) and (not rest[0].numel() or equal(*rest)))


def _kind(path: Any) -> str:
    parent, style, key = path
    if style == "item" and parent[2] == "_buffers":
        return "buffer"
    if style == "item" and parent[2] == "_parameters":
        return "parameter"
    return "grad" if (style, key) == ("attr", "grad") else "tensor"


class SavedStorage:
    """The bytes of one storage; copied, or only fingerprinted where `copy` is off.

    Parameters
    ----------
    found
        A tensor that shows the storage; it gives the name.
    copy
        False for memory too large to double: changes are seen but not undone.
    """

    __slots__ = ("_bytes", "_copy", "_found", "_part", "_print", "_storage", "_views")

    def __init__(self, found: Found, *, copy: bool) -> None:
        self._found = found
        # A storage survives ``tensor.data = other``, so it is held, not the tensor.
        self._storage = found.value.untyped_storage()
        self._bytes = self._storage.nbytes()
        self._part = slice(*extent(found.value))
        flat = _flat(self._storage)[self._part]
        self._copy = flat.clone() if copy else None
        self._print = None if copy else fingerprint(flat)
        # made once, compared several times; a storage moves under its views
        self._views = (_words(flat), _words(self._copy)) if copy else None

    def _intact(self) -> bool:
        if self._storage.nbytes() != self._bytes:
            return False
        if self._views is not None:
            return _all_equal(*self._views)
        flat = _flat(self._storage)[self._part]
        return bool(_torch().equal(fingerprint(flat), self._print))

    def changes(self) -> Iterator[Change]:
        """Yield what differs, see `Saved`."""
        path = self._found.path
        if not self._intact():
            kind, undone = _kind(path), self._copy is not None
            where = path if kind != "grad" else path[0]
            yield Change(kind, path_text(where), restorable=undone)

    def restore(self) -> None:
        """Put back what differs, see `Saved`."""
        if self._copy is None or self._intact():
            return
        if self._storage.nbytes() != self._bytes:
            self._storage.resize_(self._bytes)
        _flat(self._storage)[self._part].copy_(self._copy)


class SavedTensor:
    """One tensor object: its place in memory, history, ``.grad`` and version."""

    __slots__ = (
        "_alias",
        "_found",
        "_grad",
        "_hooks",
        "_kind",
        "_layout",
        "_leaf",
        "_needs",
        "_node",
        "_version",
    )

    def __init__(self, found: Found) -> None:
        tensor = found.value
        self._found = found
        self._kind = type(tensor)
        self._leaf, self._needs = tensor.is_leaf, tensor.requires_grad
        self._node = tensor.grad_fn  # what made it; an in-place operation replaces it
        self._grad = tensor.grad if self._has_grad() else None
        self._alias = tensor.detach()  # keeps the storage, shows the old layout
        self._layout = self._layout_now()
        self._hooks = [getattr(tensor, name, None) for name in _HOOKS]
        self._version = None if tensor.is_inference() else tensor._version  # noqa: SLF001

    def _has_grad(self) -> bool:
        tensor = self._found.value
        return bool(tensor.is_leaf or tensor.retains_grad)

    def _layout_now(self) -> tuple[Any, ...]:
        tensor = self._found.value
        if tensor.layout is not _torch().strided:
            return (tensor.dtype, tensor.size())
        place = tensor.data_ptr() if has_storage(tensor) else 0
        return tensor.dtype, tensor.device, tensor.size(), tensor.stride(), place

    def changes(self) -> Iterator[Change]:
        """Yield what differs, see `Saved`."""
        tensor, path = self._found
        where = path_text(path)
        if self._layout_now() != self._layout:
            yield Change("layout", where)
        if tensor.requires_grad != self._needs or tensor.is_leaf != self._leaf:
            yield Change("requires_grad", where)
        elif tensor.grad_fn is not self._node:
            yield Change("history", where, restorable=False)
        if self._has_grad() and tensor.grad is not self._grad:
            yield Change("grad", where)
        for name, hooks in zip(_HOOKS, self._hooks, strict=True):
            if getattr(tensor, name, None) is not hooks:
                yield Change("hooks", f"{where}.{name}")

    def restore(self) -> None:
        """Put back what differs, see `Saved`."""
        tensor = self._found.value
        for name, hooks in zip(_HOOKS, self._hooks, strict=True):
            if getattr(tensor, name, None) is not hooks:
                setattr(tensor, name, hooks)
        if type(tensor) is not self._kind:  # a lazy parameter that was materialised
            tensor.__class__ = self._kind
        if self._layout_now() != self._layout:
            tensor.data = self._alias
        stuck = self._leaf and not tensor.is_leaf and tensor._is_view()  # noqa: SLF001
        if self._leaf and not tensor.is_leaf and not stuck:
            tensor.detach_()  # an in-place operation gave the input a history
        if self._leaf and not stuck and tensor.requires_grad != self._needs:
            tensor.requires_grad_(self._needs)
        if self._has_grad() and tensor.grad is not self._grad:
            tensor.grad = self._grad
        self._rewind_version()
        if stuck:
            msg = (
                f"{path_text(self._found.path)} is a view, and an in-place operation "
                "with a tensor that requires grad gave it a history; its values are "
                "back, but torch cannot take a view out of a graph"
            )
            raise SubjectError(msg)

    def _rewind_version(self) -> None:
        """Bytes are as before, so a graph that saved this tensor may still be used."""
        tensor = self._found.value
        if self._version is None or tensor._version == self._version:  # noqa: SLF001
            return
        setter = getattr(_torch()._C._autograd, "_unsafe_set_version_counter", None)  # noqa: SLF001
        if setter is None:
            return
        try:
            setter((tensor,), (self._version,))
        except TypeError:  # torch before 2.5 takes one tensor
            setter(tensor, self._version)


class SavedSparse:
    """A sparse tensor: indices and values, copied; its memory has no single storage."""

    __slots__ = ("_copy", "_found")

    def __init__(self, found: Found) -> None:
        self._found = found
        self._copy = found.value.detach().clone()

    @staticmethod
    def _parts(tensor: Any) -> tuple[Any, ...]:
        if tensor.layout is _torch().sparse_coo:
            return tensor._indices(), tensor._values()  # noqa: SLF001 - raw, also uncoalesced
        if tensor.layout in (_torch().sparse_csr, _torch().sparse_bsr):
            return tensor.crow_indices(), tensor.col_indices(), tensor.values()
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()

    def _intact(self) -> bool:
        pairs = zip(
            self._parts(self._found.value.detach()),
            self._parts(self._copy),
            strict=True,
        )
        return self._coalesced(self._found.value) == self._coalesced(
            self._copy
        ) and all(
            a.shape == b.shape
            and _equal(
                a.contiguous().ravel().view(_torch().uint8),
                b.contiguous().ravel().view(_torch().uint8),
            )
            for a, b in pairs
        )

    @staticmethod
    def _coalesced(tensor: Any) -> bool | None:
        return tensor.is_coalesced() if tensor.is_sparse else None

    def changes(self) -> Iterator[Change]:
        """Yield what differs, see `Saved`."""
        if not self._intact():
            path = self._found.path
            yield Change(_kind(path), path_text(path))

    def restore(self) -> None:
        """Put back what differs, see `Saved`."""
        if self._intact():
            return
        tensor = self._found.value
        tensor.copy_(self._copy)
        if tensor.is_sparse:
            tensor._coalesced_(self._copy.is_coalesced())
