"""The step-size sweep with a kernel behind it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import traitlets

from gradlab.errors import InputError
from gradlab.presentation.packing import pack_adaptive
from gradlab.presentation.packing_results import LIVE_BYTES, pack_inner, pack_sweep
from gradlab.presentation.widgets.host import LiveView, shows
from gradlab.presentation.widgets.precision import (
    PRECISIONS,
    in_precision,
    precision_of,
)
from gradlab.presentation.widgets.recompute import check_again
from gradlab.report import Report

if TYPE_CHECKING:
    from gradlab.presentation.widgets.host import Answer
    from gradlab.sweeps import Sweep

__all__ = ["EpsilonSweep"]

_METHODS = ("forward", "central", "adaptive", "complex-step")


class EpsilonSweep(LiveView):
    """Drag the step, see every input's error there; open its Jacobian at that step.

    Parameters
    ----------
    sweep
        What `gradlab.sweep` returned.
    report
        The report that was swept; default that of the sweep. With the subject of one
        of them at hand other methods and float32 are one click away, and a click on a
        name opens that Jacobian at the cursor's step.

    Attributes
    ----------
    h
        Step at the cursor: one of the measured ones; 0 until somebody has moved it, and
        once more in another precision: the cursor stands at the best step then.
    method
        Numeric method that is drawn.
    dtype
        Precision of the inputs; "float32" or "float64".
    picked
        Name of the input that is singled out.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: x)
    >>> widget = gl.EpsilonSweep(report.sweep())
    >>> widget.kind, widget.dtype
    ('sweep', 'float64')
    """

    settable = ("h", "method", "dtype", "picked")
    dtype = traitlets.Unicode("float64").tag(sync=True)

    def __init__(
        self, sweep: Sweep, report: Report | None = None, **values: Any
    ) -> None:
        shows(self, sweep, "steps", "a gradlab.Sweep: gl.sweep(...)", values)
        dtype = precision_of(sweep)
        report = _report_of(sweep) if report is None else report
        self._reports = {dtype: report}
        self._sweeps = {dtype: sweep}
        self._adaptive: dict[str, list[Report]] = {}
        self._alive = report is not None and report.live is not None
        page = self._show(dtype)
        first = {"method": page["method"], "dtype": dtype} | values
        super().__init__(kind="sweep", page=page, can_recompute=self._alive, **first)
        self._answers |= {
            "block": self._answer_matrix,
            "jacobian": self._answer_jacobian,
            "method": self._answer_method,
            "dtype": self._answer_dtype,
        }

    def _show(self, dtype: str) -> dict[str, Any]:
        """Return what the page says about the sweep in one precision."""
        sweep = self._sweeps[dtype]
        packed = pack_sweep(sweep, budget=LIVE_BYTES)
        state, self._planes = packed.state, packed.blobs
        have = sweep.methods
        if dtype in self._adaptive:
            pack_adaptive(state, self._planes, sweep, self._adaptive[dtype])
            have = (*have, "adaptive")
        missing = [m for m in _METHODS if m not in have] if self._alive else []
        # only float32 and float64 are offered beside the sweep's own
        dtypes = [dtype, *self._sweeps, *PRECISIONS] if self._alive else [dtype]
        return state | {
            "more": missing,
            "dtype": dtype,
            "dtypes": sorted(set(dtypes)),
        }

    def _choices(self, trait: str) -> tuple[str, ...] | None:
        """Name the inputs of the sweep, and what was measured of it."""
        if trait == "dtype":
            return tuple(self._sweeps)
        if self.dtype not in self._sweeps:  # refused by itself
            return None
        if trait == "picked":
            return self.sweep.inputs
        more = ("adaptive",) if self.dtype in self._adaptive else ()
        return (*self.sweep.methods, *more)

    @property
    def sweep(self) -> Sweep:
        """The sweep that is shown, in the precision that is shown."""
        return self._sweeps[self.dtype]

    @property
    def _report(self) -> Report:
        report = self._reports[self.dtype]
        if report is None:
            msg = "this sweep was made without a report: gl.check first"
            raise InputError(msg)
        return report

    def _answer_matrix(self, message: dict[str, Any]) -> Answer:
        return {}, self._planes[message["key"]]

    def _answer_method(self, message: dict[str, Any]) -> Answer:
        """Measure one method more."""
        name = str(message["method"])
        if name == "adaptive":
            self._adaptive[self.dtype] = [
                check_again(
                    self._report, block.variable.name, name, coverage=_coverage(block)
                )
                for block in self.sweep.blocks
            ]
        else:
            methods = (*self.sweep.methods, name)
            fresh = _sweep(self._report, self.sweep, methods)
            if name not in fresh.methods:
                raise InputError(next(r for r in fresh.remarks if r.startswith(name)))
            self._sweeps[self.dtype] = fresh
        self._turn(self.dtype, name)
        return {}, {}

    def _answer_dtype(self, message: dict[str, Any]) -> Answer:
        """Measure the same in another precision, or go back to what was measured."""
        dtype = str(message["dtype"])
        if dtype not in self._sweeps:
            cast = in_precision(self._report, dtype)
            self._sweeps[dtype] = _sweep(cast, None, self.sweep.methods)
            self._reports[dtype] = cast
        have = self._sweeps[dtype].methods
        self._turn(dtype, self.method if self.method in have else have[0])
        return {}, {}

    def _turn(self, dtype: str, method: str) -> None:
        page = self._show(dtype)
        with self.hold_sync():
            if dtype != self.page["dtype"]:
                self.h = 0.0  # a good step of one precision is noise in the other
            self.page, self.dtype, self.method = page, dtype, method

    @traitlets.observe("dtype")
    def _set(self, _: object) -> None:
        """Show what Python has turned to, as a click in the page does."""
        if self.dtype != self.page["dtype"]:
            have = self.sweep.methods
            self._turn(self.dtype, self.method if self.method in have else have[0])

    def _answer_jacobian(self, message: dict[str, Any]) -> Answer:
        """Check one input at the step of the cursor, for the page to draw."""
        step = message["h"]
        found = check_again(
            self._report,
            message["input"],
            message["method"],
            None if step is None else float(step),
        )
        state, planes = pack_inner(found, head=False)
        return {"page": state}, planes

    def __repr__(self) -> str:
        return repr(self.sweep)


def _report_of(sweep: Sweep) -> Report | None:
    """Return the report of a sweep; one without comparisons where it had none."""
    live = getattr(sweep, "live", None)
    if live is None:
        return getattr(sweep, "report", None)
    empty: tuple[()] = ()
    seed = live.arguments["plan"].seed
    return Report("", "", empty, empty, empty, "", "", 0, 0.0, seed, live=live)


def _sweep(report: Report, like: Sweep | None, methods: tuple[str, ...]) -> Sweep:
    """Sweep through the front door, which stands above this module."""
    front_door = importlib.import_module("gradlab").sweep
    steps = None if like is None else like.steps  # each precision has its own ladder
    fresh: Sweep = front_door(report, steps=steps, methods=methods, progress=False)
    return fresh


def _coverage(block: Any) -> str:
    """Look at all of an input if the sweep did."""
    return "full" if block.columns.size >= block.variable.coordinates else "sample"
