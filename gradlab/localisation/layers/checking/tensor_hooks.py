"""Hooks that forward itself puts on tensors: the same piece, run without them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.checking.probe import quick
from gradlab.localisation.layers.recording.hooks import place_of_hook
from gradlab.subject.tensors.calling.uncompiled import uncompiled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.localisation.layers.checking.probe import Precision
    from gradlab.localisation.layers.replaying.replay import Piece

__all__ = ["tensor_hook"]


def tensor_hook(piece: Piece, precision: Precision, seed: int) -> str:
    """Say which hook on a tensor is to blame, if a wrong piece is right without it.

    Parameters
    ----------
    piece
        A wrong piece; runs as often as one probe takes.
    precision
        Of its arithmetic.
    seed
        Of the direction.

    Returns
    -------
    str
        In words; "" if no such hook explains the mistake.
    """
    again = piece.with_cotangents(piece.cotangents)
    try:
        with _hooks_off() as met:
            measure = quick(again, again.product(), precision, seed)
    except Exception:  # noqa: BLE001 - the user's code may raise anything
        return ""
    finally:
        piece.evaluations += again.evaluations
    if not (met and measure.agrees):
        return ""
    return f"the hook {place_of_hook(met[0])} that it puts on a tensor"


@contextlib.contextmanager
def _hooks_off() -> Iterator[list[Any]]:
    """Let ``register_hook`` install nothing meanwhile, and list what it was given."""
    from torch.overrides import TorchFunctionMode

    met: list[Any] = []

    class Off(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if getattr(func, "__name__", "") != "register_hook":
                return func(*args, **(kwargs or {}))
            met.extend([*args[1:], *(kwargs or {}).values()])
            return _Handle()

    with uncompiled(), Off():
        yield met


class _Handle:
    """Stands in for the handle of a hook that was not installed."""

    def remove(self) -> None:
        """Do nothing: there is no hook."""
