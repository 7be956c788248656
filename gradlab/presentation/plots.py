"""Static figures: objects that hold numbers, draw them, and show themselves once.

After scikit-learn's displays: ``display.plot(ax=None)`` draws and returns the display;
what was drawn is in attributes that end in an underscore. Figures are made with
matplotlib's object API, so that nothing is registered, leaked or shown twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradlab.errors import InputError
from gradlab.presentation.jacobian_plot import JacobianDisplay
from gradlab.presentation.layers_plot import LayersDisplay
from gradlab.presentation.sweep_plot import SweepDisplay
from gradlab.presentation.views import by_severity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gradlab.report import Report

__all__ = ["JacobianDisplay", "LayersDisplay", "SweepDisplay", "plot_report"]


def plot_report(
    report: Report, name: str | tuple[str, str] | None = None, ax: Axes | None = None
) -> JacobianDisplay:
    """Draw one block of a report; see `gradlab.Report.plot`.

    Examples
    --------
    >>> report = gl.check(lambda W: (W**2).sum(), np.ones((3, 4)), grad=lambda W: W)
    >>> len(plot_report(report).axes_)
    3
    """
    if not report.comparisons:
        msg = "there is nothing to draw: the report has no blocks"
        raise InputError(msg)
    block = by_severity(report.comparisons)[0] if name is None else report[name]
    return JacobianDisplay(block, report.block_name(block)).plot(ax)
