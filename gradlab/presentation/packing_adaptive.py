"""The adaptive method inside of a sweep: a level where the others have a curve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.presentation.packing import number, pack_slices
from gradlab.presentation.views import worst_relative

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradlab.report import Report
    from gradlab.sweeps import Sweep

__all__ = ["pack_adaptive"]


def pack_adaptive(
    state: dict[str, Any],
    blobs: dict[str, dict[str, bytes]],
    sweep: Sweep,
    reports: Sequence[Report],
) -> None:
    """Add the adaptive method to a packed sweep.

    Parameters
    ----------
    state, blobs
        What `pack_sweep` returned for `sweep`; both are added to.
    reports
        One check of each input of the sweep, by the adaptive method.

    Examples
    --------
    >>> from gradlab.presentation.packing_results import pack_sweep
    >>> check = lambda: gl.check(np.sum, np.ones(2), grad=np.ones_like)
    >>> report = check()
    >>> sweep = report.sweep()
    >>> packed = pack_sweep(sweep)
    >>> pack_adaptive(packed.state, packed.blobs, sweep, [report])
    >>> packed.state["methods"], packed.state["matrices"][-1]["method"]
    (['central', 'adaptive'], 'adaptive')
    """
    state["methods"] = [*state["methods"], "adaptive"]
    state["theory"]["adaptive"] = []
    state["curves"]["adaptive"] = []
    state["adaptive"] = []
    for which, report in enumerate(reports):
        blocks = report.comparisons
        error = max((worst_relative(block) for block in blocks), default=0.0)
        state["curves"]["adaptive"].append([number(error)] * len(sweep.steps))
        steps = np.concatenate([block.step.ravel() for block in blocks])
        steps = steps[np.isfinite(steps) & (steps > 0)]
        ends = np.quantile(steps, [0, 0.5, 1]) if steps.size else [np.nan] * 3
        low, typical, high = (number(float(end)) for end in ends)
        state["adaptive"].append({"low": low, "typical": typical, "high": high})
        analytic = np.concatenate([block.analytic for block in blocks])
        numeric = np.concatenate([block.numeric for block in blocks])
        key = f"adaptive{which}"
        place, blobs[key] = pack_slices(analytic, numeric, blocks[0].input.shape)
        state["matrices"].append(
            {"key": key, "method": "adaptive", "input": which, **place}
        )
