"""Names that numbers suggest by accident are not given: what else is wrong tells."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

torch = pytest.importorskip("torch")


def classifier(rng, signal, *, n=5, d=4, h=5, classes=4):
    """A net with one hidden layer under a loss of its scores and their gradient."""
    x, labels = rng.normal(size=(n, d)), rng.integers(0, classes, n)
    params = {
        "W1": rng.normal(size=(d, h)) / 2,
        "b1": rng.normal(size=h) / 3,
        "W2": rng.normal(size=(h, classes)),
        "b2": rng.normal(size=classes) / 2,
    }

    def loss_and_grads(p):
        a = np.tanh(x @ p["W1"] + p["b1"])
        loss, ds = signal(a @ p["W2"] + p["b2"], labels)
        dz = ds @ p["W2"].T * (1 - a * a)
        return loss, {
            "W1": x.T @ dz,
            "b1": dz.sum(axis=0),
            "W2": a.T @ ds,
            "b2": ds.sum(axis=0),
        }

    return loss_and_grads, params


def hinge(slip):
    """Multi-class hinge loss of scores."""

    def signal(s, labels):
        rows = np.arange(len(s))
        margins = 1 + s - s[rows, labels][:, None]
        margins[rows, labels] = 0
        on = (margins > (1 if slip == "no margin" else 0)).astype(float)
        on[rows, labels] = 0
        counts = {"minus one": 1, "true class lost": 0}.get(slip, on.sum(axis=1))
        on[rows, labels] = -counts
        return np.maximum(margins, 0).sum() / len(s), on / len(s)

    return signal


@pytest.mark.parametrize("slip", ["no margin", "minus one", "true class lost"])
def test_a_hinge_loss_behind_a_net_is_one_finding_and_no_accident(slip):
    """Its gradient counts samples: ratios, ranks and single entries are by chance."""
    for seed in range(8):
        report = gl.check(*classifier(np.random.default_rng(seed), hinge(slip)))
        if report.verdict == gl.Verdict.AGREES:
            continue  # nothing is within the margin alone at this point
        (told,) = report.findings
        by_chance = {"scale", "extra_term", "lost_accumulation", "wrong_derivative"}
        assert told.kind not in by_chance, (seed, told)
        assert told.where == "b2"


def quantiles(rng, slip):
    """Pinball loss of three quantiles behind a linear layer."""
    target, tau = rng.normal(size=(5, 3)), np.array([0.1, 0.5, 0.9])

    def signal(s, labels):
        r = target - s
        ds = np.where(r > 0, -tau, 1 - tau)
        if slip:
            ds = np.where(r > 0, -0.5, 0.5)
        return np.maximum(tau * r, (tau - 1) * r).mean(), ds / s.size

    return classifier(rng, signal, classes=3)


def test_slopes_of_straight_pieces_are_no_labels_at_the_wrong_index(rng):
    """Errors are multiples of one number, and so is the gradient itself."""
    (told,) = gl.check(*quantiles(rng, "median")).findings

    assert told.kind != "wrong_index"
    assert gl.check(*quantiles(rng, "")).findings == ()


def factorisation(rng, slip):
    """Known entries of a matrix as a product, with a bias for each column."""
    target, known = rng.normal(size=(6, 4)), rng.random((6, 4)) < 0.6
    params = {
        "U": rng.normal(size=(6, 2)),
        "V": rng.normal(size=(4, 2)),
        "bv": rng.normal(size=4) / 3,
    }

    def loss_and_grads(p):
        e = p["U"] @ p["V"].T + p["bv"] - target
        loss = 0.5 * ((e * known) ** 2).sum()
        e = e if slip else e * known
        return loss, {"U": e @ p["V"], "V": e.T @ p["U"], "bv": e.sum(axis=0)}

    return loss_and_grads, params


def test_entries_that_are_not_known_are_counted_by_how_a_bias_moves(rng):
    """The gradient of a bias grows with all entries, and should with the known ones."""
    first = gl.check(*factorisation(rng, "mask forgotten")).findings[0]

    assert (first.kind, first.where) == ("wrong_mask", "bv")
    assert "of 6" in first.evidence
    assert gl.check(*factorisation(rng, "")).findings == ()


class Circle(torch.autograd.Function):
    """Circular convolution by Fourier transforms, with the conjugates forgotten."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        n = x.shape[-1]
        return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(w), n)

    @staticmethod
    def backward(ctx, up):
        x, w = map(torch.fft.rfft, ctx.saved_tensors)
        n, up = up.shape[-1], torch.fft.rfft(up)
        both = (torch.fft.irfft(up * other, n) for other in (w, x))
        gx, gw = both
        return gx, gw.sum(dim=0)


def test_forgotten_conjugates_of_a_convolution_are_told_once(rng):
    """One input is called by its transpose and the other by its order otherwise."""
    x, w = (torch.tensor(rng.normal(size=s), requires_grad=True) for s in ((3, 7), 7))
    (told,) = gl.check(Circle.apply, x, w).findings

    assert (told.kind, len(told.places)) == ("conjugate", 2)


