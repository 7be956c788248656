"""Inputs followed through an evaluation for as long as it is linear in them.

A tensor without memory stands for an input, and one more for every linear image of it:
a transpose, a row, a product, a sum of a product and a bias. What f goes on with by any
other function ends there, and is handed out as the numbers that it is. All that f can
depend on, of an input that is followed, are the images at these ends. That is not
guessed: whatever code does not ask by functions of torch meets no memory, and raises.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from gradlab.subject.tensors.incremental.decompositions import decompositions
from gradlab.subject.tensors.incremental.differing import (
    OtherUseError,
    answered,
    is_differing,
    whole,
    without_memory,
)
from gradlab.subject.tensors.incremental.linear_functions import (
    Word,
    linear_in,
    linear_words,
    replayed,
    unsigned,
    usual,
)
from gradlab.subject.tensors.incremental.short_softmax import called
from gradlab.subject.tensors.incremental.standing_in import watching
from gradlab.subject.tensors.incremental.words import (
    is_transformed,
    over_leaves,
    tensors_in,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["End", "end_replaced", "ends_of"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Image:
    """A linear image of inputs, and how it is made of them.

    Attributes
    ----------
    plain
        Its entries.
    inputs
        Which inputs it is an image of.
    func, args, kwargs
        Makes it, out of images and constants; None for an input itself.
    pick
        Which of the results, where `func` makes several.
    weighty
        Whether numbers among the arguments are factors.
    mixed
        Whether an entry may be made of several, or one of an input be part of several.
    """

    plain: Any
    inputs: frozenset[int]
    func: Any = None
    args: Any = ()
    kwargs: Any = dataclasses.field(default_factory=dict)
    pick: int | None = None
    weighty: bool = False
    mixed: bool = False

    def made(
        self, tensors: Sequence[Any], weigh: Callable[[Any], Any] | None = None
    ) -> Any:
        """Make it again, of other inputs, and with constants that are weighed.

        Weighed, a factor of -1 is none: what is subtracted is added.
        """
        if self.func is None:
            (place,) = self.inputs
            return tensors[place]

        def value(each: Any) -> Any:
            import torch

            if isinstance(each, _Image):
                return each.made(tensors, weigh)
            if weigh is None:
                return each
            if isinstance(each, torch.Tensor) and each.is_floating_point():
                return weigh(each)
            if self.weighty and isinstance(each, int | float):
                return weigh(torch.tensor(float(each), dtype=self.plain.dtype))
            return each

        func = self.func if weigh is None else unsigned().get(self.func, self.func)
        made = func(*over_leaves(value, self.args), **over_leaves(value, self.kwargs))
        return made if self.pick is None else made[self.pick]


class End:
    """A linear image of inputs that f goes on with by other functions.

    Attributes
    ----------
    number
        Which of the ends of an evaluation.
    values
        Its entries, a tensor.
    inputs
        Places of the inputs that it is an image of. It is linear in each.
    """

    def __init__(self, number: int, image: _Image) -> None:
        self.number, self._image = number, image
        self.values, self.inputs = image.plain.detach().clone(), image.inputs

    def made(
        self, tensors: Sequence[Any], weigh: Callable[[Any], Any] | None = None
    ) -> Any:
        """Make it of other inputs, and with constants that are weighed."""
        return self._image.made(tensors, weigh)


def ends_of(
    tensors: Sequence[Any], call: Callable[[list[Any]], tuple[Any, ...]]
) -> list[End]:
    """Call with some inputs followed, and tell where they end.

    Parameters
    ----------
    tensors
        The inputs.
    call
        Evaluates, with what it gets in place of them; returns tensors.

    Raises
    ------
    OtherUseError
        By code that bypasses the functions of torch, or writes to what was followed.

    Examples
    --------
    >>> import torch
    >>> w, b = torch.ones(2, 3), torch.ones(3)
    >>> (end,) = ends_of(
    ...     [w, b], lambda given: [(torch.ones(2) @ given[0] + given[1]).exp()]
    ... )
    >>> end.values, sorted(end.inputs)
    (tensor([3., 3., 3.]), [0, 1])
    """
    ends: list[End] = []

    def end(image: _Image) -> Any:
        ends.append(End(len(ends), image))
        return image.plain

    watch = _Watch(end, records=True)
    _followed(tensors, call, watch)
    return ends


def end_replaced(
    tensors: Sequence[Any],
    call: Callable[[list[Any]], tuple[Any, ...]],
    number: int,
    replace: Callable[[Any], Any],
) -> tuple[Any, ...]:
    """Call with another tensor in place of one of the ends.

    Parameters
    ----------
    tensors, call
        As `ends_of` was given them.
    number
        Which end.
    replace
        Gives what takes its place.
    """
    before = number

    def end(image: _Image) -> Any:
        nonlocal before
        before -= 1
        if before >= 0:
            return image.plain
        watch.follows = False  # all that is left is as it was
        return replace(image.plain)

    watch = _Watch(end, records=False)
    return _followed(tensors, call, watch)


def _followed(
    tensors: Sequence[Any], call: Callable[..., tuple[Any, ...]], watch: _Watch
) -> tuple[Any, ...]:
    images = [
        _Image(tensor, frozenset((place,))) for place, tensor in enumerate(tensors)
    ]
    made = [_kind()(image.plain, image, watch) for image in images]
    with watching(watch.answer):
        found = call(made)
    return tuple(whole(watch.ended(tensor)) for tensor in found)


@functools.cache
def _kind() -> Any:
    """Make the class of what stands for an image."""

    class Followed(without_memory()):  # type: ignore[misc] # made when asked for
        """Knows the image, and what was handed out where it ended."""

        def __init__(self, _: Any, image: _Image, watch: _Watch) -> None:
            self.image, self.watch = image, watch
            self.version = image.plain._version  # noqa: SLF001 - torch's only mark of a change
            self.handed: Any = None

        @classmethod
        def __torch_dispatch__(
            cls, func: Any, _: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            """End where a function is called by others than the user's own code."""
            return func(
                *over_leaves(_entries, args), **over_leaves(_entries, kwargs or {})
            )

    return Followed


