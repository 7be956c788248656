"""Subjects on a GPU stay there, and are judged as on the host."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.slips import Slipping, network

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(),
        reason="no CUDA device here: what runs on a GPU was not tried",
    ),
]


def squares(out):
    """Reduce to a loss, and insist on the device."""
    assert out.is_cuda
    return (out**2).sum()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_elementwise_function(dtype):
    """The function sees tensors of the GPU only, in every precision."""
    seen = set()

    def f(x):
        seen.add(x.device.type)
        return torch.sin(x)

    x = torch.linspace(0.1, 1, 50, device="cuda").to(dtype)
    report = gl.check(f, x)
    assert report.verdict == gl.Verdict.AGREES
    assert seen == {"cuda"}


@pytest.mark.parametrize("coverage", ["full", "sample", "probe"])
def test_module_that_is_right_and_one_that_is_wrong(coverage):
    """Right agrees, wrong is blamed on its layer; parameters stay where they are."""
    right, x = network(torch.nn.Tanh(), device="cuda")
    assert gl.check(right, x, loss=squares, coverage=coverage).ok
    wrong, x = network(Slipping(), device="cuda")
    before = [p.clone() for p in wrong.parameters()]
    report = gl.check(wrong, x, loss=squares, coverage=coverage)
    assert report.verdict == gl.Verdict.DISAGREES
    assert report.culprit == "1"
    assert all(
        p.is_cuda and torch.equal(p, q)
        for p, q in zip(wrong.parameters(), before, strict=True)
    )


def test_numbers_are_those_of_the_host():
    """The same function on both devices, to the accuracy of differences."""
    x = torch.linspace(0.1, 1, 20, dtype=torch.float64)
    W = torch.linspace(-1, 1, 400, dtype=torch.float64).reshape(20, 20)
    host = gl.numeric_jacobian(lambda x: torch.tanh(W @ x), x)
    W_there = W.cuda()
    there = gl.numeric_jacobian(lambda x: torch.tanh(W_there @ x), x.cuda())
    assert np.allclose(host.value, there.value, rtol=1e-8, atol=1e-10)


def test_random_state_of_the_gpu_is_put_back():
    """Dropout draws the same mask at every evaluation, and the user's state stays."""
    net, x = network(torch.nn.Dropout(0.3), device="cuda")
    state = torch.cuda.get_rng_state_all()
    assert gl.check(net, x, loss=squares).ok
    after = torch.cuda.get_rng_state_all()
    assert all(torch.equal(a, b) for a, b in zip(state, after, strict=True))


def test_sparse_and_complex_tensors():
    """Stored entries and complex ones are perturbed on the GPU."""
    sparse = torch.eye(4, dtype=torch.float64, device="cuda").to_sparse()
    assert gl.check(lambda s: (s.to_dense() ** 2).sum(), sparse).ok
    z = torch.randn(5, dtype=torch.complex128, device="cuda")
    assert gl.check(lambda z: z * z, z).ok


def test_blame_and_locate_find_the_layer():
    """The audit and the search run where the module is."""
    net, x = network(Slipping(), device="cuda")
    assert gl.blame(net, x, loss=squares).culprits == ("1",)
    assert len(gl.locate(net, x, loss=squares).table) > 0


def test_second_order_and_forward_mode():
    """The backward of the backward, and dual numbers."""
    x = torch.linspace(0.1, 1, 8, dtype=torch.float64, device="cuda")
    assert gl.check(lambda x: (x**3).sum(), x, order=2).ok
    forward = gl.analytic_jacobian(torch.sin, x, mode="forward")
    assert np.allclose(np.diag(forward.value), np.cos(x.cpu().numpy()))


def test_gpu_as_the_default_device():
    """Tensors that gradlab makes for itself do not follow torch's default."""
    x = torch.linspace(0.1, 1, 8, dtype=torch.float64)
    with torch.device("cuda"):
        assert gl.check(torch.sin, x).ok
        assert gl.check(torch.sin, x.cuda()).ok
        net, y = network(torch.nn.Tanh(), device="cuda")
        assert gl.check(net, y, loss=squares, coverage="probe").ok


