"""For a test suite: one assertion that tells the whole story when it fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.checks import check
from gradlab.comparison.verdict import Verdict
from gradlab.errors import GradientMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradlab.report import Report

__all__ = ["assert_gradients"]


def assert_gradients(
    fn: Callable[..., Any],
    *inputs: Any,
    allow_undecided: bool = False,
    **options: Any,
) -> Report:
    """Assert that a gradient is right.

    Parameters
    ----------
    fn, *inputs, **options
        As for `gradlab.check`.
    allow_undecided
        Whether a check that could not decide passes. Default False: in a test suite, a
        check that says nothing is worth knowing about.

    Returns
    -------
    Report
        For further assertions.

    Raises
    ------
    GradientMismatchError
        An `AssertionError` with the worst entry, both values, the error bar and the
        likely cause; its ``report`` has the rest.

    Examples
    --------
    >>> x = np.array([0.5, 2.0])
    >>> report = assert_gradients(lambda x: np.log(x).sum(), x, grad=lambda x: 1 / x)
    >>> report.ok
    True
    """
    __tracebackhide__ = True  # pytest: point at the user's line
    report = check(fn, *inputs, **options)
    report.raise_if_failed()
    if report.verdict == Verdict.UNDECIDED and not allow_undecided:
        msg = (
            f"the gradient could not be decided; pass allow_undecided=True to accept "
            f"that\n{report}"
        )
        raise GradientMismatchError(msg, report)
    return report
