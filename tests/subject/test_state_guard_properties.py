# ruff: noqa: PLW0108 - global state, and attributes looked up when called
"""Whatever a body does to random nested state, however it ends: all is as before."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradlab.subject.state_guard import StateGuard

pytestmark = pytest.mark.untraced

torch = pytest.importorskip("torch")
nn = torch.nn


class Holder:
    """An instance of a user's class."""

    def __init__(self, content):
        self.content = content
        self.calls = 0


class Slotted:
    """The same without a ``__dict__``."""

    __slots__ = ("content", "extra")

    def __init__(self, content):
        self.content = content


def small_module(content):
    """A module with every kind of member, and a container as a plain attribute."""
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    module.content = content
    return module


def tensor_with_grad(needs):
    """A leaf, with or without requires_grad, with a gradient where it has one."""
    leaf = torch.tensor([[1.0, float("nan")], [-0.0, 2.0]], requires_grad=needs)
    if needs:
        leaf.grad = torch.ones(2, 2)
    return leaf


def read_only(values):
    """An array that may not be written."""
    array = np.array(values)
    array.setflags(write=False)
    return array


FLOATS = st.lists(st.floats(width=64), min_size=1, max_size=4)
LEAVES = st.one_of(
    st.integers(),
    st.text(max_size=2),
    FLOATS.map(np.array),
    FLOATS.map(lambda values: np.array([values, values])[:, ::2]),
    FLOATS.map(read_only),
    st.just(None).map(lambda _: np.array([1, "a", None], dtype=object)),
    st.integers(0, 9).map(np.random.default_rng),
    st.integers(0, 9).map(random.Random),
    st.booleans().map(tensor_with_grad),
    st.integers(1, 4).map(lambda size: torch.ones(size).half()),
)
STATE = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=1), inner, max_size=3),
        inner.map(Holder),
        inner.map(Slotted),
        inner.map(small_module),
    ),
    max_leaves=8,
)


def walk(value, seen):
    """Every object below `value`, found without the code under test."""
    if id(value) in seen:
        return
    seen[id(value)] = value
    below = []
    if isinstance(value, dict):
        below = list(value.values())
    elif isinstance(value, (list, tuple)):
        below = list(value)
    elif isinstance(value, torch.Tensor):
        below = [value.grad] if value.is_leaf else []  # torch warns
    elif isinstance(value, Slotted):
        below = [getattr(value, name, None) for name in Slotted.__slots__]
    elif isinstance(value, (Holder, nn.Module)):
        below = [vars(value), *vars(value).values()]
    for item in below:
        walk(item, seen)


def photo(objects):
    """What each object is made of, bit by bit; other objects by their identity."""
    out = []
    for value in objects:
        if isinstance(value, dict):
            out.append([(key, id(item)) for key, item in value.items()])
        elif isinstance(value, (list, tuple)):
            out.append([id(item) for item in value])
        elif isinstance(value, np.ndarray):
            flags = value.flags.writeable, value.shape, value.strides, value.dtype
            out.append((value.tobytes(), flags))
        elif isinstance(value, torch.Tensor):
            data = value.detach().clone().numpy().tobytes()
            grad = id(value.grad) if value.is_leaf else "history"
            place = value.data_ptr(), value.shape, value.stride(), value.dtype
            out.append((data, place, grad, value.requires_grad, value._version))
        elif isinstance(value, np.random.Generator):
            out.append(repr(value.bit_generator.state))
        elif isinstance(value, random.Random):
            out.append(value.getstate())
        elif isinstance(value, Slotted):
            out.append([id(getattr(value, name, None)) for name in Slotted.__slots__])
        elif isinstance(value, (Holder, nn.Module)):
            out.append(list(vars(value)))
        else:
            out.append(repr(value))
    out.append(
        (random.getstate(), repr(np.random.get_state()), torch.get_rng_state()[:9])
    )
    return [repr(item) for item in out]


def spoil(value, choice):
    """Change one object in one of the ways its type allows."""
    if isinstance(value, dict):
        ways = [value.clear, lambda: value.update(new=1), value.popitem]
    elif isinstance(value, list):
        ways = [value.clear, lambda: value.append(1), value.reverse, value.pop]
    elif isinstance(value, np.ndarray):
        ways = [
            lambda: value.fill(7),
            lambda: value.setflags(write=not value.flags.writeable),
            lambda: (value.setflags(write=True), value.fill(3)),
        ]
    elif isinstance(value, torch.Tensor):
        ways = [
            lambda: value.data.zero_(),
            lambda: value.detach().add_(1),
            lambda: setattr(value, "data", torch.zeros(5)),
            lambda: setattr(value, "grad", None),
            lambda: value.requires_grad_(not value.requires_grad),
            lambda: (value * 2).sum().backward(),
            lambda: value.register_hook(lambda grad: grad),
        ]
    elif isinstance(value, np.random.Generator):
        ways = [value.normal]
    elif isinstance(value, random.Random):
        ways = [value.random, lambda: value.seed(1)]
    elif isinstance(value, nn.Module):
        ways = [
            value.eval,
            lambda: value.register_forward_hook(lambda *_: None),
            lambda: value(torch.ones(3, 2)).sum().backward(),
            lambda: value.register_buffer("new", torch.ones(1)),
            lambda: value.double(),
            lambda: delattr(value, "content"),
        ]
    elif isinstance(value, (Holder, Slotted)):
        ways = [lambda: setattr(value, "content", 0), lambda: delattr(value, "content")]
    else:
        ways = [lambda: np.random.seed(1), random.random, lambda: torch.rand(1)]
    with contextlib.suppress(Exception):  # some ways do not fit; that is part of it
        ways[choice % len(ways)]()


@given(
    state=STATE,
    steps=st.integers(0, 12),
    seed=st.integers(0, 2**32 - 1),
    ending=st.sampled_from([None, ValueError, KeyboardInterrupt]),
    through=st.sampled_from(["root", "closure"]),
)
def test_everything_is_bitwise_and_identically_as_before(
    state, steps, seed, ending, through
):
    """Random nestings, random mutations, an end at a random point: nothing differs."""
    objects = {}
    walk(state, objects)
    before = photo(objects.values())

    def body():
        draw = random.Random(seed)
        for _ in range(steps):
            now = {}
            walk(state, now)
            kind = draw.choice(sorted({type(value).__name__ for value in now.values()}))
            same = [value for value in now.values() if type(value).__name__ == kind]
            spoil(draw.choice(same), draw.randrange(100))
        if ending is not None:
            raise ending

    root = state if through == "root" else body
    guard = StateGuard(root, keep_tallies=False)
    with contextlib.suppress(ValueError, KeyboardInterrupt), guard:
        body()

    assert guard.remarks == ()
    assert photo(objects.values()) == before
    if not steps:
        assert guard.changes() == ()
