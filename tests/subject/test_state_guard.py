"""`StateGuard` puts back what NumPy and plain Python code changes, and names it."""

from __future__ import annotations

import collections
import functools
import random

import numpy as np
import pytest

import gradlab as gl
from gradlab.subject.state_guard import HiddenState, StateGuard
from tests.specimens.guarded import Net, names

TABLE = np.arange(4.0)
COUNT = 0


def test_input_array_is_restored_bitwise():
    """An in-place update of an input, nan and -0.0 included, is undone and named."""
    x = np.array([1.0, np.nan, -0.0])
    before = x.tobytes()

    with StateGuard(x, names=["x"]) as guard:
        x[:] = [1.0, 2.0, 0.0]

    assert x.tobytes() == before
    assert names(guard) == {("array", "x")}


def test_untouched_state_is_no_change():
    """A pure function leaves an empty list."""
    net, x = Net(), np.ones((1, 2))

    fn = lambda: float((x @ net.params["W1"]).sum())
    with StateGuard(x, fn) as guard:
        fn()

    assert guard.changes() == ()


def test_attribute_returns_to_what_it_was():
    """A cache written by the forward pass is gone, and its path is the user's."""
    net, x = Net(), np.ones((1, 2))
    fn = lambda: net.loss(x)

    with StateGuard(fn) as guard:
        fn()

    assert net.cache is None
    assert names(guard) == {("attribute", "net.cache")}


def test_containers_keep_their_identity():
    """Dicts, lists, sets and deques hold the same items in the same object."""
    inner = [np.zeros(2), {"a": 1}]
    state = {
        "list": inner,
        "set": {1, 2},
        "deque": collections.deque([1, 2], maxlen=3),
        "ordered": collections.OrderedDict(a=1, b=2),
        "bytes": bytearray(b"abc"),
    }
    objects = dict(state)

    with StateGuard(state, names=["state"], keep_tallies=False) as guard:
        inner.reverse()
        state["set"].add(3)
        state["deque"].extend([3, 4])
        state["ordered"].move_to_end("a")
        state["bytes"] += b"d"
        state["new"] = state.pop("list")

    assert list(state) == ["list", "set", "deque", "ordered", "bytes"]
    assert all(state[key] is value for key, value in objects.items())
    assert isinstance(inner[0], np.ndarray)
    assert inner[1] == {"a": 1}
    assert state["set"] == {1, 2}
    assert list(state["deque"]) == [1, 2]
    assert list(state["ordered"]) == ["a", "b"]
    assert state["bytes"] == b"abc"
    assert ("container", "state['set']") in names(guard)
    assert ("container", "state['new']") in names(guard)


def test_closure_variable_is_bound_as_before():
    """``nonlocal`` counters are rewound and reported under their name."""
    calls = 0

    def fn():
        nonlocal calls
        calls += 1

    with StateGuard(fn, keep_tallies=False) as guard:
        fn()

    assert calls == 0
    assert names(guard) == {("variable", "calls")}


def test_global_named_by_the_code_is_restored():
    """A function that rebinds and writes globals of its module leaves them alone."""

    def fn():
        global COUNT  # noqa: PLW0603 - the sin under test
        COUNT += 1
        TABLE[0] = 7.0

    with StateGuard(fn, keep_tallies=False) as guard:
        fn()

    assert COUNT == 0
    assert TABLE[0] == 0.0
    assert names(guard) == {("variable", "COUNT"), ("array", "TABLE")}


def test_view_restores_the_memory_of_its_owner():
    """What is written beside a view of an input is undone too."""
    whole = np.arange(10.0)
    part = whole[2:4]

    with StateGuard(part):
        whole[:] = -1.0

    assert whole.tolist() == list(range(10))


def test_read_only_flag_and_bytes_of_a_reopened_array():
    """An array that the body unlocks and writes is locked and whole again."""
    x = np.ones(3)
    x.setflags(write=False)

    with StateGuard(x, names=["x"]) as guard:
        x.setflags(write=True)
        x[0] = 5.0

    assert not x.flags.writeable
    assert x.tolist() == [1.0, 1.0, 1.0]
    assert names(guard) == {("array", "x"), ("layout", "x")}


def test_array_locked_by_the_body_is_unlocked():
    """``setflags(write=False)`` after a write does not keep the write."""
    x = np.ones(3)

    with StateGuard(x):
        x[0] = 5.0
        x.setflags(write=False)

    assert x.flags.writeable
    assert x[0] == 1.0


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_exception_passes_and_state_is_back(error):
    """Whatever ends the body goes on to the caller, over restored state."""
    x = np.zeros(2)

    def fn():
        x[:] = 1.0
        raise error

    with pytest.raises(error), StateGuard(x):
        fn()

    assert x.tolist() == [0.0, 0.0]


def test_global_random_states_are_restored_and_named():
    """Draws from random and numpy.random leave no trace in the next draw."""
    random.seed(1)
    np.random.seed(1)
    python, numpy = random.getstate(), np.random.get_state()[1].tobytes()

    with StateGuard() as guard:
        random.random()
        np.random.normal()

    assert random.getstate() == python
    assert np.random.get_state()[1].tobytes() == numpy
    assert names(guard) == {("random", "random"), ("random", "numpy.random")}


def test_generator_in_a_closure_is_rewound():
    """The next draw after the block is the one that would have come without it."""
    rng = np.random.default_rng(3)
    fn = lambda x: x + rng.normal()

    with StateGuard(fn) as guard:
        first = fn(0.0)

    assert fn(0.0) == first
    assert names(guard) == {("random", "rng")}


