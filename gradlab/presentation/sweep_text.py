"""Words for a sweep, for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradlab.comparison.verdict import Verdict
from gradlab.labels import plural
from gradlab.presentation.words import (
    WIDTH,
    across,
    brief,
    distinct,
    duration,
    middle,
    tabulate,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradlab.sweeps import Sweep

__all__ = ["sweep_headline", "sweep_text"]

_PLACE = 0.7  # of a line, that the name of an entry may take, so that its index fits


def sweep_headline(sweep: Sweep) -> str:
    """Say which inputs have the worst verdict of a sweep.

    Examples
    --------
    >>> sweep = gl.sweep(lambda x: (x**2).sum(), np.ones(2), grad=lambda x: 2 * x)
    >>> sweep_headline(sweep)
    '✓ x agrees at its best step'
    """
    cut = any(curves.cut for curves in sweep.curves.values())
    kinks = {block.variable.name for block in sweep.blocks if block.together}
    best = bool(np.isfinite(list(sweep.best_step.values())).all())
    words = _worst_inputs(sweep.verdicts, kinks, cut=cut, best=best)
    return f"{sweep.verdict.glyph} {words}"


def _worst_inputs(
    verdicts: Mapping[str, Verdict], kinks: set[str], *, cut: bool, best: bool
) -> str:
    if not verdicts:
        return "nothing was swept"
    worst = max(verdicts.values())
    guilty = [name for name, verdict in verdicts.items() if verdict == worst]
    gaps = f"; cut short, the curve{'s have' if len(verdicts) > 1 else ' has'} gaps"
    if worst == Verdict.AGREES:
        if len(guilty) == 1:
            where = gaps if cut else " at its best step" * best
            return f"{middle(guilty[0], 60)} agrees{where}"
        every = "both" if len(guilty) == 2 else f"all {len(guilty)}"
        where = gaps if cut else ", each at its best step" * best
        return f"{every} inputs agree{where}"
    names = ", ".join(distinct(guilty[:4], 40))
    if len(guilty) > 4:
        names += f" and {len(guilty) - 4} more"
    one = len(guilty) == 1
    if worst == Verdict.UNDECIDED:
        return f"{names} {'is' if one else 'are'} undecided{gaps if cut else ''}"
    where = gaps if cut else " at every step"
    if kinks.issuperset(guilty):
        where = f" where {'its' if one else 'their'} kinks meet"
    return f"{names} {'disagrees' if one else 'disagree'}{where}"


def sweep_text(sweep: Sweep, width: int | None = None) -> str:
    """Tell a sweep in a short text for a terminal: one sentence of reading per input.

    Parameters
    ----------
    sweep
        What `gradlab.sweep` returned.
    width
        Columns of the terminal; default None, one of the usual size.

    Examples
    --------
    >>> sweep = gl.sweep(lambda x: (x**2).sum(), np.ones(2), grad=lambda x: 2 * x)
    >>> print(sweep_text(sweep).splitlines()[0])
    ✓ x agrees at its best step
    """
    # each of these reads all curves again: once is enough
    verdicts, reading = sweep.verdicts, sweep.reading
    order = sorted(sweep.inputs, key=lambda name: -int(verdicts[name]))
    shown = order[:20]
    room = WIDTH if width is None else width
    lines = [sweep_headline(sweep)]
    if width is not None:
        lines = wrapped(lines[0], "  ", "", width=width)
    called = zip(shown, distinct(shown, min(40, max(16, room - 40))), strict=True)
    heads = tabulate([[verdicts[name].glyph, short] for name, short in called])
    most = max(map(across, heads), default=0)
    for head, name in zip(heads, shown, strict=True):
        indent, space = " " * (most + 4), " " * (most - across(head))
        words = reading[name]
        if across(name) > _PLACE * (min(room, WIDTH) - len(indent)):
            words = words.replace(f"{name}[", "…[")  # which stands in front of it
        lines += wrapped(words, indent, f"  {head}{space}  ", width=width)
    if len(order) > len(shown):
        lines.append(f"  ... {len(order) - len(shown)} more")
    ends = sorted({brief(float(end)) for end in sweep.steps}, key=float)
    span = f"from {ends[0]} to {ends[-1]}" if len(ends) > 1 else f"of {ends[0]}"
    done = f"{', '.join(sweep.methods)}; {plural(len(sweep.steps), 'step')} {span}"
    counted = plural(sweep.evaluations, "evaluation")
    lines += [
        "",
        *wrapped(f"{done}; {counted}, {duration(sweep.seconds)}", "  ", width=width),
    ]
    of = [f"read from the curves of {sweep.methods[0]}, the first method"]
    for remark in of[: len(sweep.methods) - 1] + list(sweep.remarks):
        lines += wrapped("· " + remark, "  ", width=width)
    return "\n".join(lines)
