"""Hooks that change ``.grad`` after the backward, which no check runs.

They may clip, average over machines, or take a whole step of an optimiser: to call one
is to have its side effects. What is checked is the derivative that autograd hands them.
"""

from __future__ import annotations

from typing import Any

from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.labels import few_of

__all__ = ["late_hooks"]


def late_hooks(module: Any) -> tuple[Finding, ...]:
    """Warn of parameters of a module that have such hooks: one finding, or none."""
    names = [
        name
        for name, parameter in module.named_parameters()
        if getattr(parameter, "_post_accumulate_grad_hooks", None)
    ]
    if not names:
        return ()
    told = few_of([f"`{name}`" for name in names], 1)
    return (
        Finding(
            BugKind.UNKNOWN,
            "warning",
            names[0],
            0.1,
            f"{told} has a hook that runs after its gradient was "
            "accumulated; what it does to .grad was not looked at.",
            "Look at what was given to register_post_accumulate_grad_hook.",
            also=tuple(names[1:]),
        ),
    )
