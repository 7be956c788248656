"""Accusations that noise explains, and which of them matter to nobody."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.comparison.verdict import Verdict
from gradlab.pipeline.looks.noisy_steps import _explained
from tests.specimens.blocks import block

A, D = Verdict.AGREES, Verdict.DISAGREES
BOTH = np.array([0, 1])


def with_verdicts(*, analytic, verdict, value=1.0, scales=(1.0, 1.0)):
    """One entry in question beside one of 1 that agrees with a narrow bar."""
    return block(
        [[analytic, 1.0]],
        [[value, 1.0]],
        1e-12,
        verdicts=np.array([[verdict, A]], np.int8),
        scales=np.array(scales),
    )


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    ("gap", "noise", "scale", "verdict", "explained"),
    [
        (4e-10, 1e-10, 1.0, D, True),  # within five times the noise, of no matter
        (6e-10, 1e-10, 1.0, D, False),  # beyond it
        (4e-10, 1e-10, 100.0, D, False),  # on so large a coordinate it does matter
        (4e-8, 1e-8, 1.0, D, False),  # five times that noise are not negligible
        (0.0, 1e-10, 1.0, A, False),  # there is nothing to explain
    ],
)
def test_noise_explains_what_matters_to_nobody(
    gap, noise, scale, verdict, explained, sign
):
    """Within the noise, and too small beside what moves the same output."""
    one = with_verdicts(
        analytic=sign * gap, value=0.0, verdict=verdict, scales=(scale, 1.0)
    )
    floor = np.full((1, 2), noise)
    assert _explained(one, floor, BOTH).tolist() == [explained, False]
