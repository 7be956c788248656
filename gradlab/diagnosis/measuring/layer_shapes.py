"""Which inputs are the weight, the bias and the recurrent weight of one layer.

Nobody says so: shapes, neighbourhood and names do.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradlab.diagnosis.evidence import Evidence
    from gradlab.subject.subject import Variable

# last parts of names that vectors of a normalisation have
_NORM = re.compile(r"(g|ga|gain|gamma|be|beta|scale|shift|(ln|bn|norm)\w*)\d*")

# of which these are gains and those are shifts
_GAIN = re.compile(r"(g|ga|gain|gamma|scale)\d*")
_SHIFT = re.compile(r"(be|beta|shift)\d*")

# and those that a bias has: b1, by, b_out, bias2, beta, offset
_BIAS = re.compile(r"(b[a-z]?|b_\w+|bias\w*|\w+_bias|beta|offset|shift|intercept)\d*")

# and those of states, which no layer multiplies with: h0, c_prev, hidden
_STATE = re.compile(r"[hcsz]_?(0|init|prev|last)|(hidden|state|init)\w*|prev_?[hcs]")

__all__ = ["Layer", "is_after_a_gain", "is_named", "layer_of", "layers_of", "shift_of"]


@dataclasses.dataclass(frozen=True, slots=True)
class Layer:
    """Numbers of the inputs that are a weight, its bias, and a recurrent weight."""

    weight: int
    bias: int
    recurrent: int | None = None


def layer_of(evidence: Evidence, which: int) -> Layer | None:
    """Find the layer that an input belongs to, by shapes and neighbourhood."""
    for layer in layers_of(evidence):
        if which in {layer.weight, layer.bias, layer.recurrent}:
            return layer
    return None


def is_named(evidence: Evidence, layer: Layer) -> bool:
    """Whether the name of a bias says that it is one; shapes alone prove nothing."""
    name = evidence.subject.inputs[layer.bias].name
    return _BIAS.fullmatch(name.rpartition(".")[2].lower()) is not None


def layers_of(evidence: Evidence) -> list[Layer]:
    """Find all layers among the inputs, each input in one at most."""
    inputs = evidence.subject.inputs
    # an array shaped like an output is data rather than a weight
    data = {output.shape for output in evidence.subject.outputs}
    named = _by_name(evidence)
    found = list(named)
    taken = {k for one in named for k in (one.weight, one.recurrent) if k is not None}
    known = {one.bias for one in named}
    if not named and sorted(len(v.shape) for v in inputs) == [
        0,
        1,
    ]:  # x @ w + b, one output
        first = len(inputs[0].shape) == 0
        return [Layer(int(first), int(not first))]
    for i, bias in enumerate(inputs):
        if len([n for n in bias.shape if n > 1]) != 1 or len(bias.shape) > 2:
            continue
        if i in known or _of_a_norm(bias, inputs) or _of_states(bias, inputs):
            continue
        fits = [
            j
            for j, weight in enumerate(inputs)
            if j not in taken and len(weight.shape) >= 2
            if _fits(weight, bias) and weight.shape not in data
            if len(weight.shape) == 2 or abs(i - j) == 1
            if not _STATE.fullmatch(weight.name.rpartition(".")[2].lower())
        ]
        fits = _of_one_number(bias, fits, inputs)
        if not fits:
            continue
        fits.sort(key=lambda j: (_enters(bias, j, inputs), abs(i - j), j > i))
        near = fits[0]
        rest = [j for j in fits[1:] if abs(i - j) <= 2]
        square = [j for j in (near, *rest) if _recurs(inputs[j], bias.size)]
        alone = sum(v.size == bias.size and len(v.shape) == 1 for v in inputs) == 1
        if square and rest and alone:
            weight = next(j for j in (near, *rest) if j != square[0])
            found.append(Layer(weight, i, square[0]))
            taken |= {weight, square[0]}
        else:
            found.append(Layer(near, i))
            taken.add(near)
    return found + _of_one_output(inputs, taken)


def _of_one_output(inputs: tuple[Variable, ...], taken: set[int]) -> list[Layer]:
    """Layers with a single unit, ``W3`` of shape (1, 5) and ``b3`` of one number.

    Shapes alone say nothing there: the names have to.
    """
    found = []
    for i, bias in enumerate(inputs):
        start, _, last = bias.name.rpartition(".")
        if bias.size != 1 or not _BIAS.fullmatch(last.lower()):
            continue
        found += [
            Layer(j, i)
            for j in (i - 1, i + 1)
            if j in range(len(inputs)) and j not in taken
            if _is_one_row(inputs[j]) and inputs[j].name.rpartition(".")[0] == start
            if _digits(inputs[j].name) == _digits(last)
        ][:1]
    return found


def _is_one_row(weight: Variable) -> bool:
    """Whether an array is called a weight, and gives one number."""
    last = weight.name.rpartition(".")[2].lower()
    return last.startswith("w") and 1 < weight.size == max(weight.shape)


def _recurs(weight: Variable, units: int) -> bool:
    """Whether a matrix takes a state to as many units, or to the gates of as many."""
    least = min(weight.shape)
    return max(weight.shape) == units and units in {least, 3 * least, 4 * least}


def _enters(bias: Variable, j: int, inputs: tuple[Variable, ...]) -> bool:
    """Whether the units of a bias are those that enter a weight, by the chain of all.

    Where every matrix takes what the one before it gives, ``x @ W`` or ``W @ x``, the
    axis of its units is known.
    """
    shapes = [v.shape for v in inputs if len(v.shape) == 2]
    pairs = list(itertools.pairwise(shapes))
    right = sum(first[1] == second[0] for first, second in pairs)
    left = sum(first[0] == second[1] for first, second in pairs)
    if right == left or len(inputs[j].shape) != 2:
        return False
    return inputs[j].shape[1 if right > left else 0] != bias.size


def _of_states(vector: Variable, inputs: tuple[Variable, ...]) -> bool:
    """Whether a vector is B, C or D of ``h = A h + B u``, ``y = C h + D u``."""
    names = {each.name.rpartition(".")[2] for each in inputs}
    return names >= set("ABC") and vector.name.rpartition(".")[2] in set("BCD")


def _of_a_norm(vector: Variable, inputs: tuple[Variable, ...]) -> bool:
    """Whether a vector is the gain or the shift of a normalisation: by its name.

    ``gamma``, or the bias of a module whose weight is a vector too.
    """
    start, _, last = vector.name.rpartition(".")
    if _NORM.fullmatch(last.lower()):
        return True
    mates = [v for v in inputs if start and v.name == f"{start}.weight"]
    return bool(mates) and len(mates[0].shape) < 2


def is_after_a_gain(evidence: Evidence, layer: Layer) -> bool:
    """Whether a bias is the shift of a gain before it, as in ``g, b``.

    A normalisation stands between it and the weight then.
    """
    inputs, i = evidence.subject.inputs, layer.bias
    if i == 0 or not _is_called(inputs[i - 1], _GAIN, inputs[i].shape):
        return False
    return not any(
        _is_called(v, _SHIFT, inputs[i].shape) for v in inputs[i + 1 : i + 2]
    )


def shift_of(evidence: Evidence, which: int) -> int | None:
    """Find the shift that follows a gain, as in ``gamma, beta`` or ``g, b``."""
    inputs = evidence.subject.inputs
    gain, after = inputs[which], inputs[which + 1 : which + 2]
    if not after or not _is_called(gain, _GAIN, gain.shape):
        return None
    named = any(_is_called(after[0], names, gain.shape) for names in (_SHIFT, _BIAS))
    return which + 1 if named else None


def _is_called(
    variable: Variable, names: re.Pattern[str], shape: tuple[int, ...]
) -> bool:
    last = variable.name.rpartition(".")[2].lower()
    return variable.shape == shape and names.fullmatch(last) is not None


def _of_one_number(
    bias: Variable, fits: list[int], inputs: tuple[Variable, ...]
) -> list[int]:
    """Keep weights with the number of a bias, or of its module, where names tell."""
    start, _, last = bias.name.rpartition(".")
    if start and any(v.name == f"{start}.weight" for v in inputs):
        return [j for j in fits if inputs[j].name == f"{start}.weight"]
    number = _digits(last)
    numbered = [j for j in fits if _digits(inputs[j].name)]
    if not number or not numbered:
        return fits
    return [j for j in numbered if _digits(inputs[j].name) == number]


def _digits(name: str) -> str:
    """Digits at the end of a name.

    Examples
    --------
    >>> _digits("W12"), _digits("bias")
    ('12', '')
    """
    found = re.search(r"\d*$", name)
    return found.group() if found else ""


def _fits(weight: Variable, bias: Variable) -> bool:
    """Whether an array may be the bias of a weight: by its shape, and by its name.

    ``W2`` of shape (5,) or (5, 1) is the weight of one output, no bias of ``W1``. A
    column belongs to the rows of its weight, a row to the columns.
    """
    if len(weight.shape) > 2:  # a convolution: channels come first, or last
        return bias.size in (weight.shape[0], weight.shape[-1])
    if min(weight.shape) < 2 or bias.size not in weight.shape:
        return False
    mine, theirs = (v.name.rpartition(".")[2].lower() for v in (bias, weight))
    if mine.startswith("w") and theirs.startswith("w"):
        return False
    if len(bias.shape) == 2:
        return bias.size == weight.shape[0 if bias.shape[1] == 1 else 1]
    return True


def _by_name(evidence: Evidence) -> list[Layer]:
    """Match weights to biases by what is left of their names: Wxh, Whh, bh; Why, by."""
    inputs = evidence.subject.inputs
    biases = [
        i for i, v in enumerate(inputs) if re.fullmatch(r"b[a-z]", v.name) and v.shape
    ]
    if len(biases) < 2:
        return []
    found = []
    for i in biases:
        fits = [
            j
            for j, v in enumerate(inputs)
            if re.fullmatch(r"[WU][a-z]*" + inputs[i].name[1:], v.name)
            and len(v.shape) == 2
            and inputs[i].size in v.shape
        ]
        square = [j for j in fits if len(set(inputs[j].shape)) == 1]
        if len(fits) == 1:
            found.append(Layer(fits[0], i))
        elif len(fits) == 2 and len(square) == 1:
            found.append(Layer(next(j for j in fits if j not in square), i, square[0]))
        else:
            return []
    return found
