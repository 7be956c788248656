"""What a function can reach through the modules that it imports."""

from __future__ import annotations

import sys
import types

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


def test_modules_of_libraries_are_not_entered():
    """Whatever code names of them is theirs: here the table of loaded modules."""

    def fn():
        sys.modules["a module of a test"] = HELPERS

    with StateGuard(fn):
        fn()

    assert sys.modules.pop("a module of a test") is HELPERS
