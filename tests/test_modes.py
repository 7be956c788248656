"""Forward against reverse mode, and the value with and without AD."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import InputError

A = np.array([[1.0, 2.0, 0.5], [3.0, -4.0, 1.0]])


def _product(x):
    return A @ x


def _jvp(x, v):
    return A @ v


def _vjp(w, x):
    return A.T @ w


def test_adjoint_pair_passes():
    """A matrix and its transpose are each other's adjoint."""
    found = gl.compare_modes(_product, np.ones(3), jvp=_jvp, vjp=_vjp)

    assert found.verdict == gl.Verdict.AGREES
    assert found.rows[0].forward == pytest.approx(found.rows[0].reverse, rel=1e-12)


@pytest.mark.parametrize("slip", [1e-3, 1e-9])
def test_slip_of_either_side_is_named(slip):
    """Differences say which of the two is wrong, as far as they can tell."""
    wrong_forward = gl.compare_modes(
        _product, np.ones(3), jvp=lambda x, v: _jvp(x, v) * (1 + slip), vjp=_vjp
    )
    wrong_reverse = gl.compare_modes(
        _product, np.ones(3), jvp=_jvp, vjp=lambda w, x: _vjp(w, x) * (1 + slip)
    )

    assert not wrong_forward.ok
    assert not wrong_reverse.ok
    assert wrong_forward.rows[0].wrong == "forward"
    assert wrong_reverse.rows[0].wrong == "reverse"
    assert "by differences reverse is wrong" in wrong_reverse.reading


def test_what_was_found_is_a_sentence():
    """Agreement says along how many pairs; nan on both sides agrees with nothing."""
    right = gl.compare_modes(_product, np.ones(3), jvp=_jvp, vjp=_vjp, probes=5)
    lost = gl.compare_modes(
        _product,
        np.ones(3),
        jvp=lambda x, v: _jvp(x, v) * np.nan,
        vjp=lambda w, x: _vjp(w, x) * np.nan,
    )

    assert right.reading == "Forward and reverse agree along 5 random pairs."
    assert lost.verdict == gl.Verdict.UNDECIDED
    assert lost.reading == "Both modes give nan."


def test_only_the_wrong_block_is_accused():
    """Of two inputs and two outputs, the block with the slip."""
    found = gl.compare_modes(
        lambda a, b: (a * b, a.sum()),
        np.arange(1.0, 4.0),
        np.arange(2.0, 5.0),
        jvp=lambda a, b, u, v: (u * b + a * v, u.sum()),
        vjp=lambda w, a, b: (w[0] * b + w[1], 2 * w[0] * a),
    )
    table = found.table

    wrong = table[table["verdict"] == "DISAGREES"]
    assert wrong[["output", "input"]].values.tolist() == [["out.0", "b"]]
    assert len(table) == 4


def test_tolerance_forgives_a_known_difference():
    """`rtol` is relative to the terms of the products."""
    sloppy = {"jvp": lambda x, v: _jvp(x, v) * (1 + 1e-6), "vjp": _vjp}

    assert not gl.compare_modes(_product, np.ones(3), **sloppy).ok
    assert gl.compare_modes(_product, np.ones(3), **sloppy, rtol=1e-4).ok


def test_nan_of_one_side_disagrees():
    """A mode that returns nan is not taken for agreement."""
    found = gl.compare_modes(
        _product, np.ones(3), jvp=_jvp, vjp=lambda w, x: _vjp(w, x) * np.nan
    )

    assert found.verdict == gl.Verdict.DISAGREES
    assert found.rows[0].wrong == "reverse"


def test_gradient_of_another_shape_is_told():
    """The reverse mode is wrong, not both, and the reading says what came back."""
    found = gl.compare_modes(
        _product, np.ones(3), jvp=_jvp, vjp=lambda w, x: _vjp(w, x)[:2]
    )

    assert found.rows[0].wrong == "reverse"
    assert "(2,)" in found.reading


def test_torch_modes_agree():
    """Autograd's own modes, several outputs, complex input."""
    torch = pytest.importorskip("torch")
    z = torch.tensor([1 + 2j, 0.5j], dtype=torch.complex128)
    found = gl.compare_modes(lambda z: (z**2, z.abs().sum()), z)

    assert found.verdict == gl.Verdict.AGREES
    assert set(found.values) == {"reverse mode", "forward mode", "no_grad"}