def test_a_gain_that_is_averaged_over_its_group_is_no_mask(rng):
    """Each gets half of its own gradient and half of its neighbour's."""

    def forward(x, g):
        return x * g, (x, g)

    def backward(up, cache):
        x, g = cache
        mine = (up * x).sum(axis=0)
        return up * g, np.repeat(mine.reshape(-1, 2).mean(axis=1), 2)

    arrays = rng.normal(size=(5, 4)), rng.normal(size=4)
    (told,) = gl.check(forward, *arrays, backward=backward).findings

    assert (told.kind, told.where) == ("wrong_axis", "g")
    assert "1/2 of it to each" in told.evidence


def test_one_sample_of_as_many_as_there_are_centres(rng):
    """A square of distances: the sum over points is what is left out."""

    def forward(x, c):
        apart = x[:, None] - c
        return (apart**2).sum(axis=-1), apart

    def backward(up, apart):
        each = 2 * up[..., None] * apart
        return each.sum(axis=1), -each[0]

    arrays = rng.normal(size=(3, 2)), rng.normal(size=(3, 2))
    (told,) = gl.check(forward, *arrays, backward=backward).findings

    assert (told.kind, told.where) == ("broadcast_reduction", "c")


def test_rows_of_a_weight_that_get_nothing_are_no_mask(rng):
    """Of arrays put together before a product one is forgotten."""

    def forward(x, h, W):
        both = np.concatenate([x, h], axis=1)
        return np.tanh(both @ W), (both, W, np.tanh(both @ W))

    def backward(up, cache):
        both, W, out = cache
        dz = up * (1 - out**2)
        dW = both.T @ dz
        dW[3:] = 0
        back = dz @ W.T
        return back[:, :3], back[:, 3:], dW

    arrays = (rng.normal(size=s) for s in ((4, 3), (4, 2), (5, 6)))
    (told,) = gl.check(forward, *arrays, backward=backward).findings

    assert (told.kind, told.where) == ("detached", "W")
    assert "Indices 3 to 4 along axis 0 of W" in told.evidence


def test_a_scale_that_turns_its_sign_is_no_unit_that_switches(rng):
    """Of s * tanh(x / s) the slope at zero jumps from one sign to the other."""
    x, s = rng.normal(size=(4, 5)), rng.uniform(0.5, 2, size=(1, 5))

    def forward(x, s):
        return s * np.tanh(x / s), (x, s)

    def backward(up, cache):
        x, s = cache
        y = np.tanh(x / s)
        return up * (1 - y * y), (-up * x / s * (1 - y * y)).sum(0, keepdims=True)

    (told,) = gl.check(forward, x, s, backward=backward).findings

    assert told.where == "s"
    assert told.kind != "wrong_mask"


def test_a_weight_of_one_sample_is_transposed_along_no_axis(rng):
    """Each entry is part of one output; that is no sum over an axis of the weight."""

    def forward(x, W):
        return x @ W, (x, W)

    def backward(up, cache):
        x, W = cache
        return up @ W.T, (x.T @ up).T

    arrays = rng.normal(size=(1, 4)), rng.normal(size=(4, 4))
    (told,) = gl.check(forward, *arrays, backward=backward).findings

    assert (told.kind, told.where) == ("transpose", "W")


def test_a_state_that_is_overwritten_is_no_factor_that_anybody_wrote(rng):
    """Capsules squashed in place: couplings of one length, and of no plain factor."""

    def forward(x):
        q = (x * x).sum(axis=1, keepdims=True)
        return x * np.sqrt(q) / (1 + q), (x.copy(), q)

    def backward(up, cache):
        x, q = cache
        x = x * np.sqrt(q) / (1 + q)
        slope = (1 - q) / (np.sqrt(q) * (1 + q) ** 2)
        return up * np.sqrt(q) / (1 + q) + slope * x * (up * x).sum(1, keepdims=True)

    x = np.vstack([rng.normal(size=3), 1e-3 * rng.normal(size=(2, 3))])
    told = gl.check(forward, x, backward=backward).findings[0]

    assert told.kind != "scale"


class TestAlongTheInputItself:
    """An error along w is a penalty where it is one multiple of w everywhere."""

    A = np.random.default_rng(3).normal(size=(6, 4))
    W = np.random.default_rng(4).normal(size=4)

    def loss(self, w):
        return float(np.cos(self.A @ w).sum() + (np.linalg.norm(w) - 1.0) ** 2)

    def grad(self, w, share=1.0):
        length = np.linalg.norm(w)
        of_length = 2.0 * (length - 1.0) * w / length
        return -self.A.T @ np.sin(self.A @ w) + share * of_length

    @pytest.mark.parametrize("share", [0.0, 0.5, 2.0])
    def test_of_a_length_is_no_penalty(self, share):
        report = gl.check(self.loss, self.W, grad=lambda w: self.grad(w, share))
        (told,) = report.findings
        assert told.kind == gl.BugKind.UNKNOWN
        assert "the length of w alone" in told.evidence
        assert gl.BugKind.MISSING_TERM in told.doubts

    @pytest.mark.parametrize("strength", [0.3, -0.02, 3e-5])
    def test_of_a_penalty_is_one(self, strength):
        grad = lambda w: self.grad(w) + strength * w
        (told,) = gl.check(self.loss, self.W, grad=grad).findings
        assert told.kind == gl.BugKind.REGULARIZATION

    def test_right(self):
        assert not gl.check(self.loss, self.W, grad=self.grad).findings


