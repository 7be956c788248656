"""`StateGuard` puts back tensors, modules and torch's own switches."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from gradlab.subject.guarding import snapshot
from gradlab.subject.state_guard import StateGuard
from tests.specimens.guarded import bits, names

torch = pytest.importorskip("torch")
nn = torch.nn


def test_storage_stays_resizable():
    """``Tensor.numpy()`` pins a storage for good; the guard may not use it."""
    x = torch.ones(3)

    with StateGuard(x):
        x.add_(1)

    assert x.untyped_storage().resizable()


@pytest.fixture
def net():
    """A small module in training mode, with statistics and randomness."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))


def test_batch_norm_statistics_are_restored(net):
    """A training forward moves running statistics; they return, with their counter."""
    before = {key: bits(value) for key, value in net.state_dict().items()}
    x = torch.randn(5, 3)

    with StateGuard(net, x, names=["net", "x"]) as guard:
        net(x)

    assert {key: bits(value) for key, value in net.state_dict().items()} == before
    assert names(guard) == {
        ("buffer", "net.1.running_mean"),
        ("buffer", "net.1.running_var"),
        ("buffer", "net.1.num_batches_tracked"),
        ("random", "torch"),
    }


def test_replaced_buffer_is_the_old_object_again(net):
    """Assigning a buffer anew is undone by identity, not only by value."""
    mean = net[1].running_mean

    with StateGuard(net, names=["net"]) as guard:
        net[1].running_mean = torch.ones(4)
        mean += 1

    assert net[1].running_mean is mean
    assert mean.tolist() == [0.0] * 4
    assert ("buffer", "net.1.running_mean") in names(guard)


def test_mode_of_every_submodule_is_restored(net):
    """``eval()`` in the body does not switch the user's training off."""
    net[2].eval()

    with StateGuard(net, names=["net"]) as guard:
        net.eval()

    assert [module.training for module in net] == [True, True, False]
    assert ("mode", "net.1.training") in names(guard)
    assert ("mode", "net.2.training") not in names(guard)


def test_hooks_added_in_the_body_are_gone(net):
    """Module, tensor and global hooks are as before; the user's own stay."""
    mine = net[0].register_forward_hook(lambda *_: None)
    weight = net[0].weight

    with StateGuard(net, names=["net"]) as guard:
        net[0].register_forward_hook(lambda *_: None)
        net[1].register_full_backward_hook(lambda *_: None)
        weight.register_hook(lambda grad: grad * 0)
        nn.modules.module.register_module_forward_hook(lambda *_: None)

    assert list(net[0]._forward_hooks) == [mine.id]
    assert not net[1]._backward_hooks
    assert not weight._backward_hooks
    assert not nn.modules.module._global_forward_hooks
    assert ("hooks", "net.0._forward_hooks") in names(guard)
    weight.sum().backward()
    assert weight.grad.eq(1).all()


def test_grad_set_in_the_body_is_unset(net):
    """``backward()`` in the body leaves ``.grad`` None where it was None."""
    x = torch.randn(5, 3)

    with StateGuard(net, names=["net"]) as guard:
        net(x).sum().backward()

    assert all(parameter.grad is None for parameter in net.parameters())
    assert ("grad", "net.0.weight") in names(guard)


def test_grad_accumulated_in_the_body_has_its_old_values():
    """An existing ``.grad`` is the same tensor with the same bits."""
    w = torch.ones(3, requires_grad=True)
    w.sum().backward()
    grad = w.grad

    with StateGuard(w, names=["w"]) as guard:
        (2 * w).sum().backward()

    assert w.grad is grad
    assert grad.tolist() == [1.0] * 3
    assert names(guard) == {("grad", "w")}


def test_requires_grad_is_flipped_back():
    """In both directions."""
    on, off = torch.ones(2, requires_grad=True), torch.ones(2)

    with StateGuard(on, off, names=["on", "off"]) as guard:
        on.requires_grad_(False)
        off.requires_grad_()

    assert on.requires_grad
    assert not off.requires_grad
    assert names(guard) == {("requires_grad", "on"), ("requires_grad", "off")}


def test_leaf_that_got_a_history_is_a_leaf_again():
    """``x.mul_(w)`` in the body makes the input part of a graph; it is taken out."""
    x, w = torch.ones(2), torch.full((2,), 3.0, requires_grad=True)

    with StateGuard(x, w):
        x.mul_(w)

    assert x.is_leaf
    assert not x.requires_grad
    assert x.tolist() == [1.0, 1.0]


def test_view_that_got_a_history_is_told():
    """Torch cannot take a view out of a graph: values return, and the guard says so."""
    view, w = torch.ones(4)[:2], torch.full((2,), 3.0, requires_grad=True)

    with StateGuard(view, w, names=["view", "w"]) as guard:
        view.mul_(w)

    assert view.tolist() == [1.0, 1.0]
    [remark] = guard.remarks
    assert "view is a view" in remark


@pytest.mark.parametrize(
    "mutate",
    [
        lambda x: x.add_(1),
        lambda x: x.data.add_(1),
        lambda x: x.numpy().__iadd__(1),
        lambda x: x.t_(),
        lambda x: x.resize_(1, 1),
        lambda x: x.resize_(50, 50).zero_(),
        lambda x: x.untyped_storage().resize_(0),
        lambda x: setattr(x, "data", torch.zeros(7)),
        lambda x: setattr(x, "data", x.data.half()),
        lambda x: x.set_(torch.zeros(2)),
        lambda x: x.view(-1)[::2].fill_(float("nan")),
        lambda x: x.squeeze_().unsqueeze_(0),
    ],
)
def test_every_way_of_writing_to_a_tensor_is_undone(mutate):
    """Values, shape, strides, dtype, memory: all as before, in the same object."""
    x = torch.tensor([[1.0, -0.0, float("nan")], [4.0, 5.0, 6.0]])
    before, place = bits(x), x.data_ptr()

    with StateGuard(x, names=["x"]) as guard:
        mutate(x)

    assert x.shape == (2, 3)
    assert x.stride() == (3, 1)
    assert x.dtype is torch.float32
    assert bits(x) == before
    assert guard.remarks == ()
    assert "x" in {change.where for change in guard.changes()} or x.data_ptr() == place


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.complex64])
def test_dtypes_that_numpy_lacks(dtype):
    """Bytes are saved, so the dtype does not matter."""
    x = torch.ones(3, dtype=dtype)

    with StateGuard(x):
        x.zero_()

    assert x.eq(torch.ones(3, dtype=dtype)).all()


