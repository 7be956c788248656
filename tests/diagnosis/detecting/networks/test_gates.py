"""Which gate of a recurrent layer is wrong, and whether in its own line."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.activations import sigmoid


def lstm(rng, slip="", *, steps=4, n=3, d=3, h=3):
    """Loss of the last state of an LSTM; gates stand as i, f, o, g."""
    x, target = rng.normal(size=(steps, n, d)), rng.normal(size=(n, h))
    params = {
        "Wx": rng.normal(size=(d, 4 * h)) / 2,
        "Wh": rng.normal(size=(h, 4 * h)) / 2,
        "b": rng.normal(size=4 * h) / 3,
    }

    def loss_and_grads(p):
        hs, cs, gates = [np.zeros((n, h))], [np.zeros((n, h))], []
        for now in x:
            z = now @ p["Wx"] + hs[-1] @ p["Wh"] + p["b"]
            i, f, o, g = np.split(z, 4, axis=1)
            gates.append((sigmoid(i), sigmoid(f), sigmoid(o), np.tanh(g)))
            i, f, o, g = gates[-1]
            cs.append(f * cs[-1] + i * g)
            hs.append(o * np.tanh(cs[-1]))
        e = hs[-1] - target
        grads = {name: np.zeros_like(value) for name, value in p.items()}
        dh, dc = e / n, np.zeros((n, h))
        for t in reversed(range(steps)):
            i, f, o, g = gates[t]
            y = np.tanh(cs[t + 1])
            dc = dc + dh * o * (1 - (cs[t + 1] if slip == "slope of c" else y) ** 2)
            df = dc * (cs[t + 1] if slip == "f by new c" else cs[t])
            if slip != "f slope lost":
                df = df * f * (1 - f)
            do = dh * y * (1 - o * o if slip == "o as tanh" else o * (1 - o))
            di, dg = dc * g * i * (1 - i), dc * i * (1 - g * g)
            if slip == "g negative":
                dg = -dg
            dz = np.concatenate([di, df, do, dg], axis=1)
            grads["Wx"] += x[t].T @ dz
            grads["Wh"] += hs[t].T @ dz
            grads["b"] += dz.sum(axis=0)
            dh = dz @ p["Wh"].T
            dc = {"c lost": 0 * dc, "f lost": dc}.get(slip, dc * f)
        return 0.5 * (e * e).sum() / n, grads

    return loss_and_grads, params


@pytest.mark.parametrize(
    ("slip", "kind", "told"),
    [
        ("f slope lost", "wrong_derivative", "the gate of units 3 to 5"),
        ("o as tanh", "wrong_derivative", "the gate of units 6 to 8"),
        ("g negative", "sign", "the gate of units 9 to 11"),
        ("f by new c", "stale_cache", "the gate of units 3 to 5"),
        ("c lost", "missing_term", "the gate of units 3 to 5 shut"),
        ("f lost", "wrong_derivative", "the gate of units 3 to 5 open"),
        ("slope of c", "unknown", "of units 6 to 8 is right"),
    ],
)
def test_a_gate_is_told_where_no_state_hands_anything_on(slip, kind, told, rng):
    """All three gradients are wrong in every entry; with the weights at zero a few."""
    (finding,) = gl.check(*lstm(rng, slip)).findings

    assert (finding.kind, sorted(finding.places)) == (kind, ["Wh", "Wx", "b"])
    assert told in finding.evidence


def test_a_right_recurrent_layer_has_no_finding(rng):
    """The same layer without a slip."""
    assert gl.check(*lstm(rng)).findings == ()


def gru(rng, slip=""):
    """One weight for each gate: the last state of two steps from a state given."""
    n, d, h = 3, 2, 3
    x, target, start = (rng.normal(size=s) for s in ((2, n, d), (n, h), (n, h)))
    params = {}
    for gate in "zrn":
        params[f"W{gate}"] = rng.normal(size=(d, h))
        params[f"U{gate}"] = rng.normal(size=(h, h)) / 2
        params[f"b{gate}"] = rng.normal(size=h) / 3

    def loss_and_grads(p):
        hs, kept = [start], []
        for now in x:
            old = hs[-1]
            z = sigmoid(now @ p["Wz"] + old @ p["Uz"] + p["bz"])
            r = sigmoid(now @ p["Wr"] + old @ p["Ur"] + p["br"])
            new = np.tanh(now @ p["Wn"] + (r * old) @ p["Un"] + p["bn"])
            hs.append((1 - z) * new + z * old)
            kept.append((z, r, new))
        e = hs[-1] - target
        grads = {name: np.zeros_like(value) for name, value in p.items()}
        dh = e / n
        for t in (1, 0):
            (z, r, new), old = kept[t], hs[t]
            dn = dh * (1 - z) * (1 - new**2)
            dz = dh * (new - old if slip else old - new) * z * (1 - z)
            back = dn @ p["Un"].T
            dr = back * old * r * (1 - r)
            for gate, signal in (("z", dz), ("r", dr), ("n", dn)):
                grads[f"W{gate}"] += x[t].T @ signal
                grads[f"U{gate}"] += (r * old if gate == "n" else old).T @ signal
                grads[f"b{gate}"] += signal.sum(axis=0)
            dh = dh * z + back * r + dz @ p["Uz"].T + dr @ p["Ur"].T
        return 0.5 * (e * e).sum() / n, grads

    return loss_and_grads, params


def test_what_is_wrong_on_its_way_through_a_gate_is_told_with_it(rng):
    """A sign of one gate spoils the others through its recurrent weight."""
    (finding,) = gl.check(*gru(rng, "negative z")).findings

    assert (finding.kind, finding.where) == ("sign", "bz")
    assert len(finding.places) == 9
    assert "analytic = -1 x numeric" in finding.evidence
    assert gl.check(*gru(rng)).findings == ()
