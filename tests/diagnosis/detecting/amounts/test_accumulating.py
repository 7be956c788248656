"""Contributions that are added up: one that is left, rows written once, counts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gradlab as gl
from gradlab.diagnosis.finding import BugKind
from tests.specimens.activations import softmax

RNG = np.random.default_rng(8)
X, Y = RNG.normal(size=(6, 4)), RNG.normal(size=(6, 3))
STEPS = RNG.normal(size=(5, 3, 4))
IDS = np.array([0, 2, 2, 5, 3, 3, 3])


def regression(slip=None, penalty=0.0):
    """Squared error of a tanh layer, with a penalty on its weight."""

    def loss_and_grads(params):
        out = np.tanh(X @ params["W"] + params["b"])
        delta = (out - Y) * (1 - out**2)
        product = X.T @ delta
        if slip == "overwritten":
            for x, d in zip(X, delta, strict=True):
                product = np.outer(x, d)
        loss = ((out - Y) ** 2).sum() / 2 + penalty / 2 * (params["W"] ** 2).sum()
        return loss, {"W": product + penalty * params["W"], "b": delta.sum(axis=0)}

    rng = np.random.default_rng(1)
    return loss_and_grads, {"W": rng.normal(size=(4, 3)), "b": rng.normal(size=3)}


@pytest.mark.parametrize("penalty", [0.0, 0.4])
def test_a_loop_that_overwrites_leaves_one_outer_product(penalty):
    """Rank one is told, beside a penalty as well, and what the loop should do."""
    finding = gl.check(*regression("overwritten", penalty)).findings[0]

    assert finding.kind == BugKind.LOST_ACCUMULATION
    assert finding.where == "W"
    assert "one outer product" in finding.evidence
    assert "+=" in finding.advice
    assert gl.check(*regression(None, penalty)).findings == ()


def test_a_gradient_that_is_almost_lost_is_no_factor():
    """What is a thousandth as long is off by all of it, whatever its direction is."""
    x = np.linspace(0.5, 2.0, 8)
    astray = 1e-3 * np.where(np.arange(8) % 2, 1.0, -1.0) * np.exp(x)

    report = gl.check(lambda x: np.exp(x).sum(), x, grad=lambda _x: astray)
    shrunk = gl.check(lambda x: np.exp(x).sum(), x, grad=lambda x: 1e-3 * np.exp(x))

    assert report.diagnosis != "scale"
    assert shrunk.diagnosis == "scale"
    assert "0.001" in shrunk.findings[0].evidence


def recurrent(slip=None):
    """Three steps of a convolution-like layer whose kernel is summed over places."""

    def forward(w):
        return np.stack([STEPS[t] @ w for t in range(5)]), None

    def backward(up, _cache):
        total = np.zeros((4, 2))
        for t in range(5):
            term = STEPS[t].T @ up[t]
            total = term if slip == "overwritten" else total + term
        return total

    return forward, backward


def test_one_end_of_a_loop_over_outputs_is_told():
    """Only the last index along an axis of the output reaches the weight."""
    w = np.random.default_rng(3).normal(size=(4, 2))
    forward, backward = recurrent("overwritten")

    finding = gl.check(forward, w, backward=backward).findings[0]

    assert finding.kind in (BugKind.LOST_ACCUMULATION, BugKind.BROADCAST_REDUCTION)
    assert "index 4 alone" in finding.evidence or "the last of 5" in finding.evidence
    forward, backward = recurrent()
    assert gl.check(forward, w, backward=backward).findings == ()


def tied(slip=None):
    """An embedding that projects back to scores: its gradient comes from both ends."""
    targets = np.array([1, 2, 0, 5, 3, 4, 1])

    def loss_and_grads(params):
        table = params["E"]
        hidden = np.tanh(table[IDS])
        scores = hidden @ table.T
        weights = softmax(scores)
        each = np.arange(len(IDS))
        signal = weights.copy()
        signal[each, targets] -= 1
        inner = (signal @ table) * (1 - hidden**2)
        below = np.zeros_like(table)
        if slip == "fancy":
            below[IDS] += inner
        else:
            np.add.at(below, IDS, inner)
        loss = -np.log(weights[each, targets]).sum()
        return loss, {"E": signal.T @ hidden + below}

    return loss_and_grads, {"E": np.random.default_rng(4).normal(size=(7, 3))}


def test_rows_that_are_looked_up_twice_name_their_indices():
    """Of tied tables too: just the rows whose index is repeated are wrong."""
    finding = gl.check(*tied("fancy")).findings[0]

    assert finding.kind == BugKind.LOST_ACCUMULATION
    assert "`IDS`" in finding.evidence
    assert "rows 2 and 3" in finding.evidence
    assert "np.add.at" in finding.advice
    assert gl.check(*tied()).findings == ()


def test_a_row_written_once_that_holds_one_of_its_uses_is_no_factor():
    """Uses of one size leave 1/2 and 1/3 of the gradient: as of a mean, and none."""
    table, up = RNG.normal(size=(7, 3)), RNG.normal(size=3)

    def grad(table):
        found = np.zeros_like(table)
        found[IDS] += up
        return found

    finding = gl.check(lambda t: (t[IDS] @ up).sum(), table, grad=grad).findings[0]

    assert finding.kind == BugKind.LOST_ACCUMULATION
    assert "one of these uses" in finding.evidence


def test_1024_is_a_loss_scale_and_no_number_of_passes():
    """A power of two in all inputs that no length explains comes of mixed precision."""
    loss_and_grads, params = regression()
    _, grads = loss_and_grads(params)
    scaled = {name: 1024 * each for name, each in grads.items()}

    finding = gl.check(lambda p: loss_and_grads(p)[0], params, grad=scaled).findings[0]

    assert finding.kind == BugKind.SCALE
    assert "2**10" in finding.evidence
    assert "loss scale" in finding.advice


def test_one_number_is_no_sum_of_passes():
    """Of one entry any other number is nearly a multiple."""
    report = gl.check(lambda p: p["b"] ** 2, {"b": np.array(1.5)}, grad={"b": 6.45})

    assert report.diagnosis != "accumulated_grad"


def test_signs_alone_are_told():
    """A gradient of which only the signs are left is no factor and no clipping."""
    x = np.array([-2.0, 0.3, 1.5, -0.7, 3.0, 0.01])

    finding = gl.check(lambda x: (x**2).sum(), x, grad=np.sign).findings[0]

    assert finding.kind == BugKind.SURROGATE
    assert "sign of numeric" in finding.evidence


def test_an_imaginary_part_that_is_dropped_is_no_mask():
    """The gradient of a complex input has its real part only."""
    z = np.array([1 + 2j, -0.5 + 1j, 2 - 1j])

    def grad(z):
        return (2 * z).real + 0j

    finding = gl.check(lambda z: (np.abs(z) ** 2).sum(), z, grad=grad).findings[0]

    assert finding.kind == BugKind.DETACHED
    assert "imaginary" in finding.evidence


@pytest.mark.parametrize("slip", ["next class", "smoothed"])
def test_labels_without_a_bias_are_told(slip):
    """The error sums to zero over classes and does not change with the weights."""
    labels, each = np.array([0, 2, 1, 1, 2, 0]), np.arange(6)
    onehot = np.eye(4)[labels]

    def loss_and_grads(params):
        scores = params["W"] if slip == "smoothed" else X @ params["W"]
        weights = softmax(scores)
        loss = -np.log(weights[each, labels]).sum()
        meant = onehot
        if slip == "smoothed":
            meant = 0.9 * onehot + 0.1 / 4
        if slip == "next class":
            meant = np.eye(4)[labels + 1]
        signal = weights - meant
        return loss, {"W": signal if slip == "smoothed" else X.T @ signal}

    params = {
        "W": np.random.default_rng(5).normal(size=(6 if slip == "smoothed" else 4, 4))
    }
    finding = gl.check(loss_and_grads, params).findings[0]

    told = {"next class": BugKind.WRONG_INDEX, "smoothed": BugKind.MISSING_TERM}
    assert finding.kind == told[slip]
    word = {"next class": "sums to zero along axis 1", "smoothed": "label smoothing"}
    assert word[slip] in finding.evidence


def test_windows_of_a_kernel_at_the_wrong_place_are_told():
    """What a kernel is multiplied with is shifted, or that of one place, for all."""
    signal = np.random.default_rng(6).normal(size=12)

    def forward(w):
        return np.array([signal[i : i + 4] @ w for i in range(8)])

    windows = np.stack([signal[i : i + 4] for i in range(8)])
    late = np.stack([signal[max(i - 1, 0) : max(i - 1, 0) + 4] for i in range(8)])
    one = np.repeat(windows[:1], 8, axis=0)
    w = np.random.default_rng(7).normal(size=4)

    shifted = gl.check(forward, w, jac=lambda _w: late).findings[0]
    fixed = gl.check(forward, w, jac=lambda _w: one).findings[0]

    assert shifted.kind == BugKind.WRONG_INDEX
    assert "axis 0 of out shifted by 1, apart from the border" in shifted.evidence
    assert fixed.kind == BugKind.WRONG_INDEX
    assert "index 0: the index does not move" in fixed.evidence
    assert gl.check(forward, w, jac=lambda _w: windows).findings == ()


def test_a_gradient_that_differs_only_now_and_then_is_asked_once_more():
    """Two gradients that are the same by chance are not those that were compared."""
    calls, x = itertools.count(), np.linspace(0.5, 2.0, 4)

    def grad(x):
        return 2 * x + (np.cos(9 * x) if next(calls) == 0 else 0.5)

    finding = gl.check(lambda x: (x**2).sum(), x, grad=grad).findings[0]

    assert finding.kind == "nondeterministic"
    assert "lost_accumulation" in finding.doubts


@pytest.mark.parametrize("tied", [True, False])
def test_a_table_that_is_used_twice_lacks_its_rows_of_one_use(rng, tied):
    """A tied embedding is looked up, and scores all words: the first is left out."""
    ids, labels = np.array([1, 4, 2, 2]), np.array([4, 0, 2, 5])
    params = {"E": rng.normal(size=(7, 4)) / 2, "W": rng.normal(size=(4, 4)) / 2}

    def loss_and_grads(p):
        h = np.tanh(p["E"][ids] @ p["W"])
        scores = h @ p["E"].T
        q = np.exp(scores)
        q /= q.sum(axis=1, keepdims=True)
        d = (q - np.eye(7)[labels]) / 4
        back = d @ p["E"] * (1 - h * h)
        grad = d.T @ h
        if not tied:
            np.add.at(grad, ids, back @ p["W"].T)
        loss = -np.log(q[np.arange(4), labels]).mean()
        return loss, {"E": grad, "W": p["E"][ids].T @ back}

    report = gl.check(loss_and_grads, params)

    assert report.ok == (not tied)
    if tied:
        assert report.diagnosis == "missing_term"
        assert "rows whose index stands in `ids`" in report.findings[0].evidence


def scores_of_symbols(ids, slip):
    """Log-probabilities of symbols, summed up, columns of B being looked up."""

    def loss_and_grads(p):
        q = np.exp(p["B"])
        q /= q.sum(axis=1, keepdims=True)
        parts = -(p["w"][:, None] * np.ones(len(ids)))
        grad = np.zeros_like(q)
        if slip:
            grad[:, ids] = parts
        else:
            np.add.at(grad.T, ids, parts.T)
        grad += q * p["w"][:, None] * len(ids)
        loss = -(p["w"] @ np.log(q[:, ids])).sum()
        return loss, {"B": grad, "w": -np.log(q[:, ids]).sum(axis=1)}

    rng = np.random.default_rng(3)
    return loss_and_grads, {"B": rng.normal(size=(3, 4)), "w": rng.uniform(1, 2, 3)}


def test_columns_that_are_written_once_are_told_as_rows_are():
    """The emissions of a hidden Markov model are looked up by columns."""
    ids = np.array([2, 0, 3, 3, 1, 0, 2, 0, 2])

    report = gl.check(*scores_of_symbols(ids, slip=True))

    assert gl.check(*scores_of_symbols(ids, slip=False)).ok
    assert report.diagnosis == "lost_accumulation"
    assert "columns whose index stands more than once in `ids`" in (
        report.findings[0].evidence
    )


def test_a_sum_that_is_broken_where_all_rows_are_written_once_leaves_that_open():
    """Behind a centring an embedding's gradient sums to zero; so does no part of it."""
    ids = np.array([[0, 1], [2, 1], [0, 2], [3, 3], [1, 0]])
    x = np.random.default_rng(4).normal(size=(4, 3))
    w = np.arange(1.0, 7.0)

    def forward(table):
        rows = table[ids].reshape(5, 6)
        return np.tanh((rows - rows.mean(axis=0)) * w)

    def grad(table):
        out = forward(table)
        back = 2 * out * (1 - out**2) * w
        result = np.zeros_like(table)
        result[ids] = (back - back.mean(axis=0)).reshape(5, 2, 3)
        return result

    finding = gl.check(lambda t: (forward(t) ** 2).sum(), x, grad=grad).findings[0]

    assert "lost_accumulation" in (finding.kind, *finding.doubts)


def kept_buffer(rng, step, bound):
    """A loss whose gradient stays in an array of its own, changed and clipped there."""
    x, y = rng.normal(size=(8, 6)), rng.normal(size=8)
    kept = np.zeros(6)

    def loss_and_grad(w):
        error = x @ w - y
        kept[:] = step(kept, x.T @ error)
        np.clip(kept, -bound, bound, out=kept)
        return 0.5 * (error**2).sum(), kept

    return loss_and_grad


@pytest.mark.parametrize("bound", [5.0, 50.0])
def test_what_adds_up_until_it_is_clipped_is_never_zeroed(rng, bound):
    """As in character RNNs; it differs from call to call until all stand at a bound."""
    f = kept_buffer(rng, np.add, bound)
    report = gl.check(f, rng.normal(size=6))

    assert report.diagnosis == "accumulated_grad"
    assert f"up to {bound:.4g}: " in report.findings[0].evidence


def test_what_is_drawn_anew_and_clipped_is_not(rng):
    """Noise on a gradient, some entries at the bound."""
    draws = np.random.default_rng(3)
    f = kept_buffer(rng, lambda _, g: g + draws.normal(size=6), 5.0)

    assert gl.check(f, rng.normal(size=6)).diagnosis != "accumulated_grad"
