"""For pytest: the fixture ``gradcheck``, and what a failed ``assert`` on a result says.

Installed with gradlab (entry point ``pytest11``), so that a test only asks for it:

    def test_layer(gradcheck):
        gradcheck(layer, x, w)

It takes what `gradlab.check` takes. Where the gradient is wrong the test fails with the
worst entry and the likely cause, and names a page with every number under pytest's
temporary directory.

Of a plain ``assert gl.check(...)`` (or ``assert report.ok``) pytest shows the text of
the report on one line, cut in the middle. Here that line keeps the verdict, and the
whole text stands below the traceback.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from pathlib import Path

    from gradlab.report import Report

__all__ = ["gradcheck", "pytest_runtest_makereport"]

_TOLD = 3  # results below one traceback


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a failed ``assert`` tell all of the results that it is about."""
    failure = call.excinfo
    told = [] if failure is None else _asserted(failure)
    if failure is not None and told:
        message = str(failure.value)
        told = [text for text in told if not _printed(message, text)]
        for text in told:
            message = _shortened(message, text)
        failure.value.args = (message,)
    report = yield
    add_section = getattr(report.longrepr, "addsection", lambda *_: None)
    for text in told[:_TOLD]:
        add_section("gradlab", text)
    return report


def _asserted(failure: pytest.ExceptionInfo[BaseException]) -> list[str]:
    """Return the texts of the results behind a failed ``assert``: of those that fail.

    All of them where none does, as in ``assert not report``.
    """
    if not isinstance(failure.value, AssertionError):
        return []
    entry = failure.traceback[-1]
    try:
        statement = ast.parse(str(entry.statement.deindent()))
    except (AssertionError, SyntaxError):  # no source, or the head of a block
        return []
    if not isinstance(statement.body[0], ast.Assert):
        return []
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    known = {**entry.frame.f_globals, **entry.frame.f_locals}
    # what has no name is kept by pytest under one that no user can write
    held = [known[n] for n in known if n in names or n.startswith("@py_assert")]
    found = {id(each): each for value in held for each in _results(value)}.values()
    return [repr(each) for each in [each for each in found if not each] or found]


def _results(value: Any) -> Iterator[Any]:
    """Yield the results of gradlab in a value: itself, or the members of a list."""
    from gradlab.subject.guarding.paths import items_of

    inside: Iterable[Any] = [value]
    if isinstance(value, dict):  # not by methods of a class of its own
        inside = dict.values(value)
    elif isinstance(value, list | tuple):
        inside = items_of(value)
    for each in inside:
        if type(each).__module__.startswith("gradlab.") and "\n" in repr(each):
            yield each


def _printed(message: str, text: str) -> bool:
    """Whether the message of the ``assert`` is that text, indented by pytest."""
    own = {line.strip() for line in message.splitlines()}
    head, *rest = text.splitlines()
    return head in message and own.issuperset(line.strip() for line in rest)


def _shortened(message: str, text: str) -> str:
    """Leave the first line of a text that pytest wrote on one line, whole or cut."""
    head, line = text.split("\n", 1)[0], text.replace("\n", "\\n")
    cut = re.escape(line[:100]) + ".*" + re.escape(line[-100:])
    return re.sub(cut, lambda _: head, message.replace(line, head))
