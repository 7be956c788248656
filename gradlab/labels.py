"""Names of entries and inputs, and the words that messages count and list them with.

The flat index 17 of a 4 x 5 ``W1`` is ``W1[3, 2]``.
"""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "chosen_for",
    "entry_label",
    "few_of",
    "plural",
    "ravel",
    "tensor_wanted",
    "unravel",
    "with_article",
]

T = TypeVar("T")


def unravel(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Turn a row-major position into an index tuple.

    Examples
    --------
    >>> unravel(17, (4, 5))
    (3, 2)
    >>> unravel(0, ())
    ()
    """
    index: list[int] = []
    for length in reversed(tuple(shape)):
        flat, position = divmod(flat, length)
        index.append(position)
    return tuple(reversed(index))


def ravel(index: Sequence[int], shape: Sequence[int]) -> int:
    """Turn an index tuple into a row-major position; the inverse of `unravel`.

    Examples
    --------
    >>> ravel((3, 2), (4, 5))
    17
    """
    flat = 0
    for position, length in zip(index, shape, strict=True):
        flat = flat * length + position
    return flat


def entry_label(name: str, flat: int, shape: Sequence[int]) -> str:
    """Name one entry of a named array.

    Examples
    --------
    >>> entry_label("W1", 17, (4, 5))
    'W1[3, 2]'
    >>> entry_label("loss", 0, ())
    'loss'
    """
    if not tuple(shape):
        return name
    if not 0 <= flat < math.prod(shape):
        return f"{name}[?]"
    return f"{name}[{', '.join(map(str, unravel(flat, shape)))}]"


def few_of(names: Sequence[str], most: int) -> str:
    """List names, and count those beyond the first few.

    Examples
    --------
    >>> few_of(["W1", "b1", "W2"], 3), few_of(["W1", "b1", "W2"], 2)
    ('W1, b1, W2', 'W1, b1 and 1 more')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def plural(count: int, noun: str) -> str:
    """Count something in words.

    Examples
    --------
    >>> plural(1, "block"), plural(1728, "entry")
    ('1 block', '1,728 entries')
    """
    if count != 1:
        noun = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{count:,} {noun}"


def with_article(noun: str) -> str:
    """Put "a" or "an" before what something is; None is called by its name.

    Examples
    --------
    >>> with_article("generator"), with_article("ndarray"), with_article("NoneType")
    ('a generator', 'an ndarray', 'None')
    """
    if noun == "NoneType":
        return "None"
    return ("an " if noun.startswith((*"aeiouAEIOU", "nd")) else "a ") + noun


def tensor_wanted(error: BaseException) -> str:
    """Say what to pass where torch was given an array; "" where that is no matter.

    Examples
    --------
    >>> tensor_wanted(TypeError("argument 'input' must be Tensor, not numpy.ndarray"))
    '; pass a tensor, torch.tensor(x, dtype=...)'
    >>> tensor_wanted(ValueError("negative"))
    ''
    """
    if str(error).endswith("must be Tensor, not numpy.ndarray"):
        return "; pass a tensor, torch.tensor(x, dtype=...)"
    return ""


def chosen_for(name: str, table: Mapping[str, T], otherwise: T) -> T:
    """Look up what was chosen for an input: by its name, else by the first pattern.

    Examples
    --------
    >>> table = {"layers.*": 1, "layers.0.weight": 2}
    >>> [chosen_for(n, table, 0) for n in ("layers.0.weight", "layers.1.bias", "x")]
    [2, 1, 0]
    """
    if name in table:
        return table[name]
    fitting = (value for key, value in table.items() if fnmatchcase(name, key))
    return next(fitting, otherwise)
