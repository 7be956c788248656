"""Where the wrong entries are, in words: rows, columns, every second, one alone."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import LOOKED_AT
from gradlab.diagnosis.measuring.measures import reaches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.diagnosis.measuring.measures import Case
    from gradlab.subject.subject import Variable

__all__ = [
    "are_slices",
    "every_entry",
    "index_words",
    "place_words",
    "some_entries",
    "whole_words",
]

_FEW = 5  # indices that are listed one by one
_KERNEL = 7  # lengths up to which the last two axes of a weight are called a kernel
_ORDINALS = {2: "second", 3: "third", 4: "fourth"}
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_PARTS = {  # of a square matrix: what holds of row and column there
    "above the diagonal": operator.lt,
    "on and above the diagonal": operator.le,
    "below the diagonal": operator.gt,
    "on and below the diagonal": operator.ge,
    "on the diagonal": operator.eq,
    "off the diagonal": operator.ne,
}


def every_entry(count: int, *, complete: bool = True) -> str:
    """Say that something holds of all of them, as the end of a sentence.

    Parameters
    ----------
    complete
        Whether there are no others than those that were looked at.

    Examples
    --------
    >>> every_entry(1), every_entry(2), every_entry(1200)
    ('in its only entry', 'in both entries', 'in all 1,200 entries')
    >>> every_entry(1, complete=False), every_entry(2, complete=False)
    ('in the one entry looked at', 'in both entries that were looked at')
    """
    one = "in its only entry" if complete else "in the one entry looked at"
    others = "" if complete else f" {LOOKED_AT}"
    few = {1: one, 2: f"in both entries{others}"}
    return few.get(count, f"in all {count:,} entries{others}")


def some_entries(case: Case, count: int) -> str:
    """Say of how many entries of an input something holds: "3 of 12 entries"."""
    others = "" if case.part.complete else f" {LOOKED_AT}"
    return f"{count:,} of {case.wrong.size:,} entries{others}"


def index_words(indices: Sequence[int], length: int, noun: str = "index") -> str | None:
    """Describe a set of indices along one axis; None if it is all of them.

    Examples
    --------
    >>> index_words([0, 2, 4], 6, "column"), index_words([5], 6, "row")
    ('every second column from 0', 'the last row (5)')
    >>> index_words([1, 2, 3], 6), index_words([3, 7], 9, "row")
    ('indices 1 to 3', 'rows 3 and 7')
    """
    found = sorted(set(indices))
    many = {"index": "indices", "entry": "entries"}.get(noun, noun + "s")
    if not found or len(found) == length:
        return None
    if len(found) == 1:
        ends = {0: f"the first {noun} (0)", length - 1: f"the last {noun} ({found[0]})"}
        return ends.get(found[0], f"{noun} {found[0]}")
    gaps = set(np.diff(found).tolist())
    if gaps == {1} and len(found) > 2:
        return f"{many} {found[0]} to {found[-1]}"
    if len(gaps) == 1 and len(found) > 2 and found[-1] + min(gaps) >= length:
        return f"every {_ordinal(min(gaps))} {noun} from {found[0]}"
    if len(found) == 2:
        return f"{many} {found[0]} and {found[1]}"
    if len(found) <= _FEW:
        return f"{many} {', '.join(map(str, found[:-1]))} and {found[-1]}"
    return None


def _ordinal(number: int) -> str:
    """Write which one of a row a number is: "second", "5th", "21st"."""
    if number in _ORDINALS:
        return _ORDINALS[number]
    teen = number // 10 % 10 == 1
    return f"{number}{'th' if teen else _ENDINGS.get(number % 10, 'th')}"


def place_words(case: Case) -> str:
    """Describe where an input's gradient is wrong, as the end of a sentence.

    Returns
    -------
    str
        Such as ``in all 40 entries``, ``only in rows 3 and 7 of W (16 of 64
        entries)``, ``in W[17, 42] alone``.
    """
    kept, key = case.evidence.kept, f"place in {case.part.which}"
    if key not in kept:
        kept[key] = _place_words(case)
    words: str = kept[key]
    return words


def whole_words(case: Case) -> str:
    """Say that something holds of a whole gradient, as the end of a sentence."""
    alive = int((~(case.analytic_zero & case.numeric_zero)).sum())
    if alive == case.wrong.size:
        return every_entry(alive, complete=case.part.complete)
    return f"wherever it is not zero ({some_entries(case, alive)})"


def _place_words(case: Case) -> str:
    mask = np.asarray(case.part.wrong)
    columns = reaches(mask, 0)
    count, some = int(mask.sum()), some_entries(case, int(mask.sum()))
    if count == mask.size:
        return every_entry(count, complete=case.part.complete)
    where = _input_words(case, columns)
    output = _output_words(case, reaches(mask, 1))
    told = [words for words in (where, output) if words]
    alive = ~(case.analytic_zero & case.numeric_zero)
    if not (where or output) and count == int(alive.sum()):
        return f"wherever it is not zero ({some})"
    if not told:
        return f"in {some}"
    one = columns.sum() == (2 if case.variable.is_complex else 1)
    if one and not output and case.part.complete:
        return f"{where} alone"
    return f"only {' and '.join(told)} ({some})"


def _input_words(case: Case, columns: NDArray[np.bool_]) -> str | None:
    """Describe the entries of the input that are touched."""
    variable = case.variable
    touched = case.part.positions[columns]
    entries = np.unique(touched // 2 if variable.is_complex else touched)
    if len(entries) == 1:
        return f"in {variable.label(int(entries[0]))}"
    if variable.support is not None or len(entries) == variable.size:
        return None
    axes = _axes(entries, variable.shape)
    words = None
    if axes is not None:
        words = _join(axes, variable.shape, variable.name, _nouns(case, variable))
    return words or _pattern(entries, variable)


def _output_words(case: Case, rows: NDArray[np.bool_]) -> str | None:
    if case.scalar or rows.all():
        return None
    told = []
    for output, part in case.parts_of_output:
        touched = np.flatnonzero(rows[part])
        if not len(touched):
            continue
        if len(touched) == output.size:
            told.append(output.name)
            continue
        axes = _axes(touched, output.shape) if output.shape else None
        nouns = _nouns(case, output)
        words = None if axes is None else _join(axes, output.shape, output.name, nouns)
        if words is None:
            return None
        told.append(words.removeprefix("in "))
    return f"for {' and '.join(told)}" if told else None


def _axes(
    entries: NDArray[np.intp], shape: tuple[int, ...]
) -> list[NDArray[np.intp]] | None:
    """Index sets along the axes, if their product is exactly the set of entries."""
    index = np.unravel_index(entries, shape)
    sets = [np.unique(part) for part in index]
    size = int(np.prod([len(part) for part in sets]))
    return sets if size == len(entries) else None


def _join(
    sets: list[NDArray[np.intp]],
    shape: tuple[int, ...],
    name: str,
    nouns: tuple[str, ...],
) -> str | None:
    words = []
    for axis, (part, length) in enumerate(zip(sets, shape, strict=True)):
        if len(part) == length:
            continue
        told = index_words(part.tolist(), length, nouns[axis] or "index")
        if told is None:
            return None
        words.append(told if nouns[axis] else f"{told} of axis {axis}")
    return f"in {' and '.join(words)} of {name}" if words else None


def _nouns(case: Case, variable: Variable) -> tuple[str, ...]:
    """Words for an index along each axis; empty where only its number tells.

    Of four axes these are an image's where a kernel is among the inputs: heads and
    tokens come in four as well.
    """
    count = len(variable.shape)
    if count in {1, 2}:
        return (("entry",), ("row", "column"))[count - 1]
    kernels = [v for v in case.evidence.subject.inputs if _is_kernel(case, v)]
    if count == 4 and kernels:
        if variable in kernels:
            return "filter", "channel", "kernel row", "kernel column"
        return "sample", "channel", "image row", "image column"
    return ("",) * count


def _is_kernel(case: Case, variable: Variable) -> bool:
    """Whether an input of four axes goes over images: others have the same channels."""
    shape = variable.shape
    if len(shape) != 4 or max(shape[2:]) > _KERNEL:
        return False
    images = (*case.evidence.subject.inputs, *case.outputs)
    return any(
        len(image.shape) == 4
        and image is not variable
        and image.shape[0] != shape[0]
        and image.shape[1] in shape[:2]
        for image in images
    )


def are_slices(case: Case, rows: NDArray[np.bool_]) -> bool:
    """Whether rows are whole slices of the one output, such as all of one sample."""
    if len(case.outputs) != 1:
        return False
    grid = rows.reshape(case.outputs[0].shape)
    for axis in range(grid.ndim):
        others = tuple(i for i in range(grid.ndim) if i != axis)
        some = reaches(grid, others)
        if others and not some.all() and (grid.all(axis=others) == some).all():
            return int(np.prod([grid.shape[i] for i in others])) > 2
    return False


def _pattern(entries: NDArray[np.intp], variable: Variable) -> str | None:
    """Recognise triangles, diagonals and borders, or list a few entries."""
    shape = variable.shape
    if len(shape) == 2 and min(shape) > 1:
        mask = np.zeros(shape, dtype=bool)
        mask.ravel()[entries] = True
        row, column = np.ogrid[: shape[0], : shape[1]]
        for words, holds in _PARTS.items() if shape[0] == shape[1] else ():
            if np.array_equal(mask, holds(row, column)):
                return f"{words} of {variable.name}"
        if min(shape) > 2:
            border = np.ones(shape, dtype=bool)
            border[1:-1, 1:-1] = False
            if np.array_equal(mask, border):
                return f"on the border of {variable.name}"
    if len(entries) <= _FEW - 1:
        names = [variable.label(int(entry)) for entry in entries]
        return f"in {', '.join(names[:-1])} and {names[-1]}"
    return None
