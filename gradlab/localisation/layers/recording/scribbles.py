"""Functions whose backward writes to the gradient it is given: noted as it runs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradlab.localisation.layers.recording.frames import Frame

__all__ = ["node_of", "noting_scribbles"]


def node_of(frame: Frame) -> Any:
    """Find the node that a custom Function has made in the graph, if there is one."""
    edges = [slot.edge for slot in frame.outputs if slot.edge is not None]
    return edges[0].node if edges else None


@contextlib.contextmanager
def noting_scribbles(frames: list[Frame]) -> Iterator[list[Any]]:
    """Note at each call of a Function whether its backward writes to what it is given.

    By the versions of these tensors, before and after. Yields the edges behind it, of
    which the gradients have to be asked for: else it may not run.
    """
    hooks: list[Any] = []
    behind: list[Any] = []
    for frame in frames:
        node = node_of(frame) if frame.kind == "function" else None
        if node is not None:
            hooks += _watched(node, frame)
            behind += [slot.edge for slot in frame.inputs if slot.edge is not None][:1]
    try:
        yield behind
    finally:
        for hook in hooks:
            hook.remove()


def _watched(node: Any, frame: Frame) -> tuple[Any, Any]:
    given: list[tuple[Any, int]] = []

    def before(gradients: Any) -> None:
        given[:] = [(g, g._version) for g in gradients if g is not None]  # noqa: SLF001

    def after(_inputs: Any, _outputs: Any) -> None:
        frame.scribbles |= any(g._version != old for g, old in given)  # noqa: SLF001
        given.clear()

    return node.register_prehook(before), node.register_hook(after)
