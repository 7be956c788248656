"""Tensors that differ in one slice: everything computed from them is what it was."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.subject.tensors.incremental.differing import (
    OtherUseError,
    answered,
    differing,
    is_differing,
    whole,
)
from gradlab.subject.tensors.incremental.displaced_entries import one_entry
from gradlab.subject.tensors.incremental.words import words
from gradlab.subject.tensors.subjects import torch_subject
from tests.specimens.functions import with_backward
from tests.specimens.torch_sides import randn

torch = pytest.importorskip("torch")

F = torch.nn.functional
nn = torch.nn

M, K, N = 4, 6, 5


def sliced(axis):
    """A tensor of either kind, and the same in memory."""
    torch.manual_seed(3)
    base = randn(M, K)
    index = torch.tensor([2])
    part = randn(M, 1) if axis == -1 else randn(1, K)
    dense = base.clone()
    dense[(slice(None), 2) if axis == -1 else 2] = part.reshape(-1)
    return differing(base, axis, index, part), dense


W, B, LEFT = randn(N, K), randn(N), randn(3, M)

FOLLOWED = {
    "tanh": lambda h: (torch.tanh, (h,)),
    "method": lambda h: (torch.Tensor.sigmoid, (h,)),
    "of nn.functional": lambda h: (F.gelu, (h,)),
    "clamp": lambda h: (torch.clamp, (h, -0.5, 0.5)),
    "power": lambda h: (torch.Tensor.__pow__, (h, 2)),
    "from a number": lambda h: (torch.Tensor.__rsub__, (h, 1.0)),
    "row vector": lambda h: (torch.add, (h, randn(K))),
    "column vector": lambda h: (torch.mul, (randn(M, 1), h)),
    "matrix": lambda h: (torch.Tensor.__truediv__, (h, 2 + randn(M, K).abs())),
    "with itself": lambda h: (torch.Tensor.__mul__, (h, h)),
    "transpose": lambda h: (torch.t, (h,)),
}
ENDED = {
    "linear": lambda h: (F.linear, (h, W, B)),
    "product": lambda h: (torch.matmul, (h, W.T)),
    "product on the right": lambda h: (torch.Tensor.__matmul__, (LEFT, h)),
    "sum": lambda h: (torch.sum, (h,)),
    "softmax": lambda h: (torch.softmax, (h, -1)),
    "reshape": lambda h: (torch.reshape, (h, (-1,))),
    "stack": lambda h: (torch.stack, ([h, h],)),
    "one entry": lambda h: (torch.Tensor.__getitem__, (h, (1, 2))),
    "in place": lambda h: (torch.Tensor.add_, (h, 1.0)),
    "in place by a flag": lambda h: (F.relu, (h, True)),
    "wider": lambda h: (torch.add, (h, randn(2, 1, K))),
    "other precision": lambda h: (torch.mul, (h, torch.ones(K))),
}


@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("ask", [*FOLLOWED.values(), *ENDED.values()])
def test_values_are_those_of_the_whole_tensor(ask, axis):
    """Whatever torch is asked, the answer is that for the tensor in memory."""
    value, dense = sliced(axis)
    torch.manual_seed(4)
    func, args = ask(value)
    torch.manual_seed(4)
    _, plain = ask(dense)

    found = whole(answered(func, args, {}))

    assert found.numpy() == pytest.approx(func(*plain).numpy(), abs=1e-14)


@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("ask", FOLLOWED.values(), ids=FOLLOWED)
def test_functions_of_single_entries_go_by_the_slice(ask, axis):
    """Nothing is filled where only a slice can have changed."""
    func, args = ask(sliced(axis)[0])

    assert is_differing(answered(func, args, {}))


def test_names_mean_functions_of_single_entries():
    """Every name on the list, in every home, maps each entry by itself."""
    torch.manual_seed(0)
    x = randn(3, 4).abs() + 0.1
    single = words().single

    assert len(single) >= 70
    for func in single:
        args = (x, 0.2, 0.8) if func.__name__ == "clamp" else (x,)
        rest = args[1:]
        alone = torch.stack([func(entry, *rest) for entry in x.reshape(-1)])
        together = func(*args).reshape(-1)
        assert together.numpy() == pytest.approx(alone.numpy(), rel=1e-14, nan_ok=True)


def test_a_view_that_is_written_to_shows_in_the_tensor():
    """Once somebody has seen the whole, the whole is what counts."""
    value, dense = sliced(-1)
    view = answered(torch.Tensor.view, (value, -1), {})
    view.mul_(3.0)

    found = whole(answered(torch.tanh, (value,), {}))

    assert torch.equal(found, torch.tanh(3.0 * dense))


def _tripled(value):
    answered(torch.Tensor.mul_, (value, 3.0), {})


def _view_tripled(value):
    answered(torch.Tensor.view, (value, -1), {}).mul_(3.0)


def _chunk_tripled(value):
    for chunk in answered(torch.chunk, (value, 2), {}):
        chunk.mul_(3.0)


@pytest.mark.parametrize("write", [_tripled, _view_tripled, _chunk_tripled])
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_what_is_written_shows_in_transposes(write, turns):
    """Tensors of one memory are one, whichever of them is filled first."""
    value, dense = sliced(-1)
    turned = [value]
    for _ in range(turns):
        turned.append(answered(torch.t, (turned[-1],), {}))
    write(turned[0])

    for each, plain in zip(turned, (dense, dense.T) * 2, strict=False):
        assert torch.equal(whole(answered(torch.neg, (each,), {})), -3.0 * plain)


def test_what_is_written_to_a_transpose_shows_in_the_tensor():
    """The other way round as well."""
    value, dense = sliced(-2)
    turned = answered(torch.t, (value,), {})
    answered(torch.Tensor.add_, (turned, 1.0), {})

    assert torch.equal(whole(answered(torch.neg, (value,), {})), -1.0 - dense)


@pytest.mark.parametrize(
    "func", [torch.positive, lambda x: F.relu(x, 1)], ids=["positive", "relu"]
)
def test_functions_that_return_their_argument_share_its_memory(func):
    """Written to the one, it shows in the other."""
    use = func if func is torch.positive else F.relu
    value, dense = sliced(-1)
    found = answered(use, (value,) if use is torch.positive else (value, 1), {})
    answered(torch.Tensor.add_, (found, 1.0), {})

    assert torch.equal(whole(value), func(dense).add_(1.0))


def test_a_shape_changed_in_place_is_seen():
    """What a tensor says of itself is what it is by then."""
    value, _ = sliced(-1)
    answered(torch.Tensor.unsqueeze_, (value, 0), {})

    assert answered(torch.Tensor.dim, (value,), {}) == 3


def test_transposes_are_not_contiguous():
    """Whoever asks how the entries lie is told what the whole would tell."""
    value, _ = sliced(-1)
    turned = answered(torch.t, (value,), {})

    for each, plain in ((value, True), (turned, False)):
        assert answered(torch.Tensor.is_contiguous, (each,), {}) is plain
        assert whole(each).is_contiguous() is plain


def test_a_tensor_that_was_kept_says_so():
    """Who holds on to one reads what it is, not a word of torch's internals."""
    with pytest.raises(OtherUseError, match="gradlab"):
        sliced(-1)[0].sum()


