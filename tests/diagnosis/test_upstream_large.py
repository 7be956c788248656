"""Other cotangents for large inputs: few passes, of which nothing is kept in vain."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gradlab.building import Sides, build_subject
from gradlab.diagnosis.measuring.responses import Response
from gradlab.differentiation.metering.meter import Meter

SIZE = 100_001  # beyond what is asked five times as a matter of course


def asked(backward):
    """What a function's wrong gradient answers; the cotangents that it was given."""
    seen = []

    def vjp(cotangents, x):
        seen.append(np.array(cotangents))
        return backward(cotangents, x)

    x = np.linspace(0.0, 1.0, SIZE)
    subject = build_subject(lambda x: x.reshape(-1, 1)[:2, 0], [x], Sides(vjp=vjp))
    part = SimpleNamespace(which=0, wrong=np.ones((2, SIZE), bool), is_wrong=True)
    evidence = SimpleNamespace(
        subject=subject,
        reference=None,
        base=subject.row(),
        rng=np.random.default_rng(0),
        meter=Meter(),
        parts=(part,),
    )
    return Response(evidence), seen


def spread(cotangents, x):
    """A linear map, and not the derivative."""
    return np.full(x.shape, cotangents.sum())


def test_a_linear_backward_is_asked_twice_and_no_answer_is_kept():
    """Opposite answers to c and -2c, one twice the other, leave nothing to compare."""
    response, seen = asked(spread)

    assert len(seen) == 2
    assert np.array_equal(seen[1], -2 * seen[0])
    assert response.values[0].size == 0
    assert response.flaw(0, 1e-6) is None


@pytest.mark.parametrize(
    ("backward", "flaw"),
    [
        (lambda c, x: np.ones(x.shape), "does not change at all"),
        (lambda c, x: spread(c, x) ** 2, "does not give twice"),
        (lambda c, x: np.abs(spread(c, x)), "the sign"),
    ],
)
def test_a_backward_that_is_not_linear_is_asked_for_all_and_told(backward, flaw):
    """Two passes say that something is amiss, five more what."""
    response, seen = asked(backward)

    assert len(seen) == 7
    assert flaw in response.flaw(0, 1e-6)


def test_a_backward_that_refuses_other_cotangents_is_not_accused():
    """What cannot be asked is not known."""

    def refusing(cotangents, x):
        raise ValueError(cotangents, x)

    assert asked(refusing)[0].flaw(0, 1e-6) is None
