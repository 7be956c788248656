"""What cannot be named is not named: it is measured, and its doubts are data."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import BugKind


@pytest.mark.parametrize("how", ["turned", "power", "rounded"])
def test_a_jacobian_that_is_wrong_in_no_known_way_gets_no_name(how, rng):
    """A rotation, a power and a rounding of slopes are no term and no mask."""
    a, q = rng.normal(size=(5, 5)), np.linalg.qr(rng.normal(size=(5, 5)))[0]

    def jac(x):
        true = (1 - np.tanh(a @ x) ** 2)[:, None] * a
        wrong = {
            "turned": q @ true,
            "power": np.sign(true) * np.abs(true) ** 1.3,
            "rounded": np.round(true, 1),
        }
        return wrong[how]

    report = gl.check(lambda x: np.tanh(a @ x), rng.normal(size=5), jac=jac)

    assert report.diagnosis == "unknown"
    assert BugKind.MISSING_TERM in report.findings[0].doubts
    assert "numeric gradient" in report.findings[0].evidence


@pytest.mark.parametrize("factor", [-1, 0, 2])
def test_a_term_of_differences_is_told_by_what_it_sums_to(factor, rng):
    """Total variation sums to zero; too much, too little or a sign is one error."""
    goal = rng.normal(size=12)

    def slopes(x):
        return np.diff(x) / np.sqrt(np.diff(x) ** 2 + 0.01)

    def loss(x):
        steps = np.sqrt(np.diff(x) ** 2 + 0.01)
        return 0.5 * ((x - goal) ** 2).sum() + 0.7 * steps.sum()

    def grad(x, factor=factor):
        return x - goal - 0.7 * factor * np.diff(slopes(x), prepend=0, append=0)

    x = rng.normal(size=12)
    report = gl.check(loss, x, grad=grad)

    assert [str(f.kind) for f in report.findings] == ["unknown"]
    assert {"sign", "missing_term"} <= {*report.findings[0].doubts}
    assert "sums to zero along axis 0" in report.findings[0].evidence
    assert gl.check(loss, x, grad=lambda x: grad(x, 1)).findings == ()


def test_the_path_of_a_gate_alone_is_told(rng):
    """What mixes no entries stands on the diagonal: (1 - z) h without its own slope."""
    u, v = rng.normal(size=(2, 4, 4))

    def forward(h):
        z = 1 / (1 + np.exp(-u @ h))
        return (1 - z) * h + z * np.tanh(v @ h)

    def jac(h, own=0):
        z, c = 1 / (1 + np.exp(-u @ h)), np.tanh(v @ h)
        gate = (z * (1 - z) * (c - h))[:, None] * u
        return gate + (z * (1 - c * c))[:, None] * v + own * np.diag(1 - z)

    h = rng.normal(size=4)
    first = gl.check(forward, h, jac=jac).findings[0]

    assert first.kind == BugKind.MISSING_TERM
    assert first.doubts == (BugKind.WRONG_DERIVATIVE,)
    assert "the direct path from h to the output" in first.evidence
    assert gl.check(forward, h, jac=lambda h: jac(h, 1)).findings == ()


def test_a_label_in_a_loss_of_counts_is_no_slope(rng):
    """exp(z) + y for exp(z) - y is off by the same at every z, which no slope is."""
    x, y = rng.normal(size=(20, 4)), rng.poisson(2, 20).astype(float)

    def loss_and_grads(p):
        z = x @ p["w"] + p["b"]
        r = (np.exp(z) + y) / 20
        return (np.exp(z) - y * z).mean(), {"w": x.T @ r, "b": r.sum()}

    params = {"w": 0.3 * rng.normal(size=4), "b": np.array(0.1)}
    report = gl.check(loss_and_grads, params)

    assert "slope of the activation" not in report.findings[0].evidence
    assert report.diagnosis in {"missing_term", "extra_term"}


def test_what_entries_lack_is_counted(rng):
    """Entries that were overwritten in one of two statements lack one use or more."""
    place = np.array([1.2, 3.1, 3.4, 4.6, 6.5, 6.2, 0.3, 2.2])
    low, part = place.astype(int), place % 1

    def forward(table):
        return (1 - part) * table[low] + part * table[low + 1], None

    def backward(up, _):
        grad = np.zeros(8)
        grad[low] = (1 - part) * up
        grad[low + 1] += part * up
        return grad

    first = gl.check(forward, rng.normal(size=8), backward=backward).findings[0]

    assert "lack the gradient of 1 or more" in first.evidence
    assert {first.kind, *first.doubts} == {"missing_term", "lost_accumulation"}


def test_doubts_are_kept_in_files(rng, tmp_path):
    """A report that is saved and loaded still knows what it left open."""
    report = gl.check(
        lambda x: (x**2).sum(), rng.normal(size=5), grad=lambda x: 2 * x + 0.3
    )
    report.save(tmp_path / "report.json")

    again = gl.load(tmp_path / "report.json")

    assert again.findings == report.findings
    assert again.findings[0].doubts == (BugKind.EXTRA_TERM,)


def test_pieces_of_a_sum_of_hinges_are_told(rng):
    """Slopes that stand still, at the wrong entries: the condition of the hinge."""
    x = np.append(rng.normal(size=8), [0.5, 0.6, -0.5, -0.6])

    def loss(x):
        return float(np.select([x > 0.3, x < -0.3], [2 * x, -0.5 * x], 0.1 * x).sum())

    def grad(x, where=0.9):
        return np.select([x > where, x < -where], [2.0, -0.5], 0.1)

    first = gl.check(loss, x, grad=grad).findings[0]

    assert first.kind == BugKind.WRONG_MASK
    assert gl.check(loss, x, grad=lambda x: grad(x, 0.3)).findings == ()
