"""A piece that casts to fewer digits inside, looked at again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from gradlab.localisation.layers.checking.careful_look import judge
from gradlab.localisation.layers.checking.probe import Precision, number_types
from gradlab.localisation.layers.replaying.replay import Piece
from gradlab.subject.subject import BEARABLE, SINGLE
from gradlab.subject.tensors.in_double.lossless_casts import Casts
from gradlab.subject.tensors.in_double.narrowing import narrowing_watched
from gradlab.subject.tensors.in_double.returning import returning_watched
from gradlab.subject.tensors.in_double.widening import double_default

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.localisation.layers.checking.probe import Measure
    from gradlab.localisation.layers.variables import Product

__all__ = [
    "over_longer_steps",
    "shortening_watched",
    "without_halves",
    "without_lossless_casts",
    "without_short_numbers",
]


@contextlib.contextmanager
def shortening_watched(*, own: bool) -> Iterator[list[str]]:
    """Collect the functions of torch that leave fewer digits than float64 has.

    By a cast, or because numbers left torch and came back in float32. Of code that is
    not its `own`, of a layer of torch, nothing is asked: watching takes longer.
    """
    shortened: list[str] = []
    if not own:
        yield shortened
        return
    with narrowing_watched() as narrowed, returning_watched() as back:
        yield shortened
    shortened += [*narrowed, *back.tensors]


@contextlib.contextmanager
def without_short_numbers() -> Iterator[None]:
    """Leave out casts to less than float64, which is the default dtype meanwhile."""
    with double_default(), Casts.shorter().left_out():
        yield


@contextlib.contextmanager
def without_lossless_casts(piece: Piece) -> Iterator[None]:
    """Leave out casts that lose nothing of what the model computes in.

    ``logits.float()`` is none in a model of single precision, and rounds where a piece
    of it is raised to double.
    """
    with Casts.harmless(number_types(piece)).left_out():
        yield


def over_longer_steps(
    piece: Piece, product: Product, measures: list[Measure], seed: int
) -> list[Measure]:
    """Judge a piece that casts inside once more, as if all were in single precision.

    On steps that are long enough for it: what rounding hides shows there, and what
    stands still between two numbers of single precision moves.

    Parameters
    ----------
    piece, product, measures
        What is checked, and how it was judged.
    seed
        Of all directions.

    Returns
    -------
    list
        The same, but for what is wrong for certain on those steps.
    """
    import torch

    short = {torch.float32, torch.complex64, torch.float16, torch.bfloat16}
    dtypes = {out.dtype for out in product.outputs if out is not None}
    if dtypes & short:
        return measures
    single = Precision(torch.finfo(torch.float32).eps)
    again = judge(piece, product, single, seed)
    if all(m.agrees for m in measures):
        return again if any(m.certain and not m.agrees for m in again) else measures
    return [
        new if new.certain and not (old.certain or new.agrees) else old
        for old, new in zip(measures, again, strict=True)
    ]


def without_halves(
    piece: Piece, product: Product, seed: int
) -> tuple[str, list[Measure]]:
    """Judge a piece without its casts to half precision, which hide a slope.

    Parameters
    ----------
    piece, product
        That disagrees with differences of itself, or shows none.
    seed
        Of all directions.

    Returns
    -------
    casts
        Named by the functions that make them, if it is right without them; else empty.
    measures
        Those without casts; none where its gradient is another one then.
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
    precision = Precision(torch.finfo(torch.float64).eps)
    try:
        with narrowing_watched(SINGLE) as narrowed:  # a backward has no excuse
            piece.change(product, lambda _: None)
        told = ", ".join(f"`{name}`" for name in dict.fromkeys(narrowed))
        for casts in (Casts.halves(), Casts.shorter()) if narrowed else ():
            with casts.left_out():
                smooth = wide.product()
                measures = judge(wide, smooth, precision, seed)
            if all(measure.certain and measure.agrees for measure in measures):
                return told, measures if _are_close(product, smooth) else []
    except Exception:  # noqa: BLE001 - the user's code may not take float64 at all
        return "", []
    finally:
        piece.evaluations += wide.evaluations
    return "", []


def _are_close(*products: Product) -> bool:
    """Whether gradients of two products differ by what half precision rounds off."""
    for own, other in zip(*(each.gradients for each in products), strict=True):
        if own is None or other is None:
            if own is not other:
                return False
            continue
        size = float(other.abs().max()) if other.numel() else 0.0
        gap = float((own.to(other.dtype) - other).abs().max()) if size else 0.0
        if not gap <= BEARABLE["half"] * size:
            return False
    return True
