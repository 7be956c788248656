"""One graph of autograd, and what it answers to cotangents."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.tensors.batching.devices import has_no_memory, on_host
from gradlab.subject.tensors.gradients.engine import run_backward
from gradlab.subject.tensors.outputs import cotangent_tensors
from gradlab.subject.tensors.values import real_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.tensors.values import Cell

__all__ = ["Backward", "accumulated", "with_added", "without_grads"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Backward:
    """One graph: the outputs it starts from and the leaves it ends in.

    Attributes
    ----------
    dtypes
        Of the gradients that came, leaf by leaf.
    standing
        Lets the leaves stand in the user's module meanwhile: a backward that calls it
        again, as an adjoint solver does, differentiates by what it finds there.
    accumulates
        Whether gradients are read from the ``.grad`` of the leaves, which are ours.
    astray
        Gets the positions of leaves that a backward has added something to by itself,
        which nobody reads then.
    """

    outputs: list[Any]
    leaves: list[Any]
    cells: list[Cell]
    standing: Callable[[], contextlib.AbstractContextManager[None]] = (
        contextlib.nullcontext
    )
    accumulates: bool = False
    astray: set[int] = dataclasses.field(default_factory=set)
    dtypes: list[set[Any]] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtypes", [set() for _ in self.cells])

    def _grad(
        self,
        seeds: NDArray[np.float64],
        *,
        keep: bool,
        batched: bool = False,
        at_once: bool = False,
    ) -> tuple[Any, ...]:
        pairs = [
            (tensor, cotangent)
            for tensor, cotangent in zip(
                self.outputs, cotangent_tensors(seeds, self.outputs), strict=True
            )
            if tensor.requires_grad
        ]
        ends, cotangents = zip(*pairs, strict=True)
        with self.standing():
            if self.accumulates:
                gradients = accumulated(ends, cotangents, self.leaves, keep=keep)
            else:
                gradients = run_backward(
                    ends,
                    cotangents,
                    self.leaves,
                    keep=keep,
                    batched=batched,
                    at_once=at_once,
                )
                self._let_go()
        for dtypes, gradient in zip(self.dtypes, gradients, strict=True):
            if gradient is not None:
                dtypes.add(gradient.dtype)
        return gradients

    def _let_go(self) -> None:
        """Note what went to the ``.grad`` of leaves, and leave them without."""
        for which, leaf in enumerate(self.leaves):
            if leaf.grad is not None:
                self.astray.add(which)
                leaf.grad = None

    def looped(
        self, seeds: NDArray[np.float64], *, keep: bool = True
    ) -> list[NDArray[np.float64]]:
        """One backward pass for each cotangent."""
        if len(seeds) == 1:  # one loss, perhaps of a large model: no second copy
            left = list(reversed(self._grad(seeds[0], keep=keep)))
            return [self._only_row(cell, left.pop()) for cell in self.cells]
        shapes = [(len(seeds), cell.variable.coordinates) for cell in self.cells]
        blocks = [np.zeros(shape) for shape in shapes]
        for row, seed in enumerate(seeds):
            gradients = self._grad(seed, keep=keep)
            for block, cell, gradient in zip(
                blocks, self.cells, gradients, strict=True
            ):
                if gradient is not None:
                    block[row] = _coordinates(cell, gradient)
        return blocks

    def streamed(
        self,
        seed: NDArray[np.float64],
        take: Callable[[int, NDArray[Any]], None],
    ) -> None:
        """One backward pass that lets go of every gradient once it is taken.

        A hook on each leaf, after those of the user, sees the gradient when all that
        contributes to it has been added up, and leaves zeros without memory in its
        place. Those of another kind than the leaf are taken at the end. What stays is
        made beforehand: laid into the memory of a gradient that was let go, it would
        keep the next from being put there.
        """
        seen: set[int] = set()
        blanks = [
            leaf.detach().new_zeros(()).expand(leaf.shape) for leaf in self.leaves
        ]

        def hook_of(which: int) -> Callable[[Any], Any]:
            def hook(gradient: Any) -> Any:
                kind = gradient.layout, gradient.dtype, gradient.device
                blank = blanks[which]
                if kind != (blank.layout, blank.dtype, blank.device):
                    return None
                seen.add(which)
                take(which, _coordinates(self.cells[which], gradient, fresh=False))
                return blank

            return hook

        hooks = [
            leaf.register_hook(hook_of(k))
            for k, (leaf, cell) in enumerate(zip(self.leaves, self.cells, strict=True))
            if cell.pattern is None
        ]
        try:
            gradients = self._grad(seed, keep=False)
        finally:
            for hook in hooks:
                hook.remove()
        for which, gradient in enumerate(gradients):
            if which not in seen:
                take(which, self._only_row(self.cells[which], gradient)[0])

    def _only_row(self, cell: Cell, gradient: Any) -> NDArray[np.float64]:
        """Copy one gradient, which nobody else holds, so that it can go at once."""
        if gradient is None:
            return np.zeros((1, cell.variable.coordinates))
        return _coordinates(cell, gradient)[None]

    def batched(
        self, seeds: NDArray[np.float64], *, at_once: bool
    ) -> list[NDArray[np.float64]] | None:
        """All cotangents in one pass; None where some backward does not allow it.

        `at_once` chooses torch's vmap, see `run_backward`.
        """
        if any(cell.pattern for cell in self.cells):
            return None  # torch has no batches of sparse gradients
        try:
            gradients = self._grad(seeds, keep=True, batched=True, at_once=at_once)
            own = _places(gradients)
            return [
                np.zeros((len(seeds), cell.variable.coordinates))
                if gradient is None
                else _coordinates(
                    cell, gradient, fresh=own.count(place) > 1 or _is_short(gradient)
                ).reshape(len(seeds), -1)
                for cell, gradient, place in zip(
                    self.cells, gradients, own, strict=True
                )
            ]
        except Exception:  # noqa: BLE001 - vmap raises many types; the loop will tell
            return None


def accumulated(
    outputs: Sequence[Any],
    cotangents: Sequence[Any] | None,
    leaves: Sequence[Any],
    *,
    keep: bool = False,
) -> tuple[Any, ...]:
    """Gradients as training gets them, which are added to the leaves.

    Whatever else the graph reaches is for a guard to put back.
    """
    import torch

    with without_grads(leaves):
        torch.autograd.backward(outputs, cotangents, retain_graph=keep)
        return tuple(leaf.grad for leaf in leaves)


@contextlib.contextmanager
def without_grads(leaves: Sequence[Any]) -> Iterator[None]:
    """Let leaves begin with no ``.grad``; they have the one they had afterwards.

    Examples
    --------
    >>> import torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> x.sum().backward()
    >>> with without_grads([x]):
    ...     (2 * x).sum().backward()
    ...     print(x.grad)
    tensor([2., 2.])
    >>> x.grad
    tensor([1., 1.])
    """
    before = [leaf.grad for leaf in leaves]
    try:
        for leaf in leaves:
            leaf.grad = None
        yield
    finally:
        for leaf, gradient in zip(leaves, before, strict=True):
            leaf.grad = gradient


def with_added(returned: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
    """Sum gradients that were returned and what a backward has added to ``.grad``.

    That of a reversible network calls ``backward()`` itself, and returns None.
    """
    both = zip(returned, (leaf.grad for leaf in leaves), strict=True)
    return [
        (one if two is None else two) if one is None or two is None else one + two
        for one, two in both
    ]


def _places(tensors: Sequence[Any]) -> list[int | None]:
    """Address of the memory of each tensor: two inputs may be given one gradient."""
    return [
        None if tensor is None else int(tensor.untyped_storage().data_ptr())
        for tensor in tensors
    ]


def _is_short(gradient: Any) -> bool:
    """Whether a gradient is not in float64, as all matrices are."""
    import torch

    return gradient.dtype is not torch.float64


def _coordinates(cell: Cell, gradient: Any, *, fresh: bool = True) -> NDArray[Any]:
    """Real coordinates of one gradient, or of a stack of them.

    Parameters
    ----------
    fresh
        Whether it has to be memory of its own, in float64: else torch's, where that
        will do, in single precision if it is.
    """
    import torch

    if cell.pattern is not None:
        return real_numbers(cell.pattern.gather(gradient))
    if gradient.layout is not torch.strided:
        gradient = gradient.to_dense()  # embedding(sparse=True) and the like
    if cell.values.dtype.is_complex and not gradient.dtype.is_complex:
        gradient = gradient.to(cell.values.dtype)
    plain = gradient.dtype in (torch.float64, torch.float32)
    plain = plain and gradient.is_contiguous() and not gradient.is_neg()
    plain = plain and not has_no_memory(gradient)
    if not fresh and plain and gradient.device.type in ("cpu", "cuda"):
        view: NDArray[Any] = on_host(gradient.detach()).numpy().reshape(-1)
        return view
    return real_numbers(gradient)
