"""Mistakes in the error signal: labels, slopes of gates, and what they spoil."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.diagnosis.finding import BugKind
from tests.diagnosis.networks import mlp
from tests.specimens.activations import sigmoid, softmax

SAMPLES, WIDTH, UNITS, CLASSES = 6, 5, 4, 3
X = np.random.default_rng(7).normal(size=(SAMPLES, WIDTH))
Y = np.array([0, 2, 1, 2, 0, 2])
EVERY = np.arange(SAMPLES)


def weights():
    rng = np.random.default_rng(3)
    shapes = {"W1": (WIDTH, UNITS), "b1": UNITS, "W2": (UNITS, CLASSES), "b2": CLASSES}
    return {name: rng.normal(size=shape) * 0.7 for name, shape in shapes.items()}


def classifier(label):
    """Two layers and a softmax; `label` writes the one-hot part of the gradient."""

    def loss_and_grads(params):
        hidden = np.tanh(X @ params["W1"] + params["b1"])
        chances = softmax(hidden @ params["W2"] + params["b2"])
        signal = chances.copy()
        label(signal)
        signal /= SAMPLES
        inner = signal @ params["W2"].T * (1 - hidden**2)
        grads = {
            "W1": X.T @ inner,
            "b1": inner.sum(axis=0),
            "W2": hidden.T @ signal,
            "b2": signal.sum(axis=0),
        }
        return -np.log(chances[EVERY, Y]).mean(), grads

    return loss_and_grads


def right(signal):
    signal[EVERY, Y] -= 1


def next_class(signal):
    signal[EVERY, (Y + 1) % CLASSES] -= 1


def first_class(signal):
    signal[EVERY, 0] -= 1


def reversed_labels(signal):
    signal[EVERY, Y[::-1]] -= 1


def sorted_labels(signal):
    signal[EVERY, np.sort(Y)] -= 1


def every_row(signal):
    signal[:, Y] -= 1


def first_row(signal):
    signal[0, Y] -= 1


SLIPS = [next_class, first_class, reversed_labels, sorted_labels, every_row, first_row]


@pytest.mark.parametrize("slip", SLIPS)
def test_labels_at_the_wrong_index_are_told(slip):
    """Whichever class or sample gets the label of another, it is an index."""
    report = gl.check(classifier(slip), weights())

    first = report.findings[0]
    assert first.kind == BugKind.WRONG_INDEX
    assert first.where == report.culprit
    assert first.where in {"b2", "W2"}
    assert "label" in first.evidence


def test_no_label_at_all_is_a_missing_term():
    """The softmax alone, without what belongs to the true class."""
    first = gl.check(classifier(lambda _: None), weights()).findings[0]

    assert (first.kind, first.where) == (BugKind.MISSING_TERM, "b2")


def test_the_right_label_is_not_accused():
    """The correct twin has no finding."""
    assert not gl.check(classifier(right), weights()).findings


@pytest.mark.parametrize("slip", [next_class, every_row, first_row])
def test_what_a_wrong_signal_spoils_is_told_with_it(slip):
    """One cause, and one finding, which names the other gradients and why they are."""
    (told,) = gl.check(classifier(slip), weights()).findings

    assert told.places == ("b2", "W2", "b1", "W1")
    assert "W2 is wrong with it: it comes from the same error signal." in told.evidence
    assert "b1, W1 come before it, and may be spoiled by it." in told.evidence
    assert told.advice.endswith("Then check again: what comes before may be right.")


def test_a_signal_that_nothing_explains_is_one_finding():
    """Weight and bias of a layer share it: they are not two unknown mistakes."""

    def noisy(params):
        loss, grads = classifier(right)(params)
        rng = np.random.default_rng(1)
        noise = {k: rng.normal(size=grads[k].shape) for k in ("b1", "W1")}
        return loss, grads | {k: grads[k] * noise[k] for k in noise}

    report = gl.check(noisy, weights())

    (told,) = report.findings
    assert (told.kind, told.places) == (BugKind.UNKNOWN, ("b1", "W1"))
    assert report.culprits == told.places
    assert "W1 is wrong with it: it comes from the same error signal." in told.evidence
    assert "W2, behind it, is right" in told.evidence
    assert "between W2 and b1" in told.advice


def test_another_cause_before_a_wrong_signal_is_told_too():
    """A sign that is flipped in the first layer has its own measurement."""

    def two_slips(params):
        loss, grads = classifier(next_class)(params)
        true = classifier(right)(params)[1]
        return loss, dict(grads, W1=-true["W1"], b1=-true["b1"])

    findings = gl.check(two_slips, weights()).findings

    assert {(f.kind, f.places) for f in findings} == {
        (BugKind.WRONG_INDEX, ("b2", "W2")),
        (BugKind.SIGN, ("b1", "W1")),
    }


def test_a_line_that_is_wrong_alone_explains_nothing_else():
    """The second layer's weight is wrong in its own line; so is the first layer's."""
    good = classifier(right)

    def two_slips(params):
        loss, grads = good(params)
        rng = np.random.default_rng(1)
        wrong = dict(grads, W2=2 * grads["W2"])
        wrong["W1"] = grads["W1"] + rng.normal(size=grads["W1"].shape)
        return loss, wrong

    findings = gl.check(two_slips, weights()).findings

    assert findings[0].kind == BugKind.SCALE
    assert not any("comes before" in f.evidence for f in findings)


def recurrent(slope):
    """Four steps of a tanh network; `slope` of pre-activation and output."""
    rng = np.random.default_rng(1)
    steps = rng.normal(size=(4, 3, 2))

    def loss_and_grads(params):
        states, inner = [np.zeros((3, 3))], []
        for x in steps:
            inner.append(x @ params["Wx"] + states[-1] @ params["Wh"] + params["b"])
            states.append(np.tanh(inner[-1]))
        signal = states[-1]
        grads = {name: np.zeros_like(value) for name, value in params.items()}
        for t in (3, 2, 1, 0):
            back = signal * slope(inner[t], states[t + 1])
            grads["Wx"] += steps[t].T @ back
            grads["Wh"] += states[t].T @ back
            grads["b"] += back.sum(axis=0)
            signal = back @ params["Wh"].T
        return (states[-1] ** 2).sum() / 2, grads

    params = {
        "Wx": rng.normal(size=(2, 3)),
        "Wh": 0.6 * rng.normal(size=(3, 3)),
        "b": 0.2 * rng.normal(size=3),
    }
    return loss_and_grads, params


GATES = ["input", "forget", "output", "candidate"]


def gated(wrong, state=None):
    """One step of an LSTM; the slope of gate `wrong` is taken at its input.

    With a `state` of the step before, a weight ``U`` of its own leads in from there.
    """
    rng = np.random.default_rng(2)
    x, before = rng.normal(size=(4, 3)), rng.normal(size=(4, 2))

    def slope(name, z, y):
        at = z if name == wrong else y
        return 1 - at**2 if name == "candidate" else at * (1 - at)

    def loss_and_grads(params):
        z = x @ params["W"] + params["b"]
        z = np.split(z if state is None else z + state @ params["U"], 4, axis=1)
        i, f, o, g = (*map(sigmoid, z[:3]), np.tanh(z[3]))
        cell = f * before + i * g
        out = o * np.tanh(cell)
        inner = out * o * (1 - np.tanh(cell) ** 2)
        signals = (inner * g, inner * before, out * np.tanh(cell), inner * i)
        back = np.concatenate(
            [
                signal * slope(name, at, y)
                for signal, name, at, y in zip(
                    signals, GATES, z, (i, f, o, g), strict=True
                )
            ],
            axis=1,
        )
        grads = {"W": x.T @ back, "b": back.sum(axis=0)}
        return (out**2).sum() / 2, grads | (
            {} if state is None else {"U": state.T @ back}
        )

    params = {"W": rng.normal(size=(3, 8)), "b": 0.2 * rng.normal(size=8)}
    return loss_and_grads, params | (
        {} if state is None else {"U": rng.normal(size=(2, 8))}
    )


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("gate", GATES)
def test_the_slope_of_one_gate_at_its_input_is_told(gate, stateful):
    """The units of that gate are set, and the others are left where they are.

    With a state of the step before, its weight is set to zero as well.
    """
    state = np.random.default_rng(3).normal(size=(4, 2)) if stateful else None

    first = gl.check(*gated(gate, state)).findings[0]

    order = GATES.index(gate)
    assert first.kind == BugKind.STALE_CACHE
    assert f"units {2 * order} to {2 * order + 1}" in first.evidence


def test_the_slope_of_a_recurrent_layer_at_its_input_is_told():
    """With both weights at zero all steps stand at the bias."""
    first = gl.check(*recurrent(lambda z, _: 1 - z**2)).findings[0]

    assert first.kind == BugKind.STALE_CACHE
    assert "tanh" in first.evidence


def test_correct_gates_and_steps_are_not_accused():
    """The correct twins have no finding."""
    assert not gl.check(*recurrent(lambda _, h: 1 - h**2)).findings
    assert not gl.check(*gated("none")).findings


@pytest.mark.parametrize("weight", ["W1", "W2"])
@pytest.mark.parametrize(
    ("act", "kind"),
    [
        ("relu", "wrong_mask"),
        ("tanh", "wrong_derivative"),
        ("sigmoid", "wrong_derivative"),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_slope_that_the_weight_alone_forgets_is_named(seed, act, kind, weight):
    """Whatever the rank of the product, and with a bias that is right."""
    program = mlp(np.random.default_rng(seed), f"{weight} before slope/{act}")

    report = gl.check(program.fn, *program.inputs, **program.options)

    assert (report.culprit, report.diagnosis) == (weight, kind)
    bias = weight.replace("W", "b")
    assert f"{bias} is right" in report.findings[0].evidence


@pytest.mark.parametrize("act", ["relu", "tanh"])
def test_samples_that_a_weight_alone_loses_are_no_slope(act):
    """Where all units stand at one level the two gradients are still not parallel."""
    program = mlp(np.random.default_rng(0), f"W1 of last/{act}")

    report = gl.check(program.fn, *program.inputs, **program.options)

    assert (report.culprit, report.diagnosis) == ("W1", "lost_accumulation")


def _margins(slip):
    """A multi-class hinge loss: the true class loses one for every class too close."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(40, 5)), rng.integers(0, 6, 40)

    def loss_and_grads(p):
        s = x @ p["W"] + p["b"]
        m = np.maximum(0, s - s[np.arange(40), y][:, None] + 1)
        m[np.arange(40), y] = 0
        d = (m > 0) * 1.0
        d[np.arange(40), y] = 0 if slip else -d.sum(axis=1)
        return m.mean() * 6, {"W": x.T @ d / 40, "b": d.sum(axis=0) / 40}

    params = {"W": rng.normal(size=(5, 6)), "b": rng.normal(size=6)}
    return gl.check(loss_and_grads, params)


def test_classes_within_a_margin_are_no_labels():
    """Both are counted; labels stay where they are when the weights are moved."""
    (told,) = _margins("no true class").findings

    assert told.kind == BugKind.MISSING_TERM
    assert "label" not in told.evidence
    assert not _margins("").findings
