"""Score diagnosis on planted bugs: confusion matrix and the four shares.

Run ``python -m tests.diagnosis.measure [first seed] [count]`` to print them.
"""

from __future__ import annotations

import collections
import dataclasses
import sys
import zlib

import numpy as np

import gradlab as gl
from tests.diagnosis import (
    course_layers,
    course_losses,
    formulas_by_hand,
    networks,
    planted,
    scripts,
    tensors,
    torch_customs,
    torch_modules,
)

SHELVES = (planted, networks, tensors)
# written to find out what the first three had not taught: named less often
FRESH = (
    course_layers, course_losses, scripts, formulas_by_hand, torch_customs,
    torch_modules,
)  # fmt: skip


@dataclasses.dataclass
class Score:
    """Counts over many planted bugs and controls."""

    total: int = 0
    detected: int = 0
    first: int = 0
    third: int = 0
    unnamed: int = 0
    named: int = 0
    controls: int = 0
    alarms: list = dataclasses.field(default_factory=list)
    missed: list = dataclasses.field(default_factory=list)
    matrix: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def share(self, count):
        return count / max(self.detected, 1)

    def __str__(self):
        lines = [
            (
                f"planted {self.total}, detected {self.detected}; kind first "
                f"{self.share(self.first):.1%} (none {self.share(self.unnamed):.1%}), "
                f"among three "
                f"{self.share(self.third):.1%}, root named first "
                f"{self.share(self.named):.1%}; controls "
                f"{self.controls}, false errors {len(self.alarms)}"
            ),
            "planted kind -> first kind told: how often",
        ]
        lines += [
            f"  {'  ' if true == told else '! '}{true:20} -> {told:20} {count}"
            for (true, told), count in sorted(self.matrix.items())
        ]
        return "\n".join(lines)


def seeded(seed, *words):
    return np.random.default_rng([seed, zlib.crc32(" ".join(words).encode())])


def run(program):
    with np.errstate(all="ignore"):
        return gl.check(program.fn, *program.inputs, **program.options)


def score(seeds, *, verbose=False, part=slice(None), controls=3, shelves=None):
    """Check every slip of every shelf once for each seed, and every control.

    `part` picks some of the slips; `controls` is how often each control is checked.
    """
    result = Score()
    for shelf in SHELVES if shelves is None else shelves:
        for (build, slip), (kind, also, roots) in [*shelf.SLIPS.items()][part]:
            for seed in seeds:
                program = build(seeded(seed, build.__name__, slip), slip)
                _count(result, program, (build.__name__, slip, seed), kind, also, roots)
        for build in shelf.CONTROLS:
            for seed in (s + 1000 * k for s in seeds for k in range(controls)):
                report = run(build(seeded(seed, build.__name__), ""))
                result.controls += 1
                if not report.ok:
                    result.alarms.append((build.__name__, seed, report.findings))
    if verbose:
        for line in result.missed:
            print(line)
        for line in result.alarms:
            print("ALARM", line)
    return result


def _count(result, program, name, kind, also, roots):
    result.total += 1
    report = run(program)
    if report.ok:
        result.missed.append(f"{name} {kind}: NOT DETECTED")
        return
    result.detected += 1
    kinds = list(dict.fromkeys(str(f.kind) for f in report.findings))
    kinds[1:1] = map(str, report.findings[0].doubts)
    good = {kind, *also}
    hit = kinds[0] in good
    result.first += hit
    result.unnamed += kinds[0] == "unknown" and not hit
    result.third += bool(good & set(kinds[:3]))
    result.named += report.culprits[0] in roots if report.culprits else 0
    result.matrix[kind, kind if hit else kinds[0]] += 1
    if not hit or not report.culprits or report.culprits[0] not in roots:
        told = [f"{f.where}:{f.kind}:{f.confidence:.2f}" for f in report.findings]
        result.missed.append(f"{name} {kind}: {told[:5]} {report.culprits}")


if __name__ == "__main__":
    start, count = (int(a) for a in (*sys.argv[1:3], "0", "2")[:2])
    every = (*SHELVES, *FRESH)
    chosen = [s for s in every if s.__name__.split(".")[-1] in sys.argv[3:]] or every
    print(score(range(start, start + count), verbose=True, shelves=chosen))
