"""The first page: what it shows is what comes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gradlab as gl

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_block_that_runs_as_it_stands_prints_what_is_shown(capsys):
    """Copied by somebody new, it gives the very text below it."""
    source = README.read_text(encoding="utf-8")
    found = re.search(
        r"```python\n(import numpy.*?)```\n\n```text\n(.*?)```", source, re.DOTALL
    )
    code, shown = found.groups()

    exec(compile(code, str(README), "exec"), {})

    bar = re.compile(r"± \S+")  # its digits are those of the machine
    assert bar.sub("±", capsys.readouterr().out).startswith(bar.sub("±", shown))


def test_random_directions_cost_what_is_said():
    """Some twenty evaluations for a whole model, of whatever size."""
    torch = pytest.importorskip("torch")
    text = " ".join(README.read_text(encoding="utf-8").split())

    assert "some twenty for a whole model along random directions" in text
    for width in (5, 200):
        model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh())
        x = torch.randn(4, width, dtype=torch.float64)
        report = gl.check(model.double(), x, coverage="probe")
        assert report.ok
        assert 15 <= report.evaluations <= 25
