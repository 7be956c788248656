"""Reverse-mode autograd as an analytic side, and its slips."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.subject.tensors.gradients import engine as torch_engine
from gradlab.subject.tensors.gradients.backward import Backward
from gradlab.subject.tensors.gradients.forward import ForwardMode
from gradlab.subject.tensors.subjects import torch_subject
from tests.specimens.functions import with_backward
from tests.specimens.torch_sides import DOUBLE, REAL, Through, eye_of, randn

torch = pytest.importorskip("torch")

F = torch.nn.functional


@pytest.fixture(autouse=True, params=["engine", "public", "loops"])
def _ways(request, monkeypatch):
    """Every way of going backwards: in batches by either door, and one at a time."""
    if request.param == "public":
        monkeypatch.setattr(torch_engine, "_engine", lambda: None)
    if request.param == "loops":
        monkeypatch.setattr(Backward, "batched", lambda *_, **__: None)


@pytest.mark.parametrize("name", REAL)
def test_reverse_mode_equals_torchs_own_jacobian(name):
    """`torch.autograd.functional.jacobian` is the second opinion."""
    fn, make = REAL[name]
    arguments = make()
    subject = torch_subject(fn, arguments)
    blocks = subject.analytic.pull(eye_of(subject)).values

    def flat(*values):
        result = fn(*values)
        result = result if isinstance(result, tuple) else (result,)
        return torch.cat([part.reshape(-1) for part in result])

    jacobians = torch.autograd.functional.jacobian(flat, arguments)
    for block, expected in zip(blocks, jacobians, strict=True):
        matrix = expected.reshape(block.shape).numpy()
        assert block == pytest.approx(matrix, rel=1e-12, abs=1e-13)


def test_complex_square_has_the_cauchy_riemann_matrix():
    """d(z^2) is multiplication by 2z, a rotation and a scaling."""
    z = torch.tensor([1 + 2j, -0.5 + 0.25j], dtype=torch.complex128)
    subject = torch_subject(lambda z: z**2, (z,))
    (block,) = subject.analytic.pull(eye_of(subject)).values

    expected = np.zeros((4, 4))  # rows: Re 0, Re 1, Im 0, Im 1
    for k, value in enumerate(z.numpy()):
        real, imag = 2 * value.real, 2 * value.imag
        expected[k, 2 * k : 2 * k + 2] = real, -imag
        expected[2 + k, 2 * k : 2 * k + 2] = imag, real
    assert block == pytest.approx(expected)
    ((forward,), _) = ForwardMode(subject).jacobian()
    assert forward == pytest.approx(expected)


def test_gradient_of_squared_modulus_is_twice_the_number():
    """A real output of a complex input: d/dRe and d/dIm, side by side."""
    z = torch.tensor([1 + 2j, 3 - 1j])
    subject = torch_subject(lambda z: (z * z.conj()).real.sum(), (z,))
    (gradient,) = subject.analytic.pull(np.ones((1, 1))).values

    assert gradient.tolist() == [[2, 4, 6, -2]]


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_gradients_of_sparse_inputs_are_those_at_the_stored_places(layout):
    """The product with a dense matrix gives outer products, masked."""
    dense = torch.tensor([[0.0, 2, 0], [3, 0, 4]], dtype=DOUBLE)
    x = randn(3, 2)
    sparse = getattr(dense, layout)()
    subject = torch_subject(lambda s, x: s @ x, (sparse, x))
    cotangents = np.arange(8.0).reshape(2, 4)
    wrt_s, wrt_x = subject.analytic.pull(cotangents).values

    for row, seed in enumerate(cotangents.reshape(2, 2, 2)):
        full = (seed @ x.numpy().T).reshape(-1)
        assert wrt_s[row] == pytest.approx(full[[1, 3, 5]])
        assert wrt_x[row] == pytest.approx((dense.numpy().T @ seed).reshape(-1))


def test_sparse_gradients_are_made_dense():
    """Embeddings may return sparse gradients; the matrix shows all of it."""
    index = torch.tensor([0, 2, 2])
    table = randn(4, 2)
    subject = torch_subject(
        lambda w: F.embedding(index, w, sparse=True).sum(), (table,)
    )
    (gradient,) = subject.analytic.pull(np.ones((1, 1))).values

    assert gradient.tolist() == [[1, 1, 0, 0, 2, 2, 0, 0]]


def test_expanded_and_strided_inputs_have_a_gradient_per_entry():
    """Each entry has its own, even where entries share memory for the user."""
    x = torch.tensor([2.0], dtype=DOUBLE).expand(3)
    subject = torch_subject(lambda x: x**2, (x,))

    (block,) = subject.analytic.pull(np.eye(3)).values
    assert block.tolist() == np.diag([4.0, 4, 4]).tolist()


def test_many_cotangents_go_in_chunks():
    """A small bound on memory does not change the answer."""
    subject = torch_subject(torch.sigmoid, (randn(6, 5),))
    whole = subject.analytic.pull(np.eye(30)).values[0]
    subject.chunk_bytes = 4 * 8 * 60

    assert np.array_equal(subject.analytic.pull(np.eye(30)).values[0], whole)


def test_the_callers_no_grad_does_not_matter():
    """A check inside `torch.no_grad()` differentiates all the same."""
    with torch.no_grad():
        subject = torch_subject(torch.sin, (torch.zeros(2),))
        (block,) = subject.analytic.pull(np.eye(2)).values

    assert block.tolist() == [[1, 0], [0, 1]]


# ------------------------------------------------------------------- slips


def test_backwards_that_cannot_be_batched_are_looped():
    """The answer is that of the product rule all the same."""
    x, w = randn(3, 2), randn(2, 4)
    subject = torch_subject(Through.apply, (x, w))
    plain = torch_subject(torch.matmul, (x, w))
    eye = eye_of(subject)

    for one, other in zip(
        subject.analytic.pull(eye).values, plain.analytic.pull(eye).values, strict=True
    ):
        assert one == pytest.approx(other, rel=1e-13)
    assert not subject.analytic._batched


# Returns the gradient of w in the wrong shape.
untransposed = with_backward(
    lambda x, w: x @ w,
    lambda x, w, upstream: (upstream @ w.t(), (x.t() @ upstream).t()),
)


def test_wrong_shape_is_a_problem_of_that_input_only():
    """The other input keeps its right gradient; the culprit is nan and named."""
    x, w = randn(3, 2), randn(2, 4)
    subject = torch_subject(untransposed, (x, w), names=["x", "w"])
    pullback = subject.analytic.pull(eye_of(subject))

    right = torch_subject(torch.matmul, (x, w)).analytic.pull(np.eye(12)).values[0]
    assert pullback.values[0] == pytest.approx(right)
    assert np.isnan(pullback.values[1]).all()
    (problem,) = pullback.problems
    assert (problem.kind, problem.where) == ("wrong_shape", "w")
    assert "[4, 2]" in problem.detail


# A backward with a plain programming error.
raises = with_backward(
    lambda x: x * 2,
    lambda _x, upstream: upstream / undefined_name,  # noqa: F821 - the bug
)


def test_exception_in_backward_is_a_problem_with_its_message():
    """The check goes on; the message is kept."""
    pullback = torch_subject(raises, (randn(2),)).analytic.pull(np.eye(2))

    assert np.isnan(pullback.values[0]).all()
    (problem,) = pullback.problems
    assert problem.kind == "raised"
    assert "undefined_name" in problem.detail


class Accumulates(torch.autograd.Function):
    """Adds to what it saved: the second backward through a graph is wrong."""

    @staticmethod
    def forward(ctx, x):
        """What is computed."""
        ctx.total = torch.zeros_like(x)
        return x * 2

    @staticmethod
    def backward(ctx, upstream):
        """What autograd is told."""
        ctx.total += 2 * upstream
        return ctx.total.clone()


def test_backwards_with_a_memory_get_a_fresh_graph_each_time():
    """One backward for one forward is what training does, and it is right here."""
    subject = torch_subject(Accumulates.apply, (randn(3),))
    (block,) = subject.analytic.pull(np.eye(3)).values

    assert block.tolist() == np.diag([2.0, 2, 2]).tolist()
    assert subject.analytic.stateful


class Single(torch.autograd.Function):
    """The right formula, evaluated in single precision."""

    @staticmethod
    def forward(ctx, x):
        """What is computed."""
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, upstream):
        """What autograd is told."""
        (x,) = ctx.saved_tensors
        return 2 * x.float() * upstream.float()


class Deaf(Single):
    """Returns numbers that are float32 by origin, whatever comes from above."""

    @staticmethod
    def backward(ctx, upstream):
        """What autograd is told."""
        return ctx.saved_tensors[0]


@pytest.mark.parametrize(
    ("fn", "x", "kinds"),
    [
        (Single.apply, randn(3), ["dtype"]),
        (Deaf.apply, torch.randn(3).double(), []),
        (lambda x: x**2, torch.randn(3).double(), []),
        (lambda x: (x.float() ** 2).double(), randn(3), []),
        (lambda x: x * 3, torch.arange(3.0, dtype=DOUBLE), []),
        (torch.sign, randn(3), []),
    ],
)
def test_gradients_that_lost_their_digits_are_a_problem(fn, x, kinds):
    """Only where the function itself has more digits than its gradient."""
    problems = torch_subject(fn, (x,)).analytic.pull(np.eye(3)).problems

    assert [problem.kind for problem in problems] == kinds


def test_one_number_at_a_time_tells_a_dtype_too():
    """However few digits the numbers of a scalar happen to need."""
    lost = 0
    for seed in range(100):
        x = torch.tensor(np.random.default_rng(seed).normal(size=1))
        pulled = torch_subject(Single.apply, (x.requires_grad_(),)).analytic.pull
        lost += [problem.kind for problem in pulled(np.eye(1)).problems] == ["dtype"]

    assert lost >= 97


@pytest.mark.parametrize(
    ("fn", "where"),
    [
        (lambda x, w: x.detach() * w, "x"),
        (lambda x, w: x * torch.from_numpy(w.detach().numpy()), "w"),
        (lambda x, w: x * 2, "w"),
    ],
)
def test_inputs_without_a_path_are_zero_with_a_problem(fn, where):
    """Whether that is a slip is for the numbers to say."""
    subject = torch_subject(fn, (randn(2), randn(2)))
    pullback = subject.analytic.pull(np.eye(2))

    assert [problem.where for problem in pullback.problems] == [where]
    assert [problem.kind for problem in pullback.problems] == ["none"]
    assert not pullback.values["xw".index(where)].any()
    assert pullback.values["wx".index(where)].any()


def test_outputs_without_grad_are_zero_with_a_problem():
    """A graph cut behind the last operation leaves no gradient at all."""
    subject = torch_subject(lambda x: (x * 2).detach(), (randn(2),))
    pullback = subject.analytic.pull(np.eye(2))

    assert not pullback.values[0].any()
    assert pullback.problems[0].kind == "none"
    assert "detach" in pullback.problems[0].detail


def test_one_output_without_grad_does_not_hide_the_others():
    """It says itself that it has no gradient: left out by name, the rest is right."""
    subject = torch_subject(lambda x: (x.detach() * 3, x * 2), (randn(2),))
    subject.row()
    (block,) = subject.analytic.pull(eye_of(subject)).values

    assert [output.name for output in subject.outputs] == ["out.1"]
    assert block.tolist() == [[2, 0], [0, 2]]
    assert "without requires_grad: out.0" in subject.kind


def test_sparse_inputs_may_have_outputs_without_grad():
    """Whether such an output moves is tried with sparse tensors: here it does."""
    sparse = torch.eye(3, dtype=torch.float64).to_sparse().requires_grad_()

    def f(a):
        y = torch.sparse.mm(a, torch.ones(3, 2, dtype=torch.float64))
        return y, y.detach()

    report = gl.check(f, sparse)

    assert report.verdict is gl.Verdict.AGREES
    assert [(f.kind, f.where) for f in report.findings] == [("detached", "out.1")]


def test_forward_value_is_what_the_analytic_side_saw():
    """So that the value with and without autograd can be compared."""
    subject = torch_subject(torch.sin, (randn(3),))
    subject.analytic.pull(np.eye(3))

    assert np.array_equal(subject.forward_value, subject.row())


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("fn", [torch.sgn, lambda x: torch.sgn(x).sum(), torch.abs])
def test_gradients_of_zeros_without_memory_are_zeros(fn, order):
    """Autograd hands on a ZeroTensor, of which NumPy sees nothing."""
    x = torch.tensor([0.7, -1.3, 2.0], dtype=torch.float64, requires_grad=True)

    assert gl.check(fn, x, order=order).verdict == gl.Verdict.AGREES
