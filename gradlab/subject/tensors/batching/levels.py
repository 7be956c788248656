"""Torch's two kinds of vmap, entered where nothing is asked that is known here.

``torch.func.vmap`` and the older one of ``torch.autograd.grad(is_grads_batched=True)``
flatten trees of arguments, compare them with trees of dimensions, and put both together
again: longer than a small function takes. Here all are plain sequences of tensors whose
first axis is the batch. Where a version of torch has no such doors, the public ones are
taken.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Single = Callable[..., Sequence[Any]]

__all__ = ["map_backward", "map_forward", "unannounced"]


@contextlib.contextmanager
def unannounced() -> Iterator[None]:
    """Keep slow batching rules from announcing themselves.

    Those that torch has go by Python's warnings. Operators without a rule, as those of
    ``torch.library.custom_op``, are announced by C++ to stderr, once for each call;
    torch does not tell whether that was switched off before, and it is on by default.
    """
    import torch

    switch = getattr(torch._C._functorch, "_set_vmap_fallback_warning_enabled", None)  # noqa: SLF001 - no public door
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if switch is None:
            yield
            return
        switch(False)
        try:
            yield
        finally:
            switch(True)


def map_forward(
    single: Single, batches: Sequence[Any], *, randomness: str
) -> tuple[Any, ...]:
    """Map a function over the first axis of tensors, as ``torch.func.vmap`` does.

    Parameters
    ----------
    single
        Takes as many tensors as there are batches and returns a sequence of tensors,
        or of None, which is passed on.
    batches
        Tensors of the same length.
    randomness
        What a random operation does: "error", "same" or "different".

    Raises
    ------
    Exception
        Whatever `single` raises, or vmap does not allow.

    Examples
    --------
    >>> import torch
    >>> map_forward(lambda x: [x.sum()], [torch.eye(2)], randomness="error")
    (tensor([1., 1.]),)
    """
    doors = _forward_doors()
    if doors is None:
        return _publicly(single, batches, randomness)
    enter, leave, add, remove = doors
    count = len(batches[0])
    level = enter(count, randomness)
    try:
        found = single(*[add(batch, 0, level) for batch in batches])
        return tuple(
            None if part is None else remove(part, level, count, 0) for part in found
        )
    finally:
        leave()


def map_backward(pull: Single, cotangents: Sequence[Any]) -> tuple[Any, ...]:
    """Map a call of the backward engine over the first axis of cotangents.

    By the older vmap, which takes the backward of a convolution, a normalisation or a
    matrix inverse once for each cotangent. `map_forward` takes all at once, several
    times as fast, by rules of which a few are wrong: that of ``cdist`` gives zeros.

    Parameters
    ----------
    pull
        Takes a tuple of cotangents and returns gradients; None is passed on.
    cotangents
        Tensors of the same length.

    Raises
    ------
    Exception
        Whatever a backward raises, or vmap does not allow; AttributeError where this
        version of torch has no such doors.

    Examples
    --------
    >>> import torch
    >>> map_backward(lambda seeds: [3 * seeds[0], None], [torch.ones(2)])
    (tensor([3., 3.]), None)
    """
    import torch

    enter = torch._C._vmapmode_increment_nesting  # noqa: SLF001 - no public door
    leave = torch._C._vmapmode_decrement_nesting  # noqa: SLF001 - as above
    add, remove = torch._add_batch_dim, torch._remove_batch_dim  # noqa: SLF001 - as above
    count = len(cotangents[0])
    level = enter()
    try:
        found = pull(tuple(add(seed, 0, level) for seed in cotangents))
        return tuple(
            None if part is None else remove(part, level, count, 0) for part in found
        )
    finally:
        leave()


@functools.cache
def _forward_doors() -> tuple[Callable[..., Any], ...] | None:
    """Find what ``torch.func.vmap`` is made of, and see that it does what it did."""
    import torch

    try:  # their names and arguments are nobody's promise
        from torch._functorch import predispatch as parts

        doors = (
            parts._vmap_increment_nesting,  # noqa: SLF001 - no public door
            parts._vmap_decrement_nesting,  # noqa: SLF001 - as above
            parts._add_batch_dim,  # noqa: SLF001 - as above
            parts._remove_batch_dim,  # noqa: SLF001 - as above
        )
        parts.lazy_load_decompositions()
        enter, leave, add, remove = doors
        level = enter(2, "error")
        try:
            moved = add(torch.eye(2, device="cpu"), 0, level)
            found = [
                remove(part, level, 2, 0)
                for part in (moved.sum(), torch.ones((), device="cpu"))
            ]
        finally:
            leave()
        fits = all(torch.equal(part, torch.ones(2, device="cpu")) for part in found)
    except Exception:  # noqa: BLE001 - another version of torch: anything may come
        return None
    return doors if fits else None


def _publicly(
    single: Single, batches: Sequence[Any], randomness: str
) -> tuple[Any, ...]:
    """Take the public door, which knows no None: such parts are left out on the way."""
    import torch

    there: list[bool] = []

    def known(*given: Any) -> tuple[Any, ...]:
        found = single(*given)
        there[:] = [part is not None for part in found]
        return tuple(part for part in found if part is not None)

    found = iter(torch.func.vmap(known, randomness=randomness)(*batches))
    return tuple(next(found) if part else None for part in there)
