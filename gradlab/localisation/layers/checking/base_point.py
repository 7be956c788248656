"""Whether a piece that runs by itself stands where the model stood."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradlab.localisation.layers.audited import LayerState
from gradlab.localisation.layers.checking.call_outcome import CallOutcome
from gradlab.localisation.layers.checking.probe import rounding
from gradlab.localisation.layers.products import all_finite
from gradlab.subject.subject import DOUBLE

if TYPE_CHECKING:
    from gradlab.localisation.layers.recording.frames import Frame
    from gradlab.localisation.layers.replaying.replay import Piece
    from gradlab.localisation.layers.variables import Product

__all__ = ["unfit_to_compare"]


def unfit_to_compare(
    piece: Piece, product: Product, *, known: bool
) -> CallOutcome | None:
    """Say why a piece cannot be compared with differences of itself; None if it can.

    Parameters
    ----------
    piece, product
        What is checked, and its vector-Jacobian product.
    known
        Whether its values are known to be those of the model, but for casts that are
        left out now.
    """
    if not product.variables:
        return CallOutcome(
            LayerState.UNCHECKED,
            "nothing to differentiate: no trainable parameter, and no input that "
            "needs a gradient",
            empty=True,
        )
    strange = "" if known else _strange(product, piece.frame)
    if strange and not _repeats(piece, product):
        return CallOutcome(LayerState.UNCHECKED, strange, doubtful=True)
    if not any(weight is not None for weight in product.cotangents):
        return CallOutcome(
            LayerState.UNCHECKED,
            "returns no floating-point tensor to differentiate",
            empty=True,
        )
    return None


def _repeats(piece: Piece, product: Product) -> bool:
    """Whether layers that run together in double give the same twice.

    Be that far from what the model saw: what it rounds grows from layer to layer, and
    what it draws in double is drawn anew. Their gradient is to be right there as well.
    """
    if not (piece.raised and piece.whole):
        return False
    if not all(out is None or all_finite(out) for out in product.outputs):
        return False
    again = piece.change(product, lambda _: None)
    return abs(again) <= rounding(product) * DOUBLE


def _strange(product: Product, frame: Frame) -> str:
    """Say why the base point is no good: not finite, or not what the model saw."""
    import torch

    for output, slot in zip(product.outputs, frame.outputs, strict=False):
        value = slot.value
        if not (value.is_floating_point() or value.is_complex()) or not value.numel():
            continue
        if torch.equal(output, value) and all_finite(value):
            continue
        if not all_finite(value):
            return "returned nan or infinity at this point"
        apart = float((output - value).abs().max())
        size = float(value.abs().max())
        dtypes = {value.dtype, frame.autocast or value.dtype}
        epsilon = max(torch.finfo(dtype).eps for dtype in dtypes)
        slack = min(0.1, 1e4 * epsilon)
        if output.shape != value.shape or not apart <= slack * max(size, epsilon):
            return (
                "gives another result when it is run again with the same inputs, "
                f"parameters, buffers and random state (apart by {apart:.3g}): it "
                "keeps a state, or what goes in or out is overwritten behind autograd "
                "(.data, no_grad, NumPy)"
            )
    return ""