def test_wrong_jvp_of_a_custom_function():
    """A custom Function whose jvp is not its backward's adjoint."""
    torch = pytest.importorskip("torch")

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x**2

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

        @staticmethod
        def jvp(ctx, t):
            return 3 * ctx.saved_tensors[0] * t

    found = gl.compare_modes(Square.apply, torch.ones(3, dtype=torch.float64))

    assert found.rows[0].wrong == "forward"
    assert found.rows[0].forward == pytest.approx(1.5 * found.rows[0].reverse)


def test_value_that_depends_on_grad_mode():
    """A function that computes something else without autograd is told so."""
    torch = pytest.importorskip("torch")

    def two_faced(x):
        return x**2 if torch.is_grad_enabled() else 1.5 * x**2

    found = gl.compare_modes(two_faced, torch.full((2,), 2.0, dtype=torch.float64))

    assert found.values["no_grad"] == pytest.approx(2.0)
    assert "value under no_grad differs by 2" in found.reading


def test_terms_that_cancel_are_no_disagreement():
    """A bias in front of a normalisation has a gradient of round-off."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.5)
    )
    found = gl.compare_modes(net, torch.randn(8, 4))

    assert found.verdict == gl.Verdict.AGREES


def test_without_forward_mode():
    """A Function without jvp cannot be compared, and the message says why."""
    torch = pytest.importorskip("torch")

    class OnlyBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(InputError, match=r"forward mode failed for .*jvp"):
        gl.compare_modes(OnlyBackward.apply, torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"vjp": _vjp}, "pass jvp="),
        (
            {"jvp": lambda x, v: v, "vjp": _vjp},
            r"jvp= must return one tangent .* \(2,\), got shape \(3,\)",
        ),
        ({"jvp": lambda x, v: (A @ v, None), "vjp": _vjp}, "got tuple"),
        ({"jvp": _jvp, "vjp": _vjp, "probes": 0}, "probes must be an integer >= 1"),
        ({"jvp": _jvp, "vjp": _vjp, "seed": -1}, "seed must be an integer >= 0"),
        ({"jvp": _jvp, "vjp": _vjp, "rtol": np.nan}, "rtol must be a number >= 0"),
    ],
)
def test_bad_arguments_are_refused(options, words):
    """The message names the value and what was expected."""
    with pytest.raises(InputError, match=words):
        gl.compare_modes(_product, np.ones(3), **options)


def test_a_slip_below_the_reach_of_differences_accuses_nobody():
    """A slip of 1e-11 is seen, and which side it is on cannot be told by a quotient."""
    found = gl.compare_modes(
        lambda x: x**3,
        np.linspace(0.5, 1.5, 3),
        jvp=lambda x, v: 3 * x**2 * v,
        vjp=lambda w, x: 3 * x**2 * w * (1 + 1e-11),
    )

    assert found.verdict == gl.Verdict.DISAGREES
    assert found.rows[0].wrong == "one of them"
    assert "cannot tell which" in found.reading


def test_half_precision_forgives_no_factor():
    """Five thousand roundings of eleven bits would be more than the gradient."""
    half = A.astype(np.float16)
    found = gl.compare_modes(
        lambda x: half @ x,
        np.ones(3, np.float16),
        jvp=lambda x, v: 2 * half @ v,
        vjp=lambda w, x: half.T @ w,
    )

    assert found.verdict == gl.Verdict.DISAGREES


def test_bfloat16_forgives_no_factor():
    """64 units of its round-off are half of the derivative."""
    torch = pytest.importorskip("torch")

    class Exponential(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.exp()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output)
            ctx.save_for_forward(output)

        @staticmethod
        def backward(ctx, g):
            return 0.5 * g * ctx.saved_tensors[0]

        @staticmethod
        def jvp(ctx, v):
            return v * ctx.saved_tensors[0]

    x = torch.linspace(-1, 1, 6, dtype=torch.bfloat16)

    assert gl.compare_modes(torch.exp, x).ok
    assert not gl.compare_modes(Exponential.apply, x).ok


def test_both_modes_wrong():
    """Where differences agree with neither, both are named."""
    found = gl.compare_modes(
        _product,
        np.ones(3),
        jvp=lambda x, v: 2 * _jvp(x, v),
        vjp=lambda w, x: 3 * _vjp(w, x),
    )

    assert found.rows[0].wrong == "both"
    assert "both are wrong" in found.reading
