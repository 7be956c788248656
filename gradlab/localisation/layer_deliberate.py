"""Layers of torch whose gradient is not the derivative, by design."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.subject.torch_deliberate import ctc_alone, spectral

if TYPE_CHECKING:
    from gradlab.localisation.layer_replay import Piece

__all__ = ["deliberate", "without_padding"]

_CONSTANTS = (
    "in training mode spectral norm takes its singular vectors for constants, so its "
    "gradient is not the derivative, on purpose; call eval() to check it"
)


def _is_ctc_alone(node: Any) -> bool:
    return node.name().startswith("CtcLossBackward") and ctc_alone(node)


def deliberate(piece: Piece) -> str:
    """Say why a piece hands on something else on purpose; "" if it does not.

    Runs the piece once more.
    """
    import torch

    frame = piece.frame
    target: Any = frame.target
    if piece.graph_has(_is_ctc_alone):
        return (
            "ctc_loss takes its input for normalised log-probabilities on purpose: its "
            "gradient is right only together with the log_softmax before it"
        )
    if frame.kind != "module":
        return ""
    kind = f"{type(target).__module__}.{type(target).__name__}"
    if kind == "torch.nn.utils.parametrizations._SpectralNorm" and target.training:
        return _CONSTANTS
    if spectral(target):
        return _CONSTANTS
    if isinstance(target, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
        for option in ("scale_grad_by_freq", "max_norm"):
            if getattr(target, option):
                return f"{option} changes its gradient or its weight on purpose"
    return ""


def without_padding(piece: Piece) -> Piece:
    """Leave the padding row of an embedding out, which never learns, on purpose."""
    import torch

    frame = piece.frame
    target: Any = frame.target
    if type(target) is not torch.nn.Embedding or target.padding_idx is None:
        return piece
    row = target.padding_idx % target.num_embeddings
    kept = (frame.inputs[0].value != row).unsqueeze(-1)
    return piece.with_cotangents(
        [None if weight is None else weight * kept for weight in piece.cotangents]
    )
