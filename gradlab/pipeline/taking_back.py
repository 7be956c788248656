"""Accusations that are taken back, and mistakes that only show together.

Asked after every verdict, by a check and before a sweep alike: whatever one of them
takes back, the other must not accuse of. A right gradient has nobody to excuse and
seldom two kinks, so what does the work is loaded by whoever needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradlab.differentiation.smoothness import Smoothness

if TYPE_CHECKING:
    from gradlab.diagnosis.finding import Finding
    from gradlab.pipeline.outcome import Judged

__all__ = ["behind_solvers", "joint_kinks", "take_back"]


def take_back(judged: Judged) -> list[Finding]:
    """Take back accusations that are no mistakes of the gradient (`around.excuses`)."""
    if not (judged.meter.raised or judged.wrong):
        return []
    from gradlab.pipeline.around import excuses

    return excuses.taken_back(judged)


def behind_solvers(judged: Judged) -> list[Finding]:
    """Tell slips behind bars of a solver (`around.behind_solvers`), if f jumps."""
    outcome = judged.outcome
    if not outcome.early and all(block.jump is None for block in outcome.blocks):
        return []
    from gradlab.pipeline.around.behind_solvers import tell_behind_solvers

    return list(tell_behind_solvers(judged))


def joint_kinks(judged: Judged) -> list[Finding]:
    """Follow f along several kinks at once (`around.joint_kinks`), if there are any."""
    looked = [block for block in judged.outcome.blocks if not block.settled]
    if not any((block.kinds == Smoothness.KINK.value).any() for block in looked):
        return []
    from gradlab.pipeline.around import joint_kinks as together

    return together.joint_kinks(judged)
