"""What raised is told with the line of the user's code where it did."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
import torch
from torch import nn

import gradlab as gl
from gradlab.errors import SubjectError
from gradlab.presentation.text import report_text

FILE = pathlib.Path(__file__)
X = np.ones(3)


def line_of(words):
    """Name the only line of this file that ends with these words."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    (number,) = (i for i, line in enumerate(lines, 1) if line.endswith(words))
    return f"({FILE.name}:{number})"


def transposed(x):
    """Multiply by a matrix of another size, inside NumPy."""
    return np.linalg.inv(np.ones((2, 3))) @ x  # in the gradient


class Unpacking(torch.autograd.Function):
    """A square that saves one tensor and unpacks two."""

    @staticmethod
    def forward(ctx, x):
        """Square."""
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, upstream):
        """Unpack what was never saved."""
        x, y = ctx.saved_tensors  # in the backward
        return 2 * x * y * upstream


class Square(nn.Module):
    """The square as a layer."""

    def forward(self, x):
        """Apply it."""
        return Unpacking.apply(x)


def test_function_that_raises_says_where():
    """The line is the user's, though NumPy raised further down."""

    def function(x):
        return np.linalg.inv(x[:2]).sum()  # in the function

    with pytest.raises(SubjectError) as caught:
        gl.check(function, X, grad=transposed)
    assert str(caught.value).endswith(line_of("# in the function"))


def test_gradient_that_raises_says_where():
    """So does the finding about a gradient by hand, or a backward."""
    by_hand = gl.check(lambda x: (x**2).sum(), X, grad=transposed)
    point = torch.ones(3, dtype=torch.float64)
    by_torch = gl.check(Unpacking.apply, point)

    assert line_of("# in the gradient") in by_hand.findings[0].evidence
    assert line_of("# in the backward") in by_torch.findings[0].evidence


def test_layer_whose_backward_raises_lets_nothing_through():
    """Gradients upstream are not there: neither nan, nor free of what happened."""
    net = nn.Sequential(nn.Linear(2, 2), Square()).double()
    report = gl.check(net, torch.ones(1, 2, dtype=torch.float64))
    (finding,) = report.findings
    text = report_text(report)

    assert finding.where == "1"
    assert line_of("# in the backward") in finding.evidence
    assert finding.evidence.endswith("no gradient passes through it.")
    assert finding.advice.startswith("Make its backward run")
    assert " nan " not in text
    assert " none " in text


def test_what_raised_is_no_unknown_cause():
    """The heading names it, as the sentence does."""
    report = gl.check(lambda x: (x**2).sum(), X, grad=transposed)

    assert "x: raised an error (error)" in report_text(report)


HEIGHTS = np.array([0.3, -0.7, 1.1, 0.2, -0.4, 0.9])


def between(x):
    """Interpolate a table, which ends at 5: what lies beyond raises."""
    k = np.floor(x).astype(int)
    return (x - k) * HEIGHTS[k + 1] + (k + 1 - x) * HEIGHTS[k]


def slopes(x, *, last=0.9):
    """Differences of the table, the last of them times a factor."""
    k = np.floor(x).astype(int)
    return np.diag((HEIGHTS[k + 1] - HEIGHTS[k]) * np.array([1.0, 1.0, last]))


def test_points_well_inside_of_a_table_are_not_at_its_edge():
    """The third stands 0.2 below the end: a step as long as that is a long one."""
    report = gl.check(between, np.array([0.5, 3.3, 4.8]), jac=slopes)

    (told,) = (f for f in report.findings if f.kind == "nonfinite")
    away = float(told.evidence.removesuffix(".").rpartition(" ")[2])
    assert report.diagnosis == "scale"
    assert told.severity == "note"
    assert told.advice == "Nothing to do."
    assert "away from the point" in told.evidence
    assert "x[2] was moved by" in told.evidence
    assert away >= 0.2


def test_a_point_next_to_the_end_is_at_the_edge():
    """At 1e-9 below it every step that says anything crosses the end."""
    x = np.array([0.5, 3.3, 5 - 1e-9])

    report = gl.check(between, x, jac=lambda x: slopes(x, last=1.0))

    told = [f for f in report.findings if f.kind == "nonfinite"]
    assert any("next to the point raised" in f.evidence for f in told)


@pytest.mark.parametrize("executor", [None, "thread"])
def test_how_far_it_raised_is_known_of_workers_too(executor):
    """What others evaluate is told in the same words."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        report = gl.check(
            between,
            np.array([0.5, 3.3, 4.8]),
            jac=slopes,
            executor=pool if executor else None,
        )

    (told,) = (f for f in report.findings if f.kind == "nonfinite")
    assert "the nearest where x[2] was moved by" in told.evidence
