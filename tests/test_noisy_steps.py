"""Which columns are measured again for noise, and which noise has settled already."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.comparison.verdict import Verdict
from gradlab.pipeline.noisy_steps import _explained, _told_in_noise
from tests.specimens.blocks import block

A, U, D = Verdict.AGREES, Verdict.UNDECIDED, Verdict.DISAGREES
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
    ("gap", "verdict", "told"),
    [
        (1e-2, D, True),  # ten million times what noise does
        (1e-4, D, False),  # a hundred thousand times: it is looked at again
        (1e-2, U, False),  # what nobody accused is not clear
        (0.0, A, True),  # right, and its bar is narrow: nothing to look for
    ],
)
def test_what_is_clear_is_not_measured_again(gap, verdict, told, sign):
    """Wrong by more than a million times the noise, on either side."""
    one = with_verdicts(analytic=1.0 + sign * gap, verdict=verdict)
    floor = np.full((1, 2), 1e-9)
    assert _told_in_noise(one, floor, BOTH).tolist() == [told, True]
    assert _told_in_noise(one, floor, BOTH[:1]).tolist() == [told]


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
