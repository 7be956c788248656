"""Simple measurements on a wrong piece: constant factor, no gradient, no chain rule."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.checking.probe import quick
from gradlab.subject.own_seeds import own_seed

if TYPE_CHECKING:
    from gradlab.localisation.layers.checking.probe import Measure, Precision
    from gradlab.localisation.layers.replaying.replay import Piece

__all__ = ["Character", "characterise", "random_cotangents"]

_TRIALS = 3  # directions and cotangents over which a factor must stay the same


@dataclasses.dataclass(frozen=True, slots=True)
class Character:
    """What kind of mistake a wrong piece makes.

    Parameters
    ----------
    kind
        Value of a `gradlab.BugKind`.
    words
        Continues the sentence "its backward ...".
    confidence
        From 0 to 1.
    only_slopes
        Whether nothing simpler is known than two slopes along a random direction.
    length
        That the factor, or its inverse, is; 0 if it is none.
    """

    kind: str
    words: str
    confidence: float
    only_slopes: bool = False
    length: int = 0


def characterise(
    piece: Piece, worst: Measure, precision: Precision, seed: int
) -> Character:
    """Find the simplest description of what a piece does wrong.

    Parameters
    ----------
    piece
        A wrong piece.
    worst
        The tensor to look at, with its measured slopes.
    precision
        Of the piece's arithmetic.
    seed
        Of further directions and cotangents.
    """
    if not math.isfinite(worst.analytic):
        return Character(
            "nonfinite", "is nan or infinite where its derivative is not", 1.0
        )
    pairs = [(worst.analytic, worst.numeric)]
    try:
        pairs += [
            _pair(piece, worst.label, precision, seed + trial, trial)
            for trial in range(1, _TRIALS)
        ]
        others = _hands_on_some(piece)
        if _ignores_upstream(piece):
            return Character(
                "ignores_upstream",
                "does not depend on the incoming gradient as it should: it returns the "
                "same when that is doubled",
                0.9,
            )
    except Exception:  # noqa: BLE001 - the user's code may raise anything
        return _two_slopes(worst)
    if all(analytic == 0 for analytic, _ in pairs):
        the = "the " if worst.label.startswith("output") else ""
        to = f"to {the}{worst.label}" if others else "at all"
        return Character(
            "detached",
            f"hands on no gradient {to}, where the derivative along a random "
            f"direction is {worst.numeric:.4g}",
            0.9,
        )
    ratios = [analytic / numeric for analytic, numeric in pairs if numeric]
    if len(ratios) < len(pairs):
        return _two_slopes(worst)
    spread = max(ratios) - min(ratios)
    if spread <= 10 * precision.tolerance * max(1.0, abs(ratios[0])):
        return _factor(ratios[0], piece)
    return _two_slopes(worst)


def _hands_on_some(piece: Piece) -> bool:
    """Whether any tensor gets a gradient that is not zero."""
    gradients = piece.product().gradients
    return any(found is not None and bool(found.any()) for found in gradients)


def _factor(ratio: float, piece: Piece) -> Character:
    same = _returns_its_input(piece)
    if abs(ratio + 1) < 1e-4 and not same:
        return Character("sign", "is the derivative with the opposite sign", 0.95)
    for n, what in _lengths(piece):
        if min(abs(ratio - n), abs(ratio * n - 1) * n) < 1e-4 * n:
            told = f"{n} x" if ratio > 1 else f"1/{n} of"
            words = f"is {told} the derivative, and {n} is {what}"
            return Character("missing_reduction", words, 0.9, length=n)
    words = f"is {ratio:.6g} times the derivative"
    if same:
        words += ", and it returns what it is given: a reversal or scaling of gradients"
    return Character("surrogate" if same else "scale", words, 0.9)


def _returns_its_input(piece: Piece) -> bool:
    """Whether a call has one output, and that has the values of one of its inputs.

    Not of a parameter: what reverses gradients stands between two layers.
    """
    import torch

    frame = piece.frame
    if frame.children or len(frame.outputs) != 1:
        return False
    output = frame.outputs[0].value
    taken = [slot.value for slot in frame.inputs if not slot.parameter]
    return any(torch.equal(value, output) for value in taken)


def _lengths(piece: Piece) -> list[tuple[int, str]]:
    """Lengths that a mean may run over: of an axis, of all but the last, of all."""
    slots = piece.frame.inputs
    shapes = [tuple(slot.value.shape) for slot in slots]
    names = [f"its {slot.label if len(slots) > 1 else 'input'}" for slot in slots]
    found: dict[int, str] = {}
    for words, lengths in (
        ("the length of an axis", lambda shape: shape),
        ("the product of all axes but the last", lambda shape: [math.prod(shape[:-1])]),
        ("the number of entries", lambda shape: [math.prod(shape)]),
    ):
        for name, shape in zip(names, shapes, strict=True):
            for n in lengths(shape):
                found.setdefault(n, f"{words} of {name}")
    return sorted((n, what) for n, what in found.items() if n > 2)


def _two_slopes(worst: Measure) -> Character:
    words = (
        f"gives {worst.analytic:.6g} along a random direction, where the difference "
        f"quotient is {worst.numeric:.6g} ± {worst.bar:.1g}"
    )
    return Character("unknown", words, 0.3, only_slopes=True)


def random_cotangents(piece: Piece, seed: int) -> list[Any]:
    """Random weights for the outputs of a piece."""
    import torch

    weights: list[Any] = []
    for k, slot in enumerate(piece.frame.outputs):
        value = slot.value
        if not (value.is_floating_point() or value.is_complex()):
            weights.append(None)
            continue
        generator = torch.Generator(device=value.device)
        generator.manual_seed(own_seed(seed + k, "cotangents"))
        dtype = torch.complex128 if value.is_complex() else torch.float64
        weight = torch.randn(
            value.shape, generator=generator, dtype=dtype, device=value.device
        )
        weights.append(weight.to(value.dtype))
    return weights


def _pair(
    piece: Piece, label: str, precision: Precision, seed: int, trial: int
) -> tuple[float, float]:
    """Slopes along another direction, for another gradient of what has one now."""
    drawn = zip(piece.cotangents, random_cotangents(piece, seed), strict=True)
    weights = [None if now is None else weight for now, weight in drawn]
    # what comes back through the calls inside changes as well: by a factor only, since
    # the recorded gradients are all that is known of it
    other = piece.with_cotangents(weights, handed=1 + trial / 2)
    product = other.product()
    only = next(
        (k for k, variable in enumerate(product.variables) if variable.label == label),
        None,
    )
    measure = quick(other, product, precision, seed, only=only)
    piece.evaluations += other.evaluations
    return measure.analytic, measure.numeric


def _ignores_upstream(piece: Piece) -> bool:
    """Whether doubling the incoming gradient leaves what goes out as it was."""
    import torch

    if piece.frame.children:
        return False  # what is handed to children has weights of its own
    weights = random_cotangents(piece, 1)
    doubled = [None if weight is None else 2 * weight for weight in weights]
    once = piece.with_cotangents(weights).product()
    twice = piece.with_cotangents(doubled).product()
    pairs = [
        (one, two)
        for one, two in zip(once.gradients, twice.gradients, strict=True)
        if one is not None and two is not None and bool(one.any())
    ]
    return any(torch.equal(one, two) for one, two in pairs)
