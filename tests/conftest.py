"""What every test may ask for."""

from __future__ import annotations

import os

import hypothesis
import numpy as np
import pytest

# Neither profile has a deadline: two workers on two cores make any clock a liar.
hypothesis.settings.register_profile(
    "fast",
    max_examples=25,
    deadline=None,
    derandomize=True,  # the same examples for everybody; `nightly` looks further
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "nightly", max_examples=500, deadline=None, print_blob=True
)
hypothesis.settings.load_profile(os.environ.get("GRADLAB_HYPOTHESIS", "fast"))


@pytest.fixture
def rng():
    """Give each test the same random numbers, whatever ran before it."""
    return np.random.default_rng(20_26)
