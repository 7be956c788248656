"""Lengths that a mean may run over, by the names of the arrays that have them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from gradlab.diagnosis.measuring.held import held_arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.diagnosis.measuring.held import Held
    from gradlab.diagnosis.measuring.measures import Case

__all__ = ["Length", "is_everyday", "matching_length"]

_CLOSE = 1e-3  # relative: how near to a length a measured factor must be
_NAMELESS = "an array it uses"
_EVERYDAY = {3, 10, 100, 1000}  # and powers of two: factors that are written by hand


class Length(NamedTuple):
    """A length of an array, or a number of its entries."""

    size: int
    words: str  # goes on after "is"
    leading: bool  # along the first axis, or of all entries, as samples are counted

    @property
    def held(self) -> bool:
        """Whether it is that of an array that the function holds."""
        return self.words.endswith(("`", _NAMELESS))

    @property
    def counted(self) -> bool:
        """Whether it is a number of entries, rather than the length of an axis."""
        return "the length of axis" not in self.words


def is_everyday(number: int) -> bool:
    """Whether a whole number stands in formulas as often as it is a length.

    Examples
    --------
    >>> [number for number in range(2, 20) if is_everyday(number)]
    [2, 3, 4, 8, 10, 16]
    """
    return number in _EVERYDAY or number & (number - 1) == 0


def matching_length(case: Case, large: float, *, alike: bool) -> Length | None:
    """Find the length that a factor is.

    Parameters
    ----------
    large
        The factor, or its inverse, above one.
    alike
        Whether all inputs have that factor: then it is rather a length of the data.
    """
    found = [
        length
        for length in _lengths_of(case)
        if length.size > 1 and abs(length.size - large) < _CLOSE * length.size
    ]
    own = case.name
    data = any(length.held and not length.counted for length in found)
    # samples stand along the first axis, and are rather counted than all entries; nor
    # does a mean run over the entries of another weight where data are as long
    found.sort(
        key=lambda length: (
            data
            and length.counted
            and not length.held
            and not length.words.endswith(f" {own}"),
            length.words.endswith(_NAMELESS),
            not length.leading,
            alike and not length.held,
            "axis 0" not in length.words,
            alike and length.words,  # the same one in the finding of each
        )
    )
    return found[0] if found else None


def _lengths_of(case: Case) -> Iterator[Length]:
    """Lengths that a mean could run over.

    Those of the input that is wrong come first: of many of the same length another one
    would be named for no reason.
    """
    subject = case.evidence.subject
    own = subject.inputs[case.part.which]
    others = [v for v in subject.inputs if v is not own]
    for variable in (own, *others, *subject.outputs):
        name, shape = variable.name, variable.shape
        for axis, length in enumerate(shape):
            yield Length(length, f"the length of axis {axis} of {name}", axis == 0)
        if len(shape) > 1:
            yield Length(variable.size, f"the number of entries of {name}", True)
            words = f"the product of the first two axes of {name}"
            yield Length(shape[0] * shape[1], words, True)
            words = f"the number of entries of one sample of {name}"
            yield Length(math.prod(shape[1:]), words, False)
        if len(shape) > 2:
            spatial = math.prod(shape[2:])
            yield Length(spatial, f"the spatial size of {name}", False)
            words = f"the batch times spatial size of {name}"
            yield Length(shape[0] * spatial, words, True)
    for name, array in held_arrays(subject):
        yield from _of_held(f"`{name}`" if name else _NAMELESS, array)


def _of_held(called: str, array: Held) -> Iterator[Length]:
    for axis, length in enumerate(array.shape):
        yield Length(length, f"the length of axis {axis} of {called}", axis == 0)
    yield Length(math.prod(array.shape), f"the number of entries of {called}", True)
    if str(array.value.dtype).endswith("bool"):
        # of a mask, or of events, a mean runs over those that are there
        words = f"the number of true entries of {called}"
        yield Length(int(array.value.sum()), words, True)
