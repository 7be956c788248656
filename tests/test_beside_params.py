"""With ``params=`` only parameters are compared, and the report says what is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import InputError

X = np.arange(1.0, 4.0)


def _checked(w: Any, **options: Any) -> gl.Report:
    def f(x: Any) -> float:
        return float((w * x).sum())

    def wrong_for_x(x: Any) -> dict[str, Any]:
        return {"w": x, "x": 77 * x}

    return gl.check(f, X, params={"w": w}, grad=wrong_for_x, **options)


def test_an_input_beside_parameters_is_named_as_not_compared() -> None:
    """Its gradient is wrong, and nobody looked at it."""
    report = _checked(np.ones(3))
    assert report.verdict is gl.Verdict.AGREES
    assert report.remarks[0].startswith("not compared: x, beside params=")


def test_nothing_is_said_where_parameters_were_asked_for_by_name() -> None:
    """Who names what to compare knows what is not."""
    assert not _checked(np.ones(3), wrt="w").remarks


def test_labels_and_parameters_are_no_inputs_that_lack() -> None:
    """Integers have no gradient, and the parameters are compared."""
    w = np.ones(3)
    report = gl.check(
        lambda w, y: float((w[y] ** 2).sum()),
        w,
        np.array([0, 1, 2]),
        params={"w": w},
        grad=lambda w, y: {"w": 2 * w},
    )
    assert not report.remarks


def test_wrt_says_how_an_input_beside_parameters_is_compared() -> None:
    """In a call of its own."""
    with pytest.raises(InputError, match="check x in a call without params="):
        _checked(np.ones(3), wrt=["w", "x"])
    with pytest.raises(InputError, match=r"differentiable inputs are 'w'$"):
        _checked(np.ones(3), wrt="z")


def test_tensors_beside_parameters_are_named_as_well() -> None:
    """Also one that requires grad."""
    torch = pytest.importorskip("torch")
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    w = torch.ones(3, dtype=torch.float64, requires_grad=True)
    report = gl.check(lambda x: (w * x).sum(), x, params={"w": w})
    assert report.remarks[0].startswith("not compared: x, beside params=")
