"""Which way gradients flow: who is upstream of a mistake, and who feeds whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.subject.tensors.graph import graph_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gradlab.localisation.layers.checking.call_outcome import CallOutcome
    from gradlab.localisation.layers.recording.frames import Frame

__all__ = ["feeders", "upstream"]

_MOST_NODES = 2000  # between two neighbouring layers there are rarely more than ten


def upstream(
    outcomes: Iterable[tuple[Frame, CallOutcome]],
) -> tuple[set[Any], list[Frame]]:
    """Collect what receives its gradient through a wrong one.

    Parameters
    ----------
    outcomes
        Wrong calls, with the tensors whose gradient is wrong.

    Returns
    -------
    nodes, cut
        Nodes of the recorded graph behind the wrong tensors; and the calls whose
        result was cut off from the graph, so that no gradient reaches them at all.
    """
    starts: list[Any] = []
    cut: list[Frame] = []
    for frame, outcome in outcomes:
        for variable in outcome.wrong:
            if variable.kind == "input":
                edge = frame.inputs[variable.place].edge
            elif variable.kind == "child":
                index, k = variable.place
                edge = frame.children[index].outputs[k].edge
                if edge is None:
                    cut += _without_record(frame.children[: index + 1])
            else:
                continue
            if edge is not None:
                starts.append(edge.node)
    return set(graph_nodes(starts)), cut


def _without_record(calls: list[Frame]) -> list[Frame]:
    """Take the last of some calls, and those before it that went unrecorded, too."""
    lost = [f for f in calls[:-1] if any(s.wanted and not s.edge for s in f.outputs)]
    return [*lost, calls[-1]]


def feeders(frames: list[Frame]) -> dict[int, tuple[str, ...]]:
    """Find for each call the siblings whose outputs it got, directly or by arithmetic.

    Parameters
    ----------
    frames
        Calls with the same parent, in order.

    Returns
    -------
    dict
        Names by the call's number.
    """
    made: dict[Any, str] = {}
    found: dict[int, tuple[str, ...]] = {}
    for frame in frames:
        border = {
            s.edge.node for s in (frame.parent.inputs if frame.parent else ()) if s.edge
        }
        names: dict[str, None] = {}
        stack = [slot.edge.node for slot in frame.inputs if slot.edge is not None]
        seen = set(stack)
        while stack and len(seen) < _MOST_NODES:
            node = stack.pop()
            if node in made:
                names[made[node]] = None
                continue
            if node in border:
                continue
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    stack.append(following)
        found[frame.number] = tuple(names)
        for slot in frame.outputs:
            if slot.edge is not None:
                made[slot.edge.node] = frame.name
    return found
