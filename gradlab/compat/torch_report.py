"""The story of a failed gradcheck: a report on the same Jacobians, and its message."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.checks import check
from gradlab.comparison.comparison import Comparison
from gradlab.comparison.verdict import Verdict
from gradlab.compat.torch_machinery import as_tuple, machinery
from gradlab.compat.torch_pairs import Mismatch, Pair, Rule
from gradlab.compat.torch_troubles import trouble
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.labels import few_of
from gradlab.report import Report
from gradlab.subject.subject import Variable
from gradlab.subject.tensors.values import dtype_name
from gradlab.subject.tree import argument_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gradlab.compat.torch_calls import Asked, Point

__all__ = ["Told", "story"]

_MOST_PRINTED = 64  # entries of a matrix in a message; more help nobody
_SECOND_LOOK = "10s"  # a failure is rare, and its cause worth ten seconds


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """What things are called: the function, and its arguments beyond the first ones."""

    func: str
    arguments: Callable[[int], list[str]]
    output: str = "out"

    @classmethod
    def first_order(cls, func: Callable[..., Any]) -> Told:
        """Names of a function and of its arguments."""
        return cls(_name(func), lambda count: argument_names(func, count))

    @classmethod
    def second_order(cls, func: Callable[..., Any], inputs: int, seeds: int) -> Told:
        """Names for the gradient of a function, as a function of inputs and seeds."""

        def arguments(count: int) -> list[str]:
            names = argument_names(func, inputs)
            names += [
                f"grad_output{k}" if seeds > 1 else "grad_output" for k in range(seeds)
            ]
            return names[:count]

        return cls(f"the gradient of {_name(func)}", arguments, "grad")


def _name(func: Any) -> str:
    owner = getattr(func, "__self__", None)
    if getattr(func, "__name__", "") == "apply" and isinstance(owner, type):
        return f"{owner.__name__}.apply"
    name = getattr(func, "__name__", type(func).__name__)
    return "the function" if name == "<lambda>" else str(name)


def story(
    func: Callable[..., Any],
    point: Point,
    asked: Asked,
    told: Told,
    cause: Exception,
) -> tuple[str, Report]:
    """Tell a failure: the message of the exception, and the report it carries.

    Parameters
    ----------
    func
        As it was checked.
    point
        Inputs and outputs of the first evaluation.
    asked
        The options.
    told
        Names.
    cause
        A `Mismatch`, or torch's GradcheckError from another sub-check.
    """
    began = time.perf_counter()
    if not isinstance(cause, Mismatch):
        text = "".join(str(part) for part in cause.args)
        finding = trouble(text)
        report = _report(told, (), (finding,), asked, began)
        lines = [f"{told.func}: {finding.kind}. {finding.evidence}", finding.advice]
        return "\n".join([*lines, text]), report
    comparisons = tuple(_compared(p, point, told, asked.rule) for p in cause.pairs)
    findings, remarks, found = _second_look(func, point, told, comparisons)
    comparisons = comparisons or found
    report = _report(told, comparisons, findings, asked, began, remarks)
    return _message(cause, comparisons, report, point, told, asked.rule), report


def _names(point: Point, told: Told) -> list[str]:
    """Names of the inputs that require grad."""
    every = told.arguments(len(point.inputs))
    return [every[k] for k in point.wanted]


# ------------------------------------------------------------------ Jacobians
def _compared(pair: Pair, point: Point, told: Told, rule: Rule) -> Comparison:
    """Judge one pair entry by entry, by torch's rule."""
    analytic, numeric = _matrix(pair.analytic), _matrix(pair.numeric)
    with np.errstate(all="ignore"):
        allowed = rule.atol + rule.rtol * np.abs(numeric)
        agrees = (np.abs(analytic - numeric) <= allowed) | (analytic == numeric)
        base = np.abs(_matrix(pair.base.reshape(1, -1)))
        roundoff = _epsilon(pair.base) * base / rule.eps
    return Comparison(
        output=_output(pair, point, told),
        input=_input(pair, point, told),
        analytic=analytic,
        numeric=numeric,
        numeric_error=np.ascontiguousarray(np.broadcast_to(roundoff, numeric.shape)),
        allowed=np.asarray(allowed, dtype=np.float64),
        verdicts=np.where(agrees, Verdict.AGREES, Verdict.DISAGREES).astype(np.int8),
        step=np.full(numeric.shape, rule.eps),
        method="central",
    )


