"""Layers of torch whose gradient is not the derivative, by design."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.subject.tensors.gradients.deliberate import (
    IMPLICIT,
    ctc_alone,
    drawn_implicitly,
    spectral,
)
from gradlab.subject.tensors.graph import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gradlab.localisation.layers.replaying.replay import Piece
    from gradlab.localisation.layers.variables import Product, Variable

__all__ = ["deliberate", "without_padding"]

_STEP = 1e-3  # by which parameters are moved, to see whether they are written to
_CONSTANTS = (
    "in training mode spectral norm takes its singular vectors for constants, so its "
    "gradient is not the derivative, on purpose; call eval() to check it"
)


def _is_ctc_alone(node: Any) -> bool:
    return name_of(node).startswith("CtcLossBackward") and ctc_alone(node)


def deliberate(piece: Piece, product: Product, bad: Sequence[str]) -> str:
    """Say why a piece hands on something else on purpose; "" if it does not.

    Runs the piece twice more.

    Parameters
    ----------
    piece, product
        What was found wrong.
    bad
        Labels of the variables with respect to which it is.
    """
    import torch

    frame = piece.frame
    target: Any = frame.target
    if piece.graph_has(_is_ctc_alone):
        return (
            "ctc_loss takes its input for normalised log-probabilities on purpose: its "
            "gradient is right only together with the log_softmax before it"
        )
    if piece.graph_has(drawn_implicitly):
        return f"{IMPLICIT}, on purpose"
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
    written = _written(piece, product)
    if set(bad) <= set(written):
        return (
            f"overwrites {' and '.join(bad)} where autograd does not record (no_grad, "
            f".data), on purpose: its gradient is that at the values written"
        )
    return ""


def _written(piece: Piece, product: Product) -> list[str]:
    """Labels of the parameters that the piece leaves with other values."""
    import torch

    made: dict[str, tuple[Any, Any]] = {}  # as it is left, and as it was

    def away(variable: Variable) -> Callable[[], Any] | None:
        if variable.kind != "parameter":
            return None
        # a norm that is one already is written too
        moved = piece.cast(variable.base) * (1 + _STEP)
        # a Parameter, which the module gets itself: other data may be assigned to it
        new = torch.nn.Parameter(moved, requires_grad=False)
        made[variable.label] = new, moved.clone()
        return lambda: new

    try:
        piece.change(product, away)
    except Exception:  # noqa: BLE001 - the user's code may raise anything
        return []
    return [
        label
        for label, (new, was) in made.items()
        if not torch.equal(new.detach(), was)
    ]


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
