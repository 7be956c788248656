"""Nested inputs, taken apart and put together."""

from __future__ import annotations

import functools
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradlab.errors import InputError
from gradlab.subject.tree import argument_names, flatten, leaves_of, rename

LEAF = st.integers() | st.none() | st.text(max_size=2) | st.floats(allow_nan=False)
TREES = st.recursive(
    LEAF,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(TREES, min_size=1, max_size=3))
def test_apart_and_together(arguments):
    """Rebuilding around the same leaves gives the same arguments, types included."""
    tree = flatten(arguments, [f"x{i}" for i in range(len(arguments))])
    rebuilt = tree.rebuild([leaf.value for leaf in tree.leaves])
    assert repr(list(rebuilt)) == repr(list(arguments))


def test_paths():
    """Keys of dicts, names of fields, positions in lists, arguments by name."""
    Pair = namedtuple("Pair", "left right")  # noqa: PYI024 - a user's type
    tree = flatten(
        [{"cell": {"h": 1, 3: 2}}, [4, (5,)], Pair(6, 7), 8], ["p", "xs", "pair", "x"]
    )
    assert [leaf.name for leaf in tree.leaves] == [
        "cell.h", "cell.3", "xs.0", "xs.1.0", "pair.left", "pair.right", "x",
    ]  # fmt: skip


def test_mappings_keep_their_type():
    """An OrderedDict comes back as one."""
    tree = flatten([OrderedDict(b=1, a=2)], ["p"])
    (rebuilt,) = tree.rebuild([10, 20])
    assert type(rebuilt) is OrderedDict
    assert list(rebuilt.items()) == [("b", 10), ("a", 20)]


def test_names_of_arguments():
    """From the signature where there is one, else x0, x1."""

    def fn(a, b, *, c=1):
        return a, b, c

    assert argument_names(fn, 3) == ["a", "b", "x2"]
    assert argument_names(functools.partial(fn, 1), 1) == ["b"]
    assert argument_names(np.sin, 1) == ["x0"]
    assert argument_names(lambda *xs: xs, 2) == ["x0", "x1"]


def test_names_of_a_custom_function():
    """Function.apply has the names of forward, without ctx."""
    torch = pytest.importorskip("torch")

    class Old(torch.autograd.Function):
        @staticmethod
        def forward(ctx, vector, weight):
            return vector * weight

    class New(torch.autograd.Function):
        @staticmethod
        def forward(vector, weight):
            return vector * weight

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

    assert argument_names(Old.apply, 2) == ["vector", "weight"]
    assert argument_names(New.apply, 2) == ["vector", "weight"]
    heir = type("Heir", (New,), {})
    assert argument_names(heir.apply, 2) == ["vector", "weight"]


def test_rename():
    """A mapping renames some, a sequence all; collisions and strangers are refused."""
    assert rename(["a", "b"], {"a": "w"}) == ["w", "b"]
    assert rename(["a", "b"], ("u", "v")) == ["u", "v"]
    assert rename(["a"], "w") == ["w"]
    with pytest.raises(InputError, match="renames \\['z'\\]"):
        rename(["a"], {"z": "w"})
    with pytest.raises(InputError, match="two inputs are called 'u'"):
        rename(["a", "b"], ("u", "u"))


def test_arrays_are_leaves():
    """An array is never taken apart, whatever methods it has."""
    assert [leaf.name for leaf in leaves_of(np.ones((2, 2)), "out")] == ["out"]
