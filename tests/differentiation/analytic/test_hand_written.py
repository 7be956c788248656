"""Analytic sides as people write them: Jacobians of any type, caches that are used."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

X = np.array([0.3, -0.7, 1.2])


def square(x):
    """Elementwise, with the diagonal of 2 x for a Jacobian."""
    return x**2


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        ("float32", "digits were lost"),
        ("int64", "holds no fractions"),
        ("complex128", "are real"),
    ],
)
def test_type_of_a_jacobian_is_told(dtype, words):
    """As that of a gradient: what it cannot hold, or holds beside the derivative."""
    extra = 1j if dtype == "complex128" else 0

    report = gl.check(square, X, jac=lambda x: (np.diag(2 * x) + extra).astype(dtype))

    assert report.findings[0].kind == gl.BugKind.DTYPE
    assert words in report.findings[0].evidence


def test_complex_jacobian_without_imaginary_part_is_fine():
    """Computed with complex numbers, and exactly real: there is nothing to tell."""
    report = gl.check(square, X, jac=lambda x: np.diag(2 * x).astype(complex))

    assert report.verdict is gl.Verdict.AGREES
    assert report.findings == ()


@pytest.mark.parametrize(
    ("returned", "words"),
    [(None, "one NoneType"), ((np.eye(3),) * 3, "3 Jacobians")],
)
def test_wrong_number_of_jacobians_is_a_sentence(returned, words):
    """Two outputs need two: anything else is a finding, and no exception."""
    report = gl.check(lambda x: (x, 2 * x), X, jac=lambda _: returned)

    assert report.verdict is gl.Verdict.DISAGREES
    assert words in report.findings[0].evidence.replace("One", "one")
    assert "2 outputs" in report.findings[0].evidence


def forward(x, W):
    """A layer whose first output is cut off by its relu."""
    z = x @ W
    return np.maximum(z, 0), {"x": x, "W": W, "on": z > 0, "dW": np.zeros_like(W)}


def backward(dout, cache):
    """Add up in the cache, which every forward makes anew."""
    dz = dout * cache["on"]
    cache["dW"] += np.outer(cache["x"], dz)
    return dz @ cache["W"].T, cache["dW"]


def test_cache_that_is_added_to_is_made_anew_for_every_cotangent():
    """Also where the first cotangent adds nothing, because its output is dead."""
    W = np.array([[-1.0, 0.5, 0.3], [-1.0, 0.2, 0.9]])

    report = gl.check(forward, np.array([1.0, 2.0]), W, backward=backward)

    assert report.verdict is gl.Verdict.AGREES


def step(x, W):
    """Two outputs and a cache, as one step of an LSTM has them."""
    c = np.tanh(W @ x)
    return np.sin(c), c, (x, W, c)


def gradients(dh, dc, cache, factor=1.0):
    """Those of a step; `factor` is for slips."""
    x, W, c = cache
    dz = (dc + factor * dh * np.cos(c)) * (1 - c**2)
    return W.T @ dz, np.outer(dz, x)


@pytest.mark.parametrize(
    "backward",
    [gradients, lambda dout, cache: gradients(*dout, cache)],
    ids=["one by one", "as a tuple"],
)
def test_backward_of_several_outputs_takes_them_together_or_apart(backward):
    """Which of both it does, its arguments say."""
    W = np.array([[0.4, -0.7], [1.1, 0.2], [-0.3, 0.5]])

    report = gl.check(step, np.array([1.0, 2.0]), W, backward=backward)

    assert report.verdict is gl.Verdict.AGREES


def test_wrong_backward_of_several_outputs_is_told_by_output():
    """The slip is in the part of one output alone, and so are the wrong entries."""
    W = np.array([[0.4, -0.7], [1.1, 0.2], [-0.3, 0.5]])

    report = gl.check(
        step,
        np.array([1.0, 2.0]),
        W,
        backward=lambda dh, dc, cache: gradients(dh, dc, cache, factor=2.0),
    )

    verdicts = dict(zip(report.table["output"], report.table["verdict"], strict=True))
    assert report.verdict is gl.Verdict.DISAGREES
    assert sorted(verdicts.values()) == ["AGREES", "DISAGREES"]


def test_real_gradient_of_a_complex_input_has_lost_no_digits():
    """The spectrum of the real part does not move with the imaginary one: g is real."""
    x = np.exp(1j * np.arange(8.0))

    def back(g, x):
        padded = np.zeros(8, dtype=complex)
        padded[:5] = g
        return 8 * np.fft.ifft(padded).real

    report = gl.check(lambda x: np.fft.rfft(x.real), x, vjp=back)

    assert report.verdict is gl.Verdict.AGREES
    assert report.findings == ()


def test_real_gradient_that_lacks_an_imaginary_part_is_no_matter_of_digits():
    """Of |z|**2 it is 2 z; its real part has all digits, and is half of it."""
    z = np.exp(1j * np.arange(5.0))
    report = gl.check(lambda z: (np.abs(z) ** 2).sum(), z, grad=lambda z: 2 * z.real)

    assert report.verdict is gl.Verdict.DISAGREES
    assert [str(finding.kind) for finding in report.findings] == ["detached"]


def test_gradient_of_half_the_digits_of_a_complex_input_is_told():
    """complex64 beside complex128, as float32 beside float64."""
    z = np.exp(1j * np.arange(5.0))
    report = gl.check(
        lambda z: (np.abs(z) ** 2).sum(),
        z,
        grad=lambda z: (2 * z).astype(np.complex64),
    )

    assert report.findings[0].kind == gl.BugKind.DTYPE
    assert "digits were lost" in report.findings[0].evidence
