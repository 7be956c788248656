"""What is no mistake all the same, and what is one only together.

Asked after every verdict, by a check and before a sweep alike: whatever one of them
takes back, the other must not accuse of. A right gradient has nobody to excuse and
seldom two kinks, so what does the work is loaded by whoever needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradlab.differentiation.smoothness import Smoothness

if TYPE_CHECKING:
    from gradlab.diagnosis.finding import Finding
    from gradlab.differentiation.metering.meter import Meter
    from gradlab.pipeline.outcome import Outcome
    from gradlab.subject.subject import Subject

__all__ = ["joint_kinks", "take_back"]


def take_back(
    subject: Subject, outcome: Outcome, meter: Meter, seed: int
) -> list[Finding]:
    """Take back accusations that are no mistakes of the gradient (`around.excuses`).

    Parameters
    ----------
    subject
        As the user has it.
    outcome
        Judged; verdicts of its blocks are changed.
    meter
        Charged for what is asked, which is nothing where nobody is accused.
    seed
        Of directions and roundings.
    """
    if not meter.raised and not any(block.accused for block in outcome.blocks):
        return []
    from gradlab.pipeline.around import excuses

    return excuses.taken_back(subject, outcome, meter, seed)


def joint_kinks(
    subject: Subject, outcome: Outcome, meter: Meter, seed: int
) -> list[Finding]:
    """Follow f along several kinks at once (`around.joint_kinks`), if there are any.

    Parameters
    ----------
    subject
        As the user has it.
    outcome
        Judged; of operations of torch alone verdicts are changed.
    meter
        Charged for what is asked, which is nothing where nothing has a kink.
    seed
        Of the points beside.
    """
    looked = [block for block in outcome.blocks if not block.settled]
    if not any((block.kinds == Smoothness.KINK.value).any() for block in looked):
        return []
    from gradlab.pipeline.around import joint_kinks as together

    return together.joint_kinks(subject, outcome, meter, seed)
