"""What a part of the entries says: small ones, a group, a unit, labels."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.activations import softmax

RNG = np.random.default_rng(14)
X, LABELS, SAMPLES = RNG.normal(size=(8, 5)), RNG.integers(0, 4, 8), np.arange(8)


def first(report):
    assert report.verdict == gl.Verdict.DISAGREES
    return report.findings[0]


def test_a_factor_of_one_large_entry_is_not_that_of_all():
    """Entries that are too small to weigh in a sum are right, and say so."""
    scale = np.array([1e4, 1.0, 2.0, 3.0])
    grown = np.array([1.5, 1.0, 1.0, 1.0])
    x = np.array([0.3, -0.5, 0.7, 1.1])

    finding = first(
        gl.check(
            lambda x: (scale * np.sin(x)).sum(),
            x,
            grad=lambda x: grown * scale * np.cos(x),
        )
    )

    assert finding.kind == "scale"
    assert finding.evidence == "analytic = 1.5 (3/2) x numeric in x[0] alone."


def classifier(offset=0):
    """Cross-entropy with weights of classes; labels of the gradient may be others."""
    given = np.array([0.5, 1.0, 2.0, 1.6])[LABELS]

    def loss_and_grads(params):
        p = softmax(X @ params["W"] + params["b"])
        signal = p.copy()
        signal[SAMPLES, (LABELS + offset) % 4] -= 1
        signal *= given[:, None] / 8
        loss = -(given * np.log(p[SAMPLES, LABELS])).mean()
        return loss, {"W": X.T @ signal, "b": signal.sum(axis=0)}

    return loss_and_grads, {"W": RNG.normal(size=(5, 4)), "b": RNG.normal(size=4)}


def test_labels_of_another_class_are_read_from_a_bias():
    """Its error sums to zero over units: the label is right in sum, elsewhere."""
    finding = first(gl.check(*classifier(offset=1)))

    assert (finding.kind, finding.where) == ("wrong_index", "b")
    assert gl.check(*classifier()).findings == ()


def test_weights_of_classes_that_are_forgotten_are_factors_of_their_samples():
    """Each row of the scores is wrong by the weight of its class."""
    weights = np.array([0.5, 1.0, 2.0, 1.7])[LABELS]

    def loss(z):
        return -(weights * np.log(softmax(z)[SAMPLES, LABELS])).mean()

    def forgotten(z):
        signal = softmax(z)
        signal[SAMPLES, LABELS] -= 1
        return signal / 8

    finding = first(gl.check(loss, RNG.normal(size=(8, 4)), grad=forgotten))

    assert finding.kind == "scale"
    assert "0.5882, 2" in finding.evidence.replace("0.5, ", "")


def test_a_kernel_that_is_turned_by_half_a_turn_is_in_reversed_order():
    """Both of its axes are reversed, neither alone explains it."""
    images = RNG.normal(size=(3, 2, 5, 5))
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(2, 3))

    def forward(w):
        return np.einsum("ncijkl,fckl->nfij", windows, w), None

    def backward(d, _cache):
        return (np.einsum("nfij,ncijkl->fckl", d, windows)[..., ::-1, ::-1],)

    finding = first(gl.check(forward, RNG.normal(size=(2, 2, 3, 3)), backward=backward))

    assert finding.kind == "wrong_index"
    assert "axes 2 to 3 of w reversed" in finding.evidence


def test_a_unit_that_has_one_factor_everywhere_has_no_wrong_slope():
    """Words that are drawn as negatives only get the other sign wherever they stand."""
    words, drawn = np.array([3, 4, 5, 3]), np.array([[0, 1], [1, 2], [2, 0], [5, 0]])
    centres = RNG.normal(size=(4, 3))

    def loss_and_grads(params):
        table = params["U"]
        true = (centres * table[words]).sum(axis=1)
        noise = np.einsum("bd,bkd->bk", centres, table[drawn])
        loss = np.logaddexp(0, -true).mean() + np.logaddexp(0, noise).sum() / 4
        grad = np.zeros_like(table)
        np.add.at(grad, words, -centres / (1 + np.exp(true))[:, None] / 4)
        signal = -1 / (1 + np.exp(-noise)) / 4
        np.add.at(grad, drawn, signal[..., None] * centres[:, None])
        return loss, {"U": grad}

    finding = first(gl.check(loss_and_grads, {"U": RNG.normal(size=(6, 3))}))

    assert finding.kind != "wrong_derivative"
    assert "slope" not in finding.evidence


def test_a_bias_of_gates_belongs_to_a_loop():
    """A matrix from a state to three gates of as many units is a recurrent one."""
    inputs, target = RNG.normal(size=(4, 3, 2)), RNG.normal(size=(3, 3))

    def loss_and_grads(params):
        states, steps = [np.zeros((3, 3))], []
        for x in inputs:
            z = x @ params["W"] + states[-1] @ params["U"] + params["b"]
            gate, new, out = (np.tanh(part) for part in np.split(z, 3, axis=1))
            steps.append((x, gate, new, out))
            states.append(states[-1] * gate + new * out)
        off = states.pop() - target
        grads = {name: np.zeros_like(value) for name, value in params.items()}
        back = off
        for x, gate, new, out in reversed(steps):
            before = states.pop()
            z = np.hstack(
                [
                    back * before * (1 - gate**2),
                    back * out * (1 - new**2),
                    back * new * (1 - out**2),
                ]
            )
            grads["W"] += x.T @ z
            grads["U"] += before.T @ z
            grads["b"] = z.sum(axis=0)
            back = back * gate + z @ params["U"].T
        return (off**2).sum() / 2, grads

    shapes = {"W": (2, 9), "U": (3, 9), "b": (9,)}
    params = {name: RNG.normal(size=shape) for name, shape in shapes.items()}
    finding = first(gl.check(loss_and_grads, params))

    assert (finding.kind, finding.where) == ("lost_accumulation", "b")


@pytest.mark.parametrize("over", ["all", "those"])
def test_a_mean_over_what_a_mask_leaves_is_told_from_one_over_all(over):
    """Of eight samples six count: 6/8 is no factor that anybody wrote."""
    mask = np.arange(8) < 6
    right, wrong = (6, 8) if over == "all" else (8, 6)

    def grad(z):
        return mask / (1 + np.exp(-z)) / wrong

    finding = first(
        gl.check(
            lambda z: (mask * np.logaddexp(0, z)).sum() / right,
            RNG.normal(size=8),
            grad=grad,
        )
    )

    assert finding.kind == "missing_reduction"
    assert "6 of 8 entries of z have a gradient" in finding.evidence


def test_of_one_unit_no_slope_is_read_and_of_one_number_no_factor():
    """The loss of a discriminator forgets the fakes in the gradient of its bias."""
    real, fake = RNG.normal(size=(2, 7, 4))

    def loss_and_grads(params):
        of_real, of_fake = (x @ params["w"] + params["b"] for x in (real, fake))
        loss = np.logaddexp(0, -of_real).mean() + np.logaddexp(0, of_fake).mean()
        up = -1 / (1 + np.exp(of_real)) / 7
        down = 1 / (1 + np.exp(-of_fake)) / 7
        return loss, {"w": real.T @ up + fake.T @ down, "b": np.array(up.sum())}

    params = {"w": RNG.normal(size=4), "b": np.array(0.3)}
    finding = first(gl.check(loss_and_grads, params))

    assert (finding.kind, finding.where) == ("unknown", "b")
    assert "wrong_derivative" in finding.doubts


def test_what_is_short_beside_an_error_explains_none_of_it():
    """Scales that a gradient forgets leave it a thousandth as long: no order does."""
    scale = 10.0 ** np.arange(-3, 4)

    finding = first(
        gl.check(lambda x: (scale * np.sin(x)).sum(), np.full(7, 0.4), grad=np.cos)
    )

    assert finding.kind not in {"wrong_index", "lost_accumulation"}
    assert "order" not in finding.evidence.partition("explains")[0]
