"""Random compositions of one to five functions, for figures nobody could tune on.

Run it with a number of seeds: ``python -m tests.differentiation.compositions 9``.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from tests.differentiation.catalogue import smooth
from tests.differentiation.catalogue_table import by_gradlab, summary

STAGES = (
    lambda t, v: t.sin(v),
    lambda t, v: t.cos(v),
    lambda t, v: t.tanh(v),
    lambda t, v: t.exp(v),
    lambda t, v: t.log(v * v + 0.1),
    lambda t, v: t.sqrt(v * v + 0.01),
    lambda t, v: t.atan(v),
    lambda _, v: 1 / (v * v + 0.3),
    lambda _, v: v**2,
    lambda _, v: v**3,
    lambda t, v: t.exp(-(v**2)),
)


def composition(rng, depth):
    """Make a formula of a library and x; offsets to 1e4, factors from 0.03 to 100."""
    stages = []
    for _ in range(depth):
        stage = STAGES[rng.integers(len(STAGES))]
        factor = 10 ** rng.uniform(-1.5, 2) if rng.random() < 0.5 else 1.0
        offset = rng.normal() * 10 ** rng.uniform(-3, 4) if rng.random() < 0.1 else 0.0
        stages.append((stage, float(factor), float(offset)))
    beside = composition(rng, 1) if rng.random() < 0.3 else None

    def formula(t, x):
        value = x
        for stage, factor, offset in stages:
            value = stage(t, factor * value + offset)
        return value if beside is None else value + beside(t, x)

    return formula


def draw(seed, count=200):
    """Draw cases at points from 1e-3 to 1e3 whose value and slope are finite."""
    rng = np.random.default_rng(seed)
    cases = []
    while len(cases) < count:
        formula = composition(rng, int(rng.integers(1, 5)))
        x = float(rng.choice([-1, 1]) * 10 ** rng.uniform(-3, 3))
        (case,) = smooth("composition", f"{seed}.{len(cases)}", formula, x)
        try:
            slope = case.truth()
        except (OverflowError, ValueError):
            continue
        if 1e-100 < abs(slope) < 1e100 and math.isfinite(case(x)):
            cases.append(case)
    return cases


def main():
    """Print the four figures of every seed, and of all together."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    everything = []
    for seed in range(seeds):
        results = [by_gradlab(case) for case in draw(seed)]
        everything += results
        print(seed, summary(results))
    print(f"{len(everything)} compositions:", summary(everything))


if __name__ == "__main__":
    main()
