"""What every test may ask for, and what each finds: the same clock, the same draws."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pkgutil
import random
import signal
import sys
from concurrent.futures import ProcessPoolExecutor

import hypothesis
import numpy as np
import pytest

import gradlab
from gradlab.diagnosis import diagnose
from tests import clocks
from tests.sizes import is_left_for_the_night

pytest.register_assert_rewrite("tests.specimens")  # some of them assert

# Started in the background, as by a CI, a shell lets its children ignore Ctrl-C: what
# interrupts do could not be seen, in this process nor in those that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

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

SEED = int(os.environ.get("GRADLAB_SEED", "67280421310721"))  # torch's own default


def pytest_configure(config):
    """Leave the order of the tests to chance, not what they draw."""
    config.option.randomly_reset_seed = False  # pytest-randomly, if it is there


def pytest_collection_modifyitems(config, items):
    """Thin what is marked so; take files with long tests first.

    Else one worker may be left alone with them.
    """
    if not any("[" in argument for argument in config.args):  # asked for by its name
        left = list(filter(is_left_for_the_night, items))
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not is_left_for_the_night(item)]
    files = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in files)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Trace for coverage how gradlab is imported, but not how the tests are found."""
    tracer = sys.gettrace()
    if tracer is None:
        with _nothing_thrown_away():
            return (yield)
    for module in pkgutil.walk_packages(gradlab.__path__, "gradlab."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    with _untraced(tracer), _nothing_thrown_away():
        return (yield)


def pytest_collection_finish():
    """Let torch seed what is there; see `_seed_nothing_else`."""
    if "torch" in sys.modules:
        _seed_nothing_else(sys.modules["torch"])


@contextlib.contextmanager
def _nothing_thrown_away():
    """Look for no garbage while tests are found, nor among them ever after.

    All of the tests and of torch stay to the end: hundreds of thousands of objects that
    would be gone through again and again.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


@contextlib.contextmanager
def _untraced(tracer):
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
        _clock_name()  # coverage's tracer takes its place again at the next call


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Do not trace some long tests for coverage: they would take up to twice as long.

    What they run is run by short ones as well. (The mark `no_cover` of pytest-cov does
    nothing on the workers of pytest-xdist, where coverage has been started twice.)
    """
    tracer = sys.gettrace()
    if tracer is None or item.get_closest_marker("untraced") is None:
        return (yield)
    with _untraced(tracer):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item, nextitem):
    """Look for garbage after each file of tests, and no more among what it has left.

    By the end torch has loaded a million objects: a test that asks for a collection, to
    see that something is gone, would wait a second for it.
    """
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:
            gc.collect()
            gc.freeze()


def pytest_runtest_setup():
    """Give each test the draws that it would have all by itself; see below."""
    _reseed()


def pytest_runtest_call():
    """The same again: fixtures of other tests may have drawn before."""
    _reseed()


def _reseed():
    """Start the generators that all of a process share: random, NumPy's, torch's."""
    random.seed(SEED)
    np.random.seed(SEED % 2**32)
    if "torch" in sys.modules:
        _seed_torch(sys.modules["torch"])


def _seed_torch(torch):
    """Start torch's generators as `torch.manual_seed` does, a thousand times as fast.

    That one writes down the stack of calls for each kind of device that is not there.
    """
    if torch.cuda.is_available():
        torch.manual_seed(SEED)
    else:
        torch.default_generator.manual_seed(SEED)


def _seed_nothing_else(torch):
    """Have `torch.manual_seed` write down no stacks of calls, for any test.

    It keeps one for each kind of device that is not there, should that come: a function
    that seeds at every evaluation spends nine tenths of its time on them.
    """
    for device in (getattr(torch, name, None) for name in ("cuda", "xpu", "mtia")):
        if hasattr(device, "_lazy_call") and not device.is_available():
            device._lazy_call = lambda call, **options: None


def _clock_name():
    return os.environ.get("GRADLAB_CLOCK")


def pytest_report_header():
    """Say what may be set, so that a failure can be had again."""
    return f"GRADLAB_CLOCK={_clock_name() or 'steady'} GRADLAB_SEED={SEED}"


def pytest_sessionstart(session):
    """Let time go by evenly, so that no choice depends on the machine; not to measure.

    The fixture `clock` is for tests of seconds.
    """
    measuring = session.config.getoption("benchmark_enable", default=False)
    usual = "real" if measuring else "steady"
    clocks.set_clock(_clock_name() or usual)


@pytest.fixture(scope="module")
def pool():
    """Two processes, shared by all tests that do not break them."""
    with ProcessPoolExecutor(2) as processes:
        yield processes


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
