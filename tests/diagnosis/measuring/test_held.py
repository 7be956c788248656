"""Arrays that functions hold, of whatever kind: no detector fails of one."""

from __future__ import annotations

import types

import numpy as np
import pytest

import gradlab as gl
from gradlab.diagnosis.measuring.held import held_arrays, real_arrays


def subject_of(held):
    """A subject whose function holds something."""
    return types.SimpleNamespace(_call=lambda: held)


def test_arrays_have_their_names_and_shapes():
    """That of the variable, and that of the array."""
    [(name, held)] = held_arrays(subject_of(np.ones((2, 3))))

    assert (name, held.shape) == ("held", (2, 3))


@pytest.mark.filterwarnings("ignore:.*nested tensors")
def test_tensors_without_numbers_are_none():
    """One on the meta device has no memory, a nested one no single shape."""
    torch = pytest.importorskip("torch")
    meta = torch.ones(3, dtype=torch.bool, device="meta")
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])

    assert not held_arrays(subject_of([meta, nested]))


def test_they_stop_no_diagnosis():
    """Half a gradient beside them is half a gradient."""
    torch = pytest.importorskip("torch")
    mask = torch.ones(6, dtype=torch.bool, device="meta")
    x = np.linspace(1.0, 2.0, 6)

    def loss(x):
        assert mask.is_meta
        return (x**2).sum()

    assert gl.check(loss, x, grad=lambda x: x).diagnosis == "scale"


@pytest.mark.parametrize("layout", ["dense", "to_sparse", "to_sparse_csr"])
def test_sparse_matrices_have_their_zeros(layout):
    """A matrix has the same numbers however it is stored."""
    torch = pytest.importorskip("torch")
    values = torch.eye(3, dtype=torch.float64)
    held = values if layout == "dense" else getattr(values, layout)()

    [(name, found)] = real_arrays(subject_of(held), (3, 3))

    assert name == "held"
    assert (found == np.eye(3)).all()
