"""Devices, as far as that can be tried without one: the default one is not used.

With torch's "meta" device as the default, every tensor that is made without saying
where has no numbers, and using it fails: with a GPU it would be on the wrong device.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

torch = pytest.importorskip("torch")

from gradlab.subject.tensors import walk  # noqa: E402
from gradlab.subject.tensors.batching.devices import (  # noqa: E402 - after torch
    batch_bytes,
    copies,
    out_of_memory,
)
from gradlab.subject.tensors.values import make_cell  # noqa: E402
from tests.specimens.slips import Slip, Slipping, network  # noqa: E402

X = torch.linspace(0.1, 1.0, 12, dtype=torch.float64)
W = torch.linspace(-1.0, 1.0, 12, dtype=torch.float64).reshape(3, 4)


def squares(out):
    """Reduce to a loss."""
    return (out**2).sum()


def _module(*middle, dtype=torch.float64, **options):
    net, x = network(*middle, dtype=dtype)
    return lambda: gl.check(net, x, loss=squares, **options)


def _blamed():
    net, x = network(Slipping())
    return lambda: gl.blame(net, x, loss=squares)


CASES = {
    "function": lambda: gl.check(torch.sin, X),
    "float32": lambda: gl.check(torch.sin, X.float()),
    "bfloat16": lambda: gl.check(torch.sin, X.bfloat16()),
    "custom": lambda: gl.check(Slip.apply, X),
    "complex": lambda: gl.check(lambda z: z * z, torch.complex(X, X)),
    "sparse": lambda: gl.check(
        lambda s: (s.to_dense() ** 2).sum(), torch.diag(X.detach()).to_sparse()
    ),
    "strided": lambda: gl.check(lambda a: (a**2).sum(), W.t()[::2]),
    "second order": lambda: gl.check(lambda x: (x**3).sum(), X, order=2),
    "sweep": lambda: gl.sweep(lambda x: (x**3).sum(), X),
    "hand-written": lambda: gl.check(squares, X, grad=lambda x: 2 * x),
    "forward mode": lambda: gl.analytic_jacobian(torch.sin, X, mode="forward"),
    "numeric": lambda: gl.numeric_jacobian(torch.sin, X),
    "module": _module(torch.nn.Tanh()),
    "module in float32": _module(torch.nn.BatchNorm1d(5), dtype=torch.float32),
    "module with dropout": _module(torch.nn.Dropout(0.3)),
    "wrong module": _module(Slipping()),
    "directions": _module(torch.nn.Tanh(), coverage="probe"),
    "wrong directions": _module(Slipping(), coverage="probe"),
    "blame": _blamed(),
}


def said(result):
    """What a result says, of whatever kind it is."""
    for name in ("verdict", "culprits", "verdicts"):
        if hasattr(result, name):
            return getattr(result, name)
    return result.value.tolist()


@pytest.mark.untraced
@pytest.mark.parametrize("name", CASES)
def test_default_device_is_not_used(name):
    """Everything is made on the device of the subject, or on the host on purpose."""
    if name == "sparse":
        sparse = torch.diag(X).to_sparse()  # the user's own tensors are made before

        def call():
            return gl.check(lambda s: (s.to_dense() ** 2).sum(), sparse)

    else:
        call = CASES[name]
    plain = said(call())
    with torch.device("meta"):
        assert said(call()) == plain


def test_batches_are_bounded_by_the_memory_of_the_host():
    """64 MiB at most, and small inputs stay in the cache."""
    assert batch_bytes([X]) == 1 << 26
    assert copies(torch.zeros(1 << 21), 1 << 26, 64) == 8
    assert copies(torch.zeros(1), 1 << 26, 64) == (1 << 23) // 4
    assert copies(torch.zeros(1 << 28, device="meta"), 1 << 26, 64) == 1


def test_batch_that_does_not_fit_is_made_smaller(monkeypatch):
    """A device without room is no reason to evaluate one by one, nor for nan."""
    from gradlab.subject.tensors.batching.batches import Batches
    from gradlab.subject.tensors.subjects import torch_subject

    x = torch.linspace(0, 1, 256, dtype=torch.float64)
    subject = torch_subject(lambda x: torch.sin(x).cumsum(0), (x,))
    import numpy as np

    positions, steps = np.arange(256), np.full(256, 1e-6)
    plan = type(subject._batches._plan(0))(batched=True)
    subject._batches._plans[0] = plan
    subject.chunk_bytes = 256 * x.nbytes
    expected = subject.rows(0, positions, steps)[0]
    real, sizes = Batches._batch, []

    def cramped(self, which, positions, displacements, plan):
        sizes.append(len(positions))
        if len(positions) > 40:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, which, positions, displacements, plan)

    monkeypatch.setattr(Batches, "_batch", cramped)
    found = subject.rows(0, positions, steps)[0]
    assert np.allclose(found, expected, rtol=1e-15, atol=0)
    assert max(sizes[-6:]) <= 40


def test_only_a_lack_of_room_is_a_lack_of_room():
    """Other errors of a device are not answered by smaller batches."""
    assert out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not out_of_memory(RuntimeError("CUDA error: device-side assert"))


def test_pieces_of_a_pool_are_cut_on_the_device(monkeypatch):
    """The same displacements as from the host, from one copy of the pool."""
    pool = np.arange(1.0, 1000.0)
    walk.keep_on_devices(pool)
    one, two = (make_cell("x", torch.zeros(10, dtype=torch.float64)) for _ in range(2))
    walk.displace(one, 2, pool[700:704], 0.5)

    class Device:
        """Named like a device, where everything stays on the host."""

        type = "cuda"

    transferred = []
    from_numpy = torch.from_numpy

    def counting(array):
        class Host:
            def to(self, _device):
                transferred.append(array.size)
                return from_numpy(array)

        return Host()

    monkeypatch.setattr(torch, "from_numpy", counting)
    device = Device()
    for first in (0, 700):
        there = walk._on_device(pool[first : first + 4], device)
        two.real()[2:6] = 0.5 * there
    assert torch.equal(one.values, two.values)
    assert transferred == [pool.size]
    walk._on_device(np.ones(3), device)
    assert transferred == [pool.size, 3]
