"""What gradlab adds to each evaluation of a NumPy function, in microseconds.

Run it as a program. The function returns a constant, so that everything measured is
overhead; 10,000 parameters, of which none may be copied.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from gradlab.building import Sides, build_subject
from gradlab.differentiation.evaluation import base_row, displaced_rows
from gradlab.differentiation.metering.meter import Meter

COUNT, ROUNDS = 10_000, 9


def overhead(subject):
    """Median microseconds for one displaced evaluation, the call itself included."""
    meter = Meter()
    base_row(subject, meter)
    positions, steps = np.arange(COUNT), np.full(COUNT, 1e-6)
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        displaced_rows(subject, 0, positions, steps, meter)
        seconds.append(time.perf_counter() - start)
    return 1e6 * statistics.median(seconds) / COUNT


def main():
    """Print both ways of passing parameters, and the bounds they are held to."""
    x = np.random.default_rng(0).normal(size=COUNT)
    functional = build_subject(lambda _: 1.0, (x,), Sides(grad=x))
    sides = Sides(params={"x": x}, grad={"x": x})
    in_place = build_subject(lambda: 1.0, (), sides)
    print(f"in place   {overhead(in_place):5.2f} us per evaluation (bound 5)")
    print(f"functional {overhead(functional):5.2f} us per evaluation (bound 15)")


if __name__ == "__main__":
    main()
