"""Second derivatives: the gradient as a subject of its own."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.differentiation.analytic.second_order import COTANGENT, second_order
from gradlab.errors import SubjectError
from gradlab.subject.tensors.subjects import torch_subject
from tests.specimens.functions import with_backward
from tests.specimens.torch_sides import DOUBLE, eye_of, randn

torch = pytest.importorskip("torch")


# ------------------------------------------------------------ second order


def test_second_order_of_a_quadratic_form_is_its_matrix():
    """The gradient of x.A.x/2 is linear; its Jacobian is the symmetric part."""
    A = randn(4, 4)
    subject = torch_subject(lambda x: x @ A @ x / 2, (randn(4),))
    second = second_order(subject, seed=3)
    (block,) = second.analytic.pull(eye_of(second)).values

    seed = np.random.default_rng([3, 29]).normal()
    symmetric = (A + A.t()).numpy() / 2
    assert block == pytest.approx(seed * symmetric)
    assert [variable.name for variable in second.outputs] == ["grad.x"]


def test_second_order_has_mixed_blocks():
    """Gradients by several inputs depend on each other's values."""
    subject = torch_subject(lambda x, w: (x * w).sum(), (randn(2), randn(2)))
    second = second_order(subject)
    wrt_x, wrt_w = second.analytic.pull(eye_of(second)).values

    seed = np.random.default_rng([0, 29]).normal(size=1)[0]
    zero, one = np.zeros((2, 2)), seed * np.eye(2)
    assert wrt_x == pytest.approx(np.vstack([zero, one]))
    assert wrt_w == pytest.approx(np.vstack([one, zero]))


# x^3 whose backward is right and not differentiable as it should be.
wrong_second = with_backward(
    lambda x: x**3,
    lambda x, upstream: upstream * 3 * x.detach() * x,  # half of it is lost
)


def test_second_order_sees_what_first_order_cannot():
    """The first derivative is right; the second, by differences, is not."""
    x = torch.tensor([1.5], dtype=DOUBLE)
    subject = torch_subject(wrong_second, (x,))
    assert subject.analytic.pull(np.ones((1, 1))).values[0] == pytest.approx(6.75)
    second = second_order(subject)
    values, taken = second.rows(0, np.array([0, 0]), np.array([1e-6, -1e-6]))
    numeric = (values[0] - values[1]) / (taken[0] - taken[1])
    (analytic,) = second.analytic.pull(np.ones((1, 1))).values

    assert analytic[0] == pytest.approx(numeric / 2, rel=1e-6)


def test_second_order_of_a_module_with_buffers():
    """Batch normalisation in training mode, twice differentiated."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    subject = torch_subject(module.double(), (randn(4, 2),))
    second = second_order(subject)
    blocks = second.analytic.pull(eye_of(second)).values

    for which, block in enumerate(blocks):
        count = block.shape[1]
        positions = np.arange(count)
        up, right = second.rows(which, positions, np.full(count, 1e-6))
        down, left = second.rows(which, positions, np.full(count, -1e-6))
        numeric = ((up - down) / (right - left)[:, None]).T
        assert block == pytest.approx(numeric, abs=1e-6)


def test_second_order_of_float32_has_a_float64_reference():
    """The gradient itself is evaluated in float64."""
    subject = torch_subject(lambda x: (x**3).sum(), (torch.randn(3),))
    double = second_order(subject).in_double()
    x = subject.point(0)

    seed = np.random.default_rng([0, 29]).normal()
    assert double.row() == pytest.approx(3 * seed * x**2, rel=1e-14)


def test_second_order_refuses_sparse_inputs():
    """One sentence, before any work."""
    subject = torch_subject(lambda s: s.to_dense(), (torch.eye(2).to_sparse(),))
    with pytest.raises(SubjectError, match="sparse input 's'"):
        second_order(subject)


@pytest.mark.parametrize("budget", [21, 27, 35])
def test_second_derivative_that_is_cut_short_agrees_with_nothing(budget):
    """The budget ends among its columns: the report is partial, and says so."""
    x = torch.linspace(0.5, 1.5, 10, dtype=torch.float64)

    report = gl.check(
        lambda x: (x**3).sum(), x, order=2, budget=budget, coverage="full"
    )

    assert report.partial
    assert report.verdict == gl.Verdict.UNDECIDED
    assert any("the budget ended" in remark for remark in report.remarks)


# ``x**2 * w``, whose gradient for `w` is right and has no graph.
cut_off = with_backward(
    lambda x, w: x * x * w, lambda x, w, g: (2 * x * w * g, (x * x * g).detach())
)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradient_without_a_graph_beside_one_with_is_no_statement(dtype):
    """It moves with x, and the backward of the backward would drop that."""
    x, w = torch.tensor([0.5, -1.5], dtype=dtype), torch.ones(2, dtype=dtype)

    report = gl.check(cut_off, x, w, order=2)

    assert report["grad.w", "x"].verdict is gl.Verdict.DISAGREES
    assert report.findings[0].kind == gl.BugKind.SECOND_ORDER


def test_functions_that_write_to_their_input_have_second_derivatives():
    """Autograd is given copies of its leaves, as for the first."""

    def f(x, w):
        w.mul_(2.0)
        return (x * w) ** 2

    x, w = randn(2), randn(2)

    report = gl.check(f, x, w, order=2)

    assert report.verdict is gl.Verdict.AGREES
    assert report["grad.w", "w"].numeric == pytest.approx(
        np.diag(np.diag(report["grad.w", "w"].analytic)), rel=1e-6
    )


def test_what_is_no_derivative_on_purpose_has_no_second_one():
    """``max_norm`` overwrites the weight at every call: left out by name."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Embedding(4, 3, max_norm=0.5), torch.nn.Linear(3, 2), torch.nn.Tanh()
    ).double()

    report = gl.check(net, torch.tensor([0, 2]), order=2)

    assert report.ok
    assert any("not with respect to 0.weight" in told for told in report.remarks)
    assert {c.input.name for c in report.comparisons if "grad" in c.output.name} == {
        "1.weight",
        "1.bias",
        COTANGENT,
    }


