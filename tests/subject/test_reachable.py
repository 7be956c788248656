"""What a function can reach: modules that it imports, setters, references, itself."""

from __future__ import annotations

import sys
import types
import weakref

import numpy as np
import pytest

from gradlab.subject.state_guard import StateGuard

HELPERS = types.ModuleType("helpers")


@pytest.fixture
def helpers():
    """Fill a user's module with a submodule, which knows it in turn."""
    layers = types.ModuleType("helpers.layers")
    HELPERS.W, HELPERS.limit, HELPERS.layers = np.ones(2), 1.0, layers
    layers.rng, layers.helpers = np.random.default_rng(0), HELPERS
    return HELPERS


def through_a_global():
    """Write to what a module holds."""
    HELPERS.limit = 2.0
    HELPERS.W += HELPERS.layers.rng.normal()


def through_a_closure(module):
    """Do the same with a module that was imported in a function."""

    def fn():
        module.limit = 2.0
        module.W += module.layers.rng.normal()

    return fn


@pytest.mark.parametrize("closure", [False, True])
def test_state_of_a_users_module_is_restored(helpers, closure):
    """What the code names of a module is as reachable as its own globals."""
    before = helpers.layers.rng.bit_generator.state
    fn = through_a_closure(helpers) if closure else through_a_global
    name = "module" if closure else "HELPERS"

    with StateGuard(fn) as guard:
        fn()

    assert helpers.W.tolist() == [1.0, 1.0]
    assert helpers.limit == 1.0
    assert helpers.layers.rng.bit_generator.state == before
    assert {(change.kind, change.where) for change in guard.changes()} == {
        ("variable", f"{name}.limit"),
        ("array", f"{name}.W"),
        ("random", f"{name}.layers.rng"),
    }


def test_attributes_that_a_function_gives_itself_are_taken_again():
    """``fn.calls`` made by the first call is gone, and no state of the next check."""

    def fn():
        fn.seen = [*getattr(fn, "seen", ()), 1]

    with StateGuard(fn):
        fn()
        fn()

    assert vars(fn) == {}


def test_setters_and_weak_references_lead_to_what_they_write_to():
    """What only they reach is put back as well."""
    log = ["before"]

    class Target:
        def __init__(self):
            self.value = 1

    target = Target()

    class Holder:
        reference = weakref.ref(target)

        @property
        def value(self):
            return self.reference().value

        @value.setter
        def value(self, new):
            self.reference().value = new
            log[0] = "after"

    holder = Holder()

    def fn():
        holder.value = 2

    with StateGuard(fn, keep_tallies=False):
        fn()

    assert (holder.value, log) == (1, ["before"])


def test_modules_of_libraries_are_not_entered():
    """Whatever code names of them is theirs: here the table of loaded modules."""

    def fn():
        sys.modules["a module of a test"] = HELPERS

    with StateGuard(fn):
        fn()

    assert sys.modules.pop("a module of a test") is HELPERS


class Counted(tuple):
    """A tuple that refuses to be counted, as irreducible representations of e3nn do."""

    __slots__ = ()

    def __len__(self):
        raise NotImplementedError


class Doubled(list):
    """A list that iterates over something else than what is in it."""

    def __len__(self):
        return 2 * super().__len__()

    def __iter__(self):
        raise NotImplementedError


def test_containers_of_a_class_of_its_own_are_read_by_what_is_in_them():
    held, weights = Doubled([np.ones(2), 3.0]), np.ones(3)
    also = Counted([weights])

    def fn():
        weights[0] = 7.0
        list.__setitem__(held, 1, 4.0)
        list.__getitem__(held, 0)[1] = 5.0
        return also

    with StateGuard(fn):
        fn()
    assert weights[0] == 1.0
    assert list.__getitem__(held, 1) == 3.0
    assert list.__getitem__(held, 0)[1] == 1.0
