"""Zero on both sides says little where f moves all the same a little further on."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.comparison.tolerance import Tolerance
from gradlab.differentiation.metering.budget import Budget
from gradlab.differentiation.metering.meter import BudgetExhausted, Meter
from gradlab.differentiation.method import Auto
from gradlab.differentiation.origin import Origin
from gradlab.pipeline.around.noticing import noticed
from gradlab.pipeline.examining import compare
from gradlab.pipeline.plan import Plan
from gradlab.subject.tensors.subjects import torch_subject

torch = pytest.importorskip("torch")


def _told(fn, *inputs, **options):
    report = gl.check(fn, *inputs, **options)
    assert report.verdict == gl.Verdict.AGREES
    kind = gl.BugKind.NONDIFFERENTIABLE
    return {f.where for f in report.findings if f.kind == kind}


@pytest.fixture
def point():
    """Two inputs in float64."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(4, 5, generator=generator, dtype=torch.float64) for _ in range(2)
    ]


@pytest.mark.parametrize("coverage", ["full", "probe"])
def test_a_cut_behind_a_cast_is_not_passed_over_in_silence(point, coverage):
    """In bfloat16 f stands still over small steps, so a cut shows in no difference."""
    weights = torch.linspace(-1.0, 1.0, 20, dtype=torch.float64).reshape(5, 4)

    def f(x, y):
        product = x.detach().bfloat16() @ weights.bfloat16()
        return (y**2).sum() + product.double().sum(1)

    assert _told(f, *point, coverage=coverage) == {"x"}


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: torch.round(3 * x).sum() + (y**2).sum(),
        lambda x, y: (x > y).double().sum() + (y**2).sum(),
    ],
)
def test_steps_that_are_meant_are_told_as_well(fn, point):
    """round(x) and x > y move with x, and no gradient of them is right but zero."""
    assert _told(fn, *point) == {"x"}


def test_what_does_not_move_f_is_not_told(point):
    """An input without influence has slope zero, and that is all there is to it."""
    assert not _told(lambda x, y: (y**2).sum() + 0 * x.sum(), *point)


def test_looking_leaves_the_point_as_it_was(point):
    """The inputs are bitwise what they were."""
    before = [tensor.clone() for tensor in point]

    _told(lambda x, y: torch.round(3 * x).sum() + (y**2).sum(), *point)

    assert all(map(torch.equal, before, point))


def test_what_a_look_costs_is_charged(point):
    """f is evaluated once for each flat input, and nearer where it moves: four times.

    On the meter, and not at the point.
    """
    rows = []

    def f(x, y):
        rows.append(bool((x == point[0]).all()))
        return torch.round(3 * x).sum() + (y**2).sum()

    subject, meter = torch_subject(f, point), Meter()
    own, plan = Origin(subject, subject.row()), Plan(Auto(), Tolerance())
    comparisons = compare(subject, plan, meter).comparisons
    rows.clear()
    before = meter.evaluations

    (told,) = noticed(own, comparisons, meter, plan.seed)

    assert told.where == "x"
    assert rows == [False] * 5
    assert meter.evaluations == before + 5


def test_nothing_is_looked_at_once_the_budget_is_spent(point):
    """What was compared stands; who asked for the look says that it was left out."""
    subject = torch_subject(lambda x, y: torch.round(3 * x).sum() + (y**2).sum(), point)
    own, plan = Origin(subject, subject.row()), Plan(Auto(), Tolerance())
    comparisons = compare(subject, plan, Meter()).comparisons

    with pytest.raises(BudgetExhausted):
        list(noticed(own, comparisons, Meter(Budget(evaluations=0)), plan.seed))


def test_a_budget_that_ends_before_a_flat_input_was_moved_says_so():
    """All slopes are zero, as they were read; nobody has looked whether f is flat."""

    def rounded(x):
        return np.round(10 * x).sum() / 10

    point = np.array([0.12, 0.53, 0.77])
    report = gl.check(rounded, point, grad=np.zeros_like, budget=8)

    assert any("was not looked for to the end" in remark for remark in report.remarks)
