"""Every exception that gradlab raises on purpose, in one place.

All derive from `GradlabError`; each also derives from the built-in exception a reader
would expect, so that ``except ValueError`` keeps working. A wrong gradient is never an
exception by itself: it is a finding of a report, until somebody asks for
`GradientMismatchError` by calling ``report.raise_if_failed()``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradlab.report import Report

__all__ = [
    "BudgetError",
    "ComplexStepError",
    "GradientMismatchError",
    "GradlabError",
    "InputError",
    "InputTypeError",
    "OutputsChangedError",
    "SubjectError",
]


class GradlabError(Exception):
    """Base of all exceptions that gradlab raises deliberately.

    They live in `gradlab.errors`. Each is a built-in exception as well: `InputError` a
    `ValueError`, `BudgetError` too, `InputTypeError` a `TypeError`, `SubjectError` a
    `RuntimeError`, `GradientMismatchError` an `AssertionError`.

    Examples
    --------
    >>> try:
    ...     gl.numeric_jacobian(np.sin, np.ones(2), budget=0)
    ... except gl.GradlabError as error:
    ...     print(isinstance(error, ValueError))
    True
    """


class InputError(GradlabError, ValueError):
    """An argument has a value that cannot be used: wrong shape, name, or number."""


class InputTypeError(GradlabError, TypeError):
    """An argument has a type that cannot be used."""


class SubjectError(GradlabError, RuntimeError):
    """The function under test raised, or does not behave like one function."""


class OutputsChangedError(SubjectError):
    """Away from the given inputs the outputs have another shape than at these."""


class ComplexStepError(GradlabError, ValueError):
    """The complex step was asked for where it cannot work; the message says why."""


class BudgetError(InputError):
    """A budget that cannot be kept: no number or duration, or spent before a result."""


class GradientMismatchError(GradlabError, AssertionError):
    """A gradient is wrong.

    Attributes
    ----------
    report
        The `gradlab.Report` with every number behind the message.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> try:
    ...     report.raise_if_failed()
    ... except AssertionError as error:
    ...     print(str(error).splitlines()[0], error.report is report)
    ✗ disagrees: x is wrong True
    """

    def __init__(self, message: str, report: Report | None = None) -> None:
        super().__init__(message)
        self.report = report
