"""All cotangents backwards at once, by the vmap that has a rule for more backwards."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.subject.tensors.subjects import torch_subject
from tests.specimens.torch_sides import randn

torch = pytest.importorskip("torch")
F = torch.nn.functional


def whole_and_by_rows(fn, *inputs):
    """Read a Jacobian at once, and by one backward pass for each row."""
    torch.manual_seed(3)
    subject = torch_subject(fn, inputs)
    rows = len(subject.row())
    found = subject.analytic.pull(np.eye(rows)).values[0]
    alone = torch_subject(fn, inputs)
    alone.row()
    single = [alone.analytic.pull(seed).values[0] for seed in np.eye(rows)]
    return subject.analytic, found, np.concatenate(single)


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (lambda x, w: F.conv2d(x, w, padding=1), [(2, 2, 4, 4), (3, 2, 3, 3)]),
        (lambda x: F.layer_norm(x, (6,)), [(4, 6)]),
        (lambda x: F.batch_norm(x, None, None, training=True), [(5, 4)]),
        (lambda x: torch.linalg.inv(x + 4 * torch.eye(4)), [(4, 4)]),
        (lambda x: torch.softmax(x, -1), [(4, 5)]),
    ],
)
def test_backwards_with_a_rule_are_taken_at_once(fn, shapes):
    """Their rows are those of single backward passes."""
    mode, found, single = whole_and_by_rows(fn, *[randn(*shape) for shape in shapes])

    assert mode._at_once
    assert mode.linear
    assert np.allclose(found, single, rtol=1e-12, atol=1e-13)


def test_a_rule_that_gives_zeros_is_not_believed():
    """That of ``cdist``: the older vmap takes its place, and the backward is linear."""
    mode, found, single = whole_and_by_rows(
        lambda a: torch.cdist(a, a.detach() + 1e-4), randn(4, 2)
    )

    assert np.abs(single).max() > 0.5
    assert np.array_equal(found, single)
    assert mode.linear
    if mode._at_once:
        pytest.skip("this version of torch has a rule that is right")
