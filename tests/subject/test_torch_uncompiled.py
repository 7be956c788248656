"""Functions that torch.compile has compiled, under gradlab's modes of torch."""

from __future__ import annotations

import pytest

import gradlab as gl
from tests.specimens.functions import with_output

torch = pytest.importorskip("torch")


def _compiled(cut):
    """Compile the sum of tanh of a square, of which a cut takes one factor."""
    return torch.compile(
        lambda x: torch.tanh((x.detach() if cut else x) * x).sum(), backend="eager"
    )


@pytest.fixture(autouse=True)
def _compiler_reset():
    yield
    torch._dynamo.reset()


def test_a_compiled_function_that_cuts_is_told_so():
    """The compiler traced a mode along with f and lost its sum: the check ended there.

    Half of the slope of tanh(x * x) is missing, in a detach that is named.
    """
    x = torch.tensor([0.3, -0.8, 1.1, 0.5], dtype=torch.float64)
    report = gl.check(_compiled(cut=True), x)
    assert report.diagnosis == gl.BugKind.DETACHED
    assert report.culprits == ("x",)


def test_a_compiled_function_agrees():
    """The same function without the cut is right."""
    x = torch.tensor([0.3, -0.8, 1.1, 0.5], dtype=torch.float64)
    assert gl.check(_compiled(cut=False), x).verdict == gl.Verdict.AGREES


def test_a_mode_sees_what_is_written_not_what_was_compiled():
    """A cast in compiled code is seen, however often one looks, and f stays itself."""
    from gradlab.subject.tensors.in_double.narrowing import narrowing_watched

    f = torch.compile(lambda x: x.float().double().sum(), backend="eager")
    x = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    for _ in range(10):
        with narrowing_watched() as narrowed:
            assert float(f(x)) == 7.0
        assert narrowed == ["float"]


# Hyperbolic tangent whose backward forgets the square of its value.
flat = with_output(lambda x: x.tanh(), lambda y, upstream: upstream * (1 - y))


class _Bend(torch.nn.Module):
    """Applies it."""

    def forward(self, x):
        """Return the wrong tanh."""
        return flat(x)


# torch's compiler makes an instance of a Function that it traces
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_wrong_layer_of_a_compiled_model_is_told_its_kind():
    """Notes of a run are taken of what is written: the compiler compiled those too."""
    torch.manual_seed(0)
    linear, other = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
    model = torch.nn.Sequential(linear, _Bend(), other).double()
    x = torch.randn(4, 3, dtype=torch.float64)
    compiled = torch.compile(model, backend="eager")
    torch._dynamo.utils.counters.clear()

    audit = gl.blame(compiled, x)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    report = gl.check(compiled, x)

    assert graphs == 0
    assert audit.findings[0].kind == gl.BugKind.WRONG_DERIVATIVE
    assert report.diagnosis == gl.BugKind.WRONG_DERIVATIVE
