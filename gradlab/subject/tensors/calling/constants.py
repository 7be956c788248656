"""Tensors that a program needs and that are no inputs: private, and put back."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from gradlab.subject.tensors.bits import same_bits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Constants", "cast", "double_dtype"]

_WATCHED = 1 << 26  # bytes; a larger tensor is not compared
_LOOKS = 2  # calls after which constants are compared: without grad mode, and with it


class Constants:
    """Private tensors that calls may change, and that are put back when they did.

    Parameters
    ----------
    sources
        The user's tensors, of which copies are made.
    dtype_of
        Their dtypes; None keeps those of the sources.
    """

    def __init__(
        self,
        sources: Mapping[Any, Any],
        dtype_of: Callable[[Any], Any] = operator.attrgetter("dtype"),
    ) -> None:
        self._sources, self._dtype_of = dict(sources), dtype_of
        self.left: dict[Any, Any] = {}  # what the first call left of those it wrote to
        self._unseen: list[Any] = []  # written to by ``.data`` or NumPy: never counted
        self._looks = _LOOKS
        self.tensors = {key: self._fresh(key) for key in self._sources}
        self._versions = {key: t._version for key, t in self.tensors.items()}  # noqa: SLF001 - torch's only mark of a change

    def _fresh(self, key: Any) -> Any:
        source = self._sources[key].detach()
        dtype = self._dtype_of(source)
        return source.clone() if source.dtype is dtype else source.to(dtype)

    def put_back(self) -> None:
        """Copy the source again for every tensor that was written to."""
        if self._looks:
            self._looks -= 1
            self._unseen += [key for key in self.tensors if self._changed_unseen(key)]
        for key, version in self._versions.items():  # most subjects have none
            if self.tensors[key]._version != version or key in self._unseen:  # noqa: SLF001 - see above
                self.left.setdefault(key, self.tensors[key])
                self.tensors[key] = self._fresh(key)
                self._versions[key] = self.tensors[key]._version  # noqa: SLF001 - see above

    def _changed_unseen(self, key: Any) -> bool:
        """Whether one holds something else, though no write was counted."""
        tensor, source = self.tensors[key], self._sources[key]
        if tensor._version != self._versions[key] or key in self._unseen:  # noqa: SLF001 - see above
            return False
        if tensor.numel() * tensor.element_size() > _WATCHED:  # of sparse ones, too
            return False
        try:
            return not same_bits(tensor, cast(source, self._dtype_of))
        except (RuntimeError, NotImplementedError):  # layouts that are not compared
            return False

    def cast(self, dtype_of: Callable[[Any], Any]) -> Constants:
        """Return constants of other dtypes."""
        return Constants(self._sources, dtype_of)


def double_dtype(tensor: Any) -> Any:
    """Dtype of `tensor` at double precision; other than floating ones are kept."""
    import torch

    if tensor.dtype.is_complex:
        return torch.complex128
    return torch.float64 if tensor.dtype.is_floating_point else tensor.dtype


def cast(tensor: Any, dtype_of: Callable[[Any], Any]) -> Any:
    """Return a tensor in another dtype, off its graph."""
    return tensor.detach().to(dtype_of(tensor))
