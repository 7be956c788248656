"""Pages of sweeps as files: which curves are drawn, and how each is named."""

from __future__ import annotations

import driver
import numpy as np
import pytest
from playwright.sync_api import expect

import gradlab as gl
from gradlab.presentation.packing_results import pack_sweep

pytestmark = pytest.mark.browser

LABELS = ".gl svg[role=group] text"


def test_a_gradient_of_nan_is_said_and_not_drawn(show):
    """It has no error that a curve could show: its name says so, and the sentence."""
    point = {"w": np.arange(1.0, 4), "b": np.ones(2)}
    grads = {"w": np.array([2.0, np.nan, 6]), "b": np.cos(np.ones(2))}
    sweep = gl.sweep(lambda p: (p["w"] @ p["w"] + np.sin(p["b"]).sum(), grads), point)
    page = show(pack_sweep(sweep))

    drawn = page.eval_on_selector_all(
        ".gl .curve", "all => all.map(g => [g.dataset.name, g.lastChild.tagName])"
    )
    assert dict(drawn) == {"w": "path", "b": "circle"}  # a dot on a curve alone
    assert page.get_attribute(".gl .curve[data-name=w] path >> nth=1", "d") == ""
    expect(page.locator(LABELS, has_text="w: no curve")).to_be_visible()
    assert "analytic nan" in driver.read(page, ".gl .finding")
    assert "NaN" in driver.read(page, ".gl .chip >> nth=0")