def _entries(value: Any) -> Any:
    return value.watch.ended(value) if _is(value) else value


def _is(value: Any) -> bool:
    """Whether something stands for an image."""
    return type(value) is _kind()


def _goes_on(value: Any) -> bool:
    """Whether something stands for an image that has not ended."""
    return _is(value) and value.handed is None


def _inside(given: Sequence[Any]) -> bool:
    """Whether a call is part of the user's own vmap, where images have other axes."""
    return any(map(is_transformed, given))


def _as_ever(func: Any, args: Any, kwargs: Any, given: Sequence[Any]) -> Any:
    """Call a function of which no argument stands for an image."""
    if any(map(is_differing, given)):
        return answered(func, args, kwargs)
    return called(func, args, kwargs)


class _Watch:
    """Answers for the functions that are called in one evaluation.

    Parameters
    ----------
    end
        Gives what is handed out at the end of an image.
    records
        Whether images are to be made again: constants are kept as they are now.
    """

    def __init__(self, end: Callable[[_Image], Any], *, records: bool) -> None:
        self._end, self._records = end, records
        self.follows = True

    def answer(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call a function; of an image, one that is linear makes another image."""
        given = list(tensors_in((args, kwargs)))
        followed = [each for each in given if _is(each)]
        if not followed:
            return _as_ever(func, args, kwargs, given)
        if func in words().harmless:
            return func(*args, **kwargs)
        if func in decompositions():
            with watching(self.answer):
                found = decompositions()[func](*args, **kwargs)
            if found is not None:
                return found
        word = linear_words().get(func) if self.follows else None
        if word is not None and usual(word, args, kwargs) and not _inside(given):
            self._end_added(word, args, kwargs, followed)
            if self._goes_on(followed):
                plain = over_leaves(self._plain, (args, kwargs))
                out = func(*plain[0], **plain[1])
                self._end_repeated(out, followed)
                if self._goes_on(followed):
                    return self._images(out, func, word, args, kwargs)
        args, kwargs = over_leaves(self.ended, (args, kwargs))
        return _as_ever(func, args, kwargs, list(tensors_in((args, kwargs))))

    def ended(self, value: Any) -> Any:
        """Give the entries of what stands for an image; anything else as it is."""
        if not _is(value):
            return value
        if value.handed is None:
            self._unwritten(value)
            value.handed = self._end(value.image) if self.follows else value.image.plain
        return value.handed

    def _unwritten(self, value: Any) -> None:
        """Raise if somebody wrote to the memory of an image that is followed."""
        if value.image.plain._version != value.version:  # noqa: SLF001 - as above
            raise OtherUseError

    def _goes_on(self, followed: Sequence[Any]) -> bool:
        """Whether some images have not ended yet."""
        return self.follows and any(map(_goes_on, followed))

    def _end_added(
        self, word: Word, args: Any, kwargs: Any, followed: Sequence[Any]
    ) -> None:
        """End the images that cannot be followed through a function, by its arguments.

        Those that stand where it is not linear; those of which it would add up entries
        that have one of an input in common, or multiply sums; and what a constant is
        added to, which would only hide how large they are.
        """
        allowed = {id(each) for each in linear_in(word, args, kwargs)}
        several = sum(map(_goes_on, followed)) > 1
        if word.kind == "sum" and not several:
            allowed = set()
        multiplied = word.kind == "product" or (word.kind == "scale" and several)
        uses = collections.Counter(p for each in followed for p in each.image.inputs)
        for each in followed:
            added = each.image.mixed and multiplied
            added |= any(uses[place] > 1 for place in each.image.inputs)
            if added or id(each) not in allowed:
                self.ended(each)

    def _end_repeated(self, out: Any, followed: Sequence[Any]) -> None:
        """End the images that a function only writes out more often, or takes apart.

        And all where it gives numbers of another kind, as under autocast.
        """
        found = list(tensors_in(out))
        size = max(each.numel() for each in found)
        for each in followed:
            plain = each.image.plain
            dear = len(found) > 1 or size > plain.numel()
            if found[0].dtype is not plain.dtype or (each.image.mixed and dear):
                self.ended(each)

    def _images(self, out: Any, func: Any, word: Word, args: Any, kwargs: Any) -> Any:
        """Make images of what a function gives that is linear in images."""
        own = [v.image for v in tensors_in((args, kwargs)) if _goes_on(v)]
        inputs = frozenset[int]().union(*(image.inputs for image in own))
        mixed = word.kind in {"sum", "product"} or any(image.mixed for image in own)
        largest = max(image.plain.numel() for image in own)
        several = isinstance(out, tuple | list)
        recipe: dict[str, Any] = {}
        if self._records:
            args, kwargs = over_leaves(self._kept, (args, kwargs))
            func = replayed().get(func, func)
            recipe = {"func": func, "args": args, "kwargs": kwargs}
            recipe["weighty"] = word.kind == "scale"
        made = []
        for number, each in enumerate(out if several else [out]):
            repeats = each.numel() > largest or (word.rows and not each._is_view())  # noqa: SLF001 - a slice is one
            image = _Image(
                each,
                inputs,
                pick=number if several else None,
                mixed=mixed or repeats,
                **recipe,
            )
            made.append(_kind()(each, image, self))
        return type(out)(made) if several else made[0]

    def _plain(self, value: Any) -> Any:
        """Give the entries of an image that goes on, or what was handed out."""
        if not _goes_on(value):
            return self.ended(value)
        self._unwritten(value)
        return value.image.plain

    def _kept(self, value: Any) -> Any:
        """Give an image that goes on, or a constant as it is now."""
        import torch

        if _goes_on(value):
            return value.image
        value = self.ended(value)
        return value.detach().clone() if isinstance(value, torch.Tensor) else value
