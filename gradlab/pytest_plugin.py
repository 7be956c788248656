"""Fixture ``gradcheck`` for pytest: a gradient check with a page to look at on failure.

Installed with gradlab (entry point ``pytest11``), so that a test only asks for it:

    def test_layer(gradcheck):
        gradcheck(layer, x, w)

It takes what `gradlab.check` takes. Where the gradient is wrong the test fails with the
worst entry and the likely cause, and names a page with every number under pytest's
temporary directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gradlab.report import Report

__all__ = ["gradcheck"]


@pytest.fixture
def gradcheck(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """Check a gradient; fail with the cause and a page if it is wrong.

    Returns
    -------
    callable
        ``gradcheck(fn, *inputs, allow_undecided=False, **options) -> Report``, with the
        arguments of `gradlab.testing.assert_gradients`.

    Examples
    --------
    >>> def test_square(gradcheck):
    ...     gradcheck(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: 2 * x)
    """

    def checked(fn: Callable[..., Any], *inputs: Any, **options: Any) -> Report:
        __tracebackhide__ = True  # pytest: point at the user's line
        from gradlab.errors import GradientMismatchError
        from gradlab.testing import assert_gradients

        try:
            return assert_gradients(fn, *inputs, **options)
        except GradientMismatchError as error:
            failure = error
        folder: Path = request.getfixturevalue("tmp_path")
        raise GradientMismatchError(
            f"{failure}\n  page          {_page(failure.report, folder)}",
            failure.report,
        )

    return checked


def _page(report: Report | None, folder: Path) -> str:
    """Write the report beside others of the same test; say where."""
    if report is None:
        return "none: there is no report"
    number = len(list(folder.glob("gradcheck*.html")))
    path = folder / f"gradcheck{number or ''}.html"
    try:
        report.to_html(path)
    except Exception as error:  # noqa: BLE001 - the failure itself must be told
        return f"none: {type(error).__name__}: {error}"
    return str(path)