class Doubled(torch.autograd.Function):
    """Bypasses the functions that torch announces."""

    @staticmethod
    def forward(ctx, x):
        """What is computed."""
        return 2 * x


@pytest.mark.parametrize(
    "use", [Doubled.apply, torch.ops.aten.tanh], ids=["Function", "operator"]
)
def test_what_bypasses_torch_functions_is_refused(use):
    """A tensor without memory is never taken for one of zeros."""
    with pytest.raises((OtherUseError, RuntimeError)):
        use(sliced(-1)[0])


NETWORKS = {
    "deep": nn.Sequential(
        *(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 16), nn.GELU(), nn.Linear(16, 3))
    ),
    "in place": nn.Sequential(nn.Linear(16, 24), nn.ReLU(inplace=True), nn.Softmax(-1)),
    "normalised": nn.Sequential(nn.Linear(16, 24), nn.LayerNorm(24), nn.SiLU()),
    "columns": lambda x, w: torch.tanh(w @ x.T) * 0.5 + torch.ones(24, 1).double(),
    "by hand": lambda x, w: (torch.relu(x @ w.T + 0.1) ** 2).sum(-1),
    "residual": lambda x, w: (h := torch.tanh(x @ w.T)) + h * torch.sigmoid(h),
    "twice": lambda x, w: torch.tanh(torch.tanh(x @ w.T) @ w) @ w.T,
    "written to": lambda x, w: (x @ w.T).add_(1.0).tanh(),
    "gated": lambda x, w: F.glu(x @ w.T) + F.silu(x[:, :12]),
}


def looped(subject, which, positions, steps):
    """Rows of single evaluations, and how many of their inputs moved."""
    point, rows = subject.point(which), []
    for position, step in zip(positions, steps, strict=True):
        moved = point.copy()
        moved[position] += step
        subject.place(which, moved)
        rows.append(subject.row())
    subject.place(which, None)
    return np.array(rows)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("which", [0, 1])
def test_batches_are_single_evaluations(name, which):
    """For inputs and weights of whole networks, to a few units of round-off."""
    torch.manual_seed(5)
    net = NETWORKS[name]
    x, w = randn(17, 16), randn(24, 16)
    fn = net
    if isinstance(net, nn.Module):
        net = net.double()

        def fn(x, w):
            return torch.func.functional_call(net, {"0.weight": w}, (x,))

    subject = torch_subject(fn, (x, w))
    subject.row()
    positions = np.arange(subject.point(which).size)
    steps = np.full(len(positions), 1e-3)

    values, _ = subject.rows(which, positions, steps)

    expected = looped(subject, which, positions, steps)
    # as pytest.approx says, which takes a second for so many entries
    assert values.shape == expected.shape
    allowed = np.maximum(1e-13 * abs(expected), 1e-14)
    assert (abs(values - expected) <= allowed).all()


def test_only_what_changes_is_evaluated():
    """An entry of 16 x 24 in a network fills what the second product gives, no more."""
    torch.manual_seed(6)
    x, w, v = randn(8, 16), randn(24, 16), randn(3, 24)
    place, sizes = (torch.tensor(3), torch.tensor(4)), []
    step = torch.tensor(0.1, dtype=torch.float64)

    one_entry(w, *place, step, lambda w: (F.linear(torch.tanh(x @ w.T), v),), sizes)

    assert sizes == [8 * 3]


# An activation whose backward is off where it is steep.
def slipped_backward(x, upstream):
    slope = 1 - torch.tanh(x) ** 2
    return upstream * torch.where(slope > 0.9, 1.01 * slope, slope)


slipped = with_backward(torch.tanh, slipped_backward)


def _mlp(activation):
    def loss(x, w, v):
        return (F.linear(activation(F.linear(x, w)), v) ** 2).sum()

    return loss


def test_a_slip_is_found_and_its_twin_is_right():
    """One hundredth, in some of the entries of an activation, and nothing beside it."""
    torch.manual_seed(7)
    inputs = [t.requires_grad_() for t in (randn(4, 16), randn(24, 16), randn(3, 24))]

    assert gl.check(_mlp(torch.tanh), *inputs).ok
    report = gl.check(_mlp(slipped), *inputs)
    assert not report.ok
    assert set(report.culprits) == {"x", "w"}
