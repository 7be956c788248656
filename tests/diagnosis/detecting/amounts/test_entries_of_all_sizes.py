"""Entries that are decades apart: what explains the largest one explains no other."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


def first(report):
    """Kind and evidence of what is told first."""
    assert report.verdict == gl.Verdict.DISAGREES
    return report.findings[0].kind, report.findings[0].evidence


def reciprocal(x):
    """Slopes of ``1 / x`` are ``-1 / x**2``."""
    return 1 / x


def overflow(x):
    """In float32 it is infinite beyond 88 / 30."""
    with np.errstate(over="ignore"):
        return np.exp(30 * x).astype(np.float32)


@pytest.mark.parametrize("least", [1e-3, 1e-6])
def test_the_factor_of_one_entry_is_no_factor(least):
    """Of -1 / x for -1 / x**2 the factor is x: another one in each entry."""
    x = np.array([least, 1.5, 2.0, 5.0])

    report = gl.check(reciprocal, x, jac=lambda x: np.diag(-1 / x))

    assert first(report)[0] == "wrong_derivative"
    told, _ = first(gl.check(reciprocal, x, jac=lambda x: np.diag(-0.5 / x**2)))
    assert told == "scale"


def test_a_factor_is_told_by_entries_that_directions_judge_as_well():
    """Along one direction the largest slope is nearly everything."""
    x = np.array([-6.0, 0.0, 0.5, 2.0, 9.0])

    def check(jac):
        return gl.check(lambda x: np.exp(-3 * x), x, jac=jac, coverage="probe")

    told, evidence = first(check(lambda x: np.diag(-np.exp(-3 * x) * (1 + x))))

    assert told != "scale", evidence
    assert first(check(lambda x: np.diag(-np.exp(-3 * x))))[0] == "scale"


def test_zero_is_no_place_of_another_slope():
    """3 % of the largest slope is nearly none of it, and so zeros came in."""
    x = np.array([0.1, -0.3, 2.0, 0.5], np.float32)

    report = gl.check(overflow, x, jac=lambda x: np.diag(np.exp(30 * x)))

    assert first(report)[0] == "scale"


def test_nothing_is_fitted_to_an_overflow():
    """A detector that meets an infinite value says nothing; it raised an exception."""
    x = np.array([0.1, -0.3, 2.0, 0.5, 4.0], np.float32)

    with np.errstate(over="ignore", invalid="ignore"):
        report = gl.check(overflow, x, jac=lambda x: np.diag(np.exp(30 * x)))

    assert first(report)[0] == "scale"
    assert all("failed" not in finding.evidence for finding in report.findings)


def test_what_is_small_beside_the_other_side_may_be_no_zero():
    """1 / x is 1e12 where 1 / (1 + x) is 1, which is measured to 15 digits."""
    x = np.array([1e-12, 1.0, -0.9, 5.0])

    report = gl.check(np.log1p, x, jac=lambda x: np.diag(1 / x))

    assert first(report)[0] == "wrong_derivative"


def test_a_gradient_is_not_zero_for_the_bars_of_the_other_side():
    """Of -log(1 - |x|**2) at the edge the slope is 1e8 + - 100, and 2 x is not zero."""
    x = np.array([0.7, 0.71414284])

    report = gl.check(lambda x: float(-np.log(1 - x @ x)), x, grad=lambda x: 2 * x)

    assert first(report)[0] != "detached"


def test_what_is_nearly_zero_is_told_as_it_is():
    """A sum that cancels leaves its last digits, and the sentence says so."""
    x = np.array([0.3, 0.5, 0.9])
    grad = np.array([1e-17, -2e-17, 0.0])

    report = gl.check(lambda x: float(np.sum(np.exp(x))), x, grad=lambda _: grad)

    kind, evidence = first(report)
    assert kind == "detached"
    assert "at most 2e-17 in every entry" in evidence


@pytest.mark.parametrize(
    "x", [[1e-8, 0.5, 1.0, 1e8], [1e-8, 0.5, 1.0, -1.5], [1e-8, 0.5, 1.0, -1.5, 1e8]]
)
def test_one_long_slope_hides_no_other_in_its_noise(x):
    """log |x| is the slope of log gamma at no point that is made from x."""
    special = pytest.importorskip("scipy.special")

    report = gl.check(
        special.gammaln, np.array(x), jac=lambda x: np.diag(np.log(np.abs(x)))
    )

    assert first(report)[0] != "stale_cache"


def test_a_point_is_told_by_slopes_of_all_sizes():
    """The slope of x**3 at half the input is a quarter of what it should be."""
    x = np.array([0.01, 0.4, -2.0, 30.0])

    report = gl.check(
        lambda x: x**3 + x, x, jac=lambda x: np.diag(3 * (x / 2) ** 2 + 1)
    )

    kind, evidence = first(report)
    assert kind == "stale_cache"
    assert "half the input" in evidence


def test_a_factor_that_small_entries_do_not_share_is_none():
    """2 x is twice the slope of -exp(-x**2 / 2) at zero, and 1.4 % more at 0.12."""
    x = np.array([2e-5, 4.8e-3, 0.12])

    report = gl.check(
        lambda x: -float(np.exp(-x * x / 2).sum()), x, grad=lambda x: 2 * x
    )

    assert first(report)[0] != "scale"


@pytest.mark.parametrize(("factor", "whole"), [(743, True), (743.4, False)])
def test_a_large_factor_is_a_number_of_samples_if_it_is_whole(factor, whole):
    """To a thousandth any number of a thousand is a whole one."""
    report = gl.check(
        lambda x, y: float(np.sin(x).sum() + np.exp(y).sum()),
        np.ones(5),
        np.ones(4),
        grad=lambda x, y: (np.cos(x) / factor, np.exp(y) / factor),
    )

    assert (first(report)[0] == "missing_reduction") is whole
