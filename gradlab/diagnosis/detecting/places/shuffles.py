"""Detectors of right numbers in wrong places: conjugated, permuted, handed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.measures import EXACT, Case, Clue, reaches
from gradlab.diagnosis.measuring.moving import affine
from gradlab.diagnosis.measuring.orders import orders_of
from gradlab.diagnosis.measuring.places import every_entry, place_words
from gradlab.subject.numpy_values import as_complex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

__all__ = ["conjugated", "other_way_round", "permuted", "selection"]

_LARGE = 2_000_000  # entries beyond which the search for permutations stops
_QUICK = 100_000  # and beyond which norms alone rule it out
_NUMBERS = 3  # different ones that are taken to be no coincidence
_ABOUT = 0.05  # of a number: how near it the density of others is counted
_BY_CHANCE = 0.1  # a number may be known by accident so often


def conjugated(case: Case) -> list[Clue]:
    """Detect complex derivatives with the sign of an imaginary part flipped."""
    if not case.variable.is_complex:
        return []
    turned = _turned(case)
    if turned or case.growth:
        return turned or _half_conjugated(case)
    columns = np.where(case.part.positions % 2 == 0, 1.0, -1.0)
    rows = np.ones(len(case.numeric))
    for output, part in case.parts_of_output:
        if output.name.endswith(".imag"):
            rows[part] = -1.0
    conjugate = "conjugate of numeric"
    models = [(conjugate, case.numeric * columns)]
    if (rows < 0).any():
        turned_rows = case.numeric * rows[:, None]
        models += [(conjugate, turned_rows), (conjugate, turned_rows * columns)]
    if case.numeric[:, columns < 0].any():  # else that is a sign, and no phase
        models.append((f"minus the {conjugate}", -case.numeric * columns))
    share, words = max((case.share(model), words) for words, model in models)
    if share < EXACT:
        return _half_conjugated(case)
    entries = len(np.unique(case.part.positions // 2))
    place = every_entry(entries, complete=case.part.complete)
    return [
        Clue(
            BugKind.CONJUGATE,
            0.985 * share,
            f"analytic = {words} {place} of {case.name}.",
            "Conjugate the derivative: for a holomorphic f the gradient is "
            "grad * conj(f'(z)).",
        )
    ]


def other_way_round(case: Case) -> list[Clue]:
    """Detect a circular convolution in the backward of a circular convolution.

    Its adjoint is a correlation: in Fourier space, a product with a conjugate.
    """
    if case.scalar or len(case.outputs) != 1 or case.growth or case.variable.is_complex:
        return []
    n, shape = case.grid(case.numeric), (*case.outputs[0].shape, *case.variable.shape)
    if n is None or n.size > _LARGE or not case.variable.shape:
        return []
    length, last = case.variable.shape[-1], len(case.outputs[0].shape) - 1
    if last < 0 or shape[last] != length or length < _NUMBERS:
        return []
    ends = last, len(shape) - 1
    moves = n.reshape(shape)
    if not np.allclose(
        np.roll(moves, (1, 1), ends), moves, 1e-4, 1e-6 * np.abs(n).max()
    ):
        return []
    model = np.roll(np.flip(moves, ends), (1, 1), ends).reshape(case.numeric.shape)
    if case.share(model) < EXACT:
        return []
    return [
        Clue(
            BugKind.CONJUGATE,
            0.975,
            f"The function is a circular convolution along the last axis of "
            f"{case.name}, and so is its backward, which should go the other way "
            f"round: analytic = numeric with index k at -k, modulo {length}.",
            "With Fourier transforms multiply by the conjugate on the way back: "
            "dx = ifft(fft(up) * conj(fft(w))). With shifts turn them round.",
            (BugKind.WRONG_INDEX,),
        )
    ]


def _turned(case: Case) -> list[Clue]:
    """Detect a complex factor, such as -1j: real factors are detected elsewhere."""
    if not case.part.complete:
        return []
    a, n = as_complex(case.analytic), as_complex(case.numeric)
    there = np.abs(n) > 1e-3 * np.abs(n).max(initial=0.0)
    if there.sum() < 2:
        return []
    ratios = a[there] / n[there]
    factor = complex(ratios.mean())
    steady = np.abs(ratios - factor).max() < 1e-4 * abs(factor)
    if not steady or abs(factor.imag) < 1e-3 * abs(factor):
        return []
    if case.share((factor * n).view(np.float64)) < EXACT:
        return []
    told = f"({factor:.4g})"
    if abs(factor.real) < 1e-6 * abs(factor):
        told = f"{factor.imag:.4g}j"
    return [
        Clue(
            BugKind.SCALE,
            0.95,
            f"analytic = {told} x numeric {every_entry(case.variable.size)} of "
            f"{case.name}: a complex factor.",
            "Search the backward for a factor 1j that is left out or conjugated: that "
            "of f(z) = 1j * z is -1j * grad.",
        )
    ]


def _half_conjugated(case: Case) -> list[Clue]:
    """Detect a product of which one factor lacks its conjugate: sizes are right."""
    real = not any(output.is_complex for output in case.outputs)
    if not (real and case.part.complete):
        return []
    a, n = as_complex(case.analytic), as_complex(case.numeric)
    there = np.abs(n) > 1e-6 * np.abs(n).max(initial=0.0)
    if there.sum() < 3 or not np.allclose(np.abs(a), np.abs(n), rtol=1e-5, atol=1e-9):
        return []
    turned = a[there] / n[there]
    if np.ptp(turned.real) < 1e-3 or np.abs(turned.imag).max() < 1e-3:
        return []  # one factor, or signs
    return [
        Clue(
            BugKind.CONJUGATE,
            0.93,
            f"Every entry of {case.name} has the right modulus and another phase: of a "
            f"product one factor is not conjugated, or one too many.",
            "Write the adjoint factor by factor: that of y = M z is M.conj().T @ up, "
            "and that of abs(y)**2 is 2 * y * up.",
        )
    ]


def permuted(case: Case) -> list[Clue]:
    """Detect slices of the input or the output that are rolled, flipped, permuted."""
    if case.analytic.size > _LARGE or case.variable.is_complex:
        return []
    if case.growth > 0 and case.analytic.size > _QUICK:
        return []
    # what is zero on one side alone is a mask, as often as a slice that is not moved
    apart = bool((case.wrong & ~case.analytic_zero & ~case.numeric_zero).any())
    for words, order in orders_of(case):
        if not (apart or order.keeps) or case.refutes(
            order.at(case.numeric, case.largest)
        ):
            continue
        # a border that may hold anything is to explain little
        inside = case.error if order.border is None else order.inside(case.error)
        share = case.share(order.whole(case.numeric))
        if share > EXACT and 3 * np.linalg.norm(inside) > 2 * case.total:
            return [_order_clue(case, share, words)]
    model = None if case.growth else _sorted_alike(case)
    if model is not None and (share := case.share(model)) > EXACT:
        return [_order_clue(case, share, "its entries in another order")]
    return _same_numbers(case)


def _order_clue(case: Case, share: float, words: str) -> Clue:
    return Clue(
        BugKind.WRONG_INDEX,
        0.955 * share,
        f"analytic = numeric with {words}.",
        f"Check the indices with which the backward of {case.name} reads and writes: "
        f"an offset, a reversed order, a stale permutation.",
    )


def _same_numbers(case: Case) -> list[Clue]:
    """Recognise numbers of the other side at places that are not theirs.

    A window that is cut out at the wrong place, or an index that runs wrongly, makes no
    new numbers: each is a slope that the function has, elsewhere. Where no row or
    column loses any they are the same; at borders some get lost and others come in.
    """
    moved = case.wrong & ~case.analytic_zero
    if not moved.any() or not (case.wrong & ~case.numeric_zero).any():
        return []  # too little alone, or too much alone: a mask
    size = float(np.abs(case.numeric).max())
    if (np.abs(case.analytic - case.numeric)[moved] < 1e-3 * size).any():
        return []  # a slip of 1e-5 is no other place
    whole = not case.scalar and (_same_lines(case, 1) or _same_lines(case, 0))
    if not whole and not _known(case.analytic[moved], case.numeric):
        return []
    # an assignment where a sum belongs keeps one term of it, which may be known too
    lost = not whole and bool((case.wrong & case.analytic_zero).any())
    return [
        Clue(
            BugKind.WRONG_INDEX,
            0.95 if whole else 0.79,  # a transpose may say the same more simply
            f"Every wrong number in the gradient of {case.name} is the right one of "
            f"another entry: {int(moved.sum()):,} stand at wrong places, "
            f"{place_words(case)}.",
            f"Check the index arithmetic in the backward of {case.name}: an offset, a "
            f"stride or a padding, a kernel or an order that must be reversed"
            f"{', or an assignment (=) where += belongs' if lost else ''}.",
            (BugKind.LOST_ACCUMULATION,) if lost else (),
        )
    ]


def _same_lines(case: Case, axis: int) -> bool:
    """Whether all wrong rows (axis 1) or columns hold the numbers that they should."""
    lines = reaches(case.wrong, axis)
    a, n = (
        side[lines] if axis else side.T[lines] for side in (case.analytic, case.numeric)
    )
    moves = (~case.numeric_zero).sum(axis=axis)[lines]
    if len(a) < 2 or not np.median(moves) > 1:
        return False
    size = float(np.abs(n).max(initial=0.0))
    first = np.abs(np.sort(a[0]) - np.sort(n[0])).max() <= 1e-5 * size  # one tells
    return bool(
        first and np.abs(np.sort(a, axis=1) - np.sort(n, axis=1)).max() <= 1e-5 * size
    )


def _known(found: NDArray[np.float64], numeric: Matrix) -> bool:
    """Whether all of several different numbers occur on the numeric side.

    Among so many that any number is near one of them, that would say nothing.
    """
    size = float(np.abs(numeric).max(initial=0.0))
    pool = np.unique(numeric[np.abs(numeric) > 1e-9 * size])
    if len(pool) < _NUMBERS or np.ptp(found) < 1e-5 * size:
        return False
    about = np.abs(found) * _ABOUT
    near = np.searchsorted(pool, found + about) - np.searchsorted(pool, found - about)
    if (near * 1e-5 / _ABOUT).max() > _BY_CHANCE:
        return False
    after = np.searchsorted(pool, found).clip(1, len(pool) - 1)
    gaps = np.minimum(np.abs(found - pool[after - 1]), np.abs(found - pool[after]))
    return bool((gaps <= 1e-5 * np.abs(found)).all())


def _sorted_alike(case: Case) -> Matrix | None:
    """Numeric entries of a loss in the order of the analytic ones."""
    # of few different values many an order can be made by accident
    several = len(np.unique(np.round(case.numeric, 9))) > max(2, case.numeric.size // 2)
    if not case.scalar or case.numeric.size <= 2 or not several:
        return None
    order = np.argsort(case.analytic[0], kind="stable")
    model = np.empty_like(case.numeric)
    model[0, order] = np.sort(case.numeric[0])
    return model


def selection(case: Case) -> list[Clue]:
    """Tell a wrong mask from a wrong index where every output picks one entry.

    Which entry max or min picks depends on the values; which one a lookup picks does
    not, so a lookup is a straight line along every direction.
    """
    if case.scalar or case.variable.is_complex or not case.part.complete:
        return []
    a, n = ~case.analytic_zero, ~case.numeric_zero
    wrong = reaches(case.wrong, 1)
    if (n.sum(axis=1) > 1).any() or (n.sum(axis=1)[wrong] != 1).any():
        return []
    if (a.sum(axis=1)[wrong] != 1).any():
        return []
    moved = reaches(a & ~n, 1)[wrong]
    if not moved.all() or wrong.sum() < 2:
        return []
    axes = _axes_of_picks(case, a, n, wrong)
    if axes is not None:
        name, ours, true = axes
        return [
            Clue(
                BugKind.WRONG_AXIS,
                0.97,
                f"{name} at an index along axis {true} uses the entry of {case.name} "
                f"with that index; its gradient goes to the entry with the index along "
                f"axis {ours}.",
                f"Sum the gradient of {case.name} over the other axes of {name}: all "
                f"but axis {true}.",
            )
        ]
    flat = affine(case.evidence, case.part.which)
    if flat is None:
        return []
    if flat or bool((n.sum(axis=0) == 1).all()):
        return [
            Clue(
                BugKind.WRONG_INDEX,
                0.96,
                f"Each output picks one entry of {case.name}, whatever the values are; "
                f"{int(wrong.sum())} of {len(wrong)} outputs hand their gradient to "
                f"another entry.",
                "Send each incoming gradient to the index the forward pass read from.",
            )
        ]
    return [
        Clue(
            BugKind.WRONG_MASK,
            0.965,
            f"Each output picks the entry of {case.name} that its values decide (a "
            f"maximum, say); {int(wrong.sum())} of {len(wrong)} outputs hand their "
            f"gradient to another entry.",
            "Keep the mask or the argmax of the forward pass, and use that.",
        )
    ]


def _axes_of_picks(
    case: Case,
    a: NDArray[np.bool_],
    n: NDArray[np.bool_],
    wrong: NDArray[np.bool_],
) -> tuple[str, int, int] | None:
    """Name the output, and the axes whose index is that of the entry, ours and true."""
    if len(case.outputs) != 1:
        return None
    (output,) = case.outputs
    places = np.unravel_index(np.flatnonzero(wrong), output.shape)
    found = []
    for side in (a, n):
        picked = side[wrong].argmax(axis=1)
        along = [p for p, place in enumerate(places) if (place == picked).all()]
        if len(along) != 1 or output.shape[along[0]] != side.shape[1]:
            return None
        found.append(along[0])
    ours, true = found
    return (output.name, ours, true) if ours != true else None
