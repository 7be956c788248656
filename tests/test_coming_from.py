"""The page for people who come from another checker: its code runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import gradlab as gl

PAGE = Path(__file__).resolve().parents[1] / "tutorials" / "coming_from.md"
WATCHED = (
    "check",
    "check_accumulation",
    "check_hessian",
    "check_sparsity",
    "compare_modes",
    "taylor_test",
)


def test_code_on_the_page_runs_and_agrees():
    """Every block, in order; a right gradient that is accused would teach mistrust."""
    pytest.importorskip("torch")
    source = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", source, re.DOTALL)
    kept = {name: [] for name in WATCHED}

    class Watching:
        def __getattr__(self, name):
            real = getattr(gl, name)
            if name not in WATCHED:
                return real

            def watched(*arguments, **options):
                kept[name].append(real(*arguments, **options))
                return kept[name][-1]

            return watched

    session = {"np": np, "gl": Watching()}
    for block in blocks:
        code = block.replace("import gradlab as gl\n", "")
        exec(compile(code, str(PAGE), "exec"), session)

    assert len(blocks) > 10
    assert isinstance(session["report"], gl.Report)
    session["test_layer"](lambda *a, **k: gl.check(*a, **k).raise_if_failed())
    assert all(kept.values())
    assert {r.verdict for results in kept.values() for r in results} == {
        gl.Verdict.AGREES
    }


def test_links_of_the_table_lead_to_sections():
    """Every tool in the table at the top has its section."""
    source = PAGE.read_text(encoding="utf-8")
    heads = re.findall(r"^## (.*)$", source, re.MULTILINE)
    anchors = {
        re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in heads
    }
    links = re.findall(r"\]\(#(.*?)\)", source)

    assert len(links) == 12
    assert set(links) <= anchors
