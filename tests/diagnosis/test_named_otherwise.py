"""Readings that were told with confidence and were another mistake."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gradlab as gl


def first(report):
    finding = report.findings[0]
    return str(finding.kind), finding


def function(forward, backward):
    """Make a Function of one tensor."""

    class Made(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, up):
            return backward(up, *ctx.saved_tensors)

    return Made.apply


def test_a_reshape_in_another_order_is_no_surrogate(rng):
    """Each gradient arrives, at another entry: nothing is scaled or reversed."""
    x = torch.tensor(rng.normal(size=(2, 3, 4)), requires_grad=True)
    flatten = function(
        lambda x: x.reshape(2, 12),
        lambda up, x: up.reshape(2, 4, 3).transpose(1, 2).contiguous(),
    )
    kind, finding = first(gl.check(flatten, x))

    assert kind == "wrong_index"
    assert "scaling" not in finding.evidence


def test_a_reversal_is_still_told(rng):
    """What hands each gradient back to its own entry is one."""
    x = torch.tensor(rng.normal(size=(2, 3)), requires_grad=True)
    turned = function(lambda x: x.reshape(6), lambda up, x: -0.5 * up.reshape(2, 3))

    assert first(gl.check(turned, x))[0] == "surrogate"


def test_a_straight_line_meets_no_pieces(rng):
    """A circular convolution with its conjugates forgotten, weighted and summed."""
    weights, w, x = rng.normal(size=(3, 8))

    def loss(w):
        return weights @ np.fft.ifft(np.fft.fft(x) * np.fft.fft(w)).real

    def grad(w):
        return np.fft.ifft(np.fft.fft(weights) * np.fft.fft(x)).real

    kind, finding = first(gl.check(loss, w, grad=grad))

    assert kind == "unknown"
    assert "pieces" not in finding.evidence


@pytest.mark.parametrize("size", [3, 4, 5])
def test_log_softmax_along_the_other_axis_of_a_square(size, rng):
    """Its numbers are all there, elsewhere: what they couple says which axis it is."""
    x = torch.tensor(rng.normal(size=(size, size)), requires_grad=True)
    wrong = function(
        lambda x: x.log_softmax(1),
        lambda up, x: up - x.softmax(1) * up.sum(0, keepdim=True),
    )

    assert first(gl.check(wrong, x))[0] == "wrong_axis"


def hinge(rng, slip):
    """Scores of a linear classifier, and the mean of its hinge losses."""
    x, y = rng.normal(size=(7, 4)), rng.integers(0, 4, 7)
    rows = np.arange(7)
    params = {"W": rng.normal(size=(4, 4)), "b": rng.normal(size=4)}

    def loss_and_grads(p):
        s = x @ p["W"] + p["b"]
        margins = np.maximum(s - s[rows, y][:, None] + 1, 0)
        margins[rows, y] = 0
        counted = (margins > 0).astype(float)
        if slip:
            counted = (s > s[rows, y][:, None]).astype(float)
        counted[rows, y] = -counted.sum(axis=1)
        signal = 0.37 * counted / 7
        grads = {"W": x.T @ signal, "b": signal.sum(axis=0)}
        return 0.37 * margins.sum() / 7, grads

    return loss_and_grads, params


@pytest.mark.parametrize("seed", [7, 13, 16, 39, 57])
def test_margins_that_are_counted_are_no_lengths_of_groups(seed):
    """Both sides are a few times 0.37 / 7, so all their ratios are of whole numbers."""
    report = gl.check(*hinge(np.random.default_rng(seed), "margin forgotten"))

    assert "missing_reduction" not in {f.kind for f in report.findings}
    assert not gl.check(*hinge(np.random.default_rng(seed), "")).findings


def test_margins_are_not_told_as_labels(rng):
    """Of scores a margin too many looks like a label that moved: both are told."""
    y, rows = rng.integers(0, 4, 7), np.arange(7)

    def margins(s):
        m = np.maximum(s - s[rows, y][:, None] + 1, 0)
        m[rows, y] = 0
        return m

    def loss(s):
        return margins(s).sum() / 7

    def grad(s):
        counted = ((margins(s) > 0) & (s > s[rows, y][:, None])).astype(float)
        counted[rows, y] = -counted.sum(axis=1)
        return counted / 7

    scores = 0.1 * rng.normal(size=(7, 4))
    scores[rows, y] += 3.0
    scores[0, (y[0] + 1) % 4] = scores[0, y[0]] - 0.5  # within the margin
    scores[1, (y[1] + 1) % 4] = scores[1, y[1]] - 0.25
    for row in (2, 3, 4):
        scores[row, (y[row] + 1) % 4] = scores[row, y[row]] + 0.5
    kind, finding = first(gl.check(loss, scores, grad=grad))

    assert kind != "wrong_index"
    assert finding.kind == "wrong_mask" or "wrong_mask" in finding.doubts


@pytest.mark.parametrize("slip", ["lost", "doubled", "sign", "power"])
def test_the_term_of_a_norm_behind_a_weight_may_have_another_factor(slip, rng):
    """Of a loss alone a term that is missing is not told from one that is wrong."""
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 4))
    params = {"W": rng.normal(size=(3, 4))}

    def loss_and_grads(p):
        z = x @ p["W"]
        s = z.std(axis=0)
        hat = (z - z.mean(axis=0)) / s
        h = np.tanh(hat)
        up = (h - y) / 8 * (1 - h**2)
        factor = {"lost": 0, "doubled": 2, "sign": -1, "power": s}[slip]
        term = hat * (up * hat).mean(axis=0) * factor
        return ((h - y) ** 2).sum() / 16, {
            "W": x.T @ ((up - up.mean(axis=0) - term) / s)
        }

    kind, finding = first(gl.check(loss_and_grads, params))

    assert kind == "missing_term"
    assert finding.doubts == ("wrong_derivative", "wrong_axis", "sign")
    assert "is missing, or has another factor" in finding.evidence


@pytest.mark.parametrize("slip", ["average", "first"])
def test_the_bias_of_a_convolution_knows_no_positions(slip, rng):
    """A pooling that hands gradients to other entries leaves their sum as it is."""
    images, y = rng.normal(size=(3, 1, 5, 5)), rng.normal(size=(3, 2))
    windows = np.lib.stride_tricks.sliding_window_view(images, (2, 2), axis=(2, 3))
    params = {
        "W": rng.normal(size=(2, 1, 2, 2)),
        "b": rng.normal(size=2),
        "V": rng.normal(size=(8, 2)),
    }

    def loss_and_grads(p):
        z = np.einsum("ncijkl,ockl->noij", windows, p["W"]) + p["b"][:, None, None]
        tiles = z.reshape(3, 2, 2, 2, 2, 2).transpose(0, 1, 2, 4, 3, 5)
        tiles = tiles.reshape(3, 2, 2, 2, 4)
        h = tiles.max(axis=-1).reshape(3, 8)
        r = h @ p["V"] - y
        up = (r @ p["V"].T).reshape(3, 2, 2, 2, 1)
        share = np.full(4, 0.25) if slip == "average" else np.eye(4)[0]
        back = (up * share).reshape(3, 2, 2, 2, 2, 2).transpose(0, 1, 2, 4, 3, 5)
        back = back.reshape(3, 2, 4, 4)
        grads = {
            "W": np.einsum("noij,ncijkl->ockl", back, windows),
            "b": back.sum(axis=(0, 2, 3)),
            "V": h.T @ r,
        }
        return (r**2).sum() / 2, grads

    kind, finding = first(gl.check(loss_and_grads, params))

    assert (kind, finding.where) == ("unknown", "W")
    assert finding.doubts[0] == "wrong_mask"
    assert "at which positions it stands" in finding.evidence


def test_differences_of_rows_are_no_slope_of_an_activation(rng):
    """A quadratic function has no activation: rows are no units of a layer."""
    image = torch.tensor(rng.normal(size=(5, 5)), requires_grad=True)

    def forward(a):
        return ((a[1:] - a[:-1]) ** 2).sum() + ((a[:, 1:] - a[:, :-1]) ** 2).sum()

    def backward(up, a):
        out, rows = torch.zeros_like(a), a[1:] - a[:-1]
        out[1:] += 4 * rows  # rows twice, columns never
        out[:-1] -= 4 * rows
        return up * out

    kind, finding = first(gl.check(function(forward, backward), image))

    assert kind != "wrong_derivative"
    assert "activation" not in finding.evidence


def test_doubts_of_a_layer_are_data_as_well(rng):
    """An audit that looks at a layer by itself hands on what that leaves open."""
    labels = torch.tensor(rng.integers(0, 3, 6))
    weight = torch.tensor(rng.uniform(0.3, 2, 3))

    def forward(s):
        return -(weight[labels] * s.log_softmax(1)[range(6), labels]).mean()

    def backward(up, s):
        d = s.softmax(1)
        d[range(6), labels] -= 1
        return up * d * weight / 6  # by the class of the column, not of the label

    class Loss(torch.nn.Module):
        def forward(self, s):
            return function(forward, backward)(s)

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 3).double(), Loss())
    x = torch.tensor(rng.normal(size=(6, 2)))
    (finding,) = gl.blame(net, x).findings

    assert "wrong_axis" in finding.doubts
    assert "It could also be: wrong axis" in finding.evidence


@pytest.mark.parametrize("imaginary", [1.0, 0.0])
def test_a_derivative_conjugated_before_a_factor_1j_is_a_conjugate(rng, imaginary):
    """Of an angle 1j z / |z|**2 becomes minus its conjugate; of real ones that is one.

    On the real line only imaginary parts are left, and their sign is right.
    """
    z = torch.tensor(rng.normal(size=4) + imaginary * 1j * rng.normal(size=4))

    def check(conjugates):
        def backward(g, z):
            return g * 1j * (z.conj() if conjugates else z) / z.abs() ** 2

        return gl.check(function(torch.angle, backward), z)

    assert check(False).ok
    if imaginary:
        kind, finding = first(check(True))
        assert kind == "conjugate"
        assert "minus the conjugate" in finding.evidence
    else:
        assert check(True).ok


def test_a_finding_of_several_inputs_of_a_layer_names_them(rng):
    """Each of what, is said before: two states of a cell that lose one output."""
    torch.manual_seed(0)

    class Cell(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b, torch.sin(a) + torch.sin(b)

        @staticmethod
        def backward(ctx, first, second):
            a, b = ctx.saved_tensors
            return first * b, first * a

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(3, 4), torch.nn.Linear(3, 4)

        def forward(self, x):
            return sum(Cell.apply(self.a(x), self.b(x)))

    x = torch.tensor(rng.normal(size=(2, 3)))
    report = gl.check(Net().double(), x, loss=lambda out: (out**2).sum())

    evidence = report.findings[0].evidence
    assert "of each" in evidence
    assert "with respect to b, a:" in evidence
