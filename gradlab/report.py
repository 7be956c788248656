"""What a check hands back: every number, the verdicts, and ways to look at them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from gradlab.comparison.verdict import Verdict
from gradlab.errors import GradientMismatchError, InputError
from gradlab.subject.subject import EPSILON

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    import pandas as pd
    from matplotlib.axes import Axes

    from gradlab.comparison.comparison import Comparison
    from gradlab.diagnosis.finding import Finding
    from gradlab.localisation.layers.audited import LayerAudit
    from gradlab.presentation.plots import JacobianDisplay
    from gradlab.presentation.widgets.explorer import JacobianExplorer
    from gradlab.sweeps import Sweep

__all__ = ["Live", "Report"]


class Live:
    """What a fresh report can still do because its subject is at hand.

    A report that was loaded from a file, or sent from another process, has none.
    `arguments` are those of the `gradlab.check` call, by name.
    """

    __slots__ = ("arguments",)

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _left_behind, ()  # pickled, it would take the function along


def _left_behind() -> None:
    """Stand for a subject in another process, where it is not at hand."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Result of `gradlab.check`.

    Printed, it is a short text; at the end of a notebook cell, an interactive page.

    Parameters
    ----------
    subject, analytic
        What was checked, and where its gradient came from, in words.
    comparisons
        One per (output, input) block, in the subject's order.
    findings
        Ranked: what is wrong first, harmless notes last.
    culprits
        Names of what is wrong, the root cause first.
    method
        Numeric method, with what became of it ("central, 12 columns escalated").
    coverage
        "full", "sample" or "probe"; "sample" of what was cut short before the end.
    evaluations
        How often the function was evaluated, all probes included.
    seconds
        Wall-clock time of the check.
    seed
        Seed of every random choice the check made.
    remarks
        What else a reader must know: what was escalated, not looked at, frozen.
    partial
        Whether the check was interrupted or ran out of its budget, or took a sample
        because that had no room for more.
    layers
        Layer audit, where a module disagreed.
    epsilon
        Unit round-off of the analytic side.
    live
        The subject, for sweeps and recomputation; None in a loaded report.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: 4 * x)
    >>> report.verdict.name, report.ok, report.culprit, report.diagnosis
    ('DISAGREES', False, 'x', 'scale')
    >>> report["x"].worst(1)[["label", "analytic"]].values.tolist()
    [['x[0]', 4.0]]
    """

    subject: str
    analytic: str
    comparisons: tuple[Comparison, ...]
    findings: tuple[Finding, ...]
    culprits: tuple[str, ...]
    method: str
    coverage: str
    evaluations: int
    seconds: float
    seed: int
    remarks: tuple[str, ...] = ()
    partial: bool = False
    layers: LayerAudit | None = None
    epsilon: float = EPSILON
    live: Live | None = dataclasses.field(default=None, repr=False)

    # ------------------------------------------------------------- verdicts
    @property
    def verdict(self) -> Verdict:
        """Worst verdict over all blocks and findings.

        An error found outside the blocks (a wrong layer, a wrong shape) disagrees; a
        partial report, or one without any block, cannot agree. An empty block does.
        """
        worst = max((c.verdict for c in self.comparisons), default=Verdict.UNDECIDED)
        if not self.ok:
            return Verdict.DISAGREES
        return max(worst, Verdict.UNDECIDED) if self.partial else worst

    @property
    def ok(self) -> bool:
        """Whether nothing wrong was found: no finding of severity "error"."""
        return all(finding.severity != "error" for finding in self.findings)

    @property
    def culprit(self) -> str | None:
        """The root cause, or None if nothing is wrong."""
        return self.culprits[0] if self.culprits else None

    @property
    def diagnosis(self) -> str:
        """Kind of the first finding as plain text; "none" if there is none."""
        return str(self.findings[0].kind) if self.findings else "none"

    @property
    def power(self) -> dict[str, float]:
        """Smallest single-entry error that each block's check would have caught.

        In the units of the derivative, by input name (or "output / input" where
        there are several outputs); inf where an entry is undecided.

        Examples
        --------
        >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: 2 * x)
        >>> 0 < report.power["x"] < 1e-4
        True
        """
        return {self.block_name(c): c.power for c in self.comparisons}

    def block_name(self, comparison: Comparison) -> str:
        """Name of a block: the input's, preceded by the output's if there are more."""
        if len({c.output.name for c in self.comparisons}) == 1:
            return comparison.input.name
        return f"{comparison.output.name} / {comparison.input.name}"

    def __bool__(self) -> bool:
        """Whether everything agrees, for ``assert gl.check(...)``; undecided is not.

        Examples
        --------
        >>> bool(gl.check(lambda x: x @ x, np.ones(3), grad=lambda x: x))
        False
        """
        return self.verdict == Verdict.AGREES

    # ------------------------------------------------------------- access
    def __getitem__(self, key: str | tuple[str, str]) -> Comparison:
        if isinstance(key, tuple):
            found = [
                c for c in self.comparisons if (c.output.name, c.input.name) == key
            ]
        else:
            found = [c for c in self.comparisons if c.input.name == key]
            # of a check with order=2, the name alone means the first derivative
            first = [c for c in found if not c.output.name.startswith("grad.")]
            found = first or found
            found = found or [c for c in self.comparisons if self.block_name(c) == key]
        if len(found) == 1:
            return found[0]
        if found:
            msg = (
                f"{key!r} stands for {len(found)} gradients, one per output; choose: "
                + ", ".join(f"report[{c.output.name!r}, {key!r}]" for c in found)
            )
        else:
            known = ", ".join(repr(self.block_name(c)) for c in self.comparisons)
            msg = f"no gradient is called {key!r}; the report has: {known or 'none'}"
        raise InputError(msg)

    def __contains__(self, key: object) -> bool:
        """Whether there is a gradient of that name: ``"W1" in report``."""
        return any(
            key in (c.input.name, (c.output.name, c.input.name), self.block_name(c))
            for c in self.comparisons
        )

    def __iter__(self) -> Iterator[str]:
        """Go through the names that stand for one gradient each.

        Examples
        --------
        >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
        >>> [name for name in report if not report[name]]
        ['x']
        """
        return map(self.block_name, self.comparisons)

    @property
    def table(self) -> pd.DataFrame:
        """One row per block, worst first.

        Columns ``output, input, shape, verdict, max_abs_error, max_rel_error,
        worst_index, analytic, numeric, numeric_error, step, method, coverage``; the
        values are those at the worst entry (nan for an empty block), errors in the
        units of the derivative. ``shape`` is that of the input. ``worst_index`` is a
        tuple into the input; where the output has more than one entry, the output's
        index precedes it, so that it indexes the Jacobian of shape outputs + inputs.

        Examples
        --------
        >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
        >>> report.table[["input", "verdict", "analytic"]].values.tolist()
        [['x', 'DISAGREES', 1.0]]
        """
        from gradlab.presentation.tables import blocks_table

        return blocks_table(self)

    # ------------------------------------------------------------- actions
    def raise_if_failed(self) -> None:
        """Raise if the gradient is wrong.

        Raises
        ------
        GradientMismatchError
            With the worst entry, both values, the error bar, what was allowed and the
            likely cause, in at most ten sentences; the report is its ``.report``.

        Examples
        --------
        >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: -2 * x)
        >>> report.raise_if_failed()
        Traceback (most recent call last):
        gradlab.errors.GradientMismatchError: ✗ disagrees: x is wrong...
        """
        __tracebackhide__ = True  # pytest: point at the user's line
        if self.verdict < Verdict.DISAGREES:
            return
        from gradlab.presentation.text import failure_text

        raise GradientMismatchError(failure_text(self), self)

    def plot(
        self, name: str | tuple[str, str] | None = None, ax: Axes | None = None
    ) -> JacobianDisplay:
        """Draw analytic, numeric and error side by side.

        Parameters
        ----------
        name
            Block, as in ``report[name]``; default the worst one.
        ax
            Axes to draw the error panel into; default a new figure with all three.

        Returns
        -------
        JacobianDisplay
            Holds ``figure_`` and ``ax_``; shows itself once at the end of a cell.

        Raises
        ------
        InputError
            If no block has that name, or the name stands for several; or if there is
            no block at all.

        Examples
        --------
        >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
        >>> len(report.plot("x").figure_.axes) >= 3
        True
        """
        from gradlab.presentation.plots import plot_report

        return plot_report(self, name, ax)

    def sweep(self, **options: Any) -> Sweep:
        """Evaluate a ladder of steps, on the subject of this report.

        Parameters
        ----------
        **options
            Options of `gradlab.sweep`: ``steps``, ``methods``, ``wrt``, ``coverage``,
            ``budget``, ``executor``, ``progress``.

        Returns
        -------
        Sweep
            Error against step, for every input.

        Raises
        ------
        InputError
            If the report was loaded from a file: its subject is not at hand.

        Examples
        --------
        >>> report = gl.check(lambda x: np.sin(x).sum(), np.ones(2), grad=np.cos)
        >>> report.sweep().reading["x"].split(",")[0]
        'V: correct'
        """
        from gradlab.sweeping import sweep

        return sweep(self, **options)

    def explore(self) -> JacobianExplorer:
        """Open the live widget on this report: pick a cell, read both values.

        It needs a kernel; the report itself, at the end of a cell, does not.

        Examples
        --------
        >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
        >>> report.explore().param
        'x'
        """
        from gradlab.presentation.widgets.explorer import JacobianExplorer

        return JacobianExplorer(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything but the subject to one ``.npz`` file, without pickle.

        Parameters
        ----------
        path
            Name of the file, written as it is; `gradlab.load` reads it.

        Raises
        ------
        OSError
            If the file cannot be written.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     report.save(pathlib.Path(folder, "report.npz"))
        ...     gl.load(pathlib.Path(folder, "report.npz")).culprit
        'x'
        """
        from gradlab.storage import save

        save(self, path)

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """Return one self-contained page, and write it to `path` if given.

        The page needs no kernel and no network.

        Parameters
        ----------
        path
            Name of the file; default none is written.

        Raises
        ------
        OSError
            If the file cannot be written.

        Examples
        --------
        >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
        >>> report.to_html().startswith("<!doctype html>")
        True
        """
        from gradlab.presentation.html import page

        return page(self, path)

    # ------------------------------------------------------------- display
    def __repr__(self) -> str:
        from gradlab.presentation.screens import printable, terminal
        from gradlab.presentation.text import report_text

        # no colour: the text may be on its way into a file
        return printable(report_text(self, width=terminal()[0]))

    __str__ = __repr__

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from gradlab.presentation.html import mimebundle

        return mimebundle(self)
