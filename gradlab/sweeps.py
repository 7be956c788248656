"""A sweep of the step size: error against step, for every input and method."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.sweep_reading import read_sweep
from gradlab.comparison.swept import (
    Curves,
    Slopes,
    Swept,
    entry_name,
)
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.error_curves import ORDERS, CurveReading
from gradlab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from gradlab.presentation.plots import SweepDisplay
    from gradlab.presentation.widgets.epsilon import EpsilonSweep
    from gradlab.report import Live, Report

__all__ = ["Sweep"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """Result of `gradlab.sweep`.

    Parameters
    ----------
    blocks
        One for each input: analytic side, reference, verdicts.
    steps
        The ladder, ascending, absolute: in the units of the inputs; shape (S,).
    methods
        Names of the numeric methods.
    curves
        Errors by (method, input).
    matrices
        Numeric Jacobians by (method, input), shape (S, rows, columns); empty if they
        would be too large to keep.
    matrix_bars
        Error bars of the numeric Jacobians, like `matrices`.
    evaluations
        How often the function was evaluated.
    seconds
        Wall-clock time.
    remarks
        What else a reader must know: a sample, an interruption, the choice of steps.
    report
        The report that was swept, if there is one.
    live
        The subject of a sweep without a report, to measure again.

    Examples
    --------
    >>> sweep = gl.sweep(lambda x: np.sin(x).sum(), np.ones(2), grad=np.cos)
    >>> sweep.verdicts["x"].name
    'AGREES'
    >>> 1e-6 < sweep.best_step["x"] < 4e-5
    True
    """

    blocks: tuple[Swept, ...]
    steps: NDArray[np.float64]
    methods: tuple[str, ...]
    curves: dict[tuple[str, str], Curves]
    matrices: dict[tuple[str, str], NDArray[np.float64]]
    matrix_bars: dict[tuple[str, str], NDArray[np.float64]]
    evaluations: int
    seconds: float
    remarks: tuple[str, ...] = ()
    report: Report | None = dataclasses.field(default=None, repr=False)
    live: Live | None = dataclasses.field(default=None, repr=False)

    # ------------------------------------------------------------- names
    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(block.variable.name for block in self.blocks)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each input."""
        return {block.variable.name: block.variable.shape for block in self.blocks}

    @property
    def analytic(self) -> dict[str, NDArray[np.float64]]:
        """Analytic Jacobian of each input, shape (rows, columns); computed once."""
        return {block.variable.name: block.analytic for block in self.blocks}

    def __getitem__(self, name: str) -> Swept:
        for block in self.blocks:
            if block.variable.name == name:
                return block
        msg = f"no input is called {name!r}; this sweep has: {', '.join(self.inputs)}"
        raise InputError(msg)

    def __contains__(self, name: object) -> bool:
        """Whether an input of that name was swept."""
        return name in self.inputs

    def __iter__(self) -> Iterator[str]:
        """Go through the names of the inputs."""
        return iter(self.inputs)

    # ------------------------------------------------------------- curves
    @property
    def errors(self) -> dict[tuple[str, str], NDArray[np.float64]]:
        """Worst relative error ``|a - n| / (|a| + |n|)`` at each step, no unit.

        By (method, input), an array of the length of `steps`; of the entries that can
        be told from noise, nan where nothing was measured or the gradient is no number.

        Examples
        --------
        >>> sweep = gl.sweep(lambda x: np.sin(x).sum(), np.ones(2), grad=np.cos)
        >>> sweep.errors["central", "x"].shape == sweep.steps.shape
        True
        """
        return {key: curves.error for key, curves in self.curves.items()}

    @property
    def bars(self) -> dict[tuple[str, str], NDArray[np.float64]]:
        """Error bar of the numeric side at the entry that `errors` tells of.

        Relative as well, over ``|a| + |n|``, no unit. By (method, input), an array of
        the length of `steps`.

        Examples
        --------
        >>> sweep = gl.sweep(lambda x: np.sin(x).sum(), np.ones(2), grad=np.cos)
        >>> bool((sweep.bars["central", "x"] >= 0).all())
        True
        """
        return {key: curves.bar for key, curves in self.curves.items()}

    def curve(self, method: str, name: str) -> CurveReading:
        """Slopes, best step, floor and kink of one curve.

        Read from the numeric side alone where the analytic one is wrong.
        """
        if (method, name) not in self.curves:
            told = ", ".join(f"({m!r}, {n!r})" for m, n in self.curves)
            msg = f"no curve is called ({method!r}, {name!r}); this sweep has: {told}"
            raise InputError(msg)
        steady, curves = not self[name].unsteady, self.curves[method, name]
        return curves.read(self.steps, ORDERS[method], steady=steady)

    @property
    def slopes(self) -> Slopes:
        """Truncation and round-off slope by (method, input); nan if not seen.

        The name of an input alone stands for the first method.

        Examples
        --------
        >>> sweep = gl.sweep(lambda x: np.sin(x).sum(), np.ones(2), grad=np.cos)
        >>> truncation, roundoff = sweep.slopes["x"]
        >>> round(truncation, 1), sweep.slopes["central", "x"] == sweep.slopes["x"]
        (2.0, True)
        """
        found = {key: self.curve(*key) for key in self.curves}
        return Slopes({key: (c.truncation, c.roundoff) for key, c in found.items()})

    @property
    def best_step(self) -> dict[str, float]:
        """Step, absolute, at which truncation and rounding balance: by input.

        For the first method.
        """
        return {
            name: self.curve(self.methods[0], name).best_step for name in self.inputs
        }

    @property
    def floor(self) -> dict[str, float]:
        """Smallest relative error of the numeric side, lucky crossings left out."""
        return {name: self.curve(self.methods[0], name).floor for name in self.inputs}

    @property
    def theory(self) -> dict[str, list[tuple[str, float, float]]]:
        """Lines ``10**c * h**p`` of each method as (label, p, c), fitted to the data.

        The truncation error ``h**p`` and the rounding error ``u / h`` of the median
        input.
        """
        lines: dict[str, list[tuple[str, float, float]]] = {}
        for method in self.methods:
            curves = [self.curve(method, name) for name in self.inputs]
            bends = [c.truncation_line for c in curves]
            bends = [(p, c) for p, c in bends if np.isfinite(c)]
            found = []
            if bends:
                power = sorted(p for p, _ in bends)[len(bends) // 2]
                height = float(np.median([c for p, c in bends if p == power]))
                label = "truncation ~ h" + _superscript(power)
                found.append((label, power, height))
            falls = [c.roundoff_line[1] for c in curves]
            falls = [c for c in falls if np.isfinite(c)]
            if falls:
                found.append(("rounding ~ u/h", -1.0, float(np.median(falls))))
            lines[method] = found
        return lines

    # ------------------------------------------------------------- verdicts
    @property
    def verdict(self) -> Verdict:
        """The worst verdict of any input; undecided where nothing was swept."""
        return max(self.verdicts.values(), default=Verdict.UNDECIDED)

    def __bool__(self) -> bool:
        """Whether every input agrees, for ``assert gl.sweep(...)``; undecided is not.

        Examples
        --------
        >>> bool(gl.sweep(lambda x: x @ x, np.ones(2), grad=lambda x: x))
        False
        """
        return self.verdict == Verdict.AGREES

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Verdict of each input, from a check; never from a single step."""
        return {block.variable.name: block.verdict for block in self.blocks}

    def read(self, method: str, name: str) -> str:
        """Say in one sentence what one curve shows; `reading` takes the first."""
        curve = self.curve(method, name)
        return read_sweep(self[name], self.steps, self.curves[method, name], curve)

    @property
    def reading(self) -> dict[str, str]:
        """One sentence per input: "V: correct, ...", "plateau at 0.33 ...: ..."."""
        return {name: self.read(self.methods[0], name) for name in self.inputs}

    @property
    def table(self) -> pd.DataFrame:
        """One row per input, method and step.

        Columns ``input, method, step, error, error_bar``; steps are absolute, errors
        and bars relative: the worst of the block at that step, and what belongs to it.
        """
        from gradlab.presentation.tables import sweep_table

        return sweep_table(self)

    def entry(self, name: str, index: int | tuple[int, ...], row: int = 0) -> Sweep:
        """Return the sweep of one single entry, read by itself.

        Parameters
        ----------
        name
            The input.
        index
            Index into it, or the position in row-major order.
        row
            Output row; 0 is the only one of a scalar function.

        Raises
        ------
        InputError
            If the entry was not looked at, or the matrices were too large to keep.

        Examples
        --------
        >>> sweep = gl.sweep(lambda x: (x**3).sum(), np.ones(2), grad=lambda x: x)
        >>> sweep.entry("x", 1).inputs
        ('x[1]',)
        """
        block = self[name]
        rows = block.analytic.shape[0]
        labels = [block.label(column) for column in range(len(block.columns))]
        wanted = entry_name(block.variable, index)
        if wanted not in labels or not 0 <= row < rows:
            shown = ", ".join([*labels[:5], *(["..."] if len(labels) > 5 else [])])
            msg = (
                f"{wanted}, row {row}, was not looked at; there is row 0 "
                f"{f'to {rows - 1} ' if rows > 1 else ''}of {shown}"
            )
            raise InputError(msg)
        if (self.methods[0], name) not in self.matrices:
            msg = "the matrices of this sweep were too large to keep: sweep less of it"
            raise InputError(msg)
        column = labels.index(wanted)
        single = block.only(row, column)
        variable = dataclasses.replace(
            block.variable, name=wanted, shape=(), support=None, dtype="float64"
        )
        single = dataclasses.replace(
            single, variable=variable, columns=np.zeros(1, np.intp)
        )
        part = np.s_[:, row : row + 1, column : column + 1]
        pick = {(m, wanted): (m, n) for m, n in self.matrices if n == name}
        matrices = {new: self.matrices[old][part] for new, old in pick.items()}
        matrix_bars = {new: self.matrix_bars[old][part] for new, old in pick.items()}
        curves = {
            new: _curves_of(
                single, matrices[new], matrix_bars[new], cut=self.curves[old].cut
            )
            for new, old in pick.items()
        }
        return dataclasses.replace(
            self,
            blocks=(single,),
            curves=curves,
            matrices=matrices,
            matrix_bars=matrix_bars,
        )

    # ------------------------------------------------------------- display
    def plot(self, ax: Axes | None = None) -> SweepDisplay:
        """Draw error against step on logarithmic axes; holds ``figure_`` and ``ax_``.

        Parameters
        ----------
        ax
            Axes to draw into; default a new figure.
        """
        from gradlab.presentation.plots import SweepDisplay

        return SweepDisplay(self).plot(ax)

    def explore(self) -> EpsilonSweep:
        """Open the live widget on this sweep; it needs a kernel."""
        from gradlab.presentation.widgets.epsilon import EpsilonSweep

        return EpsilonSweep(self, self.report)

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """Return one self-contained page, and write it to `path` if given.

        The page needs no kernel and no network.

        Parameters
        ----------
        path
            Name of the file; default none is written.

        Examples
        --------
        >>> sweep = gl.sweep(lambda x: np.sin(x).sum(), np.ones(2), grad=np.cos)
        >>> sweep.to_html().startswith("<!doctype html>")
        True
        """
        from gradlab.presentation.html import page

        return page(self, path)

    def __repr__(self) -> str:
        from gradlab.presentation.screens import printable, terminal
        from gradlab.presentation.sweep_text import sweep_text

        return printable(sweep_text(self, terminal()[0]))

    __str__ = __repr__

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        from gradlab.presentation.html import mimebundle

        return mimebundle(self)


def _curves_of(
    block: Swept, matrices: NDArray[Any], bars: NDArray[Any], *, cut: bool = False
) -> Curves:
    """Reduce numeric Jacobians, shape (S, rows, columns), to curves.

    Examples
    --------
    >>> sweep = gl.sweep(lambda x: (x**3).sum(), np.ones(2), grad=lambda x: 3 * x**2)
    >>> key = ("central", "x")
    >>> again = _curves_of(sweep["x"], sweep.matrices[key], sweep.matrix_bars[key])
    >>> bool((again.error == sweep.errors[key]).all())
    True
    """
    curves = dataclasses.replace(Curves.blank(len(matrices)), cut=cut)
    seen = np.zeros(block.analytic.shape, bool)
    for rung, (value, bar) in enumerate(zip(matrices, bars, strict=True)):
        curves.put(rung, block, value, bar, seen)
    return curves


def _superscript(power: float) -> str:
    whole = {1.0: "", 2.0: "²", 3.0: "³", 4.0: "⁴"}
    return whole.get(power, f"^{power:.1f}")
