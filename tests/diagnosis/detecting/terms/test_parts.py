"""A part of a gradient that is wrong, beside a penalty that is right and hides how."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

SLIPS = {
    "factor": (
        lambda part: 1.7 * part,
        "scale",
        "is 1.7 times as large",
    ),
    "order": (
        lambda part: np.roll(part, 1, axis=0),
        "wrong_index",
        "along axis 0, each 1 further on",
    ),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_what_goes_through_another_input_is_looked_at_alone(rng, slip):
    """|A B - M|^2 / 2 + |A|^2 / 20: without B the penalty is left, and right."""
    change, kind, words = SLIPS[slip]
    params = {"A": rng.normal(size=(5, 3)), "B": rng.normal(size=(3, 4))}
    target = rng.normal(size=(5, 4))

    def loss_and_grads(p, change=lambda part: part):
        r = p["A"] @ p["B"] - target
        grads = {"A": change(r @ p["B"].T) + 0.1 * p["A"], "B": p["A"].T @ r}
        return 0.5 * (r**2).sum() + 0.05 * (p["A"] ** 2).sum(), grads

    assert gl.check(loss_and_grads, params).ok

    report = gl.check(lambda p: loss_and_grads(p, change), params)

    (finding,) = report.findings
    assert (finding.kind, finding.where) == (kind, "A")
    assert words in finding.evidence
    assert "With all of B at zero the gradient of A is right" in finding.evidence


def test_a_part_in_no_order_and_of_no_factor_keeps_its_doubts(rng):
    """A part that is another function of B is neither, and no kind is made up."""
    params = {"A": rng.normal(size=(5, 3)), "B": rng.normal(size=(3, 4))}
    target = rng.normal(size=(5, 4))

    def loss_and_grads(p):
        r = p["A"] @ p["B"] - target
        grads = {"A": r @ np.tanh(p["B"]).T + 0.1 * p["A"], "B": p["A"].T @ r}
        return 0.5 * (r**2).sum() + 0.05 * (p["A"] ** 2).sum(), grads

    finding = gl.check(loss_and_grads, params).findings[0]

    assert finding.kind not in {"scale", "sign", "wrong_index"}