@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta")
@pytest.mark.parametrize("layout", ["coo", "uncoalesced", "csr", "csc"])
def test_sparse_tensors(layout):
    """Indices, values and the coalesced flag of sparse tensors return."""
    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    make = {
        "coo": dense.to_sparse_coo,
        "csr": dense.to_sparse_csr,
        "csc": dense.to_sparse_csc,
        "uncoalesced": lambda: torch.sparse_coo_tensor(
            [[0, 0], [1, 1]], [1.0, 1.0], (2, 2), check_invariants=True
        ),
    }
    x = make[layout]()
    before, nnz = x.to_dense(), x.values().numel() if layout != "uncoalesced" else 2

    with StateGuard(x, names=["x"]) as guard:
        x.mul_(2)

    assert torch.equal(x.to_dense(), before)
    assert (x._values() if x.is_sparse else x.values()).numel() == nnz
    assert x.layout is not torch.sparse_coo or x.is_coalesced() == (layout == "coo")
    assert names(guard) == {("tensor", "x")}


def test_graph_made_before_can_be_used_after():
    """Version counters return too, so autograd does not see a false modification."""
    x = torch.ones(3, requires_grad=True)
    w = torch.full((3,), 2.0)
    loss = (x * w).sum()

    with StateGuard(w):
        w.add_(1)

    loss.backward()
    assert x.grad.tolist() == [2.0] * 3


def test_tensors_sharing_memory_are_saved_once_and_restored():
    """A view, its base and NumPy's view of the same memory agree afterwards."""
    base = torch.arange(6.0)
    view, array = base.view(2, 3)[1], base.numpy()

    with StateGuard(view, array):
        base.zero_()

    assert base.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_switches_of_torch_are_restored():
    """Grad mode and default dtype, left turned by the body, turn back."""
    with StateGuard() as guard:
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)

    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() is torch.float32
    assert names(guard) == {
        ("setting", "torch's grad mode"),
        ("setting", "torch's default dtype"),
    }


def test_guard_inside_no_grad_leaves_no_grad_on():
    """Looking at state does not turn gradients on or off for the caller."""
    with torch.no_grad():
        with StateGuard(torch.ones(2)):
            assert not torch.is_grad_enabled()
        assert not torch.is_grad_enabled()


@pytest.fixture
def large(monkeypatch, net):
    """A model whose parameters are too many to be copied."""
    monkeypatch.setattr(snapshot, "_SMALL_PARAMETERS", 0)
    return net


def test_parameters_beyond_the_limit_are_watched(large):
    """Not copied, a changed parameter is reported as not restorable."""
    with StateGuard(large, names=["net"]) as guard:
        large[0].weight.data[1, 2] += 1.0

    [change] = [c for c in guard.changes() if c.where == "net.0.weight"]
    assert change.kind == "parameter"
    assert not change.restorable


def test_parameters_seen_through_plain_tensors_are_not_copied(large):
    """A ``state_dict`` shares memory with the module, so it is watched like it."""
    state = dict(large.state_dict())

    with StateGuard(state, large) as guard:
        large[0].weight.data += 1.0

    [change] = [c for c in guard.changes() if c.where == "x0['0.weight']"]
    assert not change.restorable


def test_small_view_of_a_large_storage_is_saved_alone():
    """A batch of a data set is put back though the data set is beyond the limit."""
    data = torch.zeros(1000, 500)
    batch = data[10:20, ::2]

    with StateGuard(batch, limit_bytes=100_000):
        batch += 1

    assert not data.any()


def test_parameters_perturbed_and_put_back_are_no_change(large):
    """What the engine does in place, and undoes, is not blamed on the user."""
    weight = large[0].weight

    with StateGuard(large) as guard, torch.no_grad():
        old = weight[0, 0].clone()
        weight[0, 0] += 1.0
        weight[0, 0] = old

    assert guard.changes() == ()


def test_tensor_subclass_functions_do_not_run():
    """Saving a subclass does not call its ``__torch_function__``."""
    calls = []

    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            calls.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.ones(2).as_subclass(Loud)
    calls.clear()
    with StateGuard(x):
        seen = len(calls)
        x.data.zero_()

    calls.clear()
    assert seen == 0
    assert x.tolist() == [1.0, 1.0]


def test_interrupt_between_perturbation_and_undo(net):
    """An engine stopped mid-way through a column leaves no perturbed weight."""
    before = {key: bits(value) for key, value in net.state_dict().items()}

    def body():
        net[0].weight.data[0, 0] += 1e-6
        raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt), StateGuard(net):
        body()

    assert {key: bits(value) for key, value in net.state_dict().items()} == before


def test_array_and_tensor_over_one_memory_keep_both_flags():
    """A read-only NumPy view of a tensor stays read-only."""
    x = torch.ones(3)
    array = x.numpy()
    array.setflags(write=False)

    with StateGuard(x, array):
        x.zero_()

    assert np.array_equal(array, np.ones(3))
    assert not array.flags.writeable
