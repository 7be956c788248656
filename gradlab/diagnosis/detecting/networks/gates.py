"""Detector of one gate of a recurrent layer, such as an LSTM: which, and what of it.

With the weights of the layer at zero a state hands nothing on to the gates of the next
step: a gate that is wrong spoils no other. What a cell hands on is still there, and
stops where the gate is shut that it goes through.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measuring.layer_shapes import layer_of
from gradlab.diagnosis.measuring.level_readings import read_levels
from gradlab.diagnosis.measuring.levels import (
    LEVELS,
    SAME_SLOPE,
    Level,
    known,
    level_at,
    points_at,
    sides_at,
    spread,
)
from gradlab.diagnosis.measuring.measures import Case, Clue
from gradlab.diagnosis.measuring.sides import wrong_inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.diagnosis.evidence import Evidence
    from gradlab.diagnosis.measuring.layer_shapes import Layer

    Units = NDArray[np.intp]

__all__ = ["wrong_gates"]

_LEVEL = 0.3  # at which gates are told apart
_SHUT = 30.0  # pre-activation of a gate that is shut (minus), or open
_RIGHT = 1e-4  # relative: gradients that agree
_GATES = (3, 4)  # of a GRU, of an LSTM


def wrong_gates(case: Case) -> list[Clue]:
    """Detect which gate of a recurrent layer is wrong, and whether in its own line."""
    layer = layer_of(case.evidence, case.part.which)
    if layer is None or layer.recurrent is None or layer.bias != case.part.which:
        return []
    if not {layer.weight, layer.recurrent} <= wrong_inputs(case.evidence):
        return []
    gates = _gates(case, layer)
    wrong = _wrong_ones(case.evidence, layer, gates)
    if wrong is None or not 0 < len(wrong) < len(gates):
        return []
    if len(wrong) == 1:
        return _one(case, layer, gates[wrong[0]])
    return _through(case, layer, gates, wrong)


def _gates(case: Case, layer: Layer) -> list[Units]:
    """Units of each gate, one block after the other; none where there are no gates."""
    size = case.variable.coordinates
    inputs = case.evidence.subject.inputs
    width = min(inputs[layer.recurrent or 0].shape)
    if width < 2 or size % width or size // width not in _GATES:
        return []
    return np.split(np.arange(size), size // width)


def _wrong_ones(
    evidence: Evidence,
    layer: Layer,
    gates: list[Units],
    held: tuple[Units, float] | None = None,
) -> list[int] | None:
    """List the gates that are wrong with the weights at zero; None if none moves."""
    if not gates:
        return None
    points = points_at(evidence, layer, _LEVEL, np.concatenate(gates))
    if held is not None:
        points[layer.bias][held[0]] = held[1]
    ends = np.array([unit for gate in gates for unit in (gate[0], gate[-1])])
    sides = sides_at(evidence, points, (layer.bias, ends))
    if sides is None:
        return None
    ours, true, _ = sides
    size = float(np.abs(true).max())
    off = np.abs(ours - true).reshape(-1, 2).max(axis=1) > _RIGHT * size
    return [int(k) for k in np.flatnonzero(off)] if size > 0 else None


def _one(case: Case, layer: Layer, units: Units) -> list[Clue]:
    """Tell a wrong slope of a gate from a wrong array that it is multiplied with."""
    evidence = case.evidence
    of = (layer.bias, units[spread(len(units))])
    rows = known(level_at(evidence, layer, t, units, of) for t in LEVELS)
    if len(rows) < len(LEVELS):
        return []
    names = evidence.subject.inputs
    where = f"the gate of units {units[0]} to {units[-1]} in the layer of "
    where += f"{names[layer.weight].name} and {names[layer.bias].name}"
    if _stays(evidence, layer, rows, units, of):
        return read_levels(where, rows, 0.93, loops=True)
    return [
        Clue(
            BugKind.STALE_CACHE,
            0.82,
            f"With the weights of the layer at zero the gradients of all gates but one "
            f"are right. In {where} analytic / numeric is no function of its own "
            f"pre-activation: it moves with the other gates, so the array that its "
            f"error signal is multiplied with is another.",
            "Compare what this gate multiplies in the forward pass (the state before, "
            "the candidate, the state after) with what the backward multiplies.",
            (BugKind.WRONG_DERIVATIVE, BugKind.MISSING_TERM),
        )
    ]


def _stays(
    evidence: Evidence,
    layer: Layer,
    rows: list[Level],
    units: Units,
    of: tuple[int, Units],
) -> bool:
    """Whether the factor of a gate at each level is one, whatever else there is.

    The other gates have their weights back: what they hold is then another number for
    every sample and step, and a slope of this gate the same as before.
    """
    inputs = evidence.subject.inputs
    for row in rows[:: len(rows) - 1]:
        points = points_at(evidence, layer, row.t, units)
        points[layer.bias] = np.array(evidence.subject.point(layer.bias), dtype=float)
        points[layer.bias][units] = row.t
        for which in (layer.weight, layer.recurrent or 0):
            shape = inputs[which].shape
            axis = shape.index(inputs[layer.bias].coordinates)
            weight = np.array(evidence.subject.point(which), dtype=float).reshape(shape)
            np.moveaxis(weight, axis, 0)[units] = 0.0
            points[which] = weight.ravel()
        sides = sides_at(evidence, points, of)
        if sides is None or not row.parallel:
            return False
        ours, true, _ = sides
        apart = np.abs(ours - row.ratio * true).max()
        if not apart <= SAME_SLOPE * max(np.abs(ours).max(), np.abs(true).max()):
            return False
    return True


def _other_places(
    evidence: Evidence, layer: Layer, gates: list[Units], wrong: list[int]
) -> tuple[int, ...] | None:
    """Find of which gate each wrong gate has the gradient, if it is that of another."""
    orders = [
        order
        for order in itertools.permutations(wrong)
        if all(k != j for k, j in zip(wrong, order, strict=True))
    ]
    units = np.concatenate([gates[k] for k in wrong])
    for level in (_LEVEL, -_LEVEL):
        points = points_at(evidence, layer, level, np.concatenate(gates))
        sides = sides_at(evidence, points, (layer.bias, units))
        if sides is None:
            return None
        ours, true = (side.reshape(len(wrong), -1) for side in sides[:2])
        size = float(np.abs(true).max())
        orders = [
            order
            for order in orders
            if np.abs(ours - true[[wrong.index(k) for k in order]]).max()
            <= _RIGHT * size
        ]
    return orders[0] if len(orders) == 1 else None


def _through(
    case: Case, layer: Layer, gates: list[Units], wrong: list[int]
) -> list[Clue]:
    """Find the gate without which several are right: what goes through it is not."""
    evidence, names = case.evidence, case.evidence.subject.inputs
    own = f"the layer of {names[layer.weight].name} and {case.name}"
    if places := _other_places(evidence, layer, gates, wrong):
        pairs = zip(wrong, places, strict=True)
        told = ", ".join(
            f"units {gates[k][0]} to {gates[k][-1]} have that of units {gates[j][0]} "
            f"to {gates[j][-1]}"
            for k, j in pairs
        )
        return [
            Clue(
                BugKind.WRONG_INDEX,
                0.94,
                f"With the weights of {own} at zero the gradients of gates are in "
                f"another order: {told}.",
                "Put the gradients of the gates together in the order in which the "
                "forward pass takes its pre-activation apart.",
            )
        ]
    for gate in gates:
        for level, told, kind in (
            (-_SHUT, "shut", BugKind.MISSING_TERM),
            (_SHUT, "open", BugKind.WRONG_DERIVATIVE),
        ):
            if _wrong_ones(evidence, layer, gates, (gate, level)) != []:
                continue
            lead = (
                f"With the weights of {own} at zero, and the gate of units {gate[0]} "
                f"to {gate[-1]} {told}, the gradient of {case.name} is right"
            )
            if told == "shut":
                words = "what goes through that gate, from step to step, is lost"
                advice = "Add what the next step hands back to the state that it keeps."
            else:
                words = "what goes through that gate is not multiplied by it"
                advice = "Multiply what is handed back by that gate, as the state is."
            doubts = (BugKind.WRONG_DERIVATIVE, BugKind.MISSING_TERM)
            return [
                Clue(
                    kind,
                    0.86,
                    f"{lead}: {words} on the way back.",
                    advice,
                    tuple(doubt for doubt in doubts if doubt != kind),
                )
            ]
    right = [gate for k, gate in enumerate(gates) if k not in wrong]
    told = " and ".join(f"{gate[0]} to {gate[-1]}" for gate in right)
    return [
        Clue(
            BugKind.UNKNOWN,
            0.76,
            f"With the weights of {own} at zero the gradient of units {told} is right, "
            f"that of the other gates is not: they share an error signal, such as that "
            f"of a cell, which is wrong.",
            "Write down the error signal of the cell: what comes from the output, "
            "through the slope of its activation, plus what the next step hands back.",
            (BugKind.WRONG_DERIVATIVE, BugKind.MISSING_TERM, BugKind.STALE_CACHE),
        )
    ]
