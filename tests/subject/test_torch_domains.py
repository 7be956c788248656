"""What a GPU's kernels assert raises instead, and a device that is lost is told."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import SubjectError

torch = pytest.importorskip("torch")

from gradlab.subject.tensors.calling.domains import DEVICE, in_domain  # noqa: E402
from gradlab.subject.tensors.subjects import torch_subject  # noqa: E402

entropy = torch.nn.functional.binary_cross_entropy
HALF = torch.tensor([0.5, 0.25], dtype=torch.float64)
OUTSIDE = torch.tensor([0.5, 1.25], dtype=torch.float64)
NOWHERE = torch.tensor([0.5, np.nan], dtype=torch.float64)

CALLS = {
    "entropy": lambda p: entropy(p, HALF),
    "module": lambda p: torch.nn.BCELoss()(p, HALF),
    "bernoulli": torch.bernoulli,
    "bernoulli_": lambda p: torch.zeros(2).bernoulli_(p),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("bad", [OUTSIDE, -OUTSIDE, NOWHERE], ids=["1", "0", "nan"])
def test_numbers_outside_are_refused_before_the_kernel(call, bad):
    """By the name of the function, and not by torch."""
    with in_domain():
        call(HALF)
        with pytest.raises(ValueError, match="not all between 0 and 1"):
            call(bad)


def test_steps_out_of_the_domain_have_no_value():
    """There is none to be had, in batches neither."""
    subject = torch_subject(lambda p: entropy(p, HALF, reduction="none"), (HALF,))
    subject.asserts = True
    moves = np.array([0.1, 0.9, -0.1])
    rows, _ = subject.rows(0, np.zeros(3, dtype=np.intp), moves)

    assert np.isfinite(rows).all(axis=1).tolist() == [True, False, True]


def test_device_that_is_lost_is_told_at_once():
    """Nothing else on it can be read: no step after it has a value either."""
    calls = []

    def f(x):
        calls.append(x)
        if float(x[0]) > 1.0:
            raise RuntimeError("CUDA error: device-side assert triggered")
        return (x**2).sum()

    x = torch.ones(2, dtype=torch.float64)
    with pytest.raises(
        SubjectError, match="took the device with it: start Python again"
    ):
        gl.check(f, x)
    assert len(calls) < 10


def hooked():
    """Whether something packs away what autograd saves."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def checkpointed(function, *inputs):
    """Run a function in a checkpoint as torch did up to version 2.11."""
    from torch.utils import checkpoint

    context = checkpoint.noop_context_fn
    run = checkpoint._checkpoint_without_reentrant_generator
    opened = run(function, False, context, "default", False, True, *inputs)
    next(opened)
    result = function(*inputs)
    next(opened, None)
    return result


class Checkpointed(torch.nn.Module):
    """A layer in a checkpoint, which raises beyond the point."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([0.5, 1.0], dtype=torch.float64))

    def forward(self, x):
        """Sine, up to one."""
        return checkpointed(self.sine, x * self.w)

    def sine(self, x):
        """Raise where it is not defined."""
        if float(x.detach().max()) > 1.0:
            raise ValueError("outside")
        return x.sin()


BEYOND = torch.full((2,), 2.0, dtype=torch.float64)


def test_checkpoint_that_raised_is_closed():
    """It stays open as long as somebody holds the exception."""
    net = Checkpointed()
    with pytest.raises(ValueError, match="outside") as held:
        net(BEYOND)
    assert hooked()
    del held
    gc.collect()
    assert not hooked()
    with pytest.raises(ValueError, match="outside") as held, DEVICE:
        net(BEYOND)
    assert not hooked()
    del held


@pytest.mark.parametrize("door", [gl.check, gl.blame])
def test_no_door_leaves_a_checkpoint_open(door):
    """Of a model that raises at the point, the exception goes to the user."""
    with pytest.raises(SubjectError, match="outside") as held:
        door(Checkpointed(), BEYOND, loss=torch.sum)
    assert not hooked()
    del held


def test_generators_of_others_stay_open():
    """A function's own iterator is nobody's checkpoint."""
    numbers = (k for k in range(1000))

    def f(x):
        mine = numbers
        next(mine)
        if float(x.detach().max()) > 1.0:
            raise ValueError("outside")
        return x.sin().sum()

    gl.check(f, torch.tensor([0.5, 1.0], dtype=torch.float64))
    assert next(numbers) > 0
