"""Clocks that tests set, so that no machine is too slow or too busy to pass.

gradlab times evaluations to choose between batches and a loop, between all entries and
a part of them. So that these choices are the same on every machine, tests run on a
steady clock: whatever lies between two looks at `time.perf_counter` takes equally long.
``GRADLAB_CLOCK`` names another one for a whole run: slow, still or gusty, to look for
tests that depend on it after all, or real.

`VirtualClock` is for facts about seconds: time stands still there, but for those who
sleep, and what is promised holds exactly. Tests ask for it by the fixture ``clock``.
"""

from __future__ import annotations

import random
import sys
import time

_LOOK = 5e-5  # seconds from one look at the steady clock to the next


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
        """Put it in the place of `time`'s clocks, and of copies that others made.

        Not of `time.monotonic`: Python's own waiting goes by that one, and would not
        end while time stands still.
        """
        monkeypatch.setattr(time, "sleep", self.sleep)
        monkeypatch.setattr(time, "perf_counter", self.read)
        monkeypatch.setattr(time, "time", self.read)
        try:
            import tqdm
        except ImportError:
            return
        monkeypatch.setattr(tqdm.std, "time", self.read)
        # no thread that looks after bars: it would move what is shown when it likes
        monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)


def set_clock(how: str) -> None:
    """Put another clock in the place of `time.perf_counter` for the whole process.

    Parameters
    ----------
    how
        "steady": what lies between two looks takes 50 microseconds, "slow": a second,
        "still": no time at all. "gusty": real time, and now and then up to half a
        minute more, as on a machine with neighbours. "real": as it is.
    """
    real, chance = time.perf_counter, random.Random(20_26)
    shown = [real()]

    def every(seconds: float) -> float:
        shown[0] += seconds
        return shown[0]

    def gusty() -> float:
        gust = 10 ** chance.uniform(-4.0, 1.5) if chance.random() < 0.2 else 0.0
        return every(gust) + real()

    clocks = {
        "steady": lambda: every(_LOOK),
        "slow": lambda: every(1.0),
        "still": lambda: every(0.0),
        "gusty": gusty,
        "real": real,
    }
    if how not in clocks:
        sys.exit(f"GRADLAB_CLOCK must be one of {', '.join(clocks)}, got {how}")
    time.perf_counter = clocks[how]
