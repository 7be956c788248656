"""What does not carry slopes of a product as it should carries none."""

from __future__ import annotations

import pytest

from gradlab.subject.tensors.gradients.engine import run_backward
from gradlab.subject.tensors.incremental import input_products
from tests.differentiation.products.test_through_products import (
    BATCH,
    CLASSES,
    HIDDEN,
    NAMES,
    _loss,
    _measured,
    _point,
)

torch = pytest.importorskip("torch")


def test_a_product_whose_own_backward_is_wrong_carries_nothing(monkeypatch):
    """Slopes that torch's own formula carries are held to the product itself."""
    point = _point()

    def wrong(*args, **options):
        first, *rest = run_backward(*args, **options)
        first = first.clone()
        first.view(-1)[7] *= 1.01
        return first, *rest

    monkeypatch.setattr(input_products, "run_backward", wrong)

    found, _ = _measured(_loss, point)

    assert found == [None] * 5


def test_a_layer_that_does_not_pass_leaves_the_others_what_they_have(monkeypatch):
    """Both are walked along together; then each by itself, measured only once."""
    point = _point()

    def wrong(*args, **options):
        found = run_backward(*args, **options)
        return [1.01 * g if g.shape[-2:] == point[1].shape else g for g in found]

    monkeypatch.setattr(input_products, "run_backward", wrong)

    found, meter = _measured(_loss, point)

    assert [n for n, each in zip(NAMES, found, strict=True) if each] == ["w2", "b2"]
    entries = BATCH * (HIDDEN + CLASSES)
    assert meter.evaluations == 1 + 1 + 2 * entries + 3 * 6
