"""Traits and keywords of the widgets: what there is not to be shown is refused."""

from __future__ import annotations

import numpy as np
import pytest
import traitlets

import gradlab as gl
from gradlab.errors import InputTypeError


@pytest.fixture
def report():
    """Two inputs, of three and of two entries; both gradients are wrong."""
    return gl.check(
        lambda x, y: (x**2).sum() + (y**2).sum(),
        *(np.ones(3), np.ones(2)),
        grad=lambda x, y: (x, y),
    )


@pytest.mark.parametrize(
    ("trait", "value"),
    [
        ("selected", [0, 3]),
        ("selected", [-1, 0]),
        ("selected", [1]),
        ("tol", -1.0),
        ("tol", float("nan")),
    ],
)
def test_an_explorer_refuses_what_it_cannot_show(report, trait, value):
    """And keeps what it showed."""
    explorer = gl.JacobianExplorer(report, param="x", selected=[0, 2])

    with pytest.raises(traitlets.TraitError, match=trait):
        explorer.set_trait(trait, value)

    assert explorer.selected == [0, 2]
    assert explorer.tol is None


def test_an_entry_of_another_block_is_let_go(report):
    """`y` has no third entry."""
    explorer = gl.JacobianExplorer(report, param="x", selected=[0, 2])

    explorer.param = "y"

    assert explorer.selected == []


@pytest.mark.parametrize(
    ("trait", "words"),
    [
        ("method", "method must be one of 'central'"),
        ("dtype", "dtype must be one of 'float64'"),
        ("picked", "picked must be one of 'x', 'y'"),
    ],
)
def test_a_sweep_refuses_what_was_not_measured(report, trait, words):
    """Neither when it is made nor later."""
    sweep = report.sweep()

    with pytest.raises(traitlets.TraitError, match=words):
        gl.EpsilonSweep(sweep, **{trait: "foo"})
    with pytest.raises(traitlets.TraitError, match=words):
        gl.EpsilonSweep(sweep).set_trait(trait, "foo")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda r: gl.JacobianExplorer(r, foo=3), "'foo'; it has param=, tol="),
        (lambda r: gl.JacobianExplorer(r, pram="x"), "did you mean param="),
        (lambda r: gl.EpsilonSweep(r.sweep(), step=1e-3), r"did you mean h=\?"),
        (lambda r: gl.JacobianExplorer(r, page={}), "has no option 'page'"),
    ],
)
def test_a_keyword_that_there_is_not_is_told(report, make, words):
    """traitlets took it, warned at most, and showed the picture without it."""
    with pytest.raises(InputTypeError, match=words):
        make(report)


def test_a_layer_that_is_not_there_cannot_be_picked():
    """Those of the audit are named."""
    torch = pytest.importorskip("torch")
    audit = gl.blame(torch.nn.Linear(2, 2), torch.ones(2))

    with pytest.raises(traitlets.TraitError, match="'Linear'; got 'lin'"):
        gl.LayerBlame(audit, picked="lin")
