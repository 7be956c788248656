"""Displaced entries of a weight, without copies: the same values, or none."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.subject.tensors.incremental.differing import OtherUseError
from gradlab.subject.tensors.incremental.displaced_entries import one_entry, suitable
from gradlab.subject.tensors.subjects import torch_subject
from tests.specimens.functions import with_backward
from tests.specimens.torch_sides import randn

torch = pytest.importorskip("torch")

F = torch.nn.functional

ROWS, COLUMNS = 5, 7


USES = {
    "linear": lambda w, x: F.linear(x, w),
    "linear by name": lambda w, x: F.linear(input=x, weight=w),
    "product from the right": lambda w, x: x[..., :ROWS] @ w,
    "one row": lambda w, x: x[0, :ROWS] @ w,
    "matmul": lambda w, x: torch.matmul(x[..., :ROWS], w),
    "transposed": lambda w, x: x @ w.T,
    "transposed twice": lambda w, x: x[..., :ROWS] @ w.t().t(),
    "from the left": lambda w, x: w @ x.T,
    "both sides": lambda w, x: torch.tanh(x @ w.T) @ w,
    "rows of a table": lambda w, x: torch.tanh(w[torch.tensor([3, 1, 3])]) @ x.T,
    "an embedding": lambda w, x: F.embedding(torch.tensor([[3, 1], [3, -0]]), w).sin(),
    "its shape": lambda w, x: x @ w.mT / w.shape[0] + w.size(1),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_values_are_those_of_a_displaced_copy(use):
    """What a perturbed copy gives, to rounding, for every kind of product."""
    torch.manual_seed(0)
    w, x, step = randn(ROWS, COLUMNS), randn(3, COLUMNS), 0.3
    copy = w.clone()
    copy[3, 4] += step
    place = torch.tensor(3), torch.tensor(4)

    (found,) = one_entry(
        w, *place, torch.tensor(step, dtype=torch.float64), lambda w: (use(w, x),)
    )

    assert found.numpy() == pytest.approx(use(copy, x).numpy(), abs=1e-14)


OTHER = {
    "a sum": lambda w, x: (x @ w.T).sum() + w.sum(),
    "a view": lambda w, x: x @ w.view(ROWS, COLUMNS).T,
    "a detour": lambda w, x: torch.from_numpy(w.detach().numpy() ** 2) + x.sum(),
    "in a list": lambda w, x: torch.stack([w, w]).sum() * x.sum(),
    "with itself": lambda w, x: (w @ w.T).sum() + x.sum(),
    "a row": lambda w, x: x @ w[0],
}


@pytest.mark.parametrize("use", OTHER.values(), ids=OTHER)
def test_other_uses_are_refused(use):
    """Nothing that looks at the weight goes unseen."""
    w, x = randn(ROWS, COLUMNS), randn(3, COLUMNS)
    place = torch.tensor(0), torch.tensor(0)

    with pytest.raises(OtherUseError):
        one_entry(w, *place, torch.tensor(0.1), lambda w: (use(w, x),))


def _scripted(w):
    """Compiled code, which no mode of torch's functions sees."""
    return torch.jit.script(_hinge)(w)


def _hinge(w):
    return torch.relu(w - 1.0).sum()


