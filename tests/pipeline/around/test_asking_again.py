"""A gradient that changes from call to call is told of, though right at first."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab import BugKind, Verdict


def norm(x):
    """Sum of squares."""
    return (x**2).sum()


@pytest.mark.parametrize("keyword", ["grad", "jac"])
def test_buffer_that_is_never_zeroed_is_told_of(keyword):
    """The first answer is right, the second twice that: a warning, no accusation."""
    buffer = np.zeros((1, 4) if keyword == "jac" else 4)

    def slope(x):
        nonlocal buffer
        buffer += 2 * x
        return buffer

    f = norm if keyword == "grad" else lambda x: norm(x)[None]
    report = gl.check(f, np.arange(1.0, 5.0), **{keyword: slope})

    assert report.verdict == Verdict.AGREES
    assert report.ok
    (finding,) = report.findings
    assert finding.kind == BugKind.ACCUMULATED_GRAD
    assert finding.severity == "warning"
    assert "grows by 1 x itself" in finding.evidence
    assert not buffer.any()  # it is what it was


def test_gradient_that_depends_on_what_came_before_is_told_of():
    """Momentum that leaks into the gradient: no multiple of the first answer."""
    kept = []

    def grad(x):
        kept.append(x)
        return 2 * x + (len(kept) - 1) * np.sign(x)

    report = gl.check(norm, np.array([0.5, -1.5, 2.0]), grad=grad)

    assert report.ok
    assert [f.kind for f in report.findings] == [BugKind.NONDETERMINISTIC]


def test_gradient_that_overwrites_its_buffer_is_left_alone():
    """Setting it to zero at the start of every call is all it takes."""
    buffer = np.zeros(4)

    def grad(x):
        buffer[:] = 0
        np.add(buffer, 2 * x, out=buffer)
        return buffer

    assert gl.check(norm, np.arange(1.0, 5.0), grad=grad).findings == ()


def test_random_gradient_with_the_draw_of_its_function_is_left_alone():
    """Both rewind to one draw, so both answers are the same."""
    rng = np.random.default_rng(3)

    def f(x):
        return (x * rng.normal(size=x.size)).sum()

    def grad(x):
        return rng.normal(size=x.size)

    report = gl.check(f, np.ones(5), grad=grad)
    assert report.ok
    assert all(f.severity != "warning" for f in report.findings if f.where == "x")


def test_gradient_that_raises_the_second_time_ends_no_check():
    """One answer is known, and was right."""
    calls = []

    def grad(x):
        calls.append(x)
        if len(calls) > 1:
            raise RuntimeError("only once")
        return 2 * x

    assert gl.check(norm, np.ones(3), grad=grad).verdict == Verdict.AGREES


@pytest.mark.parametrize("keyword", ["grad", "jac"])
def test_gradient_that_can_be_asked_for_once_is_told_of(keyword):
    """What the second call raises is said; it was swallowed, and all seemed well."""
    factors = iter([2.0])

    def slope(x):
        return next(factors) * (x if keyword == "grad" else x[None])

    f = norm if keyword == "grad" else lambda x: norm(x)[None]
    report = gl.check(f, np.array([0.5, -1.5, 2.0]), **{keyword: slope})

    assert report.verdict == Verdict.AGREES
    (finding,) = report.findings
    assert (finding.kind, finding.severity) == (BugKind.STATEFUL, "warning")
    assert "StopIteration" in finding.evidence


def test_gradient_that_becomes_nan_is_told_of():
    """A cache that is emptied: what is not finite any more was passed over."""
    cache = [np.array([2.0, 2.0, 2.0])]

    def grad(x):
        factors = cache[0].copy()
        cache[0][1] = np.nan
        return factors * x

    report = gl.check(norm, np.array([0.5, -1.5, 2.0]), grad=grad)

    assert report.ok
    (finding,) = report.findings
    assert finding.kind == BugKind.NONDETERMINISTIC
    assert "not finite in 1 of the entries" in finding.evidence


def test_gradient_that_forgets_an_input_is_told_of():
    """The second answer has no entry for one of them: said, and no crash."""
    answers = iter([("x", "y"), ("x",)])

    def grad(x, y):
        slopes = {"x": y, "y": x}
        return {name: slopes[name] for name in next(answers)}

    report = gl.check(lambda x, y: x @ y, np.ones(2), np.arange(2.0), grad=grad)

    assert report.ok
    (finding,) = report.findings
    assert finding.kind == BugKind.STATEFUL
    assert "no entry for 'y'" in finding.evidence
