"""The report with a kernel behind it: selection and tolerance are traits.

Hovering, zooming and the tolerance never ask Python. What does: the numbers of
another block, a tile of a large one at full resolution, a recomputation, the sweep of
one entry.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import traitlets

from gradlab.errors import InputError
from gradlab.presentation.headline import headline
from gradlab.presentation.packing import LIVE_ENTRIES, number, pack_block, pack_tile
from gradlab.presentation.packing_results import report_state
from gradlab.presentation.views import by_severity
from gradlab.presentation.widgets.host import LiveView, shows
from gradlab.presentation.widgets.precision import in_precision
from gradlab.presentation.widgets.recompute import check_again, sweep_entry

if TYPE_CHECKING:
    from gradlab.comparison.comparison import Comparison
    from gradlab.presentation.widgets.host import Answer
    from gradlab.report import Report

__all__ = ["JacobianExplorer"]


class JacobianExplorer(LiveView):
    """Explore a report: every trait can be set, and observed.

    Parameters
    ----------
    report
        What `gradlab.check` returned. With its subject at hand (not loaded from a
        file) the page offers to recompute a block with another method or step.

    Attributes
    ----------
    param
        Name of the block that is shown.
    tol
        Tolerance of the picture; None shows the verdicts of the check.
    metric
        "rel" or "abs".
    selected
        Row and column of the pinned entry of the Jacobian, or empty.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> explorer = gl.JacobianExplorer(report)
    >>> explorer.param, explorer.selected
    ('x', [])
    """

    settable = ("param", "tol", "metric", "selected")
    param = traitlets.Unicode("").tag(sync=True)
    tol = traitlets.Float(None, allow_none=True).tag(sync=True)
    metric = traitlets.Enum(("rel", "abs"), "rel").tag(sync=True)
    selected = traitlets.List(traitlets.Int()).tag(sync=True)
    block = traitlets.Dict().tag(sync=True)

    def __init__(self, report: Report, **values: Any) -> None:
        shows(self, report, "comparisons", "a gradlab.Report: gl.check(...)", values)
        self._report = report
        self._blocks = {report.block_name(c): c for c in report.comparisons}
        # The page asks for other blocks by message; they wait here.
        self._packed = {
            name: self._pack(comparison, name)
            for name, comparison in self._blocks.items()
        }
        blocks = self._in_order()
        first = values.pop("param", blocks[0]["key"] if blocks else "")
        super().__init__(
            kind="jacobian",
            page=report_state(report) | {"blocks": blocks},
            param=first,
            can_recompute=report.live is not None,
            **values,
        )
        self._show()
        self.observe(self._show, "param")
        self._answers |= {
            "block": self._answer_block,
            "tile": self._answer_tile,
            "recompute": self._answer_recompute,
            "entry": self._answer_entry,
        }

    @property
    def report(self) -> Report:
        """The report that is shown, with what was recomputed since."""
        return self._report

    @property
    def comparison(self) -> Comparison:
        """The block that is shown."""
        return self._blocks[self.param]

    @traitlets.validate("param")
    def _known(self, proposal: dict[str, Any]) -> str:
        name = str(proposal["value"])
        return self._named(name, traitlets.TraitError) if name else name

    def _named(self, name: str, refusal: type[Exception]) -> str:
        """Return the name of a block, or refuse it."""
        if name not in self._blocks:
            known = ", ".join(repr(name) for name in self._blocks)
            msg = f"no gradient is called {name!r}; the report has: {known or 'none'}"
            raise refusal(msg)
        return name

    @traitlets.validate("selected")
    def _inside(self, proposal: dict[str, Any]) -> list[int]:
        """Refuse an entry that the block does not have."""
        place: list[int] = proposal["value"]
        if not self._has(place):
            rows, columns = self._shape
            msg = (
                f"selected must be [] or [row, column] of an entry of {self.param!r}, "
                f"which is {rows} x {columns}; got {place}"
            )
            raise traitlets.TraitError(msg)
        return place

    @property
    def _shape(self) -> tuple[int, int]:
        return self._blocks[self.param].shape if self.param in self._blocks else (0, 0)

    def _has(self, place: list[int]) -> bool:
        """Whether the block that is shown has an entry; none is one, too."""
        pairs = zip(place, self._shape, strict=False)
        return len(place) in {0, 2} and all(0 <= at < size for at, size in pairs)

    @traitlets.validate("tol")
    def _positive(self, proposal: dict[str, Any]) -> float | None:
        """Refuse what no picture can be coloured by."""
        value: float | None = proposal["value"]
        if value is not None and not 0 <= value < float("inf"):
            msg = f"tol must be a number >= 0, or None, got {value!r}"
            raise traitlets.TraitError(msg)
        return value

    def _pack(
        self, comparison: Comparison, name: str
    ) -> tuple[dict[str, Any], dict[str, bytes]]:
        return pack_block(comparison, name, LIVE_ENTRIES, self._report.epsilon)

    def _in_order(self) -> list[dict[str, Any]]:
        """Return what the page says about each block, worst first."""
        worst_first = map(self._report.block_name, by_severity(self._blocks.values()))
        return [self._packed[name][0] for name in worst_first]

    def _show(self, _: object = None) -> None:
        if self.param in self._packed:
            meta, planes = self._packed[self.param]
            self.block = {"key": self.param, "meta": meta, "planes": planes}
        if not self._has(self.selected):  # an entry of the block that was shown before
            self.selected = []

    # ------------------------------------------------------------- answers
    def _answer_block(self, message: dict[str, Any]) -> Answer:
        if message["key"] == self.param:
            return {}, {}  # a large block would travel twice: `_show` has sent it
        meta, planes = self._packed[message["key"]]
        return {"meta": meta}, planes

    def _answer_tile(self, message: dict[str, Any]) -> Answer:
        comparison = self._blocks[message["key"]]
        meta = self._packed[message["key"]][0]
        top, bottom, left, right = map(int, message["window"])
        return {}, pack_tile(comparison, meta, (top, bottom, left, right))

    def _answer_recompute(self, message: dict[str, Any]) -> Answer:
        name, step = message["key"], message["step"]
        dtype = message.get("dtype") or None
        fresh = self.recompute(message["method"], step, name, dtype=dtype)
        words = f"{fresh.method}: {fresh.verdict.words}"
        return {"words": words}, {}

    def recompute(
        self,
        method: str = "as checked",
        step: float | None = None,
        name: str = "",
        *,
        dtype: str | None = None,
    ) -> Comparison:
        """Check one block again and show the result in place of the old one.

        Parameters
        ----------
        method
            As in `gradlab.check`; "as checked" keeps the method of the report.
        step
            Step size, for the methods that take one; None lets the method choose.
        name
            Block; default the one that is shown.
        dtype
            "float32" or "float64": measure on inputs that are cast; default as given.

        Returns
        -------
        Comparison
            The new block.
        """
        name = self._named(name or self.param, InputError)
        old = self._blocks[name]
        subject = self._report if dtype is None else in_precision(self._report, dtype)
        found = check_again(subject, old.input.name, method, step)
        fresh = next(c for c in found.comparisons if c.output.name == old.output.name)
        self._blocks[name] = fresh
        comparisons = tuple(self._blocks.values())
        self._report = dataclasses.replace(self._report, comparisons=comparisons)
        self._packed[name] = self._pack(fresh, name)
        self.page = self.page | {"blocks": self._in_order()}
        self._show()
        return fresh

    def _answer_entry(self, message: dict[str, Any]) -> Answer:
        comparison = self._blocks[message["key"]]
        row, column = map(int, message["index"])
        steps, errors = sweep_entry(self._report, comparison, row, column)
        return {
            "label": comparison.label(row, column),
            "steps": steps.tolist(),
            "errors": [number(error) for error in errors],
        }, {}

    def __repr__(self) -> str:
        # short: the whole text would sort the entries of a large block
        return (
            f"JacobianExplorer: {headline(self._report)}\n"
            "Where no window opens: the report itself shows it, without a kernel too."
        )