class _Hinge(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(w):
        return _hinge(w)

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Nothing is kept."""


def _called_back(w):
    """A function of torch that calls the user's, which knows the weight."""
    one = torch.ones(1, 3).double()

    def apart(a, b):
        return torch.relu((a - b) @ w[:3]).sum(-1)

    return F.triplet_margin_with_distance_loss(
        one, 2 * one, 0 * one, distance_function=apart
    )


def _below_the_functions(w):
    with torch._C.DisableTorchFunction():
        return _hinge(w)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize(
    "use", [_scripted, _Hinge.apply, _called_back, _below_the_functions]
)
def test_code_that_no_mode_sees_reads_no_weight(use):
    """It would read it without the displacement, which shows in few of the entries."""
    w, x = randn(ROWS, COLUMNS), randn(3, COLUMNS)
    place = torch.tensor(0), torch.tensor(0)

    def both(stand_in):
        return (F.linear(x, stand_in).sum() + use(stand_in),)

    with pytest.raises((OtherUseError, RuntimeError)):
        one_entry(w, *place, torch.tensor(0.1), both)


def test_extensions_get_an_error_for_a_pointer():
    """Not a null pointer, which would end the process."""
    w = randn(ROWS, COLUMNS)
    place = torch.tensor(0), torch.tensor(0)

    with pytest.raises(RuntimeError, match="data pointer"):
        one_entry(w, *place, torch.tensor(0.1), lambda w: (torch._C._to_dlpack(w),))


@pytest.mark.parametrize("sign", [1, -1])
def test_where_a_product_is_infinite_batches_are_loops(sign):
    """There infinity plus a step is not what the function itself computes."""
    torch.manual_seed(3)
    x, w = randn(4, 16), 0.1 + randn(24, 16).abs()
    x[2, 5] = -torch.inf
    subject = torch_subject(lambda x, w: torch.sigmoid(x @ w.T), (x, w), wrt="w")
    subject.row()
    positions = np.arange(24 * 16)
    values, _ = subject.rows(0, positions, np.full(len(positions), sign * 1e-3))

    assert np.isfinite(values).all()
    assert (values.reshape(-1, 4, 24)[:, 2] == 0).all()


def test_what_fits():
    """Large real matrices in float64; copies of anything else cost nothing."""
    assert suitable(randn(16, 16))
    assert not suitable(randn(4, 4))
    assert not suitable(randn(16, 16).float())
    assert not suitable(randn(16, 4, 4))


def _loss(penalty):
    def loss(x, w):
        return torch.tanh(F.linear(x, w)).sum() + penalty(w)

    return loss


@pytest.mark.parametrize(
    "penalty",
    [lambda _: 0.0, lambda w: 0.1 * (w**2).sum(), lambda w: torch.relu(w[3, 5])],
    ids=["none", "of all", "of one entry"],
)
def test_batches_are_loops(penalty):
    """Rows of the subject are those of single evaluations, whatever else is in it."""
    torch.manual_seed(1)
    subject = torch_subject(_loss(penalty), (randn(4, 16), randn(24, 16)))
    subject.row()
    positions = np.arange(24 * 16)
    steps = np.full(len(positions), 1e-3)
    values, taken = subject.rows(1, positions, steps)
    point = subject.point(1)
    expected = np.empty_like(values)
    for k in positions:
        moved = point.copy()
        moved[k] += steps[k]
        subject.place(1, moved)
        expected[k] = subject.row()
    subject.place(1, None)

    assert values == pytest.approx(expected, rel=1e-13)
    assert (taken == (point + steps) - point).all()


# A product whose backward is off in one entry of the weight.
def slipped_backward(x, w, upstream):
    dw = upstream.T @ x
    dw[7, 3] *= 1.001
    return (upstream @ w, dw)


slipped = with_backward(F.linear, slipped_backward)


def test_one_wrong_entry_is_found():
    """A thousandth in one of 384 entries, by whichever plan."""
    torch.manual_seed(2)
    x, w = randn(4, 16).requires_grad_(), randn(24, 16).requires_grad_()

    report = gl.check(lambda x, w: torch.tanh(slipped(x, w)).sum(), x, w)

    assert report.culprits == ("w",)
    assert report["w"].ranking(1) == [(0, 7 * 16 + 3)]


def test_the_trial_of_copies_makes_no_more_than_fit_into_a_batch(monkeypatch):
    """Hundreds of entries are tried without copies; where that fails, few copies."""
    from gradlab.subject.tensors.batching import batches as torch_batches

    made, copied = [], torch_batches.copied

    def counted(subject, which, count):
        made.append(count)
        return copied(subject, which, count)

    monkeypatch.setattr(torch_batches, "copied", counted)
    weight = randn(1000, 1000)
    subject = torch_subject(lambda w: w.sin().sum(), (weight,))
    subject.row()
    subject.batches(0, 20_000)

    assert made
    assert max(made) * weight.nbytes <= subject.chunk_bytes
