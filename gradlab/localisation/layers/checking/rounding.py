"""A wrong piece again, without its own casts to half precision."""

from __future__ import annotations

from gradlab.localisation.layers.checking.judge import judge
from gradlab.localisation.layers.checking.probe import Precision
from gradlab.localisation.layers.replaying.replay import Piece
from gradlab.localisation.layers.variables import BackwardError, ReplayError
from gradlab.subject.tensors.double import narrowing_watched
from gradlab.subject.tensors.lossless_casts import Casts

__all__ = ["right_without_casts"]


def right_without_casts(piece: Piece, seed: int) -> str:
    """Say that casts to half precision hide a slope, if it is right without them.

    Parameters
    ----------
    piece
        That disagrees with differences of itself.
    seed
        Of all directions.

    Returns
    -------
    str
        Empty where it has no such casts, or is wrong without them as well.
    """
    import torch

    wide = Piece(
        piece.frame,
        piece.owners,
        raised=True,
        whole=piece.whole,
        cotangents=piece.cotangents,
        scratch=piece.scratch,
    )
    try:
        product = wide.product()
        with narrowing_watched() as narrowed:  # of forward: a backward has no excuse
            wide.change(product, lambda _: None)
        if not narrowed:
            return ""
        with Casts.halves().left_out():
            product = wide.product()
            precision = Precision(torch.finfo(torch.float64).eps)
            measures = judge(wide, product, precision, seed)
    except (BackwardError, ReplayError, RuntimeError):
        return ""
    finally:
        piece.evaluations += wide.evaluations
    if not all(measure.certain and measure.agrees for measure in measures):
        return ""
    told = ", ".join(f"`{name}`" for name in dict.fromkeys(narrowed))
    return (
        f"rounds coarsely inside ({told}), where differences show no slope; without "
        f"that its backward is right"
    )
