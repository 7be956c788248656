"""What a backward pass does with a gradient that is already there."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import InputError, InputTypeError, SubjectError


def _stepper(grads):
    """A step that writes w, adds to b and leaves c alone."""

    def step():
        grads["w"][...] = [1.0, 2.0]
        grads["b"] += 3.0

    return step


def _buffers():
    return {"w": np.full(2, 7.0), "b": np.full(3, 8.0), "c": np.full(1, 9.0)}


def test_three_modes_are_told_apart():
    """Each buffer does what it does, and is afterwards what it was."""
    grads = _buffers()
    found = gl.check_accumulation(
        _stepper(grads), grads, expect={"w": "write", "b": "add", "c": "null"}
    )

    assert found.verdict == gl.Verdict.AGREES
    assert dict(found.table.set_index("name")["found"]) == {
        "w": "write",
        "b": "add",
        "c": "null",
    }
    assert all(np.array_equal(grads[k], v) for k, v in _buffers().items())


@pytest.mark.parametrize("expect", ["write", "add", "null"])
def test_every_other_mode_is_a_disagreement(expect):
    """Exactly the buffers of another mode are accused."""
    grads = _buffers()
    found = gl.check_accumulation(_stepper(grads), grads, expect=expect)
    right = {"write": "w", "add": "b", "null": "c"}[expect]

    assert [r.name for r in found.rows if r.verdict == gl.Verdict.AGREES] == [right]


def test_lost_accumulation():
    """A weight used twice whose second use overwrites the first: an old favourite."""
    w = np.array([2.0, 3.0])
    grads = {"w": np.zeros(2)}

    def step():
        grads["w"][...] = 0
        for factor in (1.0, 5.0):
            grads["w"] += factor * w

    found = gl.check_accumulation(step, grads)

    assert found.rows[0].found == "write"
    assert 'where "add" was expected' in found.reading


def test_replaced_arrays_are_overwritten_gradients():
    """A dict entry, or an attribute, that is bound anew."""

    class Layer:
        def __init__(self):
            self.dw = np.zeros(2)

        def step(self):
            self.dw = np.ones(2)

    layer, grads = Layer(), {"w": np.zeros(2)}
    by_attribute = gl.check_accumulation(
        layer.step, lambda: {"dw": layer.dw}, expect="write"
    )
    by_key = gl.check_accumulation(
        lambda: grads.update(w=np.ones(2)), grads, expect="write"
    )

    assert by_attribute.ok
    assert by_key.ok
    assert not layer.dw.any()
    assert not grads["w"].any()


def test_nan_is_none_of_the_modes():
    """A gradient of nan agrees with nothing."""
    grads = {"w": np.zeros(2)}

    def step():
        grads["w"][...] = np.nan

    found = gl.check_accumulation(step, grads, expect="write")

    assert found.rows[0].found == "other"
    assert not found.ok


def test_zero_gradient_cannot_be_told():
    """Adding zero looks like doing nothing: undecided."""
    grads = {"w": np.ones(2)}
    found = gl.check_accumulation(lambda: None, grads)

    assert found.rows[0].found == "no gradient"
    assert found.verdict == gl.Verdict.UNDECIDED


def test_torch_accumulates():
    """Autograd adds to `.grad`; a frozen parameter's is left alone."""
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(3, 2)
    layer.bias.requires_grad_(False)
    x = torch.ones(4, 3)

    def step():
        layer(torch.nn.functional.dropout(x, 0.5)).sum().backward()

    torch.manual_seed(1)
    before = torch.get_rng_state()
    found = gl.check_accumulation(step, layer, expect={"bias": "null"})

    assert found.verdict == gl.Verdict.AGREES
    assert layer.weight.grad is None
    assert layer.bias.grad is None
    assert torch.equal(torch.get_rng_state(), before)


def test_torch_function_that_writes_to_grad_itself():
    """A backward that assigns `.grad` on its own loses what was there."""
    torch = pytest.importorskip("torch")
    w = torch.ones(2, requires_grad=True)

    def step():
        w.grad = torch.full((2,), 3.0)

    found = gl.check_accumulation(step, [w])

    assert [row.found for row in found.rows] == ["write"]
    assert not found.ok


@pytest.mark.parametrize(
    ("grads", "expect", "error", "words"),
    [
        ({}, "add", InputError, "no gradient buffer"),
        ({"w": 1.0}, "add", InputTypeError, "w is a float"),
        ({"w": np.ones(1, int)}, "add", InputTypeError, "w is a ndarray int64"),
        ({"w": np.ones(1)}, "sum", InputError, "got 'sum'"),
        ({"w": np.ones(1)}, {"v": "add"}, InputError, "'v'; the gradients are 'w'"),
    ],
)
def test_bad_arguments_are_refused(grads, expect, error, words):
    """The message names the value and what was expected."""
    with pytest.raises(error, match=words):
        gl.check_accumulation(lambda: None, grads, expect=expect)


def test_step_that_raises_is_told():
    """And the buffers are what they were."""
    grads = {"w": np.full(2, 5.0)}

    with pytest.raises(SubjectError, match="step raised ZeroDivisionError"):
        gl.check_accumulation(lambda: 1 / 0, grads)
    assert np.array_equal(grads["w"], [5.0, 5.0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
        ({"rtol": "x"}, "rtol must be a number >= 0 or None, got 'x'"),
    ],
)
def test_numbers_that_are_none_are_refused(options, words):
    """Before the step has run."""
    with pytest.raises(InputError, match=words):
        gl.check_accumulation(lambda: 1 / 0, {"w": np.ones(1)}, **options)


def test_bfloat16_gradients_are_judged_by_their_own_round_off():
    """NumPy has no such numbers; they have eight bits, and adding rounds to these."""
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(3, 2).bfloat16()
    x = torch.ones(4, 3, dtype=torch.bfloat16)
    found = gl.check_accumulation(lambda: layer(x).sum().backward(), layer)

    assert found.verdict == gl.Verdict.AGREES
