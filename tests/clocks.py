"""Clocks that tests set, so that no machine is too slow or too busy to pass.

`VirtualClock` stands in the place of the real one: nothing takes time but what says so
by sleeping. Facts about seconds are then exact, and the same everywhere.

`distort` spoils the clock of a whole run instead: nothing that a test asserts may
depend on how long a piece of work took. ``GRADLAB_CLOCK=slow make unit`` looks for
tests that do (still, slow or gusty).
"""

from __future__ import annotations

import random
import sys
import time

CLOCKS = ("perf_counter", "monotonic", "time")
DISTORTIONS = ("still", "slow", "gusty")


class VirtualClock:
    """Time as code under test sees it: moved by sleeping, and by nothing else.

    Parameters
    ----------
    now
        Seconds that it shows at first.
    reading
        Seconds that looking at it costs: what is measured between two looks is never
        zero then, as on a real machine.

    Examples
    --------
    >>> clock = VirtualClock()
    >>> before = clock.read()
    >>> clock.sleep(2.5)
    >>> clock.read() - before
    2.5
    """

    def __init__(self, now: float = 1000.0, reading: float = 0.0) -> None:
        self.now, self.reading = now, reading
        self.slept = 0.0  # what sleeping took, in all

    def read(self) -> float:
        """Return the seconds it shows."""
        self.now += self.reading
        return self.now

    def sleep(self, seconds: float) -> None:
        """Be somewhere else in time, at once."""
        if seconds < 0:  # as `time.sleep` would
            msg = "sleep length must be non-negative"
            raise ValueError(msg)
        self.slept += seconds
        self.now += seconds

    def install(self, monkeypatch) -> None:
        """Put it in the place of `time`'s clocks, and of copies that others made."""
        monkeypatch.setattr(time, "sleep", self.sleep)
        for name in CLOCKS:
            monkeypatch.setattr(time, name, self.read)
            monkeypatch.setattr(time, f"{name}_ns", lambda: round(1e9 * self.read()))
        try:
            import tqdm
        except ImportError:
            return
        monkeypatch.setattr(tqdm.std, "time", self.read)
        # no thread that looks after bars: it would move what is shown when it likes
        monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)


def distort(how: str) -> None:
    """Spoil `time.perf_counter` for the rest of the process.

    Parameters
    ----------
    how
        "still": everything takes no time at all. "slow": whatever lies between two
        looks takes a second. "gusty": real time, and now and then up to half a minute
        more, as on a machine with neighbours.
    """
    real, chance = time.perf_counter, random.Random(20_26)
    lost = [real()]

    def still() -> float:
        return lost[0]

    def slow() -> float:
        lost[0] += 1.0
        return lost[0]

    def gusty() -> float:
        if chance.random() < 0.2:
            lost[0] += 10 ** chance.uniform(-4.0, 1.5)
        return lost[0] + real()

    clocks = dict(zip(DISTORTIONS, (still, slow, gusty), strict=True))
    if how not in clocks:
        sys.exit(f"GRADLAB_CLOCK must be one of {', '.join(clocks)}, got {how}")
    time.perf_counter = clocks[how]