def test_memory_that_others_hold_makes_batches_smaller():
    """With little room left the check still ends, in smaller batches."""
    free, _ = torch.cuda.mem_get_info()
    hold = torch.empty(max(0, free - (300 << 20)), dtype=torch.uint8, device="cuda")
    try:
        x = torch.linspace(0, 1, 2000, dtype=torch.float64, device="cuda")
        report = gl.check(lambda x: torch.sin(x).cumsum(0)[::50], x, coverage="full")
        assert report.ok
    finally:
        del hold
        torch.cuda.empty_cache()


def test_gradient_check_is_not_one_by_one():
    """Batches are worth it on a GPU: thousands of evaluations in a few dozen calls."""
    x = torch.linspace(0, 1, 1000, dtype=torch.float64, device="cuda").sin()
    calls = itertools.count()  # a list would be put back

    def f(x):
        next(calls)
        return torch.fft.rfft(x).abs()[:8]

    report = gl.check(f, x)

    assert report.ok
    assert report.evaluations >= 1000
    assert 2 < next(calls) < 200


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_recurrent_modules_of_cudnn(kind, dtype):
    """Weights that stand in for theirs stay where they are perturbed."""
    torch.manual_seed(0)
    module = getattr(torch.nn, kind)(3, 4, num_layers=2).to("cuda", dtype)
    x = torch.randn(5, 2, 3, device="cuda", dtype=dtype)
    places = [p.data_ptr() for p in module.parameters()]
    for coverage in ("full", "sample", "probe"):
        report = gl.check(
            module, x, loss=lambda out: squares(out[0]), coverage=coverage
        )
        assert report.verdict == gl.Verdict.AGREES
    assert not gl.blame(module, x, loss=lambda out: squares(out[0])).culprits
    assert [p.data_ptr() for p in module.parameters()] == places


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_in_short_arithmetic(dtype):
    """The copy in float64 drops what the model drops: masks go by the dtype there."""
    middle = torch.nn.Tanh(), torch.nn.Dropout(0.4)
    net, x = network(*middle, dtype=dtype, device="cuda")
    report = gl.check(net, x, loss=squares)
    assert report.verdict == gl.Verdict.AGREES
    assert "evaluated in float64" in str(report)


def test_steps_out_of_the_domain_of_a_kernel():
    """Binary cross-entropy at the edge of [0, 1] would end the process."""
    p = torch.tensor([0.5, 1.0, 0.0, 1 - 1e-9], dtype=torch.float64, device="cuda")
    y = torch.tensor([1.0, 1.0, 0.0, 1.0], dtype=torch.float64, device="cuda")
    gl.check(lambda p: torch.nn.functional.binary_cross_entropy(p, y), p)
    torch.cuda.synchronize()  # which would raise
    inner = torch.tensor([0.5, 0.3, 0.9, 0.1], dtype=torch.float64, device="cuda")
    assert gl.check(lambda p: torch.nn.functional.binary_cross_entropy(p, y), inner).ok


@pytest.mark.filterwarnings("ignore:.*AccumulateGrad node's stream")  # torch's own
@pytest.mark.filterwarnings("ignore:.*no current CUDA context")
@pytest.mark.parametrize("wrong", [False, True])
def test_module_in_a_cuda_graph(wrong):
    """What is replayed reads fixed memory: its own forward is run."""
    middle = Slipping() if wrong else torch.nn.Tanh()
    net, x = network(middle, dtype=torch.float32, device="cuda")
    net = torch.cuda.make_graphed_callables(net, (x.clone().requires_grad_(),))
    forward = net.forward
    report = gl.check(net, x, loss=squares)
    assert report.ok is not wrong
    assert gl.blame(net, x, loss=squares).culprits == (("1",) if wrong else ())
    assert net.forward is forward


@pytest.mark.parametrize("wrong", [False, True])
def test_model_of_two_million(wrong):
    """Pooled directions are cut from one copy of their pool on the GPU."""
    torch.manual_seed(0)
    middle = Slipping() if wrong else torch.nn.Tanh()
    net = torch.nn.Sequential(
        torch.nn.Linear(1500, 1500), middle, torch.nn.Linear(1500, 10)
    ).to("cuda", torch.float64)
    x = torch.randn(4, 1500, dtype=torch.float64, device="cuda")
    report = gl.check(net, x, loss=squares, coverage="probe")
    assert report.verdict == (gl.Verdict.DISAGREES if wrong else gl.Verdict.AGREES)
    assert report.culprit == ("1" if wrong else None)
