"""Evaluating near a point: counted, bounded, put back."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import gradlab as gl
from gradlab.building import Sides, build_subject
from gradlab.differentiation.evaluation import base_row, displaced_rows, line_rows
from gradlab.differentiation.metering.budget import Budget, parse_budget
from gradlab.differentiation.metering.meter import BudgetExhausted, Meter
from gradlab.errors import BudgetError, SubjectError


@pytest.fixture
def subject():
    """A product of three numbers, which shows every displacement."""
    return build_subject(np.prod, (np.array([1.0, 2.0, 3.0]),), Sides(grad=np.ones(3)))


def test_displacements_and_their_return(subject):
    """Each row is f with one coordinate displaced; afterwards the point is there."""
    meter = Meter()
    base = base_row(subject, meter)
    values, taken = displaced_rows(
        subject, 0, np.array([0, 2]), np.array([0.5, -1.0]), meter
    )
    assert values.tolist() == [[9.0], [4.0]]
    assert taken.tolist() == [0.5, -1.0]
    assert meter.evaluations == 3
    assert base_row(subject, meter) == base


def test_the_step_taken_is_reported():
    """A displacement below the last digit is reported as it was rounded."""
    x = np.array([1e8])
    subject = build_subject(np.sum, (x,), Sides(grad=np.ones(1)))
    base_row(subject, Meter())
    _, taken = displaced_rows(subject, 0, np.array([0]), np.array([1e-8]), Meter())
    assert taken[0] == (1e8 + 1e-8) - 1e8


def test_exceptions_away_from_the_point_are_nan():
    """The row is nan, the meter remembers the first one, the loop goes on."""

    def positive(x):
        if x[0] < 1:
            raise ValueError(f"below one: {x[0]}")
        return x[0]

    subject = build_subject(positive, (np.ones(1),), Sides(grad=np.ones(1)))
    meter = Meter()
    base_row(subject, meter)
    values, _ = displaced_rows(
        subject, 0, np.zeros(3, int), np.array([-0.5, 0.5, -0.1]), meter
    )
    assert np.isnan(values.ravel()).tolist() == [True, False, True]
    assert meter.raised == 2
    assert "below one: 0.5" in str(meter.first_exception)


def test_exception_at_the_point():
    """There it is the user's to mend, and the cause is chained."""
    subject = build_subject(lambda x: 1 / 0, (np.ones(1),), Sides(grad=np.ones(1)))
    with pytest.raises(SubjectError) as caught:
        base_row(subject, Meter())
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_lines_move_all_inputs(subject):
    """Along a line f is evaluated at x + t d, and the point is put back."""
    meter = Meter()
    base_row(subject, meter)
    values = line_rows(subject, [np.array([1.0, 0.0, -1.0])], [0.0, 1.0], meter)
    assert values.ravel().tolist() == [6.0, 8.0]
    assert base_row(subject, meter).tolist() == [6.0]


def test_a_line_takes_memory_for_its_largest_input_once():
    """Beside the points there is one array of so many numbers, not two at each step."""
    sizes = (3, 200_000, 7)
    inputs = [np.full(size, 2.0) for size in sizes]
    subject = build_subject(
        lambda *given: np.array([each @ each for each in given]),
        tuple(inputs),
        Sides(vjp=lambda cotangent, *given: given),
    )
    base_row(subject, meter := Meter())
    directions = [np.linspace(-1, 1, size) for size in sizes]

    tracemalloc.start()
    values = line_rows(subject, directions, [0.0, 3.0, -1.0], meter)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    # |2 + t d|^2 = 4 n + t^2 |d|^2, where the d of each input sum to zero
    squares = [each @ each for each in directions]
    for row, t in zip(values, (0.0, 3.0, -1.0), strict=True):
        assert row == pytest.approx(4 * np.array(sizes) + t**2 * np.array(squares))
    assert peak < 2.5 * inputs[1].nbytes  # the point is the second


def test_budget_of_evaluations(subject):
    """What does not fit is not begun, and the point is there."""
    meter = Meter(Budget(evaluations=3))
    base_row(subject, meter)
    with pytest.raises(BudgetExhausted):
        displaced_rows(subject, 0, np.arange(3), np.ones(3), meter)
    assert meter.evaluations == 3
    assert subject.point(0).tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        (5, Budget(evaluations=5)),
        ("30s", Budget(seconds=30.0)),
        ("2min", Budget(seconds=120.0)),
        ("500ms", Budget(seconds=0.5)),
        ("1h", Budget(seconds=3600.0)),
        (None, Budget()),
    ],
)
def test_budgets_are_read(text, budget):
    """Numbers are evaluations, texts are durations."""
    assert parse_budget(text) == budget


@pytest.mark.parametrize("text", [0, -3, 2.5, "", "s", "-1s", "10", True, "10 days"])
def test_budgets_are_refused(text):
    """Everything else is refused, with the value."""
    with pytest.raises(BudgetError, match="budget must be"):
        parse_budget(text)


def test_outputs_of_another_shape_far_away():
    """What an integrator leaves out far away, giving up, hides no wrong sign."""

    def integrated(p):
        values = np.exp(p[0] * np.arange(1.0, 4.0))
        return values[values < 60.0]

    def minus(p):
        times = np.arange(1.0, 4.0)
        return -(times * np.exp(p[0] * times))[:, None]

    report = gl.check(integrated, np.ones(1), jac=minus)

    assert [str(found.kind) for found in report.findings] == ["sign"]
