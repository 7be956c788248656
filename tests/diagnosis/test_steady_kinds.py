"""Kinds that must not depend on what was drawn, nor on which shapes happen to fit."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

SEEDS = range(5)


def graph_network(seed, slip):
    """Two layers whose bias fits, by its shape, the weight behind it as well."""
    rng = np.random.default_rng(seed)
    inputs, target = rng.normal(size=(6, 3)), rng.normal(size=(6, 2))
    params = {
        "theta0": rng.normal(size=(3, 4)),
        "theta1": rng.normal(size=(4, 2)),
        "offset": rng.normal(size=4),
    }

    def loss_and_grads(p):
        z = inputs @ p["theta0"] + p["offset"]
        hidden = np.tanh(z)
        off = hidden @ p["theta1"] - target
        up = 2 * off / off.size
        slope = 1 - (z if slip else hidden) ** 2
        of_z = up @ p["theta1"].T * slope
        grads = {
            "theta0": inputs.T @ of_z,
            "theta1": hidden.T @ up,
            "offset": of_z.sum(axis=0),
        }
        return (off**2).mean(), grads

    return gl.check(loss_and_grads, params, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_bias_of_the_weight_before(seed):
    """A bias belongs to the weight whose units it has, by the chain of all shapes."""
    report = graph_network(seed, "slope of the input")

    assert report.diagnosis == "stale_cache"
    assert {f.where for f in report.findings} <= {"offset", "theta0"}
    assert graph_network(seed, "").findings == ()


def mixture(seed, slip):
    """Centres and a width for each: one length in common, and no layer."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(7, 3))
    params = {"centre": rng.normal(size=(4, 3)), "logwidth": rng.normal(size=4) / 4}

    def loss_and_grads(p):
        apart = points[:, None] - p["centre"]
        far, width = (apart**2).sum(axis=2), np.exp(p["logwidth"])
        powers = np.exp(-far / (2 * width**2))
        of_width = (powers * far / width ** (3 if slip else 2)).sum(axis=0)
        of_centre = (powers[..., None] * apart / width[:, None] ** 2).sum(axis=0)
        return powers.sum(), {"centre": of_centre, "logwidth": of_width}

    return gl.check(loss_and_grads, params, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_shapes_alone_make_no_layer(seed):
    """What has no name of a bias is not told to share an error signal."""
    report = mixture(seed, "power")

    assert report.culprits == ("logwidth",)
    assert all("same layer" not in f.evidence for f in report.findings)
    assert mixture(seed, "").findings == ()


def ratings(seed, slip):
    """A bias for every item: squares summed over the users that rated it."""
    rng = np.random.default_rng(seed)
    known, table = rng.random((6, 5)) < 0.7, rng.normal(size=(6, 5))
    known[:2] = True

    def loss(level):
        return (known * (level - table) ** 2).sum()

    def grad(level):
        up = 2 * known * (level - table)
        return up[0] if slip else up.sum(axis=0)

    return gl.check(loss, rng.normal(size=5), grad=grad, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_contribution_of_several(seed):
    """A slope that grows a whole number of times too slowly is one of so many."""
    report = ratings(seed, "first user")

    assert report.diagnosis == "broadcast_reduction"
    assert "contributions" in report.findings[0].evidence
    assert ratings(seed, "").findings == ()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("slip", ["matrix", "value", ""])
def test_factor_that_is_not_conjugated(slip, seed):
    """Right moduli with other phases are a conjugate too few, not a lost term."""
    rng = np.random.default_rng(seed)
    m = rng.normal(size=(3, 5)) + 1j * rng.normal(size=(3, 5))
    z = rng.normal(size=5) + 1j * rng.normal(size=5)

    def vjp(up, z):
        y = m @ z
        adjoint = m.T if slip == "matrix" else m.conj().T
        return adjoint @ (2 * up * (y.conj() if slip == "value" else y))

    report = gl.check(lambda z: np.abs(m @ z) ** 2, z, vjp=vjp, seed=seed)

    assert report.diagnosis == ("conjugate" if slip else "none")


SEGMENTS = np.array([0, 0, 0, 1, 1, 2])
COUNTS = np.bincount(SEGMENTS)


def segment_means(rows):
    return np.stack([rows[k == SEGMENTS].mean(axis=0) for k in range(3)]), ()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("slip", "kind"),
    [
        (lambda up: up[SEGMENTS], "missing_reduction"),
        (lambda up: up[SEGMENTS] / 6, "missing_reduction"),
        (lambda up: up[SEGMENTS] / COUNTS[SEGMENTS, None] ** 2, "missing_reduction"),
        (lambda up: up[SEGMENTS] / COUNTS[SEGMENTS, None], "none"),
    ],
)
def test_means_over_uneven_groups(slip, kind, seed):
    """Whole numbers that differ are lengths of groups: no clipping, no formula."""
    rows = np.random.default_rng(seed).normal(size=(6, 2))

    report = gl.check(segment_means, rows, backward=lambda up, _: slip(up), seed=seed)

    assert report.diagnosis == kind


@pytest.mark.parametrize("seed", SEEDS)
def test_error_of_straight_pieces_is_no_constant_term(seed):
    """Where slopes stand still an error that stands still says nothing of a target."""
    rng = np.random.default_rng(seed)
    target = rng.normal(size=9)

    def grad(x):
        return np.where(x > target, -0.7, 0.3)

    report = gl.check(
        lambda x: np.maximum(0.3 * (x - target), -0.7 * (x - target)).sum(),
        rng.normal(size=9),
        grad=grad,
        seed=seed,
    )

    assert "missing_term" not in {str(f.kind) for f in report.findings}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("slope", "kind"),
    [
        (lambda x: x**2, "missing_term"),
        (lambda x: x**2 + 5 * x, "extra_term"),
        (lambda x: x**2 + 2 * x, "none"),
    ],
)
def test_term_is_missing_or_too_much_wherever_one_looks(slope, kind, seed):
    """Which of the two a term is does not hang on the signs that were drawn."""
    x = np.random.default_rng(seed).normal(size=6) - 1.5

    report = gl.check(
        lambda x: x**3 / 3 + x**2, x, jac=lambda x: np.diag(slope(x)), seed=seed
    )

    assert report.diagnosis == kind