def deep_equilibrium(p, *, implicit):
    """A fixed point z = tanh(W z + x + b), half its square, and the gradient."""
    w, b = p["W"], p["x"] + p["b"]
    z = np.zeros(len(b))
    for _ in range(100):
        z = np.tanh(w @ z + b)
    slope = 1 - z * z
    inner = np.eye(len(b)) - (slope[:, None] * w if implicit else 0.0)
    dz = slope * np.linalg.solve(inner.T, z)
    return 0.5 * float(z @ z), {"W": np.outer(dz, z), "x": dz, "b": dz}


def test_factors_of_units_under_one_sample_are_no_weights_of_classes():
    """A wrong error signal is a factor for each row of an outer product."""
    rng = np.random.default_rng(0)
    sizes = {"W": (4, 4), "x": 4, "b": 4}
    params = {k: 0.5 * rng.normal(size=size) for k, size in sizes.items()}
    right = gl.check(lambda p: deep_equilibrium(p, implicit=True), params)
    assert right.ok
    assert not right.findings
    report = gl.check(lambda p: deep_equilibrium(p, implicit=False), params)
    assert {f.kind for f in report.findings} == {gl.BugKind.UNKNOWN}


def test_matrices_of_a_state_space_are_no_layer():
    """B beside A and C is no bias: a state that is cut is no slope of an activation."""
    rng = np.random.default_rng(1)
    u = torch.tensor(rng.normal(size=(7, 3)))
    params = {
        "A": torch.tensor(rng.uniform(0.2, 1.0, size=(3, 2))),
        "B": torch.tensor(rng.normal(size=2)),
        "C": torch.tensor(rng.normal(size=2)),
    }

    def scan(p, cut):
        h = torch.zeros(3, 2, dtype=torch.float64)
        out = []
        for t in range(7):
            h = torch.exp(-p["A"]) * h + p["B"] * u[t][:, None]
            h = h.detach() if cut and t == 3 else h
            out.append((h * p["C"]).sum(-1))
        return torch.stack(out).tanh().sum()

    def loss(p):
        with torch.no_grad():
            return float(scan({k: torch.as_tensor(v) for k, v in p.items()}, cut=False))

    def grad(p):
        own = {k: torch.tensor(v, requires_grad=True) for k, v in p.items()}
        return torch.autograd.grad(scan(own, cut=True), list(own.values()))

    arrays = {k: v.numpy() for k, v in params.items()}
    report = gl.check(
        loss,
        arrays,
        grad=lambda p: {k: g.numpy() for k, g in zip(arrays, grad(p), strict=True)},
    )
    kinds = {f.kind for f in report.findings}
    assert gl.BugKind.WRONG_DERIVATIVE not in kinds


def test_a_factor_near_one_is_not_told_of_what_agrees():
    """Newton's method that stops early has wide bars: most entries are right there."""

    def root(x):
        y = np.ones_like(x)
        for _ in range(50):
            step = (y**3 + y - x) / (3 * y**2 + 1)
            y = y - step
            if np.abs(step).max() < 1e-3:
                break
        return y

    report = gl.check(
        root,
        np.linspace(-2, 3, 7),
        jac=lambda x: np.diag(1 / (3 * root(x) ** 2 + 1 + 1e-4)),
    )

    assert report.verdict != gl.Verdict.AGREES
    assert "wherever it is not zero" not in report.findings[0].evidence
    assert "contributions" not in report.findings[0].evidence


@pytest.mark.parametrize(("power", "hedged"), [(3, True), (7, False)])
def test_an_exponent_that_is_a_length_may_be_an_exponent(power, hedged):
    """The slope of x**3 without its 3, of three entries, is no mean for sure."""
    x = np.linspace(1, 2, power)

    report = gl.check(
        lambda x: float((x**power).sum()), x, grad=lambda x: x ** (power - 1)
    )

    assert report.diagnosis == "missing_reduction"
    assert ("scale" in report.findings[0].doubts) is hedged


def test_a_factor_is_seen_in_rows_of_several_numbers(rng):
    """Rows of zeros are lost, and a row of one number has some factor by itself."""
    weights = rng.normal(size=(9, 4))
    kept = weights * np.where(np.arange(9) < 5, 0.0, 1.0)[:, None]
    kept[5:8, 0] *= [0.3, -0.6, 1.7]

    report = gl.check(
        lambda x: weights @ x,
        rng.normal(size=4),
        jac=lambda _: kept,
    )

    assert report.verdict == gl.Verdict.DISAGREES
    assert all("factor of its own" not in f.evidence for f in report.findings)
