"""Switches that a function leaves turned are turned back; what cannot be is told."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gradlab as gl
from gradlab.subject.state_guard import StateGuard

torch = pytest.importorskip("torch")


def switch(name):
    """Value of a switch that the body turns."""
    return {
        "autocast": lambda: torch.is_autocast_enabled("cpu"),
        "default device": torch.get_default_device,
        "precision of matrix products": torch.get_float32_matmul_precision,
    }[name]()


@pytest.mark.parametrize(
    ("name", "turn"),
    [
        ("autocast", lambda: torch.set_autocast_enabled("cpu", True)),
        ("default device", lambda: torch.set_default_device("meta")),
        (
            "precision of matrix products",
            lambda: torch.set_float32_matmul_precision("medium"),
        ),
    ],
)
def test_switches_of_torch_are_restored(name, turn):
    """What decides where and how precisely torch computes is as it was."""
    before = switch(name)

    with StateGuard() as guard:
        turn()
        assert switch(name) != before

    assert switch(name) == before
    assert [str(change) for change in guard.changes()] == [
        f"setting torch's {name} changed"
    ]


def test_history_that_got_longer_is_told_in_the_report():
    """Values return; torch has no way to give a tensor the graph that it had."""
    made = torch.ones(3, dtype=torch.float64, requires_grad=True) * 1.0

    def f(x):
        made.mul_(2.0)
        return 2 * x

    report = gl.check(f, torch.ones(3, dtype=torch.float64))

    assert made.tolist() == [1.0, 1.0, 1.0]
    assert "history made changed and cannot be put back" in report.remarks


def test_iterators_are_not_said_to_be_put_back():
    """They only go forward: the function does not repeat itself, and that is told."""
    numbers = itertools.count(1)

    report = gl.check(lambda x: x * next(numbers), np.ones(2), jac=lambda _: np.eye(2))

    assert [finding.kind for finding in report.findings] == ["nondeterministic"]
    assert "iterator numbers changed and cannot be put back" in report.remarks


def test_report_of_a_function_that_leaves_no_trace_has_no_remarks():
    """There is nothing to tell."""
    x = torch.ones(3, dtype=torch.float64)

    assert gl.check(torch.sin, x).remarks == ()


def test_a_switch_that_torch_does_not_tell_stops_no_check(monkeypatch):
    """What was set by `fp32_precision` cannot be read by the older function."""

    def refuse():
        raise RuntimeError("you have used mix of the legacy and new APIs")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", refuse)
    x = torch.linspace(0, 1, 5, dtype=torch.float64, requires_grad=True)

    report = gl.check(torch.sin, x)

    assert report.ok
    assert not any("put back" in remark for remark in report.remarks)