def _cube(slope, backward):
    """A cube whose backward is a Function of its own.

    Parameters
    ----------
    slope
        That backward, of x and the incoming gradient.
    backward
        And what it hands back: of the same, and of its own incoming gradient.
    """
    return with_backward(lambda x: x**3, with_backward(slope, backward))


def test_a_first_derivative_that_is_wrong_is_named_before_the_second():
    """A backward of another function, whose own backward does not belong to it."""
    cube = _cube(
        lambda x, g: 3 * x * g,  # of x**3: 3 x**2
        lambda x, g, gg: (6 * x * g * gg, 3 * x**2 * gg),
    )

    x = torch.tensor([0.4, -1.3, 0.8], dtype=torch.float64, requires_grad=True)
    report = gl.check(cube, x, order=2)

    assert [str(f.kind) for f in report.findings][1:] == ["second_order"]
    assert report.diagnosis == "wrong_derivative"


def _twice(*, slip):
    """Return a cube: right twice, or wrong in the incoming gradient of its backward."""

    def backward(x, g, gg):
        return 6 * x * g * gg, (3 * x * gg if slip else 3 * x**2 * gg)

    return _cube(lambda x, g: 3 * x**2 * g, backward)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex128])
def test_a_backward_wrong_in_the_incoming_gradient_is_told(dtype):
    """d(3 x^2 g)/dg is 3 x^2; with respect to x both backwards are the same."""
    z = torch.tensor([0.5, 1.2, -0.7], dtype=dtype)
    f = (
        (lambda slip: lambda z: _twice(slip=slip)(z.real))
        if z.is_complex()
        else (lambda slip: _twice(slip=slip))
    )

    right = gl.check(f(slip=False), z, order=2)
    wrong = gl.check(f(slip=True), z, order=2)

    assert right.verdict == gl.Verdict.AGREES
    assert all(finding.severity == "note" for finding in right.findings)
    errors = [each for each in wrong.findings if each.severity == "error"]
    assert [str(each.kind) for each in errors] == ["second_order"]
    (name,) = {each.input.name for each in gl.check(f(slip=False), z).comparisons}
    assert wrong.culprits == (errors[0].where,) == (name,)


def test_a_backward_that_cannot_be_differentiated_is_one_finding_in_torchs_words():
    """Fused attention has no second derivative on a CPU; all inputs are concerned."""
    attention = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (randn(1, 2, 3, 4) for _ in range(3))

    fused = gl.check(attention, q, k, v, order=2)

    (told,) = (each for each in fused.findings if each.severity == "error")
    assert (str(told.kind), set(told.places)) == ("second_order", set(fused.culprits))
    assert len(fused.culprits) == 3
    assert "is not implemented" in told.evidence
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert gl.check(attention, q, k, v, order=2).verdict == gl.Verdict.AGREES


def _backward_without_a_graph(how):
    """Return a cube whose backward is right, once."""

    def numbers(ctx, upstream):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * upstream

    def once(ctx, upstream):
        return torch.autograd.function.once_differentiable(numbers)(ctx, upstream)

    def arrays(ctx, upstream):
        (x,) = ctx.saved_tensors
        x, upstream = (t.detach().numpy() for t in (x, upstream))
        return torch.from_numpy(3 * x**2 * upstream)

    def detached(ctx, upstream):
        (x,) = ctx.saved_tensors
        return 3 * x.detach() ** 2 * upstream

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            """What is computed."""
            ctx.save_for_backward(x)
            return x**3

        backward = staticmethod(
            {"once": once, "NumPy": arrays, "detach": detached}[how]
        )

    return Cube.apply


@pytest.mark.parametrize("how", ["once", "NumPy", "detach"])
def test_a_backward_without_a_graph_is_said_to_be_one(how):
    """What is missing is the backward of the backward; no number of it is wrong."""
    x = torch.tensor([0.5, 1.2, -0.7], dtype=DOUBLE)

    report = gl.check(_backward_without_a_graph(how), x, order=2)

    (told,) = (each for each in report.findings if each.severity == "error")
    assert str(told.kind) == "second_order"
    assert told.evidence.startswith("The backward cannot be differentiated: no graph")
    assert "autograd through the backward gives" not in told.evidence
    assert ("nor to the incoming gradient" in told.evidence) is (how != "detach")
    assert gl.check(_backward_without_a_graph(how), x).verdict == gl.Verdict.AGREES
