"""Numbers and caches of a function exchanged for a while: reached, and put back.

Truth is what stood there before.
"""

from __future__ import annotations

import dataclasses
import functools
import signal
import sys
import types
from typing import NamedTuple

import numpy as np
import pytest

import gradlab as gl
from gradlab.building import Sides, build_subject
from gradlab.subject import exchanging
from gradlab.subject.exchanging import Exchanged
from gradlab.subject.tolerances_off import (
    small_numbers,
    with_smaller,
    without_caches,
)

X = np.array([0.2, 0.3, 0.5])


class FrozenDict(dict):
    """As configurations are, once they are complete."""

    def __setitem__(self, key, value):
        raise TypeError(key)


class FrozenKind(type):
    """Lets nobody set an attribute of its classes."""

    def __setattr__(cls, name, value):
        raise TypeError(name)


class Constants(metaclass=FrozenKind):
    """Of a program."""

    step = 1e-3


@dataclasses.dataclass(frozen=True)
class Options:
    """By their names."""

    step: float = 1e-3


class Slotted:
    """An object without a dict."""

    __slots__ = ("step",)

    def __init__(self):
        self.step = 1e-3


class Pair(NamedTuple):
    """By position or by name."""

    step: float
    order: int


SHORT, FLAT = np.float32(1e-3), np.array(1e-3)


def scaled(x, step):
    """Read a number that is given."""
    return step * x


def holders():
    """Functions that hold a thousandth, each somewhere else; they return it times x."""
    frozen, options, slotted, pair = FrozenDict(s=1e-3), Options(), Slotted(), Pair
    nested, named = {"a": [(0, (1e-3, "b"))]}, pair(1e-3, 2)

    def by_default(x, step=SHORT):
        return step * x

    def by_array(x, *, step=FLAT):
        return step * x

    return {
        "frozen dict": lambda x: frozen["s"] * x,
        "frozen dataclass": lambda x: options.step * x,
        "class": lambda x: Constants.step * x,
        "slot": lambda x: slotted.step * x,
        "named tuple": lambda x: named.step * x,
        "nested": lambda x: nested["a"][0][1][0] * x,
        "float32": by_default,
        "array": by_array,
        "keyword of a partial": functools.partial(scaled, step=1e-3),
        "argument of a partial": functools.partial(lambda step, x: step * x, 1e-3),
    }


def subject_of(f):
    """Build what a check would."""
    return build_subject(f, (X,), Sides(grad=lambda x: x))


@pytest.mark.parametrize("place", sorted(holders()))
def test_a_number_is_reached_wherever_it_stands(place):
    """It is a tenth inside, and the very same object again afterwards."""
    f = holders()[place]
    subject = subject_of(f)
    number = small_numbers(subject)[0]

    with with_smaller(subject, [number], 0.1):
        inside = f(X)

    assert number == pytest.approx(1e-3)
    assert inside == pytest.approx(1e-4 * X)
    assert f(X) == pytest.approx(1e-3 * X)
    assert small_numbers(subject)[0] == number


def test_inputs_are_no_numbers_of_a_function():
    """A parameter that is read where it lives stays where the check has put it."""
    net = {"w": X.copy(), "b": np.array(1e-3)}
    subject = build_subject(
        lambda: float(net["w"].sum() * net["b"]), (), Sides(params=net, grad=dict)
    )

    assert small_numbers(subject) == []


def test_what_cannot_be_written_keeps_nothing_else_from_it():
    """Neither when it is exchanged, nor when all is put back."""
    stubborn, plain = [1e-3, 1e-3], {"step": 1e-3}

    def shortening(held):
        if stubborn == [0.5, 1e-3]:  # there is no second place then
            stubborn.pop()
        return 0.5 if held == 1e-3 else held

    with Exchanged([stubborn, plain], shortening):
        assert (stubborn, plain) == ([0.5], {"step": 0.5})

    assert (stubborn, plain) == ([1e-3, 1e-3], {"step": 1e-3})


