"""Taylor tests of functions that do not move at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradlab as gl

X = np.arange(1.0, 7.0)


def _constant(_: Any) -> float:
    return 3.0


def test_a_constant_has_the_gradient_zero() -> None:
    """As a check says; there is no remainder, and so no rate."""
    test = gl.taylor_test(_constant, X, grad=np.zeros_like)
    assert test.verdict is gl.Verdict.AGREES
    assert "nan" not in str(test)


def test_a_constant_has_no_other_gradient() -> None:
    """The remainder is the gradient itself."""
    assert not gl.taylor_test(_constant, X, grad=lambda x: 1e-3 * x).ok


@pytest.mark.parametrize("size", [1e-6, 1.0])
def test_a_gradient_of_zeros_is_wrong_where_f_moves(size: float) -> None:
    """However little it does."""
    test = gl.taylor_test(lambda x: 3 + size * x.sum(), X, grad=np.zeros_like)
    assert test.verdict is gl.Verdict.DISAGREES


def test_short_arithmetic_that_stands_still_proves_nothing() -> None:
    """256 + x for x below a half is 256 in half precision, and its slope is 1."""
    x = np.full(2, 1e-3, np.float16)
    test = gl.taylor_test(
        lambda x: np.float16(256) + x.sum(dtype=np.float16),
        x,
        grad=np.zeros_like,
    )
    assert test.verdict is not gl.Verdict.AGREES
