"""What a guard leaves alone: a user's counts and logs, services, hostile objects."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.subject.guarding.paths import path_text
from gradlab.subject.guarding.reachable import reach
from gradlab.subject.state_guard import StateGuard
from tests.specimens.guarded import Net, names


def test_tallies_of_the_user_survive():
    """Who counts or logs calls inside the function under test can read the count."""
    calls, log, seen, counts = 0, [], {0}, {"loss": 1}
    net, box = Net(), [0]
    net.calls = 0

    def fn(x):
        nonlocal calls
        calls += 1
        box[0] += 1
        net.calls += 1
        counts["loss"] += 1
        counts["forward"] = counts.get("forward", 0) + 1
        log.append(x.copy())
        seen.add(calls)
        return net.loss(x)

    x = np.ones((1, 2))
    with StateGuard(x, fn) as guard:
        fn(x)
        fn(x)

    assert (calls, box, net.calls, len(log), seen) == (2, [2], 2, 2, {0, 1, 2})
    assert counts == {"loss": 3, "forward": 2}
    assert net.cache is None
    assert ("variable", "calls") in names(guard)
    assert ("attribute", "net.cache") in names(guard)


def test_what_is_no_tally_is_rewound():
    """Lists that lost items, floats, and numbers that fell are state, not counts."""
    items, state = [1, 2], {"mean": 0.5, "left": 3, "cache": None}

    with StateGuard(items, state):
        items[:] = [2, 1, 0]
        state.update(mean=0.9, left=2, cache=1, extra=np.ones(1))

    assert items == [1, 2]
    assert state == {"mean": 0.5, "left": 3, "cache": None}


def test_guard_may_be_told_that_tallies_matter():
    """Where the value depends on a count, the engine asks for everything."""
    net = Net()
    net.calls = 0

    with StateGuard(net) as guard:
        net.calls += 1
        guard.keep_tallies = False

    assert net.calls == 0


def test_advanced_iterator_is_reported():
    """An iterator cannot be rewound, so its use is told as beyond restoring."""
    batches = iter([1, 2, 3])
    numbers = (n for n in range(3))
    fn = lambda: (next(batches), next(numbers))

    with StateGuard(fn) as guard:
        fn()

    assert names(guard) == {("iterator", "batches"), ("iterator", "numbers")}
    assert not any(change.restorable for change in guard.changes())
    assert len(guard.unguarded) == 2


def test_services_are_left_alone():
    """An object of a library that holds a lock or a socket is not rewound."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        fn = lambda: pool.submit(int).result()
        with StateGuard(fn, keep_tallies=False) as guard:
            fn()

    assert guard.changes() == ()


@pytest.mark.parametrize(
    ("bound", "reason"),
    [
        ({"max_depth": 20}, "more than 20 steps away"),
        ({"max_objects": 20}, "too many objects to save"),
        ({"seconds": 0.0}, "too many objects to save in time"),
    ],
)
def test_bounds_of_the_walk_are_told(bound, reason):
    """A structure without end costs a bounded walk, and what was left out is named."""
    deep = nearest = {"x": np.zeros(1)}
    for _ in range(400):
        deep = {"next": deep, "x": np.zeros(1)}

    found = reach([deep], names=["deep"], **bound)

    [(path, why)] = found.unguarded
    assert why.startswith(reason)
    assert path_text(path).startswith("deep['next']")
    assert found.arrays[0].value is deep["x"]
    assert not any(each.value is nearest["x"] for each in found.arrays)


def test_graphs_of_small_objects_are_followed():
    """A scalar autograd engine keeps its gradients in a long chain of objects."""

    class Value:
        def __init__(self, parent):
            self.parent, self.grad = parent, 0.0

    leaf = node = Value(None)
    for _ in range(45):
        node = Value(node)

    with StateGuard(node) as guard:
        leaf.grad = 1.0

    assert leaf.grad == 0.0
    assert guard.unguarded == ()


def test_hostile_objects_do_not_stop_a_check():
    """Properties, ``__getattr__`` and ``__eq__`` that raise are never run."""

    class Hostile:
        def __getattr__(self, name):
            raise RuntimeError(name)

        def __eq__(self, other):
            raise RuntimeError

        __hash__ = None

        @property
        def value(self):
            raise RuntimeError

    items = [Hostile(), {"a": Hostile()}]
    with StateGuard(items, names=["items"], keep_tallies=False) as guard:
        items[1]["a"] = Hostile()
        items.append(1)

    assert len(items) == 2
    assert guard.remarks == ()
    assert names(guard) == {("container", "items"), ("container", "items[1]['a']")}


def test_a_check_keeps_counts_and_logs_and_nothing_else():
    """As README says: what is set anew is taken away, what is no tally put back."""
    x = np.arange(1.0, 4.0)

    def f(x):
        f.calls += 1
        f.log.append(x.sum())
        f.cache, f.last = 2 * x, x.sum()
        return (x**2).sum()

    f.calls, f.log, f.cache = 0, [], None
    report = gl.check(f, x, grad=lambda x: 2 * x)

    assert f.calls == len(f.log) == report.evaluations
    assert f.cache is None
    assert not hasattr(f, "last")
    assert not report.findings