def test_results_that_were_kept_meanwhile_go():
    """They came of a smaller number; a counter keeps what it counted."""
    kept, calls, step = {}, [0], 1e-3

    def f(x):
        calls[0] += 1
        return kept.setdefault(x.tobytes(), step * x)

    with with_smaller(subject_of(f), [1e-3], 0.1):
        f(X)

    assert (kept, calls) == ({}, [1])
    assert f(X) == pytest.approx(1e-3 * X)


def test_a_cache_is_left_out_for_a_while():
    """Each call computes, and none of it is kept."""

    @functools.lru_cache
    def squared(x):
        return x * x

    def f(x):
        return squared(float(x[0]))

    subject = subject_of(f)
    with without_caches(subject):
        f(X)
        f(X)

    assert squared.cache_info().currsize == 0
    f(X)
    assert squared.cache_info().currsize == 1


def test_a_right_gradient_beside_a_frozen_configuration():
    """Euler's steps of y' = -y^2, whose end after one is x / (1 + x)."""
    options = FrozenDict(eps=1e-2)

    def f(x, step=1e-2):
        y, t = x.copy(), 0.0
        while t < 1.0 - step / 2:
            y, t = y - step * y**2, t + step
        return y.sum() * (1 + 1e-5 * options["eps"])

    right = gl.check(f, X, grad=lambda x: 1 / (1 + x) ** 2)
    wrong = gl.check(f, X, grad=lambda x: 1.02 / (1 + x) ** 2)

    assert (right.verdict.name, wrong.verdict.name) == ("UNDECIDED", "DISAGREES")
    assert (options, f.__defaults__) == ({"eps": 1e-2}, (1e-2,))


# -------------------------------------------------------------------------- interrupts
GLOBAL = 1e-3


def held_everywhere(x, step=1e-3, *, other=1e-3):
    """A number in code, in defaults and beside them."""
    return (1e-3 + step + other + GLOBAL) * x


def _state():
    f = held_everywhere
    return GLOBAL, f.__defaults__, f.__kwdefaults__, f.__code__


def _raising_at(method, count, stop):
    """Return a tracer that raises at some line that this method runs, or its callees'.

    Its own first line stands before anything that could be guarded.
    """
    lines = iter(range(count + 1))

    def follow(frame, event, _):
        inside, caller = False, frame
        while caller is not None and not inside:
            inside, caller = caller.f_code is method.__code__, caller.f_back
        if inside and event == "line" and next(lines, None) == count:
            sys.settrace(None)
            raise stop
        return follow

    return follow


@pytest.mark.parametrize("method", [Exchanged._write, Exchanged._put_back])
def test_an_exception_on_any_line_leaves_nothing_changed(method):
    """As an asynchronous one comes, while numbers are written or put back."""
    before, subject = _state(), subject_of(held_everywhere)
    tracing, count, stopped = sys.gettrace(), 0, True

    while stopped:
        stopped = False
        sys.settrace(_raising_at(method, count, KeyboardInterrupt))
        try:
            with with_smaller(subject, [1e-3], 0.1):
                pass
        except KeyboardInterrupt:
            stopped = True
        finally:
            sys.settrace(tracing)
        assert _state() == before
        count += 7  # lines: there are thousands, of the walk

    assert count > 50


def test_a_signal_while_numbers_are_put_back_comes_afterwards(monkeypatch):
    """It is not lost."""
    before, subject = _state(), subject_of(held_everywhere)
    put_back = Exchanged._put_back

    def struck(self):
        signal.raise_signal(signal.SIGINT)
        put_back(self)

    monkeypatch.setattr(exchanging.Exchanged, "_put_back", struck)
    with pytest.raises(KeyboardInterrupt), with_smaller(subject, [1e-3], 0.1):
        pass

    assert _state() == before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_code_is_the_very_same_afterwards():
    """No equal copy of it, which a debugger's breakpoints would not be in."""
    code = held_everywhere.__code__

    with with_smaller(subject_of(held_everywhere), [1e-3], 0.1):
        assert isinstance(held_everywhere.__code__, types.CodeType)
        assert held_everywhere.__code__ is not code

    assert held_everywhere.__code__ is code
