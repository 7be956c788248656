"""What every test may ask for."""

from __future__ import annotations

import os

import hypothesis
import numpy as np
import pytest

from tests import clocks

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


def pytest_sessionstart():
    """Spoil the clock if that is what this run is about."""
    if os.environ.get("GRADLAB_CLOCK"):
        clocks.distort(os.environ["GRADLAB_CLOCK"])


@pytest.fixture
def rng():
    """Give each test the same random numbers, whatever ran before it."""
    return np.random.default_rng(20_26)


@pytest.fixture
def clock(monkeypatch):
    """Stop time but for those who sleep; see `tests.clocks`."""
    clock = clocks.VirtualClock()
    clock.install(monkeypatch)
    return clock