@pytest.mark.parametrize("seed", SEEDS)
def test_layer_averages_over_batch_and_time(seed):
    """A layer off by the product of two axes averages: it forgets no other factor."""
    torch = pytest.importorskip("torch")

    class Shift(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, b):
            return x + b

        @staticmethod
        def backward(ctx, up):
            return up, up.mean((0, 1))

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.level = torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))

        def forward(self, x):
            return Shift.apply(x, self.level)

    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4).double(), Layer(), torch.nn.Tanh())
    x = torch.randn(5, 2, 3, dtype=torch.float64)

    finding = gl.blame(net, x, seed=seed).findings[0]

    assert (finding.kind, finding.where) == ("missing_reduction", "1")
    assert "10 is the product of all axes but the last" in finding.evidence


@pytest.mark.parametrize("seed", SEEDS)
def test_lost_slope_is_no_term_too_many(seed):
    """What is several times too long has lost a factor: no term is longer than all."""
    rng = np.random.default_rng(seed)
    data, mix = rng.normal(size=(8, 4)), rng.normal(size=(4, 3))

    def grad(logits):
        p = 1 / (1 + np.exp(-logits))
        return (p @ mix @ mix.T - data @ mix @ mix.T) * 2

    def loss(logits):
        p = 1 / (1 + np.exp(-logits))
        return (((p - data) @ mix) ** 2).sum()

    report = gl.check(loss, rng.normal(size=(8, 4)), grad=grad, seed=seed)

    assert report.diagnosis == "wrong_derivative"
