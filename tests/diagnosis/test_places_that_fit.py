"""Which entry, which row, which axis: what is exchanged is told as what it is."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def first(report):
    """Kind, doubts and sentence of the first finding."""
    finding = report.findings[0]
    return str(finding.kind), set(map(str, finding.doubts)), finding.evidence


def test_a_slope_that_is_zero_shows_no_entries_kept_apart():
    """A softmax over lists of several lengths: what is padded stands still anyway."""
    rng = np.random.default_rng(0)
    s, lengths = rng.normal(size=(4, 6)), (6, 4, 5, 3)
    rank = np.argsort(rng.random((4, 6)), 1)

    def f(s):
        z = np.take_along_axis(s, rank, 1)
        return sum(
            np.log(np.exp(z[b, i:n]).sum()) - z[b, i]
            for b, n in enumerate(lengths)
            for i in range(n)
        )

    def grad(s, ends=(6,) * 4):
        z, d = np.take_along_axis(s, rank, 1), np.zeros_like(s)
        ranked = np.zeros_like(s)
        for b, n in enumerate(ends):
            for i in range(n):
                e = np.exp(z[b, i:n])
                ranked[b, i:n] += e / e.sum()
                ranked[b, i] -= 1
        np.put_along_axis(d, rank, ranked, 1)
        return d

    assert gl.check(f, s, grad=lambda s: grad(s, lengths))

    report = gl.check(f, s, grad=grad)

    assert not any("keeps the entries" in f.evidence for f in report.findings)
    assert report.diagnosis != "wrong_axis"


@pytest.mark.parametrize("seed", range(3))
def test_a_gradient_that_is_added_elsewhere_is_a_wrong_index(seed):
    """np.add.at with the users' indices where the items' belong."""
    rng = np.random.default_rng(seed)
    user, item = rng.integers(0, 6, (2, 25))
    y, bias = rng.normal(size=25), rng.normal(size=6)

    def grad(b):
        d = np.zeros(6)
        np.add.at(d, user, 2 * (bias[user] + b[item] - y))
        return d

    report = gl.check(
        lambda b: ((bias[user] + b[item] - y) ** 2).sum(),
        rng.normal(size=6),
        grad=grad,
    )

    kind, doubts, _ = first(report)
    assert "wrong_index" in {kind, *doubts}
    assert kind != "wrong_axis" or doubts