def _matrix(tensor: Any) -> NDArray[Any]:
    """Return outputs x inputs as NumPy; torch keeps the transpose."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    plain = plain.cdouble() if plain.is_complex() else plain.double()
    return np.ascontiguousarray(plain.numpy().T)


def _epsilon(tensor: Any) -> float:
    return float(machinery().torch.finfo(tensor.dtype).eps)


def _output(pair: Pair, point: Point, told: Told) -> Variable:
    number = point.kept[pair.output]
    name = told.output if point.count == 1 else f"{told.output}{number}"
    if pair.part and not pair.forward:
        name += ".imag" if pair.part == "imaginary" else ".real"
    return Variable(name, tuple(pair.base.shape), dtype_name(pair.base.dtype))


def _input(pair: Pair, point: Point, told: Told) -> Variable:
    value = point.inputs[point.wanted[pair.input]]
    name, dtype = _names(point, told)[pair.input], dtype_name(value.dtype)
    if pair.forward and dtype.startswith("complex"):
        name += ".imag" if pair.part == "imaginary" else ".real"
        dtype = dtype_name(value.real.dtype)
    return Variable(name, tuple(value.shape), dtype)


# ------------------------------------------------------------------ causes
def _second_look(
    func: Callable[..., Any],
    point: Point,
    told: Told,
    comparisons: tuple[Comparison, ...],
) -> tuple[tuple[Finding, ...], tuple[str, ...], tuple[Comparison, ...]]:
    """Ask `gradlab.check` whether it is the gradient or the difference, and why.

    Returns findings, remarks, and the comparisons of that check, which stand in where
    fast mode has computed no Jacobians.
    """

    def tensors_only(*arguments: Any) -> Any:
        result = func(*arguments)
        chosen = tuple(as_tuple(result)[k] for k in point.kept)
        return chosen[0] if point.count == 1 else chosen

    tensors_only.__name__ = told.func  # where a finding says whose code is wrong
    names = _names(point, told)
    wrong = [c for c in comparisons if c.verdict == Verdict.DISAGREES]
    # fast mode has computed none where there are too many entries for more than probes
    how: dict[str, Any] = (
        {"budget": _SECOND_LOOK} if comparisons else {"coverage": "probe"}
    )
    try:
        second = check(tensors_only, *point.inputs, names=names, **how)
    except Exception as error:  # noqa: BLE001 - a cause is a bonus, never a new failure
        note = f"no second look: {type(error).__name__}: {error}"
        return tuple(_unexplained(c) for c in wrong) or (_unknown(),), (note,), ()
    known = tuple(f for f in second.findings if f.severity == "error")
    if known or not wrong:
        added = () if known else (_unknown(),)
        return (*added, *second.findings), (), second.comparisons
    found = (*(_step(c, second) for c in wrong), *second.findings)
    return found, (), second.comparisons


def _unknown() -> Finding:
    return Finding(
        BugKind.UNKNOWN,
        "error",
        "",
        0.1,
        "The Jacobians disagree along random directions.",
        "Run gradlab.locate on the same function to find the entries.",
    )


def _unexplained(comparison: Comparison) -> Finding:
    row, column = comparison.ranking(1)[0]
    return Finding(
        BugKind.UNKNOWN,
        "error",
        comparison.input.name,
        0.1,
        f"{comparison.counts[Verdict.DISAGREES]} of {comparison.verdicts.size} entries "
        f"disagree, the worst at {comparison.label(row, column)}.",
        f"Look at the error matrix: error.report.plot({comparison.input.name!r}).",
    )


def _step(comparison: Comparison, second: Report) -> Finding:
    """Say that the difference quotient is what is off."""
    sure = second.verdict == Verdict.AGREES
    found = "right" if sure else "not wrong as far as can be told"
    return Finding(
        BugKind.STEP_SIZE,
        "warning",
        comparison.input.name,
        0.8 if sure else 0.4,
        f"With steps chosen for the function gradlab finds this gradient {found}; the "
        f"difference with eps={comparison.step.flat[0]:g} is what is off.",
        "Pass a larger or smaller eps, or use gradlab.check, which chooses it.",
    )


# ------------------------------------------------------------------ words
def _report(
    told: Told,
    comparisons: tuple[Comparison, ...],
    findings: tuple[Finding, ...],
    asked: Asked,
    began: float,
    remarks: tuple[str, ...] = (),
) -> Report:
    wrong = [c for c in comparisons if c.verdict == Verdict.DISAGREES]
    wrong.sort(key=lambda c: -float(np.nan_to_num(c.error, nan=np.inf).max(initial=0)))
    named = [place for f in findings if f.severity == "error" for place in f.places]
    return Report(
        subject=told.func,
        analytic="autograd, as torch.autograd.gradcheck reads it",
        comparisons=comparisons,
        findings=findings,
        culprits=tuple(dict.fromkeys([*named, *(c.input.name for c in wrong)])),
        method=f"central, eps={asked.rule.eps:g}, torch's rule",
        coverage="full",
        evaluations=1 + 2 * sum(c.shape[1] for c in comparisons),
        seconds=time.perf_counter() - began,
        seed=0,
        remarks=(
            "the error bars are round-off only: a fixed step says nothing of the rest",
            *remarks,
        ),
    )


def _message(
    cause: Mismatch,
    comparisons: tuple[Comparison, ...],
    report: Report,
    point: Point,
    told: Told,
    rule: Rule,
) -> str:
    pair = cause.where
    output, input_ = _output(pair, point, told), _input(pair, point, told)
    head = (
        f"{told.func}: the Jacobians of output {point.kept[pair.output]} "
        f"({output.name}) with respect to input {point.wanted[pair.input]} "
        f"({input_.name}) disagree"
    )
    lines = [head + (f" ({cause.note})" if cause.note else "")]
    shown = [c for p, c in zip(cause.pairs, comparisons, strict=False) if p is pair]
    if not cause.pairs:
        shown = [c for c in comparisons if c.verdict == Verdict.DISAGREES][:1]
    for comparison in shown:
        lines += _worst(comparison, rule)
    finding = next(iter(report.findings), None)
    if finding is not None:
        place = f" in {few_of(finding.places, 4)}" if finding.places else ""
        lines += [f"  likely cause  {finding.kind}{place}: {finding.evidence}"]
        lines += [f"  next step     {finding.advice}"]
    lines.append(cause.line)
    if cause.pairs and pair.analytic.numel() <= _MOST_PRINTED:
        lines += [f"numerical:{pair.numeric}", f"analytical:{pair.analytic}"]
    return "\n".join(lines)


def _worst(comparison: Comparison, rule: Rule) -> list[str]:
    row, column = comparison.ranking(1)[0]
    analytic = comparison.analytic[row, column]
    numeric = comparison.numeric[row, column]
    wrong = comparison.counts[Verdict.DISAGREES]
    name = f"{comparison.output.label(row)} / "
    label = comparison.label(row, column)
    label = label if label.startswith(name) else name + label
    where = f"{label}, of {wrong} that disagree among {comparison.verdicts.size}"
    allowed = comparison.allowed[row, column]
    return [
        f"  worst entry   {where}",
        f"  analytic      {analytic:.6g}",
        f"  numeric       {numeric:.6g} (central difference, eps={rule.eps:g})",
        f"  difference    {abs(analytic - numeric):.3g}; allowed {allowed:.3g}",
    ]
