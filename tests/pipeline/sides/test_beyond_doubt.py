"""What is accepted in a few passes is what the verdicts would have accepted."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gradlab.comparison.tolerance import Tolerance
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.smoothness import Smoothness
from gradlab.pipeline.outcome import Outcome
from gradlab.pipeline.plan import Plan
from gradlab.pipeline.suspects import accept, is_beyond_doubt, suspicious
from gradlab.pipeline.verdicts import judge_all
from tests.specimens.blocks import block

SUBJECT = SimpleNamespace(
    inputs=[SimpleNamespace(name="x")], epsilon=2.0**-52, outputs=()
)
PLAN = Plan("auto", Tolerance())


def drawn(rng):
    """Draw a block near every limit of the rule: of tolerance, bars, and bends."""
    shape = rng.integers(1, 4, 2)
    value = rng.normal(size=shape) * 10.0 ** rng.integers(-9, 2, shape)
    error = np.abs(value) * 10.0 ** rng.uniform(-13, -1.5, shape)
    off = rng.choice([0.0, 1e-7, 9e-7, 1.1e-6], shape) * value
    off += rng.choice([0.0, 0.0, 1.9, 2.1, 4.9, 5.1], shape) * error
    bend = rng.choice([0.0, np.nan, 1.4e-3, 1.6e-3, 0.1], shape) * value
    if rng.random() < 0.2:
        value.flat[0] = rng.choice([0.0, np.inf, np.nan, -np.inf])
    analytic = value + off
    if rng.random() < 0.2:
        analytic.flat[0] = rng.choice([0.0, np.inf, np.nan, -np.inf])
    scales = 10.0 ** rng.integers(-3, 3, shape[1])
    still = 10.0 ** rng.uniform(-12, -8, (shape[0], 1))
    return block(analytic, value, error, scales=scales, bend=bend, still=still)


def test_nothing_is_accepted_that_the_rule_would_not_accept():
    """Over random blocks: verdicts, what is allowed, and no second look."""
    rng, accepted = np.random.default_rng(5), 0
    for _ in range(4000):
        one = drawn(rng)
        outcome = Outcome([one], np.ones(len(one.value)), (), None)
        if not is_beyond_doubt(SUBJECT, one, PLAN):
            continue
        accepted += 1
        accept(SUBJECT, one, PLAN, None)
        found = one.verdicts, one.allowed, one.accepted
        judge_all(SUBJECT, outcome, PLAN)

        assert not suspicious(one).any()
        assert np.array_equal(found[0], one.verdicts)
        assert np.array_equal(found[1], one.allowed)
        assert np.array_equal(found[2], one.accepted)
    assert accepted > 100


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"analytic": 1 + 1e-5}, False),  # wrong
        ({"analytic": 1 + 1e-5, "error": 4e-6}, False),  # close: agrees for its bar
        ({"error": 0.1}, False),  # known too little
        ({"analytic": 0.0, "value": 0.0}, False),  # the rest tells what matters
        ({"bend": 0.1}, False),  # a kink may be near
        ({"kinds": Smoothness.KINK}, False),
        ({"value": np.nan}, False),
        ({"analytic": np.inf, "value": np.inf}, False),
    ],
)
def test_each_reason_for_a_second_look(changes, expected):
    """One entry of four that is not plainly right sends all to the rule."""
    matrices = {name: np.ones((2, 2)) for name in ("analytic", "value")}
    matrices |= {"error": np.full((2, 2), 1e-11), "bend": np.zeros((2, 2))}
    matrices["kinds"] = np.full((2, 2), Smoothness.SMOOTH, dtype=np.int8)
    for name, new in changes.items():
        matrices[name][1, 0] = new

    one = block(**matrices)

    assert is_beyond_doubt(SUBJECT, one, PLAN) == expected
    judge_all(SUBJECT, Outcome([one], np.ones(2), (), None), PLAN)
    rule = (one.verdicts == Verdict.AGREES).all() and not suspicious(one).any()
    assert rule >= expected
