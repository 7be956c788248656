"""Custom Functions are found where they are bound, with an `apply` written in C too."""

from __future__ import annotations

import functools
import gc
import operator

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")
from gradlab.localisation.layers.recording.bound import (  # noqa: E402
    exchanged_where_bound,
)

# what `Function.apply` is since torch 2.14, and what older ones call
IN_C = torch._C._FunctionBase.__dict__["apply"]


class Cube(torch.autograd.Function):
    """x**3, whose backward takes the slope of 2 x**2."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x**2 * g


@pytest.fixture
def in_c(monkeypatch):
    """Make torch what it is since 2.14, whatever it is."""
    monkeypatch.setattr(torch.autograd.Function, "apply", IN_C)


def _bound():
    return IN_C.__get__(None, Cube)


class Held(torch.nn.Module):
    """A module that applies a function it is given."""

    def __init__(self, held, call):
        super().__init__()
        self.held, self.call = held, call

    def forward(self, x):
        return self.call(self.held, x)


def _in_closure():
    apply = _bound()
    return lambda _, x: apply(x)


def _in_default():
    def call(_, x, apply=_bound()):  # noqa: B008 - held there on purpose
        return apply(x)

    return call


def _in_class():
    class Owner:
        apply = _bound()

    return Owner


PLACES = {
    "class": lambda: Held(None, lambda _, x: Cube.apply(x)),
    "attribute": lambda: Held(_bound(), lambda held, x: held(x)),
    "list": lambda: Held([_bound()], lambda held, x: held[0](x)),
    "dict": lambda: Held({"f": _bound()}, lambda held, x: held["f"](x)),
    "partial": lambda: Held(functools.partial(_bound()), lambda held, x: held(x)),
    "class attribute": lambda: Held(_in_class(), lambda held, x: held.apply(x)),
    "closure": lambda: Held(None, _in_closure()),
    "default": lambda: Held(None, _in_default()),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.usefixtures("in_c")
def test_a_function_is_blamed_wherever_its_apply_is_held(place):
    torch.manual_seed(0)
    layer = PLACES[place]()
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), layer).double()
    audit = gl.blame(model, torch.randn(3, 4, dtype=torch.float64))
    assert audit.culprits == ("1",)
    assert "1:Cube" in [row.name for row in audit.rows]
    assert torch.autograd.Function.__dict__["apply"] is IN_C


@pytest.mark.usefixtures("in_c")
def test_a_check_of_a_module_leaves_what_is_held():
    held = _bound()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), PLACES["attribute"]()).double()
    model[1].held = held
    x = torch.randn(3, 4, dtype=torch.float64)
    report = gl.check(model, x, loss=lambda out: out.sum())
    assert report.culprit == "1"
    assert report.diagnosis == "scale"
    assert model[1].held is held


def test_everything_is_put_back_whatever_happens():
    held = _bound()
    places = {"item": held, "list": [held], "partial": functools.partial(held)}
    owner, seen = type("Owner", (), {"apply": held}), []

    def run():
        with exchanged_where_bound(lambda *call: seen.append(call)):
            for apply in (places["item"], places["list"][0], owner.apply):
                assert apply is not held
                assert apply.__self__ is Cube
                apply("x", key=1)
            places["partial"]("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert seen == [(Cube, ("x",), {"key": 1})] * 3 + [(Cube, ("x",), {})]
    assert places["item"] is places["list"][0] is places["partial"].func is held
    assert owner.apply is held


def test_one_that_outlives_the_block_does_what_it_did():
    kept = {"apply": _bound()}
    with exchanged_where_bound(lambda *_: None):
        other = kept["apply"]
        assert other(torch.ones(2)) is None
    assert torch.equal(other(torch.ones(2)), torch.ones(2))


@pytest.mark.usefixtures("in_c")
def test_a_function_is_found_among_frozen_objects():
    """Servers and kernels freeze what they have loaded, before they fork."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), PLACES["attribute"]()).double()
    gc.freeze()

    audit = gl.blame(model, torch.randn(3, 4, dtype=torch.float64))

    assert "1:Cube" in [row.name for row in audit.rows]
    assert gc.get_freeze_count()


def test_two_defaults_of_one_function_are_both_exchanged():
    def call(first=_bound(), second=_bound()):  # noqa: B008 - held there on purpose
        return first("x"), second("x")

    before = call.__defaults__
    with exchanged_where_bound(lambda *_: "seen"):
        assert call() == ("seen", "seen")
    assert all(map(operator.is_, call.__defaults__, before))
