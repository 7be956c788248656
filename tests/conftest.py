"""What every test may ask for."""

from __future__ import annotations

import os

import hypothesis
import numpy as np
import pytest

from gradlab.diagnosis import diagnose
from tests import clocks

diagnose.STRICT = True  # a detector that fails, fails the test

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


def pytest_sessionstart(session):
    """Let time go by evenly, so that no choice depends on the machine; not to measure.

    The fixture `clock` is for tests of seconds.
    """
    measuring = session.config.getoption("benchmark_enable", default=False)
    usual = "real" if measuring else "steady"
    clocks.set_clock(os.environ.get("GRADLAB_CLOCK", usual))


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