def test_partial_method_and_defaults_are_entered():
    """State behind functools.partial, bound methods and default arguments is saved."""
    net, w, hidden = Net(), np.ones(2), []

    def fn(a, seen=hidden, *, weights=w):
        seen.append(1)
        weights *= 2.0
        return net.loss(a)

    x = np.ones((1, 2))
    subject = functools.partial(fn, x)
    with StateGuard(subject, net.loss, keep_tallies=False) as guard:
        subject()
        x += 1

    assert hidden == []
    assert w.tolist() == [1.0, 1.0]
    assert net.cache is None
    assert x.tolist() == [[1.0, 1.0]]
    assert {("container", "seen"), ("array", "weights"), ("array", "a")} <= names(guard)


def test_bound_method_is_called_self():
    """A method's object is ``self`` in messages."""
    net = Net()

    with StateGuard(net.loss) as guard:
        net.loss(np.ones((1, 2)))

    assert names(guard) == {("attribute", "self.cache")}


def test_class_attribute_is_restored():
    """Arrays and counters kept on the user's class are state as well."""
    net = Net()

    with StateGuard(net) as guard:
        Net.shared += 1.0
        Net.calls = 3

    assert Net.shared.tolist() == [0.0] * 3
    assert not hasattr(Net, "calls")
    assert ("attribute", "Net.calls") in names(guard)
    assert ("array", "Net.shared") in names(guard)


def test_slots_are_restored():
    """Instances without ``__dict__`` are saved by their slots, set or not."""

    class Cell:
        __slots__ = ("h", "t")

        def __init__(self):
            self.t = 0

    cell = Cell()
    with StateGuard(cell, names=["cell"], keep_tallies=False) as guard:
        cell.t, cell.h = 1, np.zeros(2)

    assert cell.t == 0
    assert not hasattr(cell, "h")
    assert names(guard) == {("attribute", "cell.t"), ("attribute", "cell.h")}


def test_large_array_is_watched_not_copied():
    """Above the limit a change is told and said to be beyond restoring."""
    x, small = np.zeros(100_000), np.zeros(3)

    with StateGuard(x, small, names=["x", "s"], limit_bytes=1000) as guard:
        x[54_321] = 1e-300
        small += 1

    assert small.tolist() == [0.0] * 3
    assert {(c.where, c.restorable) for c in guard.changes()} == {
        ("x", False),
        ("s", True),
    }


def test_small_view_of_a_large_array_is_saved_alone():
    """A batch of a data set is put back though the data set is beyond the limit."""
    data = np.zeros((1000, 500))
    batch = data[10:20, ::2]

    with StateGuard(batch, limit_bytes=100_000):
        batch += 1

    assert not data.any()


@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_large_arrays_of_any_layout(order):
    """Arrays above the size of one comparison are compared and restored bitwise."""
    whole = np.zeros((900, 700, 5), order="F" if order == "F" else "C")
    x = whole[::2, ::2] if order == "strided" else whole
    x[3, 5, 1] = np.nan
    before = x.tobytes()

    with StateGuard(x, names=["x"]) as guard:
        x[-1, -1, -1] = -0.0

    assert x.tobytes() == before
    assert names(guard) == {("array", "x")}


def test_long_lists_found_on_the_way_are_not_searched_to_the_end():
    """A data set behind a function costs little, and what was skipped is told."""
    data = [(np.zeros(1), index) for index in range(5000)]

    with StateGuard(lambda: data[0]) as guard:
        data[0][0][0] = 1.0
        data.reverse()

    assert data[0][1] == 0
    assert data[0][0][0] == 0.0
    assert guard.unguarded == (
        "data: only the first 4096 of 5000 items were looked into",
    )


def test_guard_lends_its_copies_for_rewinding():
    """`hidden_state` and `random_freeze` go back to the state on entry."""
    running, rng = np.zeros(2), np.random.default_rng(0)

    def fn():
        running[:] += rng.normal()
        return running.sum()

    with StateGuard(fn) as guard:
        freeze, state = guard.random_freeze(), guard.hidden_state()
        first = fn()
        assert freeze.consumed() == ("rng",)
        assert [change.where for change in state.changes()] == ["running"]
        for _ in range(3):
            freeze.restore(only=("rng",))
            state.restore()
            assert fn() == first


def test_hidden_state_is_rewound_between_evaluations():
    """A drifting function gives the same value each time once it is rewound."""
    running = np.zeros(2)

    def fn(x):
        running[:] = 0.9 * running + x
        return running.sum()

    state = HiddenState(fn)
    first = fn(1.0)

    assert [change.where for change in state.changes()] == ["running"]
    for _ in range(3):
        state.restore()
        assert fn(1.0) == first


def test_numpy_error_state_is_restored():
    """``np.seterr`` in the body does not outlive it."""
    before = np.geterr()

    with StateGuard() as guard:
        np.seterr(all="raise")

    assert np.geterr() == before
    assert names(guard) == {("setting", "numpy.errstate")}


class Lazy(dict):
    """Makes its values when somebody asks for them, as registries of models do."""

    def items(self):
        raise ImportError("one of a thousand models cannot be imported here")

    keys = values = __iter__ = items

    def __len__(self):
        return 1000


def test_a_dictionary_is_saved_by_what_is_in_it():
    """And not by what its class makes of that: peft holds one of all transformers."""
    kept, x = Lazy(), np.ones(3)
    dict.__setitem__(kept, "last", "nothing")

    def f(x):
        dict.__setitem__(kept, "last", float(x[0]))
        return (x**2).sum()

    assert gl.check(f, x, grad=lambda x: 2 * x).verdict == gl.Verdict.AGREES
    assert dict.__getitem__(kept, "last") == "nothing"
